"""Which array leaves the device when another needs its place: the one used farthest ahead, or longest ago."""

from collections import OrderedDict
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from forebay.memory.pool.sequence import NEVER, UseHistory


class Candidate(NamedTuple):
    """An array that may leave."""

    key: int
    next_use: int
    """index of the use that would want it back; NEVER where none is foretold"""


class Order:
    """The arrays on the device, in the order in which they should leave.

    While a repeating sequence is believed, the one whose next use is farthest leaves first (Belady's rule), and of
    those that are not expected again the one used longest ago. Otherwise the one used longest ago leaves.

    Examples
    --------
    >>> order = Order(UseHistory())
    >>> for key in (3, 1, 2):
    ...     order.touch(key)
    >>> order.first(lambda key: key != 3).key
    1
    """

    def __init__(self, history: UseHistory) -> None:
        self._history = history
        self._touched: OrderedDict[int, int] = OrderedDict()  # key -> count of touches, the least first
        self._count = 0
        self._next: dict[int, int] = {}  # key -> its next use, as entered in the heap
        self._heap: list[tuple[int, int, int]] = []  # (-next use, touch, key), with outdated entries
        self._version = -1

    def touch(self, key: int) -> None:
        """Note that an array was brought in, or used."""
        self._count += 1
        self._touched[key] = self._count
        self._touched.move_to_end(key)
        if self._history.believed and self._version == self._history.version:
            heappush(self._heap, self._entry(key))

    def remove(self, key: int) -> None:
        """Note that an array has left."""
        self._touched.pop(key, None)
        self._next.pop(key, None)

    def first(self, free: Callable[[int], bool]) -> Candidate | None:
        """Return the array that leaves first, of those that are `free` to leave; None where there is none."""
        if not self._history.believed:
            return next((Candidate(key, NEVER) for key in self._touched if free(key)), None)
        if self._version != self._history.version:
            self._version = self._history.version
            self._heap = [self._entry(key) for key in self._touched]
            heapify(self._heap)
        held = []
        first = None
        while self._heap and first is None:
            entry = self._heap[0]
            next_use, touch, key = entry
            if self._touched.get(key) != touch or self._next.get(key) != -next_use:
                heappop(self._heap)
            elif free(key):
                first = Candidate(key, -next_use)
            else:
                held.append(heappop(self._heap))
        for entry in held:
            heappush(self._heap, entry)
        return first

    def _entry(self, key: int) -> tuple[int, int, int]:
        self._next[key] = self._history.next_use(key)
        return -self._next[key], self._touched[key], key
