"""A footprint as the chunk planner asks for it: of one chunk shape, for all inputs and with their features."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from forebay.footprint.errors import FootprintError
from forebay.footprint.estimate import Estimate
from forebay.footprint.fit.footprint import Footprint

Shape = tuple[int, ...]
Features = Mapping[str, float] | Callable[[tuple[int, ...]], Mapping[str, float]]
"""what a chunk has beside its shape, at most; or a function of its shape"""


@dataclass(frozen=True)
class ChunkedInputs:
    """The footprint of a function whose inputs are all cut into chunks of one shape."""

    model: Footprint
    features: Features | None = None

    @property
    def ndim(self) -> int:
        """The number of axes of a chunk."""
        return self.model.layout.ndims[0]

    @property
    def dtype(self) -> Any:
        """The dtype of the inputs."""
        return self.model.dtype

    @property
    def place(self) -> str:
        """Where the bytes are."""
        return self.model.place

    def predict(self, shape: Shape, /) -> Estimate:
        """Estimate a run on chunks of this shape."""
        features = self.features(shape) if callable(self.features) else self.features
        return self.model.at(self._lengths(shape), features)

    def input_bytes(self, shape: Shape) -> int:
        """Count the bytes of one chunk of each input."""
        return self.model.input_bytes(self._lengths(shape))

    def _lengths(self, shape: Shape) -> Shape:
        return tuple(shape) * len(self.model.layout.ndims)


def for_chunks(model: Any, features: Features | None = None) -> Any:
    """Return what the planner asks: a model of one input as it is, one of several with all of them cut alike."""
    if not isinstance(model, Footprint) or (len(model.layout.ndims) == 1 and features is None):
        return model
    if len(set(model.layout.ndims)) > 1:
        raise FootprintError(
            f"{model.name} takes inputs of {', '.join(map(str, model.layout.ndims))} axes, which cannot be cut alike: "
            "learn it by the lengths of the one that is cut, and let inputs= make the others"
        )
    return ChunkedInputs(model, features)
