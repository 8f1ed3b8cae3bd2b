"""Arrays that forward was given in memory that the engine uses again, and whether anything still refers to them.

A forward that keeps its input as a buffer would later write into a state, or a snapshot, that lies there by then. What
it refers to only until its next call does no harm: attributes of a solver are set anew there. So after each call all
arrays must be gone that earlier calls were given from the engine's memory.
"""

import gc
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

from forebay.errors import StateError

Loan = list[weakref.ref[Any]]


class Loans:
    """What has been lent to forward; views of it are not noticed.

    Examples
    --------
    >>> import numpy as np
    >>> loans, kept, given = Loans(), np.zeros(2), np.zeros(2)
    >>> for array in (kept, given):
    ...     loans.lend([array])
    ...     loans.give()
    >>> loans.turn([])
    >>> loans.check()
    Traceback (most recent call last):
    forebay.errors.StateError: forward kept an array that it was given...
    """

    def __init__(self) -> None:
        self._given: list[Loan] = []
        """to forward, the latest last"""
        self._latest: Loan = []
        """not given to forward yet"""
        self._turned = False
        self._cycles = 0
        """how often arrays were held only by what awaits the garbage collector"""
        self._skipped = 0

    def lend(self, arrays: Iterable[Any]) -> None:
        """Take note of arrays in memory that will be used again."""
        self._latest = [weakref.ref(array) for array in arrays]

    def give(self) -> None:
        """Take note that forward is given them."""
        if self._latest:
            self._given.append(self._latest)
            self._latest = []

    def show(self, arrays: Sequence[Any]) -> None:
        """Forgive arrays that others are given as well, who may refer to them for longer."""
        if self._given:
            shown = set(map(id, arrays))
            self._given = [[ref for ref in loan if id(ref()) not in shown] for loan in self._given]

    def turn(self, arrays: Sequence[Any]) -> None:
        """Begin to check: what ran forward has let go, and the final state is its caller's to refer to."""
        self.show(arrays)
        self._turned = True

    def check(self, is_end: bool = False) -> None:
        """Refuse that anything refers to arrays of earlier calls."""
        if not self._turned or not self._is_kept():
            return
        if not is_end and self._skipped < 2**self._cycles - 1:
            self._skipped += 1  # the garbage collector takes long
            return
        self._skipped = 0
        gc.collect()
        if self._is_kept():
            raise StateError(
                "forward kept an array that it was given, in memory that is used again: it owns its input until it "
                "returns. Let it keep a copy (x.copy()), or return that array"
            )
        self._cycles = min(self._cycles + 1, 16)

    def _is_kept(self) -> bool:
        *earlier, latest = self._given or [[]]
        kept = [loan for loan in earlier if any(ref() is not None for ref in loan)]
        self._given = [*kept, latest]
        return bool(kept)
