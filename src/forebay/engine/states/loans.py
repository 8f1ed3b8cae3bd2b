"""Arrays that forward was given in memory that the engine uses again, and whether anything still refers to them.

A forward that keeps its input as a buffer, or a view of it, would later write into a state, or a snapshot, that lies
there by then. What it refers to only until its next call does no harm: attributes of a solver are set anew there. So
after each call all arrays must be let go that earlier calls were given from the engine's memory.
"""

import gc
from collections.abc import Sequence
from typing import Any

from forebay.errors import StateError
from forebay.machine.lent import Counts, Lent


class Loans:
    """What has been lent to forward.

    Examples
    --------
    >>> import numpy as np
    >>> loans, kept = Loans(), []
    >>> for _ in range(2):
    ...     lent = Lent(lambda: [np.frombuffer(bytearray(16))])
    ...     loans.lend(lent)
    ...     loans.give()
    ...     kept += lent.arrays
    >>> loans.turn([])
    >>> loans.check()
    Traceback (most recent call last):
    forebay.errors.StateError: forward kept an array that it was given...
    """

    def __init__(self) -> None:
        self._given: list[Lent] = []
        """to forward, the latest last"""
        self._latest: Lent | None = None
        """not given to forward yet"""
        self._turned = False
        self._cycles = 0
        """how often arrays were held only by what awaits the garbage collector"""
        self._skipped = 0

    def lend(self, lent: Lent) -> None:
        """Take note of arrays in memory that will be used again."""
        if lent in self._given:  # they had been let go
            self._given.remove(lent)
        lent.renew()
        self._latest = lent

    def give(self) -> None:
        """Take note that forward is given them."""
        if self._latest is not None:
            self._given.append(self._latest)
            self._latest = None

    def count_references(self) -> tuple[Lent, Counts] | None:
        """Count references to the latest before others are given them as well, who may refer to them for longer."""
        lent = self._latest or (self._given[-1] if self._given else None)
        return None if lent is None else (lent, lent.references())

    def allow(self, counted: tuple[Lent, Counts] | None) -> None:
        """Let them refer to what they were given."""
        if counted is not None:
            lent, before = counted
            lent.allow_since(before)

    def turn(self, arrays: Sequence[Any]) -> None:
        """Begin to check: what ran forward has let go, and the final state is its caller's to refer to."""
        for lent in self._given:
            lent.allow_all(arrays)
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
                "forward kept an array that it was given, or a view of one, in memory that is used again: it owns its "
                "input until it returns. Let it keep a copy (x.copy()), or return that array"
            )
        self._cycles = min(self._cycles + 1, 16)

    def _is_kept(self) -> bool:
        kept = [lent for lent in self._given[:-1] if lent.is_kept()]
        self._given = [*kept, *self._given[-1:]]
        return bool(kept)
