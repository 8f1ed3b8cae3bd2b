"""A discrete-event simulation of a plan: one computation, and one link each way between neighbouring tiers.

The computation carries out the operations in order and waits where a slot is not free yet or a snapshot has not
arrived; that waiting is the stall. Movements queue on their link in the order of the plan.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from forebay.metrics import Span
from forebay.planner.operations import Compute, Fetch, Operation, Store
from forebay.schedule import Backward, Drop, Forward, Restore, Save


@dataclass(frozen=True)
class Work:
    """Seconds of everything that a reversal does with one snapshot or one (coarse) step."""

    forward: float
    backward: float
    save: float
    restore: float
    take: float
    """a restore at the snapshot's last use: nothing where the slot becomes the working state by a swap"""
    up: tuple[float, ...]
    """from the tier below, by tier"""
    down: tuple[float, ...]
    """to the tier below, by tier"""


@dataclass(frozen=True)
class Prediction:
    """What a simulation predicts of a reversal."""

    seconds: float
    """the whole reversal, without pinning"""
    forward: float
    backward: float
    save: float
    restore: float
    stall: float
    fetched: tuple[int, ...]
    """snapshots that moved up from the tier below, by tier"""
    stored: tuple[int, ...]
    """snapshots that moved down to the tier below, by tier"""
    link_seconds: tuple[float, ...]
    """seconds that the busier direction of each link was in use, by tier"""
    peak: tuple[int, ...]
    """slots in use at one time, at most, by tier"""

    @property
    def movements(self) -> int:
        """Snapshots that moved over any link."""
        return sum(self.fetched) + sum(self.stored)


def simulate(
    operations: Iterable[Operation], slots: Sequence[int], work: Work, timeline: list[Span] | None = None
) -> Prediction:
    """Simulate operations on tiers of so many slots each.

    Parameters
    ----------
    operations
        a plan's operations
    slots
        slots of each tier, fastest first
    work
        seconds of each thing
    timeline
        a list to append what happens to, in the order of the operations
    """
    tiers = len(slots)
    compute = forward = backward = save = restore = stall = 0.0
    up, down = [0.0] * tiers, [0.0] * tiers  # when each link is free
    up_busy, down_busy = [0.0] * tiers, [0.0] * tiers
    fetched, stored = [0] * tiers, [0] * tiers
    free: list[list[float]] = [[] for _ in slots]  # when each slot given up so far is free
    unused = list(slots)  # slots never used so far
    in_use, peak = [0] * tiers, [0] * tiers
    ready: list[dict[int, float]] = [{} for _ in slots]  # when the copy in a tier is whole
    read_until: list[dict[int, float]] = [{} for _ in slots]  # when the copy in a tier has been read

    def take_slot(tier: int) -> float:
        in_use[tier] += 1
        if in_use[tier] > peak[tier]:
            peak[tier] = in_use[tier]
        if unused[tier]:
            unused[tier] -= 1
            return 0.0
        return heappop(free[tier])

    def give_slot(tier: int, step: int) -> None:
        in_use[tier] -= 1
        heappush(free[tier], max(ready[tier].pop(step), read_until[tier].pop(step, 0.0)))

    last_restored = -1
    pending_restore = False  # a restore is a swap if the snapshot is dropped next
    for operation in operations:
        if pending_restore:
            pending_restore = False
            step = last_restored
            arrived = ready[0][step]
            if arrived > compute:
                stall += arrived - compute
                if timeline is not None:
                    timeline.append(Span("compute", "stall", step, compute, arrived))
                compute = arrived
            last = isinstance(operation, Drop) and operation.step == step
            cost = work.take if last else work.restore
            if timeline is not None and cost:
                timeline.append(Span("compute", "restore", step, compute, compute + cost))
            compute += cost
            restore += cost
            # It may be going down meanwhile; at its last use nobody reads what arrives, so nobody waits for that.
            read_until[0][step] = compute if last else max(read_until[0].get(step, 0.0), compute)
        if isinstance(operation, Forward):
            cost = work.forward * (operation.stop - operation.start)
            if timeline is not None:
                timeline.append(Span("compute", "forward", operation.start, compute, compute + cost))
            compute += cost
            forward += cost
        elif isinstance(operation, Compute):
            compute += operation.seconds
        elif isinstance(operation, Backward):
            if timeline is not None:
                timeline.append(Span("compute", "backward", operation.step, compute, compute + work.backward))
            compute += work.backward
            backward += work.backward
        elif isinstance(operation, Restore):
            pending_restore, last_restored = True, operation.step
        elif isinstance(operation, Drop):
            step = operation.step
            for tier in range(tiers):
                if step in ready[tier]:
                    give_slot(tier, step)
        elif isinstance(operation, Save):
            step = operation.step
            slot = take_slot(0)
            if slot > compute:
                stall += slot - compute
                if timeline is not None:
                    timeline.append(Span("compute", "stall", step, compute, slot))
                compute = slot
            if timeline is not None:
                timeline.append(Span("compute", "save", step, compute, compute + work.save))
            compute += work.save
            save += work.save
            ready[0][step] = compute
        elif isinstance(operation, Store):
            step, tier = operation
            above = tier - 1
            start = max(down[above], ready[above][step], take_slot(tier))
            stop = down[above] = start + work.down[above]
            ready[tier][step] = stop
            read_until[above][step] = max(read_until[above].get(step, 0.0), stop)
            stored[above] += 1
            down_busy[above] += work.down[above]
            if timeline is not None:
                timeline.append(Span(f"down {tier}", "store", step, start, stop))
        elif isinstance(operation, Fetch):
            step, tier = operation
            above = tier - 1
            start = max(up[above], ready[tier][step], take_slot(above), compute)
            stop = up[above] = start + work.up[above]
            ready[above][step] = stop
            read_until[tier][step] = max(read_until[tier].get(step, 0.0), stop)
            fetched[above] += 1
            up_busy[above] += work.up[above]
            if timeline is not None:
                timeline.append(Span(f"up {tier}", "fetch", step, start, stop))
        else:
            give_slot(operation.tier, operation.step)
    return Prediction(
        compute,
        forward,
        backward,
        save,
        restore,
        stall,
        tuple(fetched[:-1]),
        tuple(stored[:-1]),
        tuple(map(max, up_busy[:-1], down_busy[:-1])),
        tuple(peak),
    )
