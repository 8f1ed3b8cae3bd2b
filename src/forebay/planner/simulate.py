"""A discrete-event simulation of a plan: one computation, and one link each way between neighbouring tiers.

The computation carries out the operations in order and waits where a slot is not free yet or a snapshot has not
arrived; that waiting is the stall. Movements queue on their link in the order of the plan. What else takes time, where
the costs tell of it, only ever adds to that:

- While both ways of a link are busy, each is slower. The later of two movements that meet is placed with the time
  that it loses, and the other way is busy for as much longer.
- While a link is busy, the computation is slower.
- Every operation takes time of the host. A host that runs ahead of a device asks it for each operation in order, and
  the device waits where the next one has not been asked for; any other host computes itself, and its time adds up.
- The size of an encoding is known only when it is there: a host that runs ahead waits for the last one before it
  goes on to the next.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from forebay.metrics import Span
from forebay.planner.costs import NO_HOST_COST, HostCost
from forebay.planner.operations import Compute, Evict, Fetch, Operation, Store, spelled
from forebay.schedule import Backward, Drop, Forward, Restore, Save

BOUNDLESS = 1 << 62
"""Slots of a tier that has room for whatever comes."""


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
    both: tuple[float, ...] = ()
    """what each second in which both ways of a link are busy takes longer, by tier; empty where nothing does"""
    beside: tuple[float, ...] = ()
    """how many times longer the computation takes while the link is busy, by tier; empty where it does not"""
    host: HostCost = NO_HOST_COST
    """seconds of the host for each operation; those of a step are for a (coarse) one"""
    reach: tuple[float, ...] = ()
    """forward seconds from the start of the loop to each (coarse) step; empty where all steps take the same"""
    settles: bool = False
    """whether a host that runs ahead waits for the size of each encoding"""


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
    host: float = 0.0
    """seconds in which the computation waits for the host to ask for what comes next"""
    slowed: float = 0.0
    """further seconds that the computation takes because links are busy beside it"""

    @property
    def movements(self) -> int:
        """Snapshots that moved over any link."""
        return sum(self.fetched) + sum(self.stored)


def simulate(
    operations: Iterable[Operation],
    slots: Sequence[int],
    work: Work,
    timeline: list[Span] | None = None,
    pace: float = 0.0,
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
    pace
        seconds of the host for each second of the operations that stand for others
    """
    tiers = len(slots)
    forward = backward = save = restore = stall = slowed = 0.0
    up, down = [0.0] * tiers, [0.0] * tiers  # when each link is free
    up_from, down_from = [0.0] * tiers, [0.0] * tiers  # since when it has been busy without a break until then
    up_last, down_last = [-1] * tiers, [-1] * tiers  # the step of its last movement
    up_busy, down_busy = [0.0] * tiers, [0.0] * tiers
    fetched, stored = [0] * tiers, [0] * tiers
    free: list[list[float]] = [[] for _ in slots]  # when each slot given up so far is free
    unused = list(slots)  # slots never used so far
    in_use, peak = [0] * tiers, [0] * tiers
    ready: list[dict[int, float]] = [{} for _ in slots]  # when the copy in a tier is whole
    read_until: list[dict[int, float]] = [{} for _ in slots]  # when the copy in a tier has been read
    both, settles, reach = work.both, work.settles, work.reach
    beside = [(tier, times) for tier, times in enumerate(work.beside) if times > 1]
    cost, ahead = work.host, work.host.ahead
    hosted: dict[type, float] = {}  # seconds of the host by kind of operation; of a restore they are known after it
    if cost != NO_HOST_COST:
        hosted = {Forward: cost.call, Backward: cost.call + cost.backward, Save: cost.save, Drop: cost.drop}
        hosted |= {Store: cost.move, Fetch: cost.move, Evict: cost.drop, Restore: 0.0, Compute: 0.0}
    # When the host is done with an operation, and when the size of the last encoding is there.
    host = compute = idle = cost.start
    encoded = 0.0

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
        whole, read = ready[tier].pop(step), read_until[tier].pop(step, 0.0)
        heappush(free[tier], read if read > whole else whole)

    def slow(seconds: float) -> float:
        """Return the further seconds that the computation takes for something that starts now."""
        further = 0.0
        for tier, times in beside:
            for since, until in ((up_from[tier], up[tier]), (down_from[tier], down[tier])):
                begin = max(compute, since)
                left, busy = seconds - (begin - compute), until - begin
                if left > 0 and busy > 0:
                    further = max(further, min(left * (times - 1), busy * (1 - 1 / times)))
        return further

    def meet(above: int, start: float, stop: float, falls: bool) -> float:
        """Return the further seconds of a movement that meets one of the other way, which it delays as much."""
        ends, since = (up, up_from) if falls else (down, down_from)
        until = ends[above]
        common = min(stop, until) - max(start, since[above])
        if common <= 0:
            return 0.0
        further = common * both[above]
        ends[above] = until + further
        # What it carries arrives later, unless that has been given up.
        step, target, source = (up_last[above], above, above + 1) if falls else (down_last[above], above + 1, above)
        if ready[target].get(step) == until:
            ready[target][step] = until + further
        if read_until[source].get(step) == until:
            read_until[source][step] = until + further
        return further

    last_restored = -1
    pending_restore = False  # a restore is a swap if the snapshot is dropped next
    for operation in spelled(operations):
        if pending_restore:
            pending_restore = False
            step = last_restored
            last = isinstance(operation, Drop) and operation.step == step
            if hosted:
                host = max(host, encoded) if ahead else compute
                host += cost.take if last else cost.restore
                encoded = 0.0
                if host > compute:
                    idle += host - compute
                    compute = host
            arrived = ready[0][step]
            if arrived > compute:
                stall += arrived - compute
                if timeline is not None:
                    timeline.append(Span("compute", "stall", step, compute, arrived))
                compute = arrived
            seconds = work.take if last else work.restore
            restore += seconds
            if beside:
                slowed += (further := slow(seconds))
                seconds += further
            if timeline is not None and seconds:
                timeline.append(Span("compute", "restore", step, compute, compute + seconds))
            compute += seconds
            # It may be going down meanwhile; at its last use nobody reads what arrives, so nobody waits for that.
            read_until[0][step] = compute if last else max(read_until[0].get(step, 0.0), compute)
        if hosted:
            if encoded and isinstance(operation, Save | Drop | Fetch):
                # Before these the newest snapshot is copied to where it stays.
                host, encoded = max(host, encoded), 0.0
            host = (host if ahead else compute) + hosted[type(operation)]
            if host > compute:
                idle += host - compute
                compute = host
        if isinstance(operation, Forward):
            steps = operation.stop - operation.start
            seconds = reach[operation.stop] - reach[operation.start] if reach else work.forward * steps
            forward += seconds
            if beside:
                slowed += (further := slow(seconds))
                seconds += further
            start, compute = compute, compute + seconds
            if hosted:
                host = (host if ahead else compute) + cost.forward * steps
                if host > compute:
                    idle += host - compute
                    compute = host
            if timeline is not None:
                timeline.append(Span("compute", "forward", operation.start, start, compute))
        elif isinstance(operation, Compute):
            seconds = operation.seconds
            if beside:
                slowed += (further := slow(seconds))
                seconds += further
            compute += seconds
            if hosted:
                host = (host if ahead else compute) + operation.seconds * pace
                if host > compute:
                    idle += host - compute
                    compute = host
        elif isinstance(operation, Backward):
            seconds = work.backward
            backward += seconds
            if beside:
                slowed += (further := slow(seconds))
                seconds += further
            if timeline is not None:
                timeline.append(Span("compute", "backward", operation.step, compute, compute + seconds))
            compute += seconds
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
            seconds = work.save
            save += seconds
            if beside:
                slowed += (further := slow(seconds))
                seconds += further
            if timeline is not None:
                timeline.append(Span("compute", "save", step, compute, compute + seconds))
            compute += seconds
            ready[0][step] = compute
            if settles:
                encoded = compute
        elif isinstance(operation, Store):
            step, tier = operation
            above = tier - 1
            start = max(down[above], ready[above][step], take_slot(tier), host if ahead else 0.0)
            stop = start + work.down[above]
            if both:
                stop += meet(above, start, stop, True)
            if start > down[above]:
                down_from[above] = start
            down[above], down_last[above] = stop, step
            ready[tier][step] = stop
            if read_until[above].get(step, 0.0) < stop:
                read_until[above][step] = stop
            stored[above] += 1
            down_busy[above] += stop - start
            if timeline is not None:
                timeline.append(Span(f"down {tier}", "store", step, start, stop))
        elif isinstance(operation, Fetch):
            step, tier = operation
            above = tier - 1
            start = max(up[above], ready[tier][step], take_slot(above), compute)
            stop = start + work.up[above]
            if both:
                stop += meet(above, start, stop, False)
            if start > up[above]:
                up_from[above] = start
            up[above], up_last[above] = stop, step
            ready[above][step] = stop
            if read_until[tier].get(step, 0.0) < stop:
                read_until[tier][step] = stop
            fetched[above] += 1
            up_busy[above] += stop - start
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
        idle,
        slowed,
    )


def host_pace(actions: Iterable[Operation], work: Work, asked: float) -> float:
    """Return the host's seconds for each second of computations that stand for other actions.

    `asked` is what the host takes for all of the actions that there were; those still listed take their part of it.
    """
    if not asked:
        return 0.0
    counts, cost, standing = Counter[type](), work.host, 0.0
    for action in spelled(actions):
        counts[type(action)] += 1
        standing += action.seconds if isinstance(action, Compute) else 0.0
    takes = counts[Drop]  # each comes right after its restore
    asked -= counts[Save] * cost.save + takes * (cost.take + cost.drop) + (counts[Restore] - takes) * cost.restore
    return max(0.0, asked) / standing if standing else 0.0
