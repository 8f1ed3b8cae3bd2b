"""The search for a plan where steps differ in cost: over the number of snapshots, by whole simulations."""

from collections.abc import Sequence
from dataclasses import replace

from forebay.planner.choose import Choice, Setting, choose, describe, evaluate
from forebay.planner.search.candidates import Alternative
from forebay.planner.search.hierarchies import spread
from forebay.schedule import Schedule, Weighted
from forebay.schedule.segmented import Segmented

GROWTH = 1.5
"""From one number of snapshots that is tried to the next. They do not depend on the budget, so more never hurts."""


def choose_uneven(
    settings: Sequence[Setting], schedules: dict[str, list[Segmented]], costs: Sequence[float]
) -> tuple[Choice | None, list[Alternative]]:
    """Find the number of snapshots of smallest predicted time; the best for equal steps is looked at too."""
    best: Choice | None = None
    others: dict[str, Choice] = {}
    steps = len(costs)
    for setting in settings:
        even, _ = choose([replace(setting, work=replace(setting.work, reach=()))], schedules)
        tried: list[Schedule] = [] if even is None else [even.schedule]
        if setting.keep == "states":
            tried += (Weighted(steps, number, costs) for number in _numbers(steps, setting))
        for schedule in tried:
            if best is not None and _least_seconds(schedule, setting, costs) >= best.seconds:
                continue
            choice = evaluate(schedule, setting.slots, setting)
            if choice.fits:
                name = describe(schedule, setting).partition(":")[0]
                others[name] = min(others.get(name, choice), choice, key=lambda choice: choice.seconds)
                best = choice if best is None or choice.seconds < best.seconds else best
    alternatives = [
        Alternative(describe(other.schedule, other.setting), other.seconds, exact=True)
        for other in others.values()
        if other is not best
    ]
    return best, sorted(alternatives, key=lambda alternative: alternative.seconds)


def _numbers(steps: int, setting: Setting) -> list[int]:
    """List the numbers of snapshots to try: those of the first tier first, which need not move."""
    still = [number for number in spread(steps, 1 + (GROWTH - 1) / 4) if number <= setting.slots[0]]
    moving = [number for number in spread(steps, GROWTH, dense=8) if setting.slots[0] < number <= sum(setting.slots)]
    return still[:-3:-1] + moving  # of those that need not move, fewer only save less often


def _least_seconds(schedule: Schedule, setting: Setting, costs: Sequence[float]) -> float:
    """Bound what a schedule takes: its forward seconds, and what must move because it has no slot at the turn."""
    if not isinstance(schedule, Weighted):
        return 0.0
    work = setting.work
    sweep = work.reach[-1]
    below = max(0, schedule.snapshots - setting.slots[0])  # snapshots that are not in the first tier at the turn
    least = below * setting.pin + len(costs) * work.backward
    if below:
        return least + max(sweep, below * work.down[0])
    return least + schedule.forward_seconds * sweep / sum(costs)
