"""What the acoustic loops of a CPU and of a GPU both compute, and what is made of it alike: Born modelling."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from forebay.codec import Codec
from forebay.errors import WaveError
from forebay.wave.acoustic.layers import AcousticLayers
from forebay.wave.earth.arrays import computable
from forebay.wave.earth.grid import Grid
from forebay.wave.imaging import Imaging, Sensing
from forebay.wave.physics import State
from forebay.wave.pressure import PressureKernels


class AcousticKernels(PressureKernels, Protocol):
    """The loops for one grid, one order and one type."""

    window: tuple[slice, ...]
    """the part of the fields that records and images cover"""

    def run_back(
        self,
        propagator: Any,
        state: Any,
        senders: Any,
        sent: Any,
        steps: Sequence[int],
        image: Imaging | None,
        sensing: Sensing | None = None,
    ) -> Any:
        """Take the adjoint's state back through steps, sending a row of values in each.

        Of the last one an image is made, or what a gradient adds up: factor times a record times lap(p) with what
        layers change in it.
        """

    def advance(
        self, p: Any, p_old: Any, squared: Any, weights: Any, layers: AcousticLayers, pml: Any, back: bool = False
    ) -> None:
        """Step once, or once back: `p_old` becomes the newer field, `pml` what layers know after the step."""

    def correlates_encoded(self, codec: Codec) -> bool:
        """Tell whether images are made of records that a codec has encoded, as they are kept."""

    def compile_ahead(self, layers: AcousticLayers) -> None:
        """Compile what a migration with such layers needs, where that is done at the first use."""

    def mirror(self, p: Any) -> None:
        """Fill the halo above a free surface."""

    def changes(self, layers: AcousticLayers) -> int:
        """Return how many values layers put somewhere in a step, for a stencil or a gradient."""


class PagingKernels(AcousticKernels, Protocol):
    """Loops of fields that are larger than the memory they are computed in."""

    def filled(self, shape: tuple[int, ...], part: Callable[[slice], NDArray[Any]]) -> Any:
        """Make an array of what each part of its planes holds."""


def kernels_of(array: Any, grid: Grid, radius: int, dtype: np.dtype[Any], shots: int | None) -> AcousticKernels:
    """Choose the kernels by where the arrays of a model are."""
    check_type(dtype)
    if not isinstance(array, np.ndarray):
        from forebay.wave.acoustic.volume import gpu_kernels  # it needs a GPU

        return gpu_kernels(grid, radius, dtype, shots)
    from forebay.wave.acoustic.cpu import CpuKernels  # compiled when it is needed

    return CpuKernels(grid, radius, dtype, shots)


def check_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return a type, or refuse one that no loops are compiled for."""
    if dtype not in (np.float32, np.float64):
        raise WaveError(f"waves of type {dtype}: take float32 or float64")
    return dtype


def scatterers(propagator: Any, change: Any, parameter: str) -> Any:
    """Return by which part the squared velocity changes, on the grid of the fields.

    In step n the velocity multiplies the difference p_n+1 - 2 p_n + p_n-1, whatever layers and sources add to it. So
    where its square changes by a small part r, what is scattered, d, goes by the same step with r times that added::

        d_new = 2 d - d_old + (v dt)^2 (lap(d) + e(d)) + r (p_new - 2 p + p_old)
    """

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
