"""Elastic waves as a physics: steps, images and sensitivity together."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.wave.earth.grid import Grid
from forebay.wave.earth.model import ElasticModel
from forebay.wave.earth.stability import resolving
from forebay.wave.elastic import gradient, images
from forebay.wave.elastic.impulses import (
    half_a_step_earlier,
    half_a_step_earlier_transposed,
    impulses_of,
    impulses_transposed,
)
from forebay.wave.elastic.layers import MEMORY, memory_of
from forebay.wave.elastic.medium import stiffest
from forebay.wave.elastic.propagator import STRESSES, VELOCITIES, Propagator
from forebay.wave.elastic.stencil import first_derivative, staggered_symbol, steepest
from forebay.wave.kernels.rows import Rows
from forebay.wave.physics import Condition, Images, State, register
from forebay.wave.survey.shot import Shot


@dataclass(frozen=True, eq=False)
class Elastic(Propagator):
    """Carries velocities and stresses through a model in steps of `dt`; refuses an unstable one.

    Examples
    --------
    >>> from forebay.wave import Grid
    >>> shape = (50, 60)
    >>> model = ElasticModel(np.full(shape, 3e3), np.full(shape, 1.7e3), np.full(shape, 2e3), Grid(shape, spacing=10.0))
    >>> propagator = Elastic(model, dt=0.001)
    >>> source = propagator.antenna([(100, 300)], ["explosion"])
    >>> state = propagator.step(propagator.zeros(), source, np.ones(1, np.float32))
    >>> list(state), state["vz"].shape
    (['vz', 'vx', 'tzz', 'txx', 'tzx', 'pml'], (98, 108))
    """

    image_names = images.IMAGES
    negative_images = ("velocity",)

    @staticmethod
    def largest_dt(model: ElasticModel, order: int) -> float:
        """Return the largest stable time step, which a pressure wave decides; see `Acoustic.largest_dt`.

        With `max_vel` it is smaller by as much as that is above the model's largest velocity. Where densities vary it
        still depends on how they lie beside the velocities.
        """
        slopes = [steepest(order, model.grid.free_surface and axis == 0) for axis in range(model.grid.ndim)]
        worst = sum((slope / step) ** 2 for slope, step in zip(slopes, model.grid.spacing, strict=True))
        return 2 / (stiffest(model) * math.sqrt(worst)) * float(model.arrays[0].max()) / model.fastest

    @staticmethod
    def points_per_wavelength(order: int) -> float:
        """Return how many points the shortest wave needs."""
        return resolving(lambda angles: staggered_symbol(first_derivative(order), angles))

    @staticmethod
    def check_images(names: Sequence[str]) -> None:
        """Refuse all but "pp" and "velocity"."""
        images.check_images(names)

    @staticmethod
    def state_shapes(grid: Grid, order: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes of velocities and stresses, and of what the layers remember."""
        names, halo = VELOCITIES[grid.ndim] + STRESSES[grid.ndim], order // 2
        return dict.fromkeys(names, grid.fields(halo)) | {MEMORY: (memory_of(grid, halo, Rows()),)}

    @staticmethod
    def record_fields(ndim: int, names: Sequence[str]) -> tuple[str, ...]:
        """Return the names of the divergence, of the velocities, or of both."""
        return ("div",) * ("pp" in names) + VELOCITIES[ndim] * ("velocity" in names)

    def impulses(self, density: NDArray[np.float64], kinds: Sequence[str]) -> NDArray[np.float64]:
        """Turn wavelets per volume, at each step, into impulses of force and volumes drawn out."""
        return impulses_of(density, kinds, self.dt)

    def impulses_transposed(self, owed: NDArray[np.float64], kinds: Sequence[str]) -> NDArray[np.float64]:
        """Apply the transpose of `impulses`."""
        return impulses_transposed(owed, kinds, self.dt)

    def at_steps(self, heard: NDArray[Any], kinds: Sequence[str]) -> NDArray[Any]:
        """Take velocities, which are heard between the steps, to the beginning of each."""
        return half_a_step_earlier(heard, kinds)

    def at_steps_transposed(self, data: NDArray[Any], kinds: Sequence[str]) -> NDArray[Any]:
        """Apply the transpose of `at_steps`."""
        return half_a_step_earlier_transposed(data, kinds)

    def scatterers(self, change: Any, parameter: str) -> Any:
        """Bind a change of "vp", "vs" and "rho", by name; those that are left out do not change."""
        return gradient.scatterers(self, change)

    def advance_scattered(
        self, waves: tuple[State, State], strength: Any, senders: Any, sent: Any, steps: Sequence[int], hears: Any
    ) -> tuple[State, State]:
        """Advance a wave and what it scatters, of which pressures are heard before each step and velocities in it."""
        return gradient.advance_scattered(self, waves, strength, (senders, sent), steps, hears)

    def image_sums(self, names: Sequence[str]) -> Images:
        """Make images and their illuminations, in which nothing is seen yet."""
        return images.image_sums(self, names)

    def sent_back(self, data: NDArray[Any], shot: Shot) -> NDArray[Any]:
        """Scale data by the impedances at their receivers; see `images`."""
        return data * images.strengths(shot, self) * (shot.dt / self.model.grid.cell)

    def image_record(self, state: State, names: Sequence[str]) -> State:
        """Return what images need of a state: the divergence of the velocities, or the velocities."""
        return dict(self.kernels.see(self, state, names))

    def add_image(
        self, adjoint: Any, step: int, sums: Images, record: State, factor: float, condition: Condition | None
    ) -> None:
        """Take the adjoint to where it meets the record of a step, and add what is seen there."""
        images.add_image(self, adjoint, step, sums, record, factor, condition)

    def image_arrays(self, sums: Images) -> Images:
        """Return the model's part of images as arrays like the model's."""
        return images.image_arrays(self, sums)

    @property
    def sensitive_fields(self) -> tuple[str, ...]:
        """The velocities, of which a gradient makes do."""
        return self.velocities

    def sensitivity_sums(self) -> dict[str, Any]:
        """Make the sums, one for each array of the medium, in which nothing is yet."""
        return gradient.sensitivity_sums(self)

    def add_sensitivity(self, sums: dict[str, Any], adjoint: Any, record: State, step: int, every: int) -> None:
        """Add what the step that led to a moment owes to the medium."""
        gradient.add_sensitivity(self, sums, adjoint, record, step, every)

    def gradient(self, sums: dict[str, Any], parameter: str) -> dict[str, Any]:
        """Return the derivatives with respect to "vp", "vs" and "rho", whatever the parameter."""
        return gradient.gradient_of(self, sums)


register(ElasticModel, Elastic)
