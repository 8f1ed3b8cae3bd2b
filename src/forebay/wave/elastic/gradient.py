"""The gradient of a misfit with respect to the velocities and the density of an elastic model.

A step depends on the medium through b = 1 / rho and the stiffness C. With a and s the adjoint's velocities and
stresses, as `elastic` scales them, what all steps owe to both is

    d J = sum of a . (dt D t + what forces sent) d log b - sum of s . C^-1 dC (dt D v - what explosions sent).

The first sum is taken by parts, which moves the difference in time that is D t from the velocities to the adjoint's: it
becomes that of v . (dt D s + what velocity receivers send back). So both need the velocities only, at one moment, and
the record of a step is two fields of five, or three of nine.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.engine import reverse
from forebay.wave.acoustic.propagator import State
from forebay.wave.elastic.loop import ElasticAdjoint, ElasticLoop
from forebay.wave.elastic.medium import on_host, slopes
from forebay.wave.elastic.propagator import Elastic
from forebay.wave.gradient import Gradient, Misfit


def elastic_gradient(
    loop: Any, observed: NDArray[Any], misfit: Misfit, every: int, reversal: dict[str, Any]
) -> Gradient:
    """Run the loop forward and back, and gather what each moment owes to the medium."""
    propagator = loop.propagator
    totals = _totals(propagator)
    reached: list[tuple[float, NDArray[Any], ElasticAdjoint]] = []

    def turn(state: State) -> None:
        data = loop.data()
        value, residual = misfit(data, observed)
        reached.append((value, data, ElasticAdjoint(loop, residual)))
        if loop.steps % every == 0:
            add(state, loop.steps)

    def add(state: State, step: int) -> None:
        adjoint = reached[0][2]
        propagator.add_sensitivity(totals, state, adjoint.back_to(step), every)
        if step > 0:  # what was sent in the step that led here
            _add_sent(loop, totals, state, adjoint, step - 1, every)

    result = reverse(
        loop.forward,
        add,
        propagator.zeros(),
        loop.steps,
        record=propagator.velocities,
        every=every,
        turn=turn,
        **reversal,
    )
    value, data, _ = reached[0]
    found = slopes(on_host(propagator.model), propagator.halo, _weighted(propagator, totals))
    return Gradient(value, {name: one.astype(loop.kernels.dtype) for name, one in found.items()}, data, result)


def _totals(propagator: Elastic) -> dict[str, Any]:
    """Make the sums, one for each array of the medium, in which nothing is yet."""
    shape = propagator.layout.shape(propagator.model.grid.fields(propagator.halo))
    shear = propagator.stresses[propagator.model.grid.ndim :]
    averages = (*("b" + name[1:] for name in propagator.velocities), *("m" + name[1:] for name in shear))
    return {name: propagator.kernels.zeros(shape) for name in ("traces", "inner", *averages)}


def _add_sent(
    loop: ElasticLoop, totals: dict[str, Any], state: State, adjoint: ElasticAdjoint, step: int, every: int
) -> None:
    """Add the parts that what is sent in a step has in the sums, where it is sent."""
    propagator, kernels = loop.propagator, loop.kernels
    ndim, row = propagator.model.grid.ndim, propagator.halo
    for part in loop.receivers:
        if not part.still:  # they send forces into the adjoint
            (name,) = part.fields
            weight = every * state[name].reshape(-1)[part.points.touched]
            weight = kernels.put(weight / propagator.weight_at(part.points.touched, half=name == "vz"))
            kernels.scatter(totals["b" + name[1:]], part.points, adjoint.sent[step][part.columns], weight)
    for part in loop.sources:
        if part.still:  # a strain of as much along each axis
            touched = part.points.touched
            trace = sum(adjoint.state[name].reshape(-1)[touched] for name in part.fields)
            weight = every * trace / propagator.weight_at(touched, half=False)
            values = loop.sent[step][part.columns]
            kernels.scatter(totals["inner"], part.points, values, kernels.put(weight / ndim))
            if propagator.model.grid.free_surface:  # across the surface it has no effect
                weight = weight * (1 - (propagator.planes_of(touched) == row) / ndim)
            kernels.scatter(totals["traces"], part.points, values, kernels.put(weight))


def _weighted(propagator: Elastic, totals: dict[str, Any]) -> dict[str, NDArray[np.float64]]:
    """Weight the rows of the sums as the adjoint does, and give the sums over stresses their sign."""
    found = {}
    for name, total in totals.items():
        between = name in ("bz", "mzx", "mzy")
        rows = propagator.rows[int(between)].reshape(-1, *(1,) * (total.ndim - 1))
        sign = 1 if name.startswith("b") else -1
        values = propagator.layout.cut(propagator.kernels.get(total))
        found[name] = sign * rows * values.astype(np.float64)
    return found
