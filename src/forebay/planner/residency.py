"""Which snapshots stay in a tier of few slots, and when the others move: the policies `min` and `lru`.

Both take operations that read and write a tier as if it were boundless, and return operations in which it never
holds more snapshots than it has slots.

`min` knows the future. It evicts the snapshot whose next use is farthest (Belady). It writes a snapshot to the tier
below only if it will be evicted alive, as soon as it is there. It starts each fetch at the first moment from which
a slot stays free for it. These are the rules of Cao, Felten, Karlin and Li: next missing first, farthest evicted, do no
harm, first opportunity. In a reversal the farthest is the earliest step, so the tier holds the latest of the live ones.

`lru` does as GPUZIP does. Every save is written to the tier below, and the least recently used entry is overwritten. An
entry whose snapshot was dropped stays until its turn comes. A miss that the dry run predicts is fetched at the first
operation after the last use of the entry that it overwrites, one fetch at a time.

While a loop of unknown end runs, the latest snapshots stay in the first tier, and the earliest go down: in a reversal
they are needed last, whenever the end comes. From there on `min` knows the future.
"""

from collections import OrderedDict, defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush

from forebay.planner.operations import Evict, Fetch, Operation, Store
from forebay.planner.trace import NEVER, insert, trace
from forebay.schedule import Action, Backward, Drop, Online, Restore, Save
from forebay.schedule.online import back

SPARE = 2
"""Slots that a way back does without where snapshots are in two tiers at once."""

Movements = defaultdict[int, list[Operation]]


def reside_min(
    operations: Sequence[Operation], tier: int, slots: int, here: Collection[int] = (), lower: Collection[int] = ()
) -> list[Operation]:
    """Fit the uses of `tier` into `slots`, with the fewest movements to and from the tier below.

    At the start, the snapshots `here` are in the tier and those in `lower` have a copy below it.
    """
    accesses = trace(operations, tier)
    reads = {access.step: access.at for access in reversed(accesses) if access.kind == "read"} if here else {}
    resident: dict[int, int] = {step: reads.get(step, NEVER) for step in here}  # step -> index of its next read
    farthest = [(-when, step) for step, when in resident.items()]  # heap, with outdated entries
    heapify(farthest)
    written = dict.fromkeys(here, -1)  # step -> index of the operation that brought it into the tier
    below = set(lower)  # snapshots that have a copy in the tier below
    missed: dict[int, int] = {}  # index of a read that needs a fetch -> step
    occupied: list[int] = []  # slots in use just before each access
    before: Movements = defaultdict(list)
    evicting: set[int] = set()  # indices of accesses that evict

    for index, kind, step, next_read in accesses:
        occupied.append(len(resident))
        if kind == "drop":
            resident.pop(step, None)
            below.discard(step)
            continue
        if kind == "write" or step not in resident:
            if len(resident) == slots:
                while True:
                    when, victim = heappop(farthest)
                    if resident.get(victim) == -when:
                        break
                del resident[victim]
                if when != -NEVER and victim not in below:
                    before[written[victim] + 1].insert(0, Store(victim, tier + 1))
                    below.add(victim)
                before[index].append(Evict(victim, tier))
                evicting.add(index)
            if kind == "write":
                written[step] = index
            else:
                missed[index] = step
        if next_read == NEVER and tier > 0:  # the first tier's snapshots are dropped by the schedule at their last use
            resident.pop(step, None)
            before[index + 1].append(Evict(step, tier))
            if kind == "write":  # never read here, but it takes a slot while it passes through
                occupied[-1] = min(slots, occupied[-1] + 1)
        else:
            resident[step] = next_read
            heappush(farthest, (-next_read, step))

    # Walk back from the end to place each fetch right after the last access that leaves no slot free for it. Fetches
    # towards later reads stand in line, each wanting to start earlier still; where the slots do not suffice for all,
    # the one that is needed last starts there.
    fetches: Movements = defaultdict(list)
    line: deque[int] = deque()  # steps, needed last first
    for (index, *_), in_use in zip(reversed(accesses), reversed(occupied), strict=True):
        if line or index in missed:
            room = slots - in_use - (index in missed)
            while line and len(line) > room:
                fetches[index + 1].append(Fetch(line.popleft(), tier + 1))
            if index in evicting and index in missed:  # its slot is free only from here on
                fetches[index].append(Fetch(missed[index], tier + 1))
            elif index in missed:
                line.append(missed[index])
    fetches[0] += (Fetch(step, tier + 1) for step in line)  # there is room for them from the start
    for index, side_by_side in fetches.items():
        before[index].extend(reversed(side_by_side))
    return insert(operations, before)


def reside_lru(operations: Sequence[Operation], tier: int, slots: int) -> list[Operation]:
    """Fit the uses of `tier` into `slots` as GPUZIP does."""
    used: OrderedDict[int, int] = OrderedDict()  # step -> index of its last use, least recently used first
    alive: set[int] = set()
    evicted: dict[int, int] = {}  # step -> index from which it is only in the tier below
    stores: Movements = defaultdict(list)
    evictions: Movements = defaultdict(list)
    fetches: Movements = defaultdict(list)

    def overwrite() -> tuple[int, int | None]:
        """Return the index after the overwritten entry's last use, and its step if that is still alive."""
        if len(used) < slots:
            return 0, None
        step, last_use = used.popitem(last=False)
        return last_use + 1, step if step in alive else None

    for index, kind, step, _ in trace(operations, tier):
        if kind == "drop":
            alive.discard(step)
            if step in used:
                used[step] = index
            continue
        if kind == "write":
            used.pop(step, None)
            _, overwritten = overwrite()
            start = index
            stores[index + 1].append(Store(step, tier + 1))
            alive.add(step)
        elif step not in used:
            start, overwritten = overwrite()
            start = max(start, evicted[step])
            while start in fetches and start < index:
                start += 1
            fetches[start].append(Fetch(step, tier + 1))
        else:
            overwritten = None
        if overwritten is not None:
            evictions[start].append(Evict(overwritten, tier))
            evicted[overwritten] = start + 1
        used[step] = index
        used.move_to_end(step)
    for part in (evictions, fetches):
        for index, movements in part.items():
            stores[index].extend(movements)
    return insert(operations, stores)


class StreamedResidency:
    """Which snapshots are in which tier while nobody knows the future; `held` says it, the earliest first."""

    def __init__(self, slots: Sequence[int]) -> None:
        self.slots = slots
        self.held: list[OrderedDict[int, None]] = [OrderedDict() for _ in slots]

    def follow(self, action: Action) -> list[Operation]:
        """Return an action of a first sweep with the movements that it takes."""
        listed: list[Operation] = []
        if isinstance(action, Save):
            self._make_room(0, listed)
            self.held[0][action.step] = None
        elif isinstance(action, Drop):
            for held in self.held:
                held.pop(action.step, None)
        listed.append(action)
        if isinstance(action, Save | Drop):
            for tier in reversed(range(len(self.slots) - 1)):
                self._copy_down(tier, listed)
        return listed

    def _make_room(self, tier: int, listed: list[Operation]) -> None:
        if len(self.held[tier]) == self.slots[tier]:
            earliest = next(iter(self.held[tier]))
            if not self._is_below(earliest, tier):
                self._store(earliest, tier + 1, listed)
            del self.held[tier][earliest]
            listed.append(Evict(earliest, tier))

    def _store(self, step: int, tier: int, listed: list[Operation]) -> None:
        self._make_room(tier, listed)
        self.held[tier][step] = None
        listed.append(Store(step, tier))

    def _copy_down(self, tier: int, listed: list[Operation]) -> None:
        """Start to copy what will be evicted next, where that takes no other's slot, so that no save waits for it."""
        if len(self.held[tier]) == self.slots[tier]:
            earliest, lower = next(iter(self.held[tier])), self.held[tier + 1]
            has_room = len(lower) < self.slots[tier + 1] or self._is_below(next(iter(lower)), tier + 1)
            if has_room and not self._is_below(earliest, tier):
                self._store(earliest, tier + 1, listed)

    def _is_below(self, step: int, tier: int) -> bool:
        return any(step in held for held in self.held[tier + 1 :])


def reside_back(
    operations: Iterable[Operation], slots: Sequence[int], held: Sequence[Collection[int]]
) -> list[Operation]:
    """Merge what follows the turn with movements between tiers that hold some snapshots already."""
    merged = list(operations)
    for tier in range(len(slots) - 1):
        lower = {step for steps in held[tier + 1 :] for step in steps}
        merged = reside_min(merged, tier, slots[tier], held[tier], lower)
    return merged


def holdings(operations: Iterable[Operation], tiers: int) -> list[set[int]]:
    """Return which snapshots each tier holds once operations have been carried out."""
    return _held(operations, [set() for _ in range(tiers)])[0]


def _held(operations: Iterable[Operation], held: list[set[int]]) -> tuple[list[set[int]], int]:
    """Follow operations, and count what the last tier holds at most."""
    most = len(held[-1])
    for operation in operations:
        if isinstance(operation, Save):
            held[0].add(operation.step)
        elif isinstance(operation, Store):
            held[operation.tier].add(operation.step)
            most = max(most, len(held[-1]))
        elif isinstance(operation, Fetch):
            held[operation.tier - 1].add(operation.step)
        elif isinstance(operation, Evict):
            held[operation.tier].discard(operation.step)
        elif isinstance(operation, Drop):
            for steps in held:
                steps.discard(operation.step)
    return held, most


def ways_back(
    held: Sequence[set[int]], steps: int, slots: Sequence[int], choices: Iterable[Sequence[int]]
) -> Iterator[list[Operation]]:
    """Yield ways back from the snapshots in tiers that keep to their slots, retaining one of the choices each."""
    kept = sorted(set().union(*held))
    for retained in choices:
        for spare in range(1 + SPARE):
            snapshots = sum(slots) - spare
            if snapshots < len(kept):
                break
            again = [Restore(step) for step in reversed(retained)]  # what retained ones are for
            operations = reside_back([*back(kept, steps, snapshots, retained), *again], slots, held)
            backward = (index for index, each in enumerate(operations) if isinstance(each, Backward) and not each.step)
            operations = operations[: 1 + next(backward)]
            if len(slots) == 1 or _held(operations, [set(steps) for steps in held])[1] <= slots[-1]:
                yield operations


def reside_online(schedule: Online, slots: Sequence[int]) -> list[Operation]:
    """List the operations of a reversal whose end was not known during its first sweep."""
    tiers = StreamedResidency(slots)
    listed = [operation for action in schedule.sweep() for operation in tiers.follow(action)]
    return listed + reside_back(schedule.back(), slots, tiers.held)
