"""Elastic migration: pressure waves against pressure waves, and the motion of particles against itself.

"pp" is the product of the divergences of both waves' velocities, which shear waves do not have; "velocity" is the inner
product of the velocities, in which all waves meet. Of the source's wave the divergence alone is kept for the first, one
field instead of five or nine, and the velocities for the second.

Pressure is sent back as a rate of volume, over the impedance at the receiver, velocity as a force, times the impedance:
side by side, such receivers send waves of the amplitude that they heard, up to a common factor, and in its phase. So
reflectors come out where they are whichever is heard, and both may be mixed.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.errors import WaveError
from forebay.wave.earth.arrays import returned
from forebay.wave.elastic.propagator import Propagator
from forebay.wave.physics import Condition, Images, State
from forebay.wave.survey.shot import Shot

IMAGES = ("pp", "velocity")


def check_images(names: Sequence[str]) -> None:
    """Refuse names of images that there are none of."""
    if not names or not set(names) <= set(IMAGES):
        raise WaveError(f"images={tuple(names)!r}: take some of {', '.join(map(repr, IMAGES))}")


def image_sums(propagator: Propagator, names: Sequence[str]) -> Images:
    """Make images and their illuminations, in which nothing is seen yet."""
    zeros, shape = propagator.kernels.zeros, tuple(side.stop - side.start for side in propagator.window)
    return {name: (zeros(shape), zeros(shape)) for name in names}


def add_image(
    propagator: Propagator,
    adjoint: Any,
    step: int,
    sums: Images,
    record: State,
    factor: float,
    condition: Condition | None,
) -> None:
    """Take the adjoint to where it meets the record of a step, and add what is seen there."""
    # Its velocities are half a step late, those of a state half a step early.
    moment = max(step - 1, 0)
    other = propagator.kernels.picture(adjoint, moment, sums, record, factor, condition is not None)
    if condition is not None:
        condition(within(propagator, record), within(propagator, other), step)


def image_arrays(propagator: Propagator, sums: Images) -> Images:
    """Return the model's part of images as arrays like the model's."""

    def cut(image: Any) -> Any:
        return returned(within(propagator, {"div": image})["div"].copy(), propagator.model.vp)

    return {name: (cut(image), cut(illumination)) for name, (image, illumination) in sums.items()}


def within(propagator: Propagator, record: State) -> State:
    """Return the model's part of what images need or are."""
    grid, start = propagator.model.grid, propagator.inside[-1].start
    return {name: propagator.kernels.within(name, values, grid.shape, start) for name, values in record.items()}


def strengths(shot: Shot, propagator: Propagator) -> NDArray[np.float64]:
    """Return by how much receivers multiply what they heard: the impedance of pressure waves, or one over it."""
    model, kernels = propagator.model, propagator.kernels
    place = np.rint((shot.receivers - model.grid.origin) / model.grid.spacing).astype(int)
    inside = np.clip(place, 0, np.subtract(model.grid.shape, 1))
    cells = kernels.put(np.ravel_multi_index(tuple(inside.T), model.grid.shape))
    vp, _, rho = (kernels.get(values.reshape(-1)[cells]).astype(np.float64) for values in model.arrays)
    return np.where([kind == "pressure" for kind in shot.hears], 1 / (rho * vp), rho * vp)
