"""Elastic migration: pressure waves against pressure waves, and the motion of particles against itself.

"pp" is the product of the divergences of both waves' velocities, which shear waves do not have; "velocity" is the inner
product of the velocities, in which all waves meet. Of the source's wave the divergence alone is kept for the first, one
field instead of five or nine, and the velocities for the second.

Pressure is sent back as a rate of volume, over the impedance at the receiver, velocity as a force, times the impedance:
side by side, such receivers send waves of the amplitude that they heard, up to a common factor, and in its phase. So
reflectors come out where they are whichever is heard, and both may be mixed.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.engine import reverse
from forebay.errors import WaveError
from forebay.wave.acoustic.propagator import State
from forebay.wave.earth.model import ElasticModel
from forebay.wave.elastic.loop import ElasticAdjoint
from forebay.wave.elastic.medium import on_host
from forebay.wave.elastic.propagator import Elastic
from forebay.wave.migrate import Migration
from forebay.wave.survey.shot import Shot

IMAGES = ("pp", "velocity")


def elastic_migrate(
    loop: Any,
    data: NDArray[Any],
    every: int,
    images: Sequence[str],
    condition: Callable[[Any, Any, int], None] | None,
    reversal: dict[str, Any],
) -> Migration:
    """Run the loop forward and the data back, and add up what meets; `data` are those of the shot, limited in band."""
    if not images or not set(images) <= set(IMAGES):
        raise WaveError(f"images={tuple(images)!r}: take some of {', '.join(map(repr, IMAGES))}")
    propagator, kernels, shot, grid = loop.propagator, loop.kernels, loop.shot, loop.propagator.model.grid
    adjoint = ElasticAdjoint(loop, data * strengths(shot, on_host(propagator.model)) * (shot.dt / grid.cell))
    shape = tuple(one.stop - one.start for one in window_of(propagator))
    sums = {name: (kernels.zeros(shape), kernels.zeros(shape)) for name in dict.fromkeys(images)}
    picture = getattr(kernels, "picture", None)

    def record(state: State, step: int) -> State:
        return seen_of(propagator, state, images)

    def backward(seen: State, step: int) -> None:
        # Its velocities are half a step late, those of a state half a step early.
        there, other = max(step - 1, 0), {}
        if picture is not None:  # made while stepping back
            picture(adjoint, there, sums, seen, every * loop.dt)
        if picture is None or condition is not None:
            other = seen_of(propagator, adjoint.back_to(there), images)
        for name, (image, illumination) in sums.items() if picture is None else ():
            if name == "pp":
                kernels.correlate(image, illumination, seen["div"], other["div"], every * loop.dt)
            else:
                for axis, field in enumerate(propagator.velocities):
                    kernels.correlate_between(image, illumination, seen[field], other[field], axis, every * loop.dt)
        if condition is not None:
            condition(model_of(propagator, seen), model_of(propagator, other), step)

    result = reverse(loop.forward, backward, propagator.zeros(), loop.steps, record=record, every=every, **reversal)

    def kept(one: Any) -> Any:
        return kernels.get(model_of(propagator, {"div": one})["div"])

    found = {name: (kept(image), kept(light)) for name, (image, light) in sums.items()}
    return Migration(*found[images[0]], every, loop.dt, grid, result, found)


def seen_of(propagator: Elastic, state: State, images: Sequence[str]) -> State:
    """Give what images need of a state: the divergence at the model's points, the velocities before and after them."""
    if see := getattr(propagator.kernels, "see", None):
        return dict(see(propagator, state, images))
    seen, v = {}, tuple(state[name] for name in propagator.velocities)
    if "pp" in images:
        seen["div"] = propagator.kernels.zeros(propagator.model.grid.shape)
        corner = tuple(axis.start for axis in propagator.inside)
        propagator.kernels.divergence(seen["div"], v, corner, propagator.table[2], propagator.weights)
    if "velocity" in images:
        for axis, name in enumerate(propagator.velocities):
            window = list(propagator.inside)
            window[axis] = slice(window[axis].start - 1, window[axis].stop)
            seen[name] = state[name][tuple(window)]
    return seen


def window_of(propagator: Elastic) -> tuple[slice, ...]:
    """Give the part of the fields that records and images cover: the model, on a GPU in whole words of rows."""
    return propagator.layout.window(propagator.model.grid.inside(propagator.halo))


def model_of(propagator: Elastic, seen: State) -> State:
    """Give the model's part of what images need or are."""
    within = getattr(propagator.kernels, "within", None)
    if within is None:
        return seen
    return {
        name: within(name, one, propagator.model.grid.shape, propagator.inside[-1].start) for name, one in seen.items()
    }


def strengths(shot: Shot, model: ElasticModel) -> NDArray[np.float64]:
    """Give by how much receivers multiply what they heard: the impedance of pressure waves, or one over it."""
    grid = model.grid
    place = np.rint((shot.receivers - grid.origin) / grid.spacing).astype(int)
    at = tuple(np.clip(place, 0, np.subtract(grid.shape, 1)).T)
    vp, rho = (np.asarray(values[at], np.float64) for values in (model.vp, model.rho))
    return np.where([kind == "pressure" for kind in shot.hears], 1 / (rho * vp), rho * vp)
