"""Exact peaks of resident memory, from Linux: `clear_refs` forgets the old peak of this process, `VmHWM` tells the new.

The kernel raises the mark whenever pages are about to be given back, so no peak is too short to be seen, whichever
library allocated it. Other threads of the process count too.
"""

import ctypes
import gc
import mmap
import os
import threading
from dataclasses import dataclass
from functools import cache
from pathlib import Path

CLEAR_REFS = Path("/proc/self/clear_refs")
STATUS, STAT = Path("/proc/self/status"), Path("/proc/self/stat")
PAGE = mmap.PAGESIZE
FEW_PROCESSORS = 8
"""Up to which the counts of all are brought to nothing before a run."""


@cache
def peaks_can_be_reset() -> bool:
    """Return whether this kernel forgets a peak when told to; asked once, since asking is telling it to."""
    try:
        CLEAR_REFS.write_text("5")
        read_status("VmHWM")
    except (OSError, KeyError):
        return False
    return True


def read_status(name: str) -> int:
    """Read one of the kernel's figures about this process, in bytes."""
    for line in STATUS.read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise KeyError(name)


def trim_heap() -> None:
    """Collect garbage and give free pages of the heap back, so that they are counted again when they are next used."""
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError):  # not glibc: arrays above its threshold are mapped all the same
        return


def _counted() -> int:
    """Return the pages that the kernel has added to this process's count: the mark is raised by these."""
    return int(STAT.read_text().rpartition(")")[2].split()[21])


class ResidentGauge:
    """The gauge of resident memory.

    Each processor counts so many pages before the kernel adds them to the process's: a mark may be short by a batch of
    each. All counts are brought to nothing before a run, so that only pages of the run itself may be missing.
    """

    gauge_name = "VmHWM"
    exact = True

    def __init__(self) -> None:
        self._batch = max(32, 2 * (os.cpu_count() or 1))
        self.resolution = self._batch * PAGE
        self._before = 0
        self._counted_before = 0
        self._touched: list[mmap.mmap] = []

    def start(self) -> None:
        """Forget the peak."""
        trim_heap()
        self._touched.clear()
        self._settle()
        CLEAR_REFS.write_text("5")
        self._before, self._counted_before = read_status("VmRSS"), _counted() * PAGE

    def stop(self) -> int:
        """Read the new one."""
        mark, now = read_status("VmHWM"), read_status("VmRSS")
        if mark <= now:  # the peak has not passed, and what is there now is counted page by page
            return max(now - self._before, 0)
        return max(mark - self._counted_before + self.resolution // 2, now - self._before, 0)

    def kept(self) -> int:
        """Read what is resident without garbage."""
        trim_heap()
        return max(read_status("VmRSS") - self._before, 0)

    def _settle(self) -> None:
        """Touch pages until every processor has handed in what it counted; with many, this one alone."""
        allowed = os.sched_getaffinity(0)
        try:
            for processor in sorted(allowed) if len(allowed) <= FEW_PROCESSORS else ():
                os.sched_setaffinity(0, {processor})
                self._hand_in()
        finally:
            os.sched_setaffinity(0, allowed)
        self._hand_in()

    def _hand_in(self) -> None:
        pages = mmap.mmap(-1, 2 * self._batch * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._touched.append(pages)
        before = _counted()
        for place in range(0, len(pages), PAGE):
            pages[place] = 1
            if _counted() != before:
                break


@dataclass(eq=False)
class PeakSpan:
    """A time of which the peak is asked for."""

    before: int
    """resident bytes as it began"""
    highest: int


class OverlappingPeaks:
    """Peaks of spans of time, of which one may begin within another.

    To begin one makes the kernel forget what it would have told of the others, so these note it before.
    """

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._spans: list[PeakSpan] = []

    def begin(self) -> PeakSpan:
        """Begin a span."""
        with self._changing:
            self._note()
            CLEAR_REFS.write_text("5")
            before = read_status("VmRSS")
            span = PeakSpan(before, before)
            self._spans.append(span)
            return span

    def end(self, span: PeakSpan) -> int:
        """End a span, and return its peak above what there was as it began."""
        with self._changing:
            self._note()
            self._spans.remove(span)
            return span.highest - span.before

    def _note(self) -> None:
        highest = read_status("VmHWM") if self._spans else 0
        for span in self._spans:
            span.highest = max(span.highest, highest)


PEAKS = OverlappingPeaks()
"""Of this process."""
