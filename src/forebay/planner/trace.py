"""The dry run: who writes and reads a tier, when, and when each snapshot is read next; and movements that it leads to.

A loop may have millions of steps. So nothing here lists operations: what is known of them, and what is added to them,
are numbers in arrays, and whoever needs operations iterates over them once more.
"""

from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from forebay.planner.operations import Evict, Fetch, Operation, Store
from forebay.schedule import Drop, Restore, Save

NEVER = 1 << 62
"""The index of a use that does not come."""
Movement = Store | Fetch | Evict
MOVEMENTS: dict[type[Movement], int] = {Store: 0, Fetch: 1, Evict: 2}
KIND_BITS, TIER_BITS = 2, 6
"""Of the number that a movement is kept as; the others are its step's."""
CHUNK = 1 << 7
"""Movements that are kept together, and let go together."""
ACCESSES = "write", "read", "drop"


class Reiterable(Iterable[Operation]):
    """Operations that are made anew each time somebody iterates over them."""

    def __init__(self, make: Callable[[], Iterable[Operation]]) -> None:
        self._make = make

    def __iter__(self) -> Iterator[Operation]:
        return iter(self._make())


class Accesses(NamedTuple):
    """The accesses to a tier, in order, by what is known of each."""

    at: "array[int]"
    """indices of the operations"""
    kinds: bytearray
    """numbers of `ACCESSES`"""
    steps: "array[int]"
    next_reads: "array[int]"
    """Indices of the operations that read the snapshot next, or NEVER."""

    def rows(self) -> Iterator[tuple[int, str, int, int]]:
        """Yield what is known of each access."""
        return zip(self.at, map(ACCESSES.__getitem__, self.kinds), self.steps, self.next_reads, strict=True)


def trace(operations: Iterable[Operation], tier: int) -> Accesses:
    """Find the accesses to a tier: saves and restores for the first one, stores and fetches for a lower one.

    Examples
    --------
    >>> from forebay.schedule import Revolve
    >>> list(trace(Revolve(3, 1), tier=0).rows())[:2]
    [(0, 'write', 0, 2), (2, 'read', 0, 5)]
    """
    found = at, kinds, steps, next_reads = Accesses(array("q"), bytearray(), array("q"), array("q"))
    latest: dict[int, int] = {}  # step -> its last access
    names: dict[type, str] = {Drop: "drop"}
    names |= {Store: "write", Fetch: "read"} if tier else {Save: "write", Restore: "read"}
    operation: Any
    for index, operation in enumerate(operations):
        kind = names.get(type(operation))
        if kind is None:
            continue
        step = operation.step
        if kind == "drop":
            latest.pop(step, None)
        elif tier and operation.tier != tier:
            continue
        else:
            if kind == "read" and step in latest:
                next_reads[latest[step]] = index
            latest[step] = len(at)
        at.append(index)
        kinds.append(ACCESSES.index(kind))
        steps.append(step)
        next_reads.append(NEVER)
    return found


class Movements:
    """Movements, each with the index of the operation that it comes before: two numbers."""

    def __init__(self) -> None:
        self.at, self.packed = array("q"), array("q")

    def add(self, at: int, kind: type[Movement], step: int, tier: int) -> None:
        """Take one up, behind those that come before the same operation."""
        self.at.append(at)
        self.packed.append((step << TIER_BITS | tier) << KIND_BITS | MOVEMENTS[kind])

    def reverse(self) -> None:
        """Turn their order round."""
        self.at.reverse()
        self.packed.reverse()

    def clear(self) -> None:
        """Let go of them."""
        self.at, self.packed = array("q"), array("q")


class InOrder(Iterable[tuple[int, Movement]]):
    """Movements in the order in which they come, each with the index of the operation that it comes before.

    They become its own, and the parts that they are from are empty afterwards; of one index, in the parts' order.
    """

    def __init__(self, *parts: Movements) -> None:
        at, packed = (np.concatenate([getattr(part, name) for part in parts]) for name in ("at", "packed"))
        for part in parts:
            part.clear()
        order = at.argsort(kind="stable")
        chunks = (order[start : start + CHUNK] for start in range(0, len(order), CHUNK))
        self._chunks = [np.stack((at[chunk], packed[chunk]), axis=1) for chunk in chunks]

    def __iter__(self) -> Iterator[tuple[int, Movement]]:
        return _unpacked(deque(self._chunks))


def _unpacked(chunks: "deque[NDArray[np.int64]]") -> Iterator[tuple[int, Movement]]:
    """Yield movements, letting go of those that have been."""
    kinds = list(MOVEMENTS)
    while chunks:
        for at, packed in chunks.popleft().tolist():
            number, kind = divmod(packed, 1 << KIND_BITS)
            yield at, kinds[kind](number >> TIER_BITS, number % (1 << TIER_BITS))


class Merged(Iterable[Operation]):
    """Operations and movements, each in front of the operation at its index, as often as they are iterated over."""

    def __init__(self, operations: Iterable[Operation], *parts: Movements) -> None:
        self._operations, self._movements = operations, InOrder(*parts)

    def __iter__(self) -> Iterator[Operation]:
        return _merge(iter(self._operations), iter(self._movements))


def _merge(operations: Iterator[Operation], movements: Iterator[tuple[int, Movement]]) -> Iterator[Operation]:
    done = 0
    for at, movement in movements:
        if at > done:
            yield from islice(operations, at - done)
            done = at
        yield movement
    yield from operations


def up_to(operations: Iterable[Operation], is_last: Callable[[Operation], bool]) -> Iterator[Operation]:
    """Yield operations up to the one that is the last."""
    for operation in operations:
        yield operation
        if is_last(operation):
            return


def moved(operations: Iterable[Operation], tier: int) -> tuple[int, int]:
    """Count the snapshots fetched up from a tier and stored down into it."""
    up = down = 0
    for operation in operations:
        if isinstance(operation, Fetch):
            up += operation.tier == tier
        elif isinstance(operation, Store):
            down += operation.tier == tier
    return up, down
