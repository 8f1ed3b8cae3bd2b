"""Traces at another sampling interval, band-limited, and the exact transpose of that."""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.wave.earth.strips import in_strips

REACH = 16
"""Samples of the coarser sampling on each side that take part."""
STRIP = 2**15
"""points of a strip of traces, of which a core keeps the reach of a filter"""
SHAPE = 9.0
"""Of the Kaiser window: waves up to 0.8 of the coarser Nyquist frequency pass within 0.001."""


@lru_cache(maxsize=4)
def taps_of(resampler: "Resampler") -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return where the sum of each new sample begins, and its weights; shots of one survey have the same."""
    dt, coarser = resampler.dt, max(resampler.dt, resampler.new_dt)
    reach = REACH * coarser / dt
    centre = np.arange(resampler.new_samples) * (resampler.new_dt / dt) + resampler.start / dt
    first = np.ceil(centre - reach).astype(np.int64)
    index = first[:, None] + np.arange(math.floor(2 * reach) + 1)
    away = (centre[:, None] - index) * (dt / coarser)
    window = np.i0(SHAPE * np.sqrt(np.maximum(1 - (away / REACH) ** 2, 0))) / np.i0(SHAPE)
    weight = np.sinc(away) * window * (dt / coarser)
    return first, np.where((index >= 0) & (index < resampler.samples) & (np.abs(away) <= REACH), weight, 0.0)


@dataclass(frozen=True)
class Resampler:
    """Takes traces from one sampling to another by a windowed sinc, which lets pass what both can hold.

    Examples
    --------
    >>> finer = Resampler(samples=100, dt=0.004, new_samples=400, new_dt=0.001)
    >>> finer(np.ones((100, 3))).shape, finer.transpose(np.ones((400, 3))).shape
    ((400, 3), (100, 3))
    """

    samples: int
    dt: float
    new_samples: int
    new_dt: float
    start: float = 0.0
    """seconds from the first old sample to the first new one"""

    @property
    def same(self) -> bool:
        """Whether nothing changes."""
        steady = abs(self.start) < 1e-9 * self.dt and math.isclose(self.dt, self.new_dt, rel_tol=1e-9)
        return steady and self.samples == self.new_samples

    def __call__(self, traces: NDArray[Any]) -> NDArray[Any]:
        """Resample along the first axis."""
        if self.same:
            return traces
        out = np.zeros((self.new_samples, *traces.shape[1:]), traces.dtype)
        from forebay.wave.kernels.jit import writable
        from forebay.wave.kernels.traces import pull  # compiled when it is needed

        old, new, taps = writable(traces).reshape(self.samples, -1), out.reshape(self.new_samples, -1), taps_of(self)
        in_strips(lambda part: pull(old, *taps, new, part.start, part.stop), (2 * REACH, new.shape[1]), 1, STRIP)
        return out

    def transpose(self, traces: NDArray[Any]) -> NDArray[Any]:
        """Apply the transpose, from the new sampling to the old."""
        if self.same:
            return traces
        out = np.zeros((self.samples, *traces.shape[1:]), traces.dtype)
        from forebay.wave.kernels.traces import push

        new, old, taps = traces.reshape(self.new_samples, -1), out.reshape(self.samples, -1), taps_of(self)
        in_strips(lambda part: push(new, *taps, old, part.start, part.stop), (2 * REACH, new.shape[1]), 1, STRIP)
        return out
