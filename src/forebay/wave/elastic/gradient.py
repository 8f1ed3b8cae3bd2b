"""How data of elastic waves depend on velocities and density: the gradient of a misfit, and Born modelling.

A step depends on the medium through b = 1 / rho and the stiffness C. With a and s the adjoint's velocities and
stresses, as `propagator` scales them, what all steps owe to both is

    d J = sum of a . (dt S D t + what forces sent) d log b - sum of s . C^-1 dC (dt S D v - what explosions sent).

The first sum is taken by parts, which moves the difference in time that is S D t from the velocities to the adjoint's:
it becomes that of v . (dt D S s + what velocity receivers send back). In the second, S is moved to the adjoint's side,
where it adds the memory that its state has of each stress; that of their trace is kept beside the sums. So both need
the velocities only, at one moment, and the record of a step is two fields of five, or three of nine.

Born modelling carries the scattered wave by the same steps. What a step has added to a field of the wave, fading apart,
is its medium times something: where the medium changes by a small part, that part of it is added to the scattered one.
"""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from forebay.wave.earth.arrays import returned
from forebay.wave.earth.folding import folded
from forebay.wave.elastic.layers import MEMORY
from forebay.wave.elastic.medium import AXES, parts, slopes
from forebay.wave.elastic.propagator import Propagator
from forebay.wave.physics import State

PARAMETERS = ("vp", "vs", "rho")
"""What the model is differentiated with respect to."""


def sensitivity_sums(propagator: Propagator) -> dict[str, Any]:
    """Make the sums, one for each array of the medium, in which nothing is yet."""
    shape = propagator.layout.shape(propagator.model.grid.fields(propagator.halo))
    shear = propagator.stresses[propagator.model.grid.ndim :]
    averages = (*("b" + name[1:] for name in propagator.velocities), *("m" + name[1:] for name in shear))
    sums = {name: propagator.kernels.zeros(shape) for name in ("traces", "inner", *averages)}
    return sums | {MEMORY: propagator.kernels.zeros((propagator.layers.offsets(1)[-1],))}


def add_sensitivity(
    propagator: Propagator, sums: dict[str, Any], adjoint: Any, record: State, step: int, every: int
) -> None:
    """Add what the step that led to a moment owes to the medium.

    `record` needs the velocities only, and of the adjoint the stresses are taken.
    """
    propagator.kernels.sense(propagator, sums, record, adjoint.back_to(step), every)
    if step > 0:  # what was sent in the step that led here
        _add_sent(propagator, sums, record, adjoint, step - 1, every)


def _add_sent(propagator: Propagator, sums: dict[str, Any], state: State, adjoint: Any, step: int, every: int) -> None:
    """Add the parts that what is sent in a step has in the sums, where it is sent."""
    kernels, loop = propagator.kernels, adjoint.loop
    ndim, row = propagator.model.grid.ndim, propagator.halo
    for group in loop.receivers:
        if not group.acts_on_stress:  # they send forces into the adjoint
            (name,) = group.fields
            weight = every * state[name].reshape(-1)[group.points.touched]
            weight = kernels.put(weight / propagator.weight_at(group.points.touched, half=name == "vz"))
            kernels.scatter(sums["b" + name[1:]], group.points, adjoint.sent[step][group.columns], weight)
    for group in loop.sources:
        if group.acts_on_stress:  # a strain of as much along each axis
            touched = group.points.touched
            trace = sum(adjoint.state[name].reshape(-1)[touched] for name in group.fields)
            weight = every * trace / propagator.weight_at(touched, half=False)
            values = loop.sent[step][group.columns]
            kernels.scatter(sums["inner"], group.points, values, kernels.put(weight / ndim))
            if propagator.model.grid.free_surface:  # across the surface it has no effect
                weight = weight * (1 - (propagator.planes_of(touched) == row) / ndim)
            kernels.scatter(sums["traces"], group.points, values, kernels.put(weight))


def gradient_of(propagator: Propagator, sums: dict[str, Any]) -> dict[str, Any]:
    """Return the derivatives with respect to "vp", "vs" and "rho", as arrays like the model's."""
    grid, halo = propagator.model.grid, propagator.halo
    count = grid.fields(halo)[0]

    def part(planes: slice) -> list[Any]:
        around = slice(max(planes.start - 1, 0), min(planes.stop + 1, count))
        totals = {name: _weighted(propagator, name, sums[name][around], around) for name in sums if name != MEMORY}
        derivatives = slopes(propagator.model, halo, around, totals)
        within = slice(planes.start - around.start, planes.stop - around.start)
        return [derivatives[name][within] for name in PARAMETERS]

    derivatives = folded(grid, halo, part, propagator.kernels.dtype)
    return {name: returned(values, propagator.model.vp) for name, values in zip(PARAMETERS, derivatives, strict=True)}


def _weighted(propagator: Propagator, name: str, sums: Any, planes: slice) -> Any:
    """Weight planes of a sum as the adjoint does, and give those over stresses their sign."""
    values = propagator.layout.cut(sums).astype(np.float64)
    weights = propagator.rows[int(name in ("bz", "mzx", "mzy"))][planes]
    for plane in np.flatnonzero(weights != 1):
        values[plane] *= weights[plane]
    return values if name.startswith("b") else -values


def scatterers(propagator: Propagator, change: Mapping[str, Any]) -> dict[str, Any]:
    """Return by which parts of what a step adds to each field a change of the model scatters, and how fields fade."""
    kernels, layout, halo = propagator.kernels, propagator.layout, propagator.halo

    def put(values: Any) -> Any:
        return kernels.put(layout.pad(values.astype(kernels.dtype)))

    strength = {name: put(values) for name, values in parts(propagator.model, halo, change).items()}
    for name in (*propagator.velocities, *propagator.stresses):
        strength[name] = _faded(propagator, name) ** 2
    for name in propagator.velocities:  # what is added before a step fades in it
        strength["b" + name[1:]] = strength["b" + name[1:]] / strength[name]
    return strength


def _faded(propagator: Propagator, name: str) -> Any:
    """Return by what a field fades, twice in a step: g at its points."""
    axes, along = AXES[propagator.model.grid.ndim], []
    for axis, (letter, g) in enumerate(zip(axes, propagator.layers.g, strict=True)):
        half = name[1:].count(letter) == 1  # of a normal stress, which names its axis twice, at whole points
        shape = [1] * len(axes)
        shape[axis] = -1
        along.append(g[int(half)].reshape(shape))
    return prod(along[1:], start=along[0])


def advance_scattered(
    propagator: Propagator,
    waves: tuple[State, State],
    strength: dict[str, Any],
    sends: tuple[Any, Any],
    steps: Sequence[int],
    hears: Any,
) -> tuple[State, State]:
    """Advance a wave and what it scatters, in place; an antenna hears the latter."""
    (wave, scattered), (senders, sent) = waves, sends
    ndim, silence = propagator.model.grid.ndim, 0 * sent
    normal, shear = propagator.stresses[:ndim], propagator.stresses[ndim:]
    for step in steps:
        added = {name: strength[name] * wave[name] for name in (*propagator.velocities, *propagator.stresses)}
        wave = propagator.advance(wave, senders, sent, [step])
        for name, before in added.items():
            np.subtract(wave[name], before, out=before)
        for name in propagator.velocities:
            scattered[name] += strength["b" + name[1:]] * added[name]
        scattered = propagator.advance(scattered, senders, silence, [step], hears)
        whole = strength["trace"] * sum(added[name] for name in normal)
        for name in normal:
            scattered[name] += whole
            scattered[name] += strength["same"] * added[name]
        for name in shear:
            scattered[name] += strength["m" + name[1:]] * added[name]
        if propagator.model.grid.free_surface:
            scattered[normal[0]][propagator.halo] = 0
    return wave, scattered
