"""The waves that sweep, each with what tests need of it, so that one test holds for all."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tests.wave import density_setups, tti_setups, vti_setups

from forebay.wave import TTI, VTI, Density
from forebay.wave.density import propagator as density
from forebay.wave.density.gpu import DensityGpuKernels
from forebay.wave.tti import propagator as tti
from forebay.wave.tti.gpu import TTIGpuKernels
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
    slopes: float = 2e-5
    """likewise, of a gradient's"""
    launches: tuple[str, ...] = ("remember", "advance", "points")
    """of a step"""
    sources: tuple[tuple[str, int, tuple[str, ...]], ...] = (
        ("sweep.cu", 2, ("remember", "advance", "retreat", "sense")),
        ("sweep.cu", 3, ("remember", "advance", "retreat", "sense")),
        ("volume.cu", 3, ("advance", "retreat")),
    )
    """with their axes and kernels"""


TTI_SOURCES = tuple(
    ("sweep.cu", axes, ("stress", "slope", "slope_back", "advance", "retreat", "sense")) for axes in (2, 3)
)
KINDS = (
    Kind("density", Density, density, DensityGpuKernels, density_setups.random_fluid, density_setups.smooth_fluid,
         density_setups.transpose, ("velocity", "density"), ("p", "p_old"), 2e-6, "400kB"),
    Kind("VTI", VTI, vti, VTIGpuKernels, vti_setups.random_shale, vti_setups.smooth_shale, vti_setups.transpose,
         vti_setups.NAMES, ("p", "r"), 5e-6, "500kB"),
    Kind("TTI", TTI, tti, TTIGpuKernels, tti_setups.random_tilted, tti_setups.smooth_tilted, tti_setups.transpose,
         tti_setups.NAMES, ("p", "r"), 5e-6, "600kB", 5e-4, ("stress", "slope", "advance", "points"), TTI_SOURCES),
)  # fmt: skip


def arrays_of(model):
    """Return the arrays of a model by name, the velocity first."""
    names = ("velocity", "density", "epsilon", "delta", "tilt", "azimuth")
    return {name: getattr(model, name) for name in names if getattr(model, name, None) is not None}


def model_of(model, arrays):
    """Return a model of other arrays on the same grid."""
    return replace(model, **arrays)


def slower(model):
    """Return a model in which all waves are a little slower."""
    return replace(model, velocity=0.97 * model.velocity)
