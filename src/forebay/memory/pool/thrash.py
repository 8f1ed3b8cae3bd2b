"""Noticing that arrays push each other out, and saying which, and which budget would cure it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from forebay.memory.pool.host import enough
from forebay.memory.pool.page import Page
from forebay.units import to_text

FETCHED = 0.5
"""The part of the bytes used in a round that is fetched from the host, from which on arrays are in each other's way."""
STALLED = 0.5
"""The part of its time that the computation must stand still for that to matter."""
NAMED = 6
"""Arrays that are named; the others are counted."""


class ThrashWarning(UserWarning):
    """Arrays push each other out of the device, and the computation waits for the link."""


@dataclass
class RoundWatch:
    """Counts what a round of the repeating sequence uses and fetches."""

    uses: int = 0
    used: int = 0
    fetched: int = 0
    pages: dict[int, Page] = field(default_factory=dict)
    """those of the round"""
    missed: dict[int, Page] = field(default_factory=dict)
    """those of them that were fetched"""
    said: int = 0
    """bytes of the largest round that was warned of"""

    def add(self, pages: Sequence[Page], missed: Sequence[Page]) -> None:
        """Count one use."""
        self.uses += 1
        for page in pages:
            self.used += page.spec.nbytes
            self.pages[page.key] = page
        for page in missed:
            self.fetched += page.spec.nbytes
            self.missed[page.key] = page

    def verdict(self, period: int, stalled: float | None, usable: int, beside: Callable[[int], int]) -> str | None:
        """Say what is wrong at the end of a round, once for each that is larger than the last; None where nothing is.

        A round has `period` uses, 0 where nothing repeats. The computation stood still for the part `stalled` of its
        time, where that is known. Arrays may take `usable` bytes; encodings take `beside` of a device that has so many
        for arrays.
        """
        if not period or self.uses < period:
            return None
        bad = self.fetched > FETCHED * self.used and (stalled is None or stalled > STALLED)
        needed = sum(page.size for page in self.pages.values())
        message = None
        if bad and needed > max(self.said, usable):
            self.said = needed
            message = (
                f"{to_text(self.fetched)} of the {to_text(self.used)} that {self.uses} uses take are fetched from the "
                f"host each round, because {_names(self.missed.values())} push each other out of the device. "
                f"A device budget of {enough(needed + beside(needed))} holds all {len(self.pages)} arrays of a round "
                "at once; a codec makes what moves smaller; fewer arrays between two uses of one make what moves less"
            )
            if stalled is not None:
                message += f". The computation stood still for {stalled:.0%} of its time"
        self.restart()
        return message

    def restart(self) -> None:
        """Begin a new round."""
        self.uses = self.used = self.fetched = 0
        self.pages.clear()
        self.missed.clear()


def _names(pages: Iterable[Page]) -> str:
    names = [
        f"{page.name} ({page.spec}, {to_text(page.spec.nbytes)})" for page in sorted(pages, key=lambda page: page.key)
    ]
    shown = names if len(names) <= NAMED + 1 else [*names[:NAMED], f"{len(names) - NAMED} more"]
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)
