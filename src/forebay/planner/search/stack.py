"""The policy `min` for the first tier where snapshots are given up in the reverse order of their saves.

That is so in our schedules of segments and of levels. The live snapshots are a stack, of which the tier holds the upper
end. So the earliest of those in the tier is evicted, and only the latest can be missed, when the tier is empty. Rises
and falls are looked at as a whole, and taken apart only where something moves. `reside_min` moves the same.
"""

from collections import defaultdict, deque
from collections.abc import Sequence
from typing import NamedTuple

from forebay.planner.operations import Evict, Fall, Fetch, Operation, Rise, Store
from forebay.schedule import Drop, Restore, Save

PER_SAVE, PER_DROP = 2, 3
"""Operations inside of a rise and of a fall for each snapshot."""


class TierUse(NamedTuple):
    """What an operation does to the first tier."""

    at: int
    """index of the operation"""
    in_use: int
    """slots, just before"""
    drops: int
    """how many snapshots a fall gives up"""
    missed: int
    """the step that is restored and not there, or -1"""


Moves = defaultdict[int, list[Operation]]


def reside_stack(operations: Sequence[Operation], slots: int) -> list[Operation]:
    """Fit the first tier into `slots`, as `reside_min` does."""
    uses: list[TierUse] = []
    before: Moves = defaultdict(list)
    evicted: dict[int, list[int]] = {}  # index of a rise -> what goes before each of its last saves
    stack: list[int] = []
    written: dict[int, int] = {}
    stored: set[int] = set()
    lowest = inside = 0  # the place in the stack of the earliest snapshot in the tier; those of a rise beside it

    def evict() -> int:
        nonlocal lowest
        victim = stack[lowest]
        lowest += 1
        if victim not in stored:
            before[written[victim] + 1].insert(0, Store(victim, 1))
            stored.add(victim)
        return victim

    for index, operation in enumerate(operations):
        in_use = len(stack) - lowest + inside
        if isinstance(operation, Save):
            uses.append(TierUse(index, in_use, 0, -1))
            if in_use == slots:
                before[index].append(Evict(evict(), 0))
            stack.append(operation.step)
            written[operation.step] = index
        elif isinstance(operation, Restore):
            missed = lowest == len(stack)
            uses.append(TierUse(index, in_use, 0, operation.step if missed else -1))
            lowest -= missed
        elif isinstance(operation, Drop):
            uses.append(TierUse(index, in_use, 0, -1))
            stored.discard(stack.pop())
        elif isinstance(operation, Rise):
            uses.append(TierUse(index, in_use, 0, -1))
            inside = len(operation.operations) // PER_SAVE
            if in_use + inside > slots:
                evicted[index] = [evict() for _ in range(in_use + inside - slots)]
        elif isinstance(operation, Fall):
            uses.append(TierUse(index, in_use, inside, -1))
            inside = 0
    return _merged(operations, before, evicted, _fetches(uses, before, slots))


def _fetches(uses: Sequence[TierUse], before: Moves, slots: int) -> dict[int, list[tuple[int, int]]]:
    """Place each fetch right after the last use that leaves no slot free for it; return those inside of falls.

    Of a fall they are told as the snapshots given up before, and the step.
    """
    inside: dict[int, list[tuple[int, int]]] = {}
    fetches: defaultdict[int, list[int]] = defaultdict(list)
    line: deque[int] = deque()  # steps, needed last first
    for index, in_use, drops, missed in reversed(uses):
        while line and drops:
            place = min(drops - 1, len(line) - slots + in_use - 1)
            if place < 0:
                break
            if place == drops - 1:
                fetches[index + 1].append(line.popleft())
            else:
                inside.setdefault(index, []).append((place + 1, line.popleft()))
        room = slots - in_use - (missed >= 0)
        while len(line) > room and not drops:
            fetches[index + 1].append(line.popleft())
        if missed >= 0:
            line.append(missed)
    fetches[0] += line
    for index, steps in fetches.items():
        before[index].extend(Fetch(step, 1) for step in reversed(steps))
    return inside


def _merged(
    operations: Sequence[Operation],
    before: Moves,
    evicted: dict[int, list[int]],
    fetched: dict[int, list[tuple[int, int]]],
) -> list[Operation]:
    """Merge movements into operations, taking rises and falls apart where they are between."""
    merged: list[Operation] = []
    done = 0
    for index in sorted({*before, *evicted, *fetched}):
        merged.extend(operations[done:index])
        merged.extend(before.get(index, ()))
        done = index
        operation = operations[index] if index < len(operations) else None
        if index in evicted and isinstance(operation, Rise):
            saves, begun, victims = operation.operations, 0, evicted[index]
            for number, victim in enumerate(victims, start=len(saves) // PER_SAVE - len(victims)):
                place = PER_SAVE * number + 1  # right before the save
                merged += (Rise(saves[begun:place]), Evict(victim, 0))
                begun = place
            merged.append(Rise(saves[begun:]))
            done = index + 1
        elif index in fetched and isinstance(operation, Fall):
            drops, begun = operation.operations, 0
            for number, step in reversed(fetched[index]):
                merged += (Fall(drops[begun : PER_DROP * number]), Fetch(step, 1))
                begun = PER_DROP * number
            merged.append(Fall(drops[begun:]))
            done = index + 1
    merged.extend(operations[done:])
    return merged
