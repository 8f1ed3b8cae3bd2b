"""Arrays that look onto memory which is used again, and whether anybody but the engine still refers to them.

References are counted, to the arrays and to what all views of them share. That takes less than a microsecond an array,
on a GPU too, where nothing is made anew. References that something may hold for longer are allowed as it takes them.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any

from forebay.machine.arrays.dispatch import array_library

Counts = list[int]
"""Of references to each array."""


class Lent:
    """Arrays that callbacks are given; `make` makes them, and nothing else may refer to them then.

    Examples
    --------
    >>> import numpy as np
    >>> memory = np.zeros(4)
    >>> lent = Lent(lambda: [np.frombuffer(memoryview(memory))[:]])
    >>> view = lent.arrays[0][1:]
    >>> lent.is_kept()
    True
    >>> del view
    >>> lent.is_kept()
    False
    """

    __slots__ = ("_allowed", "_count", "_idle", "arrays")

    def __init__(self, make: Callable[[], list[Any]]) -> None:
        self.arrays = make()
        self._count = [array_library(array).references for array in self.arrays]
        self._idle = self.references()
        self._allowed = list(self._idle)

    def references(self) -> Counts:
        """Count the references to each array and to its memory, always in the same way."""
        return [count(array) for count, array in zip(self._count, self.arrays, strict=True)]

    def is_idle(self) -> bool:
        """Tell whether nothing refers to the arrays, allowed or not."""
        return self.references() == self._idle

    def is_kept(self) -> bool:
        """Tell whether more refers to an array than is allowed; what has been let go is not allowed any more."""
        kept = False
        for number, count in enumerate(self.references()):
            if count > self._allowed[number]:
                kept = True
            elif self._allowed[number] < sys.maxsize:
                self._allowed[number] = max(self._idle[number], count)
        return kept

    def renew(self) -> None:
        """Allow nothing."""
        self._allowed = list(self._idle)

    def allow_since(self, before: Counts) -> None:
        """Allow the references that were taken since they were counted."""
        after = self.references()
        if after == before:
            return
        for number, (then, now) in enumerate(zip(before, after, strict=True)):
            self._allowed[number] += max(0, now - then) if self._allowed[number] < sys.maxsize else 0

    def allow_all(self, arrays: Sequence[Any]) -> None:
        """Allow any reference to those that are among some arrays."""
        others = set(map(id, arrays))
        for number, array in enumerate(self.arrays):
            if id(array) in others:
                self._allowed[number] = sys.maxsize
