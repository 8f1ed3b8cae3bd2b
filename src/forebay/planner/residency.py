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

from array import array
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import chain

from forebay.planner.operations import Evict, Fetch, Operation, Store
from forebay.planner.trace import NEVER, Merged, Movements, Reiterable, trace, up_to
from forebay.schedule import Action, Backward, Drop, Online, Restore, Save
from forebay.schedule.online import back

SPARE = 2
"""Slots that a way back does without where snapshots are in two tiers at once."""
MISSES, EVICTS = 1, 2
"""What an access leads to."""
OUTDATED = 4
"""Entries of a heap for each that counts, at most."""


def reside_min(
    operations: Iterable[Operation], tier: int, slots: int, here: Collection[int] = (), lower: Collection[int] = ()
) -> Iterable[Operation]:
    """Fit the uses of `tier` into `slots`, with the fewest movements to and from the tier below.

    At the start, the snapshots `here` are in the tier and those in `lower` have a copy below it.
    """
    accesses = trace(operations, tier)
    resident = dict.fromkeys(here, NEVER)  # step -> index of its next read
    for index, kind, step, _ in accesses.rows() if here else ():
        if kind == "read" and resident.get(step) == NEVER:
            resident[step] = index
    farthest = [(-when, step) for step, when in resident.items()]  # heap, with outdated entries
    heapify(farthest)
    written = dict.fromkeys(here, -1)  # step -> index of the operation that brought it into the tier
    below = set(lower)  # snapshots that have a copy in the tier below
    effects = bytearray(len(accesses.at))
    occupied = array("i")  # slots in use just before each access
    stores, evictions, fetches = Movements(), Movements(), Movements()

    for number, (index, kind, step, next_read) in enumerate(accesses.rows()):
        occupied.append(len(resident))
        if kind == "drop":
            resident.pop(step, None)
            written.pop(step, None)
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
                    stores.add(written[victim] + 1, Store, victim, tier + 1)
                    below.add(victim)
                evictions.add(index, Evict, victim, tier)
                effects[number] = EVICTS
            if kind == "write":
                written[step] = index
            else:
                effects[number] |= MISSES
        if next_read == NEVER and tier > 0:  # the first tier's snapshots are dropped by the schedule at their last use
            resident.pop(step, None)
            evictions.add(index + 1, Evict, step, tier)
            if kind == "write":  # never read here, but it takes a slot while it passes through
                occupied[-1] = min(slots, occupied[-1] + 1)
        else:
            resident[step] = next_read
            heappush(farthest, (-next_read, step))
            if len(farthest) > OUTDATED * (len(resident) + slots):
                farthest = [(-when, step) for step, when in resident.items()]
                heapify(farthest)

    # Walk back from the end to place each fetch right after the last access that leaves no slot free for it. Fetches
    # towards later reads stand in line, each wanting to start earlier still; where the slots do not suffice for all,
    # the one that is needed last starts there.
    line: deque[int] = deque()  # steps, needed last first
    for number in range(len(accesses.at) - 1, -1, -1):
        effect = effects[number]
        if line or effect & MISSES:
            index, step = accesses.at[number], accesses.steps[number]
            room = slots - occupied[number] - (effect & MISSES)
            while line and len(line) > room:
                fetches.add(index + 1, Fetch, line.popleft(), tier + 1)
            if effect == MISSES | EVICTS:  # its slot is free only from here on
                fetches.add(index, Fetch, step, tier + 1)
            elif effect & MISSES:
                line.append(step)
    for step in line:  # there is room for them from the start
        fetches.add(0, Fetch, step, tier + 1)
    stores.reverse()
    fetches.reverse()
    del accesses, effects, occupied  # what is merged takes their room
    return Merged(operations, stores, evictions, fetches)


def reside_lru(operations: Iterable[Operation], tier: int, slots: int) -> Iterable[Operation]:
    """Fit the uses of `tier` into `slots` as GPUZIP does."""
    used: OrderedDict[int, int] = OrderedDict()  # step -> index of its last use, least recently used first
    alive: set[int] = set()
    evicted: dict[int, int] = {}  # step -> index from which it is only in the tier below
    fetching: set[int] = set()  # indices of operations before which something is fetched
    stores, evictions, fetches = Movements(), Movements(), Movements()

    def overwrite() -> tuple[int, int | None]:
        """Return the index after the overwritten entry's last use, and its step if that is still alive."""
        if len(used) < slots:
            return 0, None
        step, last_use = used.popitem(last=False)
        return last_use + 1, step if step in alive else None

    for index, kind, step, _ in trace(operations, tier).rows():
        if kind == "drop":
            alive.discard(step)
            if step in used:
                used[step] = index
            continue
        if kind == "write":
            used.pop(step, None)
            _, overwritten = overwrite()
            start = index
            stores.add(index + 1, Store, step, tier + 1)
            alive.add(step)
        elif step not in used:
            start, overwritten = overwrite()
            start = max(start, evicted[step])
            while start in fetching and start < index:
                start += 1
            fetching.add(start)
            fetches.add(start, Fetch, step, tier + 1)
        else:
            overwritten = None
        if overwritten is not None:
            evictions.add(start, Evict, overwritten, tier)
            evicted[overwritten] = start + 1
        used[step] = index
        used.move_to_end(step)
    return Merged(operations, stores, evictions, fetches)


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
        """Evict the earliest of a tier that is full: it was copied down then, or something is dropped before a save."""
        if len(self.held[tier]) == self.slots[tier]:
            earliest, _ = self.held[tier].popitem(last=False)
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
) -> Iterable[Operation]:
    """Merge what follows the turn with movements between tiers that hold some snapshots already."""
    for tier in range(len(slots) - 1):
        lower = {step for steps in held[tier + 1 :] for step in steps}
        operations = reside_min(operations, tier, slots[tier], held[tier], lower)
    return operations


def holdings(operations: Iterable[Operation], before: Sequence[Iterable[int]]) -> tuple[list[set[int]], int]:
    """Return which snapshots each tier holds once operations have been carried out, and how many the last at most."""
    held = [set(steps) for steps in before]
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
) -> Iterator[Iterable[Operation]]:
    """Yield ways back from the snapshots in tiers that keep to their slots, retaining one of the choices each."""
    kept = sorted(set().union(*held))
    for retained in choices:
        again = [Restore(step) for step in reversed(retained)]  # what retained ones are for
        for spare in range(1 + min(SPARE, sum(slots) - len(kept))):
            actions = Reiterable(partial(_and_then, partial(back, kept, steps, sum(slots) - spare, retained), again))
            way = Reiterable(partial(up_to, reside_back(actions, slots, held), _is_start))
            if len(slots) == 1 or holdings(way, held)[1] <= slots[-1]:
                yield way


def _and_then(actions: Callable[[], Iterator[Action]], more: Sequence[Action]) -> Iterator[Action]:
    return chain(actions(), more)


def _is_start(operation: Operation) -> bool:
    return isinstance(operation, Backward) and not operation.step


def follow(sweep: Iterable[Action], tiers: StreamedResidency) -> Iterator[Operation]:
    """Yield the actions of a first sweep with the movements that they take."""
    for action in sweep:
        yield from tiers.follow(action)


def reside_online(schedule: Online, slots: Sequence[int]) -> Iterable[Operation]:
    """Merge a reversal whose end was not known during its first sweep with the movements that it takes.

    Where the last tier has too little room it is taken to have enough, and whoever asked sees that it does not fit.
    """
    *upper, last = slots
    enough = [*upper, max(last, schedule.peak_snapshots - sum(upper))]

    def operations() -> Iterator[Operation]:
        tiers = StreamedResidency(enough)
        yield from follow(schedule.sweep(), tiers)
        yield from reside_back(Reiterable(schedule.back), slots, tiers.held)

    return Reiterable(operations)
