"""The policy `min` for the first tier where snapshots are given up in the reverse order of their saves.

That is so in our schedules of segments and of levels. The live snapshots are a stack, of which the tier holds the upper
end. So the earliest of those in the tier is evicted, and only the latest can be missed, when the tier is empty. Rises
and falls are looked at as a whole, and taken apart only where something moves. `reside_min` moves the same.
"""

from array import array
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice

from forebay.planner.operations import Evict, Fall, Fetch, Operation, Rise, Store
from forebay.planner.trace import NEVER, InOrder, Movement, Movements
from forebay.schedule import Drop, Restore, Save

PER_SAVE, PER_DROP = 2, 3
"""Operations inside of a rise and of a fall for each snapshot."""


class Uses:
    """What operations do to the first tier, as numbers: a loop may have millions of steps."""

    def __init__(self) -> None:
        self.at = array("q")
        """indices of the operations"""
        self.in_use = array("i")
        """slots, just before"""
        self.drops = array("i")
        """how many snapshots a fall gives up"""
        self.missed = array("q")
        """the step that is restored and not there, or -1"""

    def add(self, at: int, in_use: int, drops: int = 0, missed: int = -1) -> None:
        """Take one up."""
        self.at.append(at)
        self.in_use.append(in_use)
        self.drops.append(drops)
        self.missed.append(missed)

    def backwards(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield them, the last one first."""
        return zip(*map(reversed, (self.at, self.in_use, self.drops, self.missed)), strict=True)


class Cuts:
    """Where rises and falls are taken apart for a movement: index, place among what is inside, and step."""

    def __init__(self) -> None:
        self.at, self.places, self.steps = array("q"), array("i"), array("q")

    def add(self, at: int, place: int, step: int) -> None:
        """Take one up."""
        self.at.append(at)
        self.places.append(place)
        self.steps.append(step)

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        return zip(self.at, self.places, self.steps, strict=True)

    def backwards(self) -> Iterator[tuple[int, int, int]]:
        """Yield them, the last one first."""
        return zip(*map(reversed, (self.at, self.places, self.steps)), strict=True)


def reside_stack(operations: Iterable[Operation], slots: int) -> Iterable[Operation]:
    """Fit the first tier into `slots`, as `reside_min` does."""
    uses, rising = Uses(), Cuts()
    stores, evictions = Movements(), Movements()
    stack: list[int] = []
    written: dict[int, int] = {}
    stored: set[int] = set()
    lowest = inside = 0  # the place in the stack of the earliest snapshot in the tier; those of a rise beside it

    def evict() -> int:
        nonlocal lowest
        victim = stack[lowest]
        lowest += 1
        if victim not in stored:
            stores.add(written[victim] + 1, Store, victim, 1)
            stored.add(victim)
        return victim

    for index, operation in enumerate(operations):
        in_use = len(stack) - lowest + inside
        if isinstance(operation, Save):
            uses.add(index, in_use)
            if in_use == slots:
                evictions.add(index, Evict, evict(), 0)
            stack.append(operation.step)
            written[operation.step] = index
        elif isinstance(operation, Restore):
            missed = lowest == len(stack)
            uses.add(index, in_use, missed=operation.step if missed else -1)
            lowest -= missed
        elif isinstance(operation, Drop):
            uses.add(index, in_use)
            step = stack.pop()
            stored.discard(step)
            del written[step]
        elif isinstance(operation, Rise):
            uses.add(index, in_use)
            inside = len(operation.operations) // PER_SAVE
            for number in range(slots - in_use, inside):  # right before the save
                rising.add(index, PER_SAVE * number + 1, evict())
        elif isinstance(operation, Fall):
            uses.add(index, in_use, drops=inside)
            inside = 0
    fetches, falling = _fetches(uses, slots)
    return Moved(operations, InOrder(stores, evictions, fetches), rising, falling)


def _fetches(uses: Uses, slots: int) -> tuple[Movements, Cuts]:
    """Place each fetch right after the last use that leaves no slot free for it, be it inside of a fall.

    Those inside of falls, the others too, are told from the last to the first.
    """
    fetches, falling = Movements(), Cuts()
    line: deque[int] = deque()  # steps, needed last first
    for index, in_use, drops, missed in uses.backwards():
        while line and drops:
            place = min(drops - 1, len(line) - slots + in_use - 1)
            if place < 0:
                break
            if place == drops - 1:
                fetches.add(index + 1, Fetch, line.popleft(), 1)
            else:
                falling.add(index, PER_DROP * (place + 1), line.popleft())
        room = slots - in_use - (missed >= 0)
        while len(line) > room and not drops:
            fetches.add(index + 1, Fetch, line.popleft(), 1)
        if missed >= 0:
            line.append(missed)
    for step in line:
        fetches.add(0, Fetch, step, 1)
    fetches.reverse()
    return fetches, falling


class Moved(Iterable[Operation]):
    """Operations with movements in front of them and inside of them, as often as they are iterated over."""

    def __init__(self, operations: Iterable[Operation], before: Iterable[tuple[int, Movement]], *inside: Cuts) -> None:
        self._operations, self._before, self._inside = operations, before, inside

    def __iter__(self) -> Iterator[Operation]:
        rising, falling = self._inside
        return _merged(iter(self._operations), iter(self._before), iter(rising), falling.backwards())


Cut = tuple[int, int, int]


def _merged(
    operations: Iterator[Operation],
    before: Iterator[tuple[int, Movement]],
    rising: Iterator[Cut],
    falling: Iterator[Cut],
) -> Iterator[Operation]:
    """Merge movements into operations, taking rises and falls apart where they are between."""
    none = NEVER, 0, 0
    move, rise, fall = next(before, None), next(rising, none), next(falling, none)
    done = 0
    while True:
        at = min(move[0] if move is not None else NEVER, rise[0], fall[0])
        if at == NEVER:
            break
        if at > done:
            yield from islice(operations, at - done)
            done = at
        while move is not None and move[0] == at:
            yield move[1]
            move = next(before, None)
        if at in (rise[0], fall[0]):
            begun, operation = 0, next(operations)
            done += 1
            if isinstance(operation, Rise):
                while at == rise[0]:
                    yield from (Rise(operation.operations[begun : rise[1]]), Evict(rise[2], 0))
                    begun, rise = rise[1], next(rising, none)
                yield Rise(operation.operations[begun:])
            elif isinstance(operation, Fall):
                while at == fall[0]:
                    yield from (Fall(operation.operations[begun : fall[1]]), Fetch(fall[2], 1))
                    begun, fall = fall[1], next(falling, none)
                yield Fall(operation.operations[begun:])
    yield from operations
