"""What a physics is: the one seam between waves of a kind and what `simulate`, `migrate` and `gradient` do with them.

A class that answers `Physics` and is registered for a type of model is all that a new kind of wave needs: time loops,
migrations, gradients, budgets and the checks of time step and grid follow.
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from forebay.codec import Codec
from forebay.errors import WaveError
from forebay.wave.earth.grid import Grid
from forebay.wave.survey.shot import Shot

State = dict[str, Any]
"""The fields of a wave by name, or those of them that a record keeps."""
Images = dict[str, tuple[Any, Any]]
"""Images by name, each with its illumination."""
Condition = Callable[[Any, Any, int], None]
"""An imaging condition of the user's: ``condition(source, receiver, step)``."""

NOT_SCATTERED = "Born modelling of waves of this kind is not there"


class EarthModel(Protocol):
    """What waves travel through."""

    @property
    def grid(self) -> Grid:
        """Where its values are."""

    @property
    def slowest(self) -> float:
        """The smallest velocity of its waves."""

    @property
    def fastest(self) -> float:
        """The largest velocity of its waves."""


class Kernels(Protocol):
    """Arrays where the waves of a physics are computed."""

    dtype: np.dtype[Any]

    def zeros(self, shape: tuple[int, ...]) -> Any:
        """Make an array of zeros."""

    def put(self, values: Any) -> Any:
        """Bring values to where the kernels work."""

    def get(self, values: Any) -> NDArray[Any]:
        """Bring values back to NumPy."""


class Physics(Protocol):
    """Waves of one kind in a model, in steps of one length.

    `loop` and `adjoint` are a `Loop` and its `Adjoint`; an antenna is what `antenna` made of positions. Methods with a
    body here are right for waves whose data and impulses belong to the moments of the steps.
    """

    model: Any
    dt: float
    kernels: Any
    """the `Kernels` that hold its arrays"""
    image_names: ClassVar[tuple[str, ...]] = ()
    """names of its images, where there are several to choose from; an only one has none"""
    negative_images: ClassVar[tuple[str, ...]] = ()
    """those that are negative where an echo has the sign of the wave that made it"""

    def __init__(self, model: Any, dt: float, order: int, dtype: Any) -> None: ...

    @classmethod
    def of_batch(cls, models: Sequence[Any], dt: float, order: int, dtype: Any) -> "Physics":
        """Return waves of as many shots as there are models, which advance together.

        Arrays of a state, of records and of sums begin with an axis of shots, and positions with the number of a shot.
        """
        raise WaveError("waves of this kind advance one shot at a time: give shots one by one")

    # What a time step, a grid and its layers must be, asked before there is one.

    @staticmethod
    def largest_dt(model: Any, order: int) -> float:
        """Return the largest stable time step in a model."""

    @staticmethod
    def reference_frequency(model: Any) -> float:
        """Return a frequency in Hz that steps must hold whatever is sent, 0 where there is none."""
        return 0.0

    @staticmethod
    def points_per_wavelength(order: int) -> float:
        """Return how many points the shortest wave needs, see `stability.resolving`."""

    @staticmethod
    def check_images(names: Sequence[str]) -> None:
        """Refuse names of images that there are none of; they are as the user gave them."""
        return

    @staticmethod
    def state_shapes(grid: Grid, order: int) -> dict[str, tuple[int, ...]]:
        """Return the names and shapes of a state's arrays, as a job's budget is checked by them."""

    @staticmethod
    def record_fields(ndim: int, names: Sequence[str]) -> tuple[str, ...]:
        """Return the names of the fields that images need, see `seen`."""

    # Fields, and the points at which they are sent and heard.

    def zeros(self) -> State:
        """Make a state in which nothing moves yet."""

    def pressure(self, state: State) -> Any:
        """Return the pressure inside the model, or what is shown in its place."""

    def antenna(self, positions: Any, kinds: Sequence[str]) -> Any:
        """Bind positions, one row of coordinates each, and what each of them sends or hears."""

    def impulses(self, density: NDArray[np.float64], kinds: Sequence[str]) -> NDArray[np.float64]:
        """Turn wavelets per volume, a row for each step, into what a step is given."""
        return density

    def impulses_transposed(self, owed: NDArray[np.float64], kinds: Sequence[str]) -> NDArray[np.float64]:
        """Apply the transpose of `impulses`."""
        if type(self).impulses is not Physics.impulses:
            raise WaveError("impulses of this kind have no transpose: give their physics `impulses_transposed`")
        return owed

    def at_steps(self, heard: NDArray[Any], kinds: Sequence[str]) -> NDArray[Any]:
        """Take what was heard in each step to the step's beginning."""
        return heard

    def at_steps_transposed(self, data: NDArray[Any], kinds: Sequence[str]) -> NDArray[Any]:
        """Apply the transpose of `at_steps`."""
        return data

    # Steps, forward and back.

    def advance(
        self, state: State, senders: Any, sent: Any, steps: Sequence[int], hears: tuple[Any, Any] | None = None
    ) -> State:
        """Advance a state, which may be overwritten: in each of `steps` an antenna sends that row of `sent`.

        `hears` is another antenna, and the array whose row of the same number takes what it hears before the step.
        """

    def retreat(self, state: State, senders: Any, sent: Any, steps: Sequence[int], image: Any = None) -> State:
        """Take the adjoint's state back through `steps`: apply the exact transpose of `advance`.

        `image`, an `Imaging` or None, may be made of the last one on the way; `add_image` alone asks for it.
        """

    def adjoint_fields(self, state: State) -> Any:
        """Return what `Adjoint.back_to` returns of the adjoint's state: all of it, or one field."""
        return state

    def arrive(self, adjoint: Any, step: int, out: Any) -> None:
        """Take the adjoint back to what data owe to what sources sent in a step, and read it at each of them."""
        raise WaveError("waves of this kind do not tell what their sources are owed: give their physics `arrive`")

    def scatterers(self, change: Any, parameter: str) -> Any:
        """Bind a small change of the model, an array like the model's, for `advance_scattered`."""
        raise WaveError(NOT_SCATTERED)

    def advance_scattered(
        self, waves: tuple[State, State], strength: Any, senders: Any, sent: Any, steps: Sequence[int], hears: Any
    ) -> tuple[State, State]:
        """Advance a wave and what it scatters to first order, both of which may be overwritten; see `advance`."""
        raise WaveError(NOT_SCATTERED)

    # Images.

    def image_sums(self, names: Sequence[str]) -> Images:
        """Make the images of some names, in which nothing is seen yet."""

    def sent_back(self, data: NDArray[Any], shot: Shot) -> NDArray[Any]:
        """Scale data for their way back, so that an image does not depend on the sampling."""

    @staticmethod
    def in_phase(data: NDArray[Any], dt: float) -> NDArray[Any]:
        """Return data whose image has its peak where an echo came from, not a zero."""
        return data

    def image_record(self, state: State, names: Sequence[str]) -> State:
        """Return what images need of a state."""

    def image_window(self, state: State, names: Sequence[str]) -> State:
        """Return the same, perhaps as parts of the state's own arrays, for a codec that reads them where they lie."""
        return self.image_record(state, names)

    def correlates_encoded(self, codec: Codec) -> bool:
        """Tell whether `add_image` takes records that a codec has encoded, as they are kept."""
        return False

    def add_image(
        self, adjoint: Any, step: int, sums: Images, record: State, factor: float, condition: Condition | None
    ) -> None:
        """Take the adjoint to where it meets the record of a step, and add what is seen there, times a factor.

        A `condition` is given the fields of both waves inside the model.
        """

    def image_arrays(self, sums: Images) -> Images:
        """Return the model's part of images as arrays like the model's."""

    # Sensitivity.

    @property
    def sensitive_fields(self) -> tuple[str, ...]:
        """Names of the fields that `add_sensitivity` needs of a state."""

    def sensitivity_sums(self) -> dict[str, Any]:
        """Make what `add_sensitivity` adds to."""

    def add_sensitivity(self, sums: dict[str, Any], adjoint: Any, record: State, step: int, every: int) -> None:
        """Take the adjoint back to a step, and add what it owes to the model, `every` times.

        `record` has the `sensitive_fields` before the step. The first call may be for the state after the last one.
        """

    def gradient(self, sums: dict[str, Any], parameter: str) -> Any:
        """Turn the sums into the derivative with respect to the model, as arrays like the model's."""


_REGISTERED: dict[type, type[Physics]] = {}


def register(model: type, physics: type[Physics]) -> None:
    """Let models of a type be served by a physics."""
    _REGISTERED[model] = physics


def physics_of(model: Any) -> type[Physics]:
    """Return the physics that serves a model."""
    for kind in type(model).__mro__:
        if kind in _REGISTERED:
            return _REGISTERED[kind]
    names = ", ".join(sorted(kind.__name__ for kind in _REGISTERED))
    raise WaveError(f"no physics is registered for a model of type {type(model).__name__}: take one of {names}")
