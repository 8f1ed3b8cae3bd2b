"""The loops of a standard linear solid for NumPy arrays, beside those of acoustic waves: the twins of ``relax.cu``."""

from typing import Any

import numpy as np

from forebay.wave.acoustic.cpu import MANY, CpuKernels
from forebay.wave.kernels.jit import jit, prange, writable
from forebay.wave.kernels.subnormal import flush, restore
from forebay.wave.physics import State
from forebay.wave.visco.solid import LAGGING

PART = 1 << 13
"""Points of a piece of work."""


def _relax(p: Any, old: Any, lag: Any, excess: Any, tangent: Any, one: Any) -> None:
    """Take the lag one step further, and what pressure owes to it from the older field; all arrays are flat."""
    two = one + one
    for part in prange((len(p) + PART - 1) // PART):
        setting, own = flush(), slice(part * PART, min((part + 1) * PART, len(p)))
        now, new, lagging, medium = p[own], old[own], lag[own], excess[own]  # counted from 0, loops become vectors
        for at in range(len(now)):
            beyond, before, kept = medium[at], new[at], lagging[at]
            x = one + beyond
            early = one + x * tangent
            over = one / ((x + tangent) * early)
            later = (x - tangent) * early * over * kept + (now[at] - before)
            new[at] = two * tangent * beyond * (two + beyond) * over * (later - kept) + before
            lagging[at] = later
        restore(setting)


def _sense(p: Any, old: Any, lag: Any, other: Any, of_loss: Any, of_fade: Any, factor: Any) -> None:
    """Add the products of another wave's lag with a wave's change and lag; all are flat."""
    for part in prange((len(p) + PART - 1) // PART):
        setting, own = flush(), slice(part * PART, min((part + 1) * PART, len(p)))
        now, before, lagging, seen, changed, kept = p[own], old[own], lag[own], other[own], of_loss[own], of_fade[own]
        for at in range(len(now)):
            scaled = factor * seen[at]
            changed[at] += scaled * (now[at] - before[at])
            kept[at] += scaled * lagging[at]
        restore(setting)


relax, sense = ([jit(parallel=parallel, lone=True)(loop) for parallel in (False, True)] for loop in (_relax, _sense))
"""The loops for one thread, and at index 1 or True for several."""


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
