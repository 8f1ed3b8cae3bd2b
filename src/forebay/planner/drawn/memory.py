"""How many snapshots each tier holds when: a plan's operations, at the times at which they happened."""

from collections import defaultdict, deque
from collections.abc import Sequence

from forebay.metrics import Span
from forebay.planner.drawn.planned import Planned
from forebay.planner.operations import Evict, Fetch, Store
from forebay.schedule import Backward, Drop, Forward, Restore, Save

Curve = list[tuple[float, int]]


def occupancy(plan: Planned, spans: Sequence[Span]) -> dict[str, Curve]:
    """Count the snapshots in each tier over time, as (seconds, count from then on).

    A slot counts from when something begins to be written into it until its snapshot is given up.

    Parameters
    ----------
    plan
        What was carried out, or simulated.
    spans
        Its timeline, measured or predicted.
    """
    happened: defaultdict[tuple[str, int], deque[Span]] = defaultdict(deque)
    for span in sorted(spans, key=lambda span: span.start):
        happened[span.what, span.step].append(span)
    now = 0.0
    moved: dict[int, float] = {}  # when the last movement of a snapshot ended
    resident: list[set[int]] = [set() for _ in plan.tiers]
    events: list[tuple[float, int, int]] = []  # when, tier, how many more

    def take(what: str, step: int) -> tuple[float, float]:
        queue = happened[what, step]
        return queue.popleft()[3:5] if queue else (now, now)

    def give_up(step: int, tier: int) -> None:
        if step in resident[tier]:
            resident[tier].remove(step)
            events.append((max(now, moved.get(step, 0.0)), tier, -1))

    def put(step: int, tier: int, when: float) -> None:
        if step not in resident[tier]:
            resident[tier].add(step)
            events.append((when, tier, 1))

    for operation in plan:
        match operation:
            case Forward():
                now = max(now, take("forward", operation.start)[1])
            case Backward():
                now = max(now, take("backward", operation.step)[1])
            case Save():
                start, stop = take("save", operation.step)
                put(operation.step, 0, start)
                now = max(now, stop)
            case Restore():
                now = max(now, moved.get(operation.step, 0.0))
            case Store() | Fetch():
                start, stop = take("store" if isinstance(operation, Store) else "fetch", operation.step)
                put(operation.step, operation.tier - isinstance(operation, Fetch), start)
                moved[operation.step] = stop
            case Evict():
                give_up(operation.step, operation.tier)
            case Drop():
                for tier in range(len(resident)):
                    give_up(operation.step, tier)
    return {name: _curve(events, tier) for tier, name in enumerate(plan.tiers)}


def _curve(events: Sequence[tuple[float, int, int]], tier: int) -> Curve:
    """Add up what a tier gains and loses; what happens at one moment counts as one."""
    changes: defaultdict[float, int] = defaultdict(int)
    for when, where, more in events:
        if where == tier:
            changes[when] += more
    curve, count = [(0.0, 0)], 0
    for when in sorted(changes):
        count += changes[when]
        curve.append((when, count))
    return curve
