"""Peaks of what Python and NumPy allocate, by tracemalloc: everywhere, but blind to the scratch memory of libraries."""

import gc
import tracemalloc


class TracedGauge:
    """The gauge of traced memory: a lower bound."""

    gauge_name = "tracemalloc"
    exact = False
    resolution = 4096

    def __init__(self) -> None:
        self._before = 0
        self._started_here = False

    def start(self) -> None:
        """Trace, unless somebody does already, and forget the peak."""
        gc.collect()
        self._started_here = not tracemalloc.is_tracing()
        if self._started_here:
            tracemalloc.start()
        tracemalloc.reset_peak()
        self._before = tracemalloc.get_traced_memory()[0]

    def stop(self) -> int:
        """Read the new peak."""
        peak = tracemalloc.get_traced_memory()[1] - self._before
        if self._started_here:
            tracemalloc.stop()
        return max(peak, 0)

    def kept(self) -> int:
        """Return nothing: tracing has ended with `stop`."""
        return 0
