"""The loops of a standard linear solid for NumPy arrays, beside those of acoustic waves: the twins of ``relax.cu``."""

from typing import Any

import numpy as np

from forebay.wave.acoustic.cpu import MANY, CpuKernels
from forebay.wave.kernels.jit import jits, prange, writable
from forebay.wave.kernels.subnormal import flush, restore
from forebay.wave.physics import State
from forebay.wave.visco.solid import LAGGING

PART = 1 << 13
"""Points of a piece of work."""


@jits
def relax(p: Any, old: Any, lag: Any, excess: Any, tangent: Any, one: Any) -> None:
    """Take the lag one step further, and what pressure owes to it from the older field; all arrays are flat."""
    two = one + one
    for part in prange((len(p) + PART - 1) // PART):
        setting = flush()
        for at in range(part * PART, min((part + 1) * PART, len(p))):
            beyond, before, kept = excess[at], old[at], lag[at]
            x = one + beyond
            early = one + x * tangent
            over = one / ((x + tangent) * early)
            later = (x - tangent) * early * over * kept + (p[at] - before)
            old[at] = two * tangent * beyond * (two + beyond) * over * (later - kept) + before
            lag[at] = later
        restore(setting)


@jits
def sense(p: Any, old: Any, lag: Any, other: Any, of_loss: Any, of_fade: Any, factor: Any) -> None:
    """Add the products of another wave's lag with a wave's change and lag; all are flat."""
    for part in prange((len(p) + PART - 1) // PART):
        setting = flush()
        for at in range(part * PART, min((part + 1) * PART, len(p))):
            scaled = factor * other[at]
            of_loss[at] += scaled * (p[at] - old[at])
            of_fade[at] += scaled * lag[at]
        restore(setting)


class ViscoCpuKernels(CpuKernels):
    """The loops for one grid's number of axes, one order and one type; arrays are NumPy's."""

    def relax(self, propagator: Any, state: State) -> None:
        """Take the lag of a state one step further, and what pressure owes to it from the older field."""
        fields = [state[name] for name in ("p", "p_old", LAGGING)]
        medium = [propagator.excess, propagator.tangents]
        if propagator.excess.ndim < fields[0].ndim:  # all shots are in one
            medium = [[propagator.excess] * len(fields[0]), np.repeat(propagator.tangents, len(fields[0]))]
        for *arrays, tangent in self._shots(*fields, *medium):
            numbers = self.dtype.type(np.reshape(tangent, -1)[0]), self.dtype.type(1)
            relax[arrays[0].size >= MANY](*(values.reshape(-1) for values in arrays), *numbers)

    def sense(self, sums: dict[str, Any], state: State, lag: Any, factor: float) -> None:
        """Add a factor times another wave's lag, times what the adjoint's step has led to, to the sums."""
        fields = state["p"], state["p_old"], state[LAGGING], writable(lag), sums["loss"], sums["fade"]
        sense[lag.size >= MANY](*(values.reshape(-1) for values in fields), self.dtype.type(factor))
