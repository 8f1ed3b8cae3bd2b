"""The search for the plan with the smallest predicted time, over schedules, snapshots kept, and codecs.

All our schedules are an interval and a number of inner snapshots, so the search is over pairs of those. It goes by
lower bounds, smallest first: a pair is simulated only while its bound is below the best time so far. The
result is the best of all pairs tried. The pairs do not depend on the budget, which only says which of them fit:
more budget never makes the result worse. This holds for the policy `min` and loops of up to LONG_LOOP steps, unless
the search comes to the end of its effort; beyond, the result is a good one, not the best.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from typing import NamedTuple

from forebay.planner.bounds import least_seconds, unmoved
from forebay.planner.coarse import DEEPEST, Coarse
from forebay.planner.local_search import climb
from forebay.planner.operations import Operation
from forebay.planner.residency import reside_lru, reside_min, reside_online
from forebay.planner.simulate import Prediction, Work, host_pace, simulate
from forebay.schedule import Online, Revolve, Schedule, StoreAll, TwoLevel, Uniform, ZCut
from forebay.schedule.segmented import Segmented
from forebay.schedule.zcut import fewest_snapshots

LONG_LOOP = 10_000
"""Steps beyond which fewer schedules are tried."""

POLICIES = {"min": reside_min, "lru": reside_lru}


@dataclass(frozen=True)
class Setting:
    """One way to keep snapshots: what of, how small, what it costs and how many fit."""

    keep: str
    """states or records"""
    codec: str | None
    snapshot_bytes: int
    work: Work
    slots: tuple[int, ...]
    """how many snapshots fit each tier"""
    pin: float
    """seconds of pinning that a slot of the host costs one reversal"""
    policy: str


class Choice(NamedTuple):
    """A schedule in a setting, and what the simulation says of it."""

    seconds: float
    """predicted, pinning counted in"""
    setting: Setting
    schedule: Schedule
    slots: tuple[int, ...]
    prediction: Prediction


def operations_of(schedule: Iterable[Operation], slots: Sequence[int], policy: str) -> list[Operation]:
    """Merge a schedule's actions with every movement between tiers of so many slots, the last one boundless."""
    if isinstance(schedule, Online) and policy == "min":
        return reside_online(schedule, slots)
    operations: list[Operation] = list(schedule)
    for tier in range(len(slots) - 1):
        reside = POLICIES[policy if tier == 0 else "min"]
        operations = reside(operations, tier, slots[tier])
    return operations


def predict(schedule: Schedule, slots: tuple[int, ...], setting: Setting) -> Prediction:
    """Simulate a schedule on tiers of so many slots, the last one boundless."""
    if not isinstance(schedule, Segmented) or setting.policy != "min" or setting.work.reach:
        operations = operations_of(schedule, slots, setting.policy)
        return simulate(operations, (*slots[:-1], len(operations)), setting.work)
    still = unmoved(schedule, setting.work, len(slots))
    if schedule.peak_snapshots <= slots[0]:
        return still
    shallow = min(schedule.inner, slots[0]) < DEEPEST
    actions = Coarse(setting.work, slots[0]).operations(schedule) if shallow else list(schedule)
    operations = operations_of(actions, slots, "min")
    asked = setting.work.host_seconds(schedule.steps, schedule.forward_steps, schedule.saves)
    pace = host_pace(actions, setting.work, asked) if shallow else 0.0
    moving = simulate(operations, (*slots[:-1], len(operations)), setting.work, pace=pace)
    return replace(moving, forward=still.forward, backward=still.backward, save=still.save, restore=still.restore)


def evaluate(schedule: Schedule, slots: tuple[int, ...], setting: Setting) -> Choice:
    """Predict what a schedule takes in a setting, with the pinning of the host slots that it uses."""
    prediction = predict(schedule, slots, setting)
    seconds = prediction.seconds
    if setting.pin and len(slots) > 1:
        seconds += setting.pin * prediction.peak[1]
    return Choice(seconds, setting, schedule, slots, prediction)


def count_misses(schedule: Segmented, setting: Setting) -> tuple[float, int]:
    """Bound the seconds of a schedule by counting the fetches inside its segments, without a simulation."""
    return least_seconds(schedule, setting.work, setting.slots, Coarse(setting.work, setting.slots[0])), 0


def extrapolate(schedule: Segmented, setting: Setting) -> tuple[float, int]:
    """Bound the seconds of a schedule of many segments from those of two and of three.

    Each further segment takes at least as long as the first ones: the tiers are emptier and the links freer at first.
    """
    few, more = 2, 3
    if schedule.majors <= 2 * more or schedule.interval == 1 or setting.policy != "min":
        return 0.0, 0
    without = [(schedule.majors - majors) * schedule.interval for majors in (few, more)]
    short, long = (
        predict(TwoLevel(schedule.steps - less, schedule.interval, schedule.inner), setting.slots, setting)
        for less in without
    )
    further = (schedule.majors - more) * (long.seconds - short.seconds) / (more - few)
    return long.seconds + further, short.movements + long.movements


def least_pinning(schedule: Segmented, setting: Setting) -> float:
    """Bound the seconds of pinning: what is alive at the turn and not in the first tier is in the second, or below."""
    if not setting.pin:
        return 0.0
    return setting.pin * min(max(0, schedule.alive_at_turn - setting.slots[0]), setting.slots[1])


TIGHTER = (count_misses, extrapolate)
"""Bounds that cost more than the first one and tell more, in the order in which they are tried.

Each returns the bound and the movements that were simulated for it."""

EFFORT = 100_000
EFFORT_A_STEP = 3
"""Movements that a search simulates, and further ones a step, before it takes the best schedule found so far.

That is some 4 seconds, and 15 for 100,000 steps. Few searches come here: of loops over few slots of the first tier and
many of the second, with a transfer that takes about as long as a step or two."""


def fits(choice: Choice) -> bool:
    """Return whether the last tier, which the simulation takes as boundless, holds what came down to it."""
    return choice.prediction.peak[-1] <= choice.setting.slots[-1]


def family(schedule: Schedule) -> str:
    """Name the kind of a schedule, as the search tells them apart.

    Examples
    --------
    >>> family(TwoLevel(1000, 32, 31)), family(TwoLevel(1000, 32, 8)), family(TwoLevel(1000, 32, 0))
    ('zcut', 'twolevel', 'uniform')
    """
    if isinstance(schedule, TwoLevel):
        return "uniform" if schedule.inner == 0 else "zcut" if schedule.inner >= schedule.interval - 2 else "twolevel"
    return str(schedule).partition(":")[0]


def candidates(steps: int, name: str = "auto", interval: int | None = None) -> Iterator[Segmented]:
    """Yield the schedules of a family that are tried for a loop, whatever the budget."""
    growth = 1.08 if steps <= LONG_LOOP else 1.16
    intervals = spread(steps, growth) if interval is None else [interval]
    match name:
        case "auto":
            yield StoreAll(steps)
            yield from candidates(steps, "revolve")
            for interval in intervals[1:-1]:
                yield from candidates(steps, "twolevel", interval)
        case "storeall":
            yield StoreAll(steps)
        case "revolve":
            # Also counted from the other end, where each snapshot saves as much as it does among few.
            from_the_end = {steps - fewer for fewer in spread(steps - 1, growth)} if steps > 1 else set()
            yield from (Revolve(steps, snapshots) for snapshots in sorted(from_the_end | set(spread(steps, growth))))
        case "uniform":
            yield from (Uniform(steps, -(-steps // interval)) for interval in intervals)
        case "zcut":
            fewest = fewest_snapshots(steps)
            yield from (ZCut(steps, fewest + more - 1) for more in spread(steps + 2 - fewest, growth))
        case "twolevel":
            for interval in intervals:
                yield from (TwoLevel(steps, interval, inner - 1) for inner in spread(interval, growth))


def spread(most: int, growth: float, dense: int = 24) -> list[int]:
    """List whole numbers from 1 to `most`: every one at first, then ever sparser, and the last ones.

    Examples
    --------
    >>> spread(100, growth=2, dense=4)
    [1, 2, 3, 4, 8, 16, 32, 64, 99, 100]
    """
    numbers = set(range(1, min(dense, most) + 1))
    number = dense
    while number < most:
        numbers.add(number)
        number = max(number + 1, round(number * growth))
    return sorted(numbers | {number for number in (most - 1, most) if number > 0})


def find_good(schedules: list[Segmented], setting: Setting, most_effort: int) -> tuple[Segmented | None, int]:
    """Find a schedule that is good, if not the best, and say how many movements were simulated for it."""
    effort = 0

    def seconds_of(schedule: Segmented) -> float:
        nonlocal effort
        if effort > most_effort:
            return float("inf")
        seconds, simulated = extrapolate(schedule, setting)
        if not seconds:
            whole = predict(schedule, setting.slots, setting)
            seconds, simulated = whole.seconds, whole.movements
        effort += simulated
        return seconds + least_pinning(schedule, setting)

    device, total = setting.slots[0], sum(setting.slots)
    interval = max(1, min(schedule.interval for schedule in schedules)) if schedules else 1
    spaced = -(-schedules[0].steps // max(1, total - device)) if schedules else 1
    starts = [(interval, 0), (2 * spaced, device - 1), (4 * spaced, 2 * device), (8 * spaced, total // 8)]
    return climb(schedules, seconds_of, starts), effort


class Alternative(NamedTuple):
    """The best of another kind."""

    name: str
    seconds: float
    exact: bool
    """whether it was simulated; otherwise it takes at least so long"""


def choose(
    settings: Sequence[Setting], schedules: dict[str, list[Segmented]], below: float = inf
) -> tuple[Choice | None, list[Alternative]]:
    """Find the choice of smallest predicted time, and what the best of each other kind takes, or takes at least.

    Where nothing takes less than `below` seconds there may be no choice at all, which is found much sooner.

    Parameters
    ----------
    settings
        the ways to keep snapshots
    schedules
        the schedules to try for states, and for records
    below
        seconds of what is known already
    """
    order = count()
    bounds: list[tuple[float, int, int, Setting, Segmented]] = []
    for setting in settings:
        for schedule in schedules[setting.keep]:
            if schedule.peak_snapshots <= sum(setting.slots):
                bound = least_seconds(schedule, setting.work, setting.slots) + least_pinning(schedule, setting)
                bounds.append((bound, next(order), 0, setting, schedule))
    heapify(bounds)
    best: Choice | None = None
    alternatives: dict[str, Alternative] = {}
    effort = 0
    most_effort = EFFORT + EFFORT_A_STEP * max((entry[-1].steps for entry in bounds), default=0)

    def take(choice: Choice) -> None:
        nonlocal best, effort
        effort += choice.prediction.movements
        if fits(choice):
            kind = kind_of(choice.schedule, choice.setting)
            if kind not in alternatives or choice.seconds < alternatives[kind].seconds:
                alternatives[kind] = Alternative(describe(choice.schedule, choice.setting), choice.seconds, exact=True)
            if best is None or choice.seconds < best.seconds:
                best = choice

    for setting in settings if bounds and bounds[0][0] < below else ():
        fitting = [entry[-1] for entry in bounds if entry[-2] is setting]
        good, simulated = find_good(fitting, setting, most_effort // (3 * len(settings)))
        effort += simulated
        if good is not None:
            take(evaluate(good, setting.slots, setting))
    while bounds and bounds[0][0] < (below if best is None else min(below, best.seconds)):
        bound, _, tightened, setting, schedule = heappop(bounds)
        if best is not None and effort > most_effort:
            break
        if tightened < len(TIGHTER):
            tighter, simulated = TIGHTER[tightened](schedule, setting)
            bound = max(bound, tighter + least_pinning(schedule, setting))
            heappush(bounds, (bound, next(order), tightened + 1, setting, schedule))
            effort += simulated
        else:
            take(evaluate(schedule, setting.slots, setting))
    for bound, _, _, setting, schedule in sorted(bounds, key=lambda entry: entry[:2]):
        bounded = Alternative(describe(schedule, setting), bound, exact=False)
        alternatives.setdefault(kind_of(schedule, setting), bounded)
    if best is not None:
        del alternatives[kind_of(best.schedule, best.setting)]
    return best, sorted(alternatives.values(), key=lambda alternative: alternative.seconds)


def kind_of(schedule: Schedule, setting: Setting) -> str:
    """Name what the search tells apart: the family, what is kept, and the codec."""
    return f"{family(schedule)} {setting.keep} {setting.codec}"


def describe(schedule: Schedule, setting: Setting) -> str:
    """Name a schedule in its setting."""
    records = " of records" if setting.keep == "records" else ""
    return f"{schedule}{records}" + (f" with {setting.codec}" if setting.codec else "")
