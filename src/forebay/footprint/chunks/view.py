"""A learned model as the chunk planner asks for it: of one block shape, for all inputs and with their features."""

from dataclasses import dataclass
from typing import Any

from forebay.footprint.errors import FootprintError
from forebay.footprint.estimate import Estimate
from forebay.footprint.model import Features, Model

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Blocks:
    """The model of a function whose inputs are all cut into blocks of one shape."""

    model: Model
    features: Features | None = None

    @property
    def ndim(self) -> int:
        """The number of axes of a block."""
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
        """Estimate a run on blocks of this shape."""
        features = self.features(shape) if callable(self.features) else self.features
        return self.model.at(self._lengths(shape), features)

    def input_bytes(self, shape: Shape) -> int:
        """Bytes of one block of each input."""
        return self.model.input_bytes(self._lengths(shape))

    def _lengths(self, shape: Shape) -> Shape:
        return tuple(shape) * len(self.model.layout.ndims)


def for_blocks(model: Any, features: Features | None = None) -> Any:
    """Give what the planner asks: a model of one input as it is, one of several with all of them cut alike."""
    if not isinstance(model, Model) or (len(model.layout.ndims) == 1 and features is None):
        return model
    if len(set(model.layout.ndims)) > 1:
        raise FootprintError(
            f"{model.name} takes inputs of {', '.join(map(str, model.layout.ndims))} axes, which cannot be cut alike: "
            "learn it by the lengths of the one that is cut, and let inputs= make the others"
        )
    return Blocks(model, features)
