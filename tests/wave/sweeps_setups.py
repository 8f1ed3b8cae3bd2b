"""The waves that sweep, each with what tests need of it, so that one test holds for all."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.wave import density_setups, vti_setups

from forebay.wave import VTI, Density
from forebay.wave.density import propagator as density
from forebay.wave.density.gpu import DensityGpuKernels
from forebay.wave.vti import propagator as vti
from forebay.wave.vti.gpu import VTIGpuKernels


@dataclass(frozen=True)
class Kind:
    """Waves of one kind."""

    name: str
    waves: Any
    module: Any
    """where the kernels are chosen"""
    kernels: Any
    random: Callable[..., Any]
    smooth: Callable[..., Any]
    transpose: Callable[..., Any]
    names: tuple[str, ...]
    """of a model's arrays"""
    fields: tuple[str, str]
    """of a state, that are looked at"""
    tolerance: float
    """of a GPU's fields, in parts of the largest value"""
    tight: str
    """a budget in which not all is kept"""


KINDS = (
    Kind("density", Density, density, DensityGpuKernels, density_setups.random_fluid, density_setups.smooth_fluid,
         density_setups.transpose, ("velocity", "density"), ("p", "p_old"), 2e-6, "400kB"),
    Kind("VTI", VTI, vti, VTIGpuKernels, vti_setups.random_shale, vti_setups.smooth_shale, vti_setups.transpose,
         vti_setups.NAMES, ("p", "r"), 5e-6, "500kB"),
)  # fmt: skip


def arrays_of(model):
    """Return the arrays of a model, the velocity first."""
    return [getattr(model, name) for name in ("velocity", "density", "epsilon", "delta") if hasattr(model, name)]


def model_of(model, arrays):
    """Return a model of other arrays on the same grid."""
    return type(model)(*arrays, model.grid)


def slower(model):
    """Return a model in which all waves are a little slower."""
    velocity, *others = arrays_of(model)
    return model_of(model, [0.97 * velocity, *others])
