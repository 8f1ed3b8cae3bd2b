"""The gradient of a misfit with respect to the velocities and the density of an elastic model.

A step depends on the medium through b = 1 / rho and the stiffness C. With a and s the adjoint's velocities and
stresses, as `propagator` scales them, what all steps owe to both is

    d J = sum of a . (dt S D t + what forces sent) d log b - sum of s . C^-1 dC (dt S D v - what explosions sent).

The first sum is taken by parts, which moves the difference in time that is S D t from the velocities to the adjoint's:
it becomes that of v . (dt D S s + what velocity receivers send back). In the second, S is moved to the adjoint's side,
where it adds the memory that its state has of each stress; that of their trace is kept beside the sums. So both need
the velocities only, at one moment, and the record of a step is two fields of five, or three of nine.
"""

from typing import Any

import numpy as np

from forebay.wave.earth.arrays import returned
from forebay.wave.earth.folding import folded
from forebay.wave.elastic.layers import MEMORY
from forebay.wave.elastic.medium import slopes
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
