"""Born modelling: what an acoustic wave scatters where the velocity changes a little, to first order.

In step n the velocity multiplies the difference p_n+1 - 2 p_n + p_n-1, whatever layers and sources add to it. So where
its square changes by a small part r, the wave that is scattered, d, goes by the same step with r times that difference
added::

    d_new = 2 d - d_old + (v dt)^2 (lap(d) + e(d)) + r (p_new - 2 p + p_old)
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from forebay.wave.earth.arrays import computable
from forebay.wave.physics import State


def scatterers(propagator: Any, change: Any, parameter: str) -> Any:
    """Return by which part the squared velocity changes, on the grid of the fields."""

    def of(model: Any) -> Any:
        velocity = computable(model.velocity).astype(np.float64)
        part = computable(change, "a change") * (2 / velocity if parameter == "velocity" else -(velocity**2))
        dtype = propagator.kernels.dtype
        return propagator.rows.pad(model.grid.extend(part.astype(dtype), propagator.halo))

    models = dict.fromkeys(propagator.batch or (propagator.model,))
    parts = {model: of(model) for model in models}
    if len(models) > 1:
        return propagator.kernels.put(np.stack([parts[model] for model in propagator.batch]))
    return propagator.kernels.put(parts[propagator.model])


def advance_scattered(
    propagator: Any, waves: tuple[State, State], strength: Any, sends: tuple[Any, Any], steps: Sequence[int], hears: Any
) -> tuple[State, State]:
    """Advance a wave and what it scatters, in place; an antenna hears the latter before each step."""
    kernels, (senders, sent) = propagator.kernels, sends
    wave, scattered = waves
    for step in steps:
        if hears is not None:
            propagator.record(scattered, hears[0], hears[1][step])
        difference = wave["p_old"] - 2 * wave["p"]  # the older field becomes the newer one
        wave = propagator.step(wave, senders, sent[step])
        difference += wave["p"]
        difference *= strength
        scattered = propagator.step(scattered, senders, 0 * sent[step])
        scattered["p"] += difference
        if propagator.model.grid.free_surface:
            kernels.mirror(scattered["p"])
    return wave, scattered
