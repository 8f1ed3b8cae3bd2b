"""The acoustic wave equation, second order in time and of any even order in space, step by step.

In each step, with s what the sources send, w their weights, h^n the volume of a cell and e what absorbing layers
change (see `layers`)::

    p_new = 2 p - p_old + (v dt)^2 (lap(p) + e + w s / h^n)

The state is the two fields p and p_old, and the memory of the layers. The adjoint carries q = (v dt)^2 times the
derivatives with respect to p. Since lap is symmetric, its step is the same, with the transpose of what layers change
and with what the receivers send back in the place of the sources.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from forebay.codec import Codec
from forebay.errors import WaveError
from forebay.wave.acoustic.kernels import (
    AcousticKernels,
    PagingKernels,
    advance_scattered,
    check_type,
    kernels_of,
    scatterers,
)
from forebay.wave.acoustic.layers import AcousticLayers, layers_of, together
from forebay.wave.earth.arrays import computable, returned
from forebay.wave.earth.folding import folded
from forebay.wave.earth.grid import Grid
from forebay.wave.earth.model import AcousticModel
from forebay.wave.earth.stability import check_dt, resolving
from forebay.wave.imaging import Imaging, Sensing
from forebay.wave.kernels.rows import Rows
from forebay.wave.kernels.stencil import second_derivative, symbol
from forebay.wave.physics import State, register
from forebay.wave.pressure import PressureWaves
from forebay.wave.survey.points import Points, follow, locate


@dataclass(frozen=True, eq=False)
class Antenna:
    """Points bound to a propagator: where values enter a field, and by which factors."""

    points: Points
    factors: Any
    """(v dt)^2 at the touched cells"""


@dataclass(frozen=True, eq=False)
class Acoustic(PressureWaves):
    """Carries pressure through a model in steps of `dt`; refuses an unstable one.

    Examples
    --------
    >>> from forebay.wave import Grid
    >>> model = AcousticModel(np.full((50, 60), 2000.0), Grid((50, 60), spacing=10.0))
    >>> propagator = Acoustic(model, dt=0.002)
    >>> source = propagator.antenna([(100, 300)])
    >>> state = propagator.step(propagator.zeros(), source, np.ones(1, np.float32))
    >>> sorted(state), state["p"].shape
    (['p', 'p_old', 'pml'], (98, 108))
    """

    model: AcousticModel
    dt: float
    order: int = 8
    dtype: Any = np.float32
    batch: tuple[AcousticModel, ...] = ()
    """models of shots that advance together, see `of_batch`; `model` is the first"""
    paging: Callable[[Grid, int, np.dtype[Any]], PagingKernels] | None = None
    """what makes the kernels of fields that are larger than the memory they are computed in, see `wave.paged`"""
    kernels: AcousticKernels = field(init=False, repr=False)
    rows: Rows = field(init=False, repr=False)
    """how the rows of fields lie in memory"""
    squared: Any = field(init=False, repr=False)
    """(velocity dt)^2 on the grid of the fields"""
    layers: AcousticLayers = field(init=False, repr=False)
    weights: tuple[Any, ...] = field(init=False, repr=False)
    """one over the squared spacing, of each axis"""

    def __post_init__(self) -> None:
        model, grid, dtype = self.model, self.model.grid, np.dtype(self.dtype)
        models = dict.fromkeys(self.batch or (model,))
        for each in models:
            check_dt(each, self.dt, self.order)
        paged = self.paging(grid, self.halo, check_type(dtype)) if self.paging is not None else None
        kernels = paged or self._kernels(computable(model.velocity), dtype)
        rows = kernels.rows
        if paged is not None:
            squared = {model: self._squared_by_planes(paged)}
        else:
            squared = {each: self._squared(each, rows, dtype) for each in models}
        layers = {
            velocity: layers_of(grid, self.halo, rows, self.dt, velocity).of_type(dtype)
            for velocity in {each.layer_velocity for each in models}
        }
        own = [layers[each.layer_velocity] for each in self.batch or (model,)]
        all_layers = together(own) if self.batch else own[0]
        stacked = np.stack([squared[each] for each in self.batch]) if len(models) > 1 else squared[model]
        derived = {
            "kernels": kernels,
            "rows": rows,
            "squared": kernels.put(stacked),
            "layers": replace(all_layers, changes=kernels.zeros((*kernels.lead, kernels.changes(all_layers)))),
            "weights": tuple(dtype.type(step**-2) for step in grid.spacing),
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    def _kernels(self, array: Any, dtype: np.dtype[Any]) -> AcousticKernels:
        return kernels_of(array, self.model.grid, self.halo, dtype, len(self.batch) or None)

    def _squared(self, model: Any, rows: Rows, dtype: np.dtype[Any]) -> Any:
        return rows.pad(model.grid.extend(self._courant(computable(model.velocity), dtype), self.halo))

    def _courant(self, velocity: Any, dtype: np.dtype[Any]) -> Any:
        courant = velocity.astype(np.float64) * self.dt
        return (courant * courant).astype(dtype)

    def _squared_by_planes(self, paged: PagingKernels) -> Any:
        velocity, grid = computable(self.model.velocity), self.model.grid

        def part(planes: slice) -> Any:
            return paged.rows.pad(self._courant(grid.extend(velocity, self.halo, planes), paged.dtype))

        return paged.filled(paged.rows.shape(grid.fields(self.halo)), part)

    @classmethod
    def of_batch(cls, models: Sequence[Any], dt: float, order: int, dtype: Any) -> "Acoustic":
        """Let the waves of shots in two dimensions advance together, each in a model of its own or all in one."""
        first = models[0]
        kinds = {(type(own), own.grid.shape, own.grid.spacing, own.grid.layers()) for own in models}
        if len(kinds) > 1 or first.grid.ndim != 2:
            raise WaveError(
                "shots advance together in two dimensions, in models of one shape and spacing, with equal layers and "
                "surface: give others one by one"
            )
        return cls(first, dt, order, dtype, tuple(models))

    @staticmethod
    def largest_dt(model: AcousticModel, order: int) -> float:
        """Return the largest stable time step.

        The second difference in time can follow eigenvalues of the Laplacian down to -4 / (velocity dt)^2; its lowest
        is that of the wave which changes its sign from each point to the next along every axis.
        """
        worst = -float(symbol(second_derivative(order), math.pi)) * sum(step**-2 for step in model.grid.spacing)
        return 2 / (model.fastest * math.sqrt(worst))

    @staticmethod
    def points_per_wavelength(order: int) -> float:
        """Return how many points the shortest wave needs.

        Examples
        --------
        >>> [round(Acoustic.points_per_wavelength(order), 1) for order in (2, 4, 8, 16)]
        [18.1, 6.3, 3.8, 2.9]
        """
        return resolving(lambda angles: np.sqrt(np.maximum(-symbol(second_derivative(order), angles), 0)))

    @staticmethod
    def state_shapes(grid: Grid, order: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the pressure, the one before it, and what layers remember."""
        remembered = layers_of(grid, order // 2, Rows(), 1.0, 1.0).size
        shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("p", "p_old"), grid.fields(order // 2))
        return shapes | {"pml": (remembered,)} if remembered else shapes

    def zeros(self) -> State:
        """Make a state in which nothing moves yet."""
        lead = self.kernels.lead
        shape = *lead, *self.rows.shape(self.model.grid.fields(self.halo))
        state = {"p": self.kernels.zeros(shape), "p_old": self.kernels.zeros(shape)}
        return state | {"pml": self.kernels.zeros((*lead, self.layers.size))} if self.layers.sides else state

    def antenna(self, positions: Any, kinds: Sequence[str] = ()) -> Antenna:
        """Bind positions, one row of coordinates each; all of them send explosions or hear pressure.

        In a batch the number of the shot comes before the coordinates, as in `survey.batch`.
        """
        for kind in {*kinds} - {"explosion", "pressure"}:
            raise WaveError(f"{kind!r} in an acoustic model, which knows explosions and pressure: take an ElasticModel")
        fields = self.model.grid.fields(self.halo)
        if self.batch:
            own = [positions[positions[:, 0] == number, 1:] for number in range(len(self.batch))]
            places = [(rows.tobytes(), model.grid) for rows, model in zip(own, self.batch, strict=True)]
            # Receivers of many shots are at the same places, and to look for them takes longer than a step.
            different = dict(zip(places, own, strict=True))
            located = {place: locate(rows, place[1], self.halo) for place, rows in different.items()}
            points = follow([located[place] for place in places], math.prod(fields))
        else:
            points = locate(positions, self.model.grid, self.halo)
        points = self.rows.moved(points, fields[-1]).moved(self.kernels.put)
        return Antenna(points, self.squared.reshape(-1)[points.touched % self.squared.size])

    def step(self, state: State, antenna: Antenna, values: Any) -> State:
        """Advance a state by one step, in place, while an antenna sends one value from each of its points."""
        return self._step(state, antenna, values, False)

    def step_back(self, state: State, antenna: Antenna, values: Any) -> State:
        """Take the adjoint's state one step back in time: a `step` but for the layers."""
        return self._step(state, antenna, values, True)

    def _step(self, state: State, antenna: Antenna, values: Any, back: bool) -> State:
        p, p_old = state["p"], state["p_old"]
        self.kernels.advance(p, p_old, self.squared, self.weights, self.layers, state.get("pml"), back)
        self.kernels.scatter(p_old, antenna.points, values, antenna.factors)
        if self.model.grid.free_surface:
            self.kernels.mirror(p_old)
        return state | {"p": p_old, "p_old": p}

    def retreat(
        self,
        state: State,
        senders: Antenna,
        sent: Any,
        steps: Sequence[int],
        image: Imaging | None = None,
        sensing: Sensing | None = None,
    ) -> State:
        """Take the adjoint's state back through steps; make an image of the last one, or add to a gradient's total."""
        return dict(self.kernels.run_back(self, state, senders, sent, steps, image, sensing))

    def correlates_encoded(self, codec: Codec) -> bool:
        """Tell whether `add_image` takes records that a codec has encoded, as they are kept."""
        return self.kernels.correlates_encoded(codec)

    def scatterers(self, change: Any, parameter: str) -> Any:
        """Return how much of what the velocity multiplies a change of the model scatters."""
        return scatterers(self, change, parameter)

    def advance_scattered(
        self, waves: tuple[State, State], strength: Any, senders: Antenna, sent: Any, steps: Sequence[int], hears: Any
    ) -> tuple[State, State]:
        """Advance a wave and what it scatters, which is heard before each step."""
        return advance_scattered(self, waves, strength, (senders, sent), steps, hears)

    def sensitivity_sums(self) -> dict[str, Any]:
        """Make the sum over steps of what each owes to the logarithm of the squared velocity."""
        fields = self.rows.shape(self.model.grid.fields(self.halo))
        return {"squared": self.kernels.zeros((*self.kernels.lead, *fields))}

    def add_sensitivity(self, sums: dict[str, Any], adjoint: Any, record: State, step: int, every: int) -> None:
        """Add what the fields before a step owe to the logarithm of the squared velocity.

        What the velocity multiplies in step n is the difference p_n+1 - 2 p_n + p_n-1, over (v dt)^2. Summed over all
        steps, its product with q_n+1 is the product of p_n with the same difference of q, which the adjoint's step
        to n computes. So of the fields before a step the pressure is enough, whatever layers remember.
        """
        if step < adjoint.loop.steps:  # of the last fields nothing is heard
            total, p, points = sums["squared"], record["p"], adjoint.loop.receivers.points
            adjoint.back_to(step, sensing=Sensing(total, p, float(every)))
            there = p.reshape(-1)[points.touched]
            self.kernels.scatter(total, points, adjoint.sent[step], there if every == 1 else every * there)

    def gradient(self, sums: dict[str, Any], parameter: str) -> Any:
        """Return the derivative with respect to "velocity" or "squared slowness", as an array like the model's."""
        total, squared = (self.rows.cut(values) for values in (sums["squared"], self.squared))
        if not self.batch:
            return self._folded(total, squared, parameter)
        squares = squared if squared.ndim == total.ndim else [squared] * len(total)
        return [self._folded(*own, parameter) for own in zip(total, squares, strict=True)]

    def _folded(self, total: Any, squared: Any, parameter: str) -> Any:
        """Turn derivatives with respect to the logarithm of the squared velocity into those of a parameter, folded."""

        def part(planes: slice) -> list[Any]:
            speed = np.sqrt(squared[planes].astype(np.float64)) / self.dt
            return [total[planes] * (2 / speed if parameter == "velocity" else -(speed**2))]

        (slope,) = folded(self.model.grid, self.halo, part, self.kernels.dtype)
        return returned(slope, self.model.velocity)


register(AcousticModel, Acoustic)
