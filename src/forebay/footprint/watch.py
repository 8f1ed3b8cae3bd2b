"""The exact peak of some code in this process."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from forebay.footprint.measure.resident import CLEAR_REFS, peaks_can_be_reset, read_status, trim_heap
from forebay.footprint.measure.traced import TracedGauge


@dataclass(eq=False)
class Peak:
    """What watched code needed; filled in when it ends."""

    bytes: int = 0
    """above what was in use when it began"""
    exact: bool = True
    """False where the kernel tells no peaks, so that only what Python and NumPy allocate was seen"""
    _before: int = 0
    _highest: int = 0


_open: list[Peak] = []
"""what is being watched: the kernel keeps one mark for all of it"""


@contextmanager
def watch() -> Iterator[Peak]:
    """Measure the peak of the code in a ``with``; other threads of this process count too, and it may be nested.

    Small arrays that fit in memory freed before, and not given back to the kernel, do not count: run with
    ``MALLOC_MMAP_THRESHOLD_=65536`` to have all but the smallest counted.

    Examples
    --------
    >>> import numpy as np
    >>> with watch() as peak:
    ...     total = np.ones(5_000_000).sum()
    >>> 39_000_000 < peak.bytes < 50_000_000
    True
    """
    if not peaks_can_be_reset():
        yield from _traced()
        return
    trim_heap()
    peak = Peak()
    _note()
    CLEAR_REFS.write_text("5")
    peak._before = read_status("VmRSS")
    _open.append(peak)
    try:
        yield peak
    finally:
        _note()
        _open.remove(peak)
        peak.bytes = max(peak._highest - peak._before, 0)


def _note() -> None:
    """Let everything that is watched know the highest mark so far, before it is forgotten."""
    highest = read_status("VmHWM")
    for peak in _open:
        peak._highest = max(peak._highest, highest)


def _traced() -> Iterator[Peak]:
    gauge, peak = TracedGauge(), Peak(exact=False)
    gauge.start()
    try:
        yield peak
    finally:
        peak.bytes = gauge.stop()
