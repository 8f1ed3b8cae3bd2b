"""The seam between chunks and models: what the planner asks of a model, and what it assumes where one does not say.

Any object with ``ndim``, ``dtype`` and ``predict(shape)`` will do. ``place``, ``input_bytes(shape)`` and ``layout`` are
asked for here alone, and each has a default.
"""

import math
from typing import Any, Protocol

import numpy as np

from forebay.footprint.estimate import Estimate

Shape = tuple[int, ...]


class Predictor(Protocol):
    """What the planner asks of a model."""

    @property
    def ndim(self) -> int: ...  # noqa: D102
    @property
    def dtype(self) -> Any: ...  # noqa: D102
    def predict(self, shape: Shape, /) -> Estimate: ...  # noqa: D102


def place_of(model: Predictor) -> str:
    """Return where a model's bytes are: on the host, unless it says otherwise."""
    return getattr(model, "place", "host")


def ndims_of(model: Predictor) -> tuple[int, ...]:
    """Return the number of axes of each input of a model; it has one input, unless it says otherwise."""
    layout = getattr(model, "layout", None)
    return (model.ndim,) if layout is None else tuple(layout.ndims)


def input_bytes(model: Predictor, shape: Shape) -> int:
    """Count the bytes of a model's inputs at a shape: of one array of its dtype, unless it counts them itself."""
    if hasattr(model, "input_bytes"):
        return int(model.input_bytes(shape))
    return int(math.prod(shape) * np.dtype(model.dtype).itemsize)


def output_bytes(estimate: Estimate) -> int:
    """Count the bytes that a run leaves: all of its bound where the output is not known."""
    if estimate.output_shape is None or estimate.output_dtype is None:
        return estimate.upper
    return math.prod(estimate.output_shape) * np.dtype(estimate.output_dtype).itemsize
