"""What waves of one pressure share, whatever their medium: what is seen and heard of it, and its image."""

from collections.abc import Sequence
from typing import Any, Protocol

from numpy.typing import NDArray

from forebay.codec import Encoded
from forebay.errors import WaveError
from forebay.wave.earth.arrays import returned
from forebay.wave.imaging import Imaging
from forebay.wave.kernels.rows import Rows
from forebay.wave.physics import Condition, Images, Kernels, Physics, State
from forebay.wave.survey.points import Points
from forebay.wave.survey.shot import Shot
from forebay.wave.survey.wavelet import time_derivative


class PressureKernels(Kernels, Protocol):
    """What the loops of all such waves compute, for one grid, one order and one type."""

    rows: Rows
    """how the rows of fields lie in memory"""
    lead: tuple[int, ...]
    """the axis that all arrays of a batch begin with, as many as there are shots; empty for a shot alone"""

    def run_forward(
        self, propagator: Any, state: Any, senders: Any, sent: Any, steps: Sequence[int], hears: Any
    ) -> Any:
        """Advance a state by several steps, sending and hearing a row of values in each.

        Parameters
        ----------
        propagator
            Whose model it is.
        senders, sent
            An antenna, and what it sends: one row for every step.
        steps
            The rows in the order in which they are sent and heard.
        hears
            An antenna and the array that is to hold what it hears, or None for either.
        """

    def gather(self, p: Any, points: Points, out: Any) -> None:
        """Read a field at points."""

    def scatter(self, p: Any, points: Points, values: Any, factors: Any) -> None:
        """Add values at points to a field, each cell's share times its factor: the transpose of `gather`."""

    def correlate(self, image: Any, illumination: Any, p: Any, q: Any, factor: float) -> None:
        """Add p q to an image and p p to its illumination, both times a factor; q may be a whole field."""

    def crop(self, p: Any) -> Any:
        """Return what records and images cover of a field."""


class PressureWaves(Physics):
    """The part of a physics that knows of the field "p" alone."""

    order: int
    rows: Rows
    """how the rows of fields lie in memory"""

    @staticmethod
    def check_images(names: Sequence[str]) -> None:
        """Refuse all but the one image of acoustic waves."""
        if tuple(names) != ("pp",):
            raise WaveError(
                f"images={names!r} of an acoustic model, which has one: leave it out, or give an ElasticModel"
            )

    @staticmethod
    def record_fields(ndim: int, names: Sequence[str]) -> tuple[str, ...]:
        """Return the name of the pressure, which the one image needs."""
        return ("p",)

    @property
    def halo(self) -> int:
        """Points around the fields that only stencils read."""
        return self.order // 2

    @property
    def inside(self) -> tuple[slice, ...]:
        """Where the model lies in the fields."""
        return self.rows.inside(self.model.grid.inside(self.halo))

    @property
    def window(self) -> tuple[slice, ...]:
        """The part of the fields that records and images cover: the model, in whole words of rows."""
        return self.rows.window(self.model.grid.inside(self.halo))

    def within(self, record: Any) -> Any:
        """Return the model's part of a record or an image."""
        shift = self.inside[-1].start - self.window[-1].start
        return record[..., shift : shift + self.model.grid.shape[-1]]

    def pressure(self, state: State) -> Any:
        """Return the pressure inside the model."""
        return state["p"][(..., *self.inside)]

    def record(self, state: State, antenna: Any, out: Any) -> None:
        """Read the pressure at an antenna's points."""
        self.kernels.gather(state["p"], antenna.points, out)

    def arrive(self, adjoint: Any, step: int, out: Any) -> None:
        """Take the adjoint to the end of a step, and read the pressure at the sources."""
        adjoint.back_to(step + 1)
        self.record(adjoint.state, adjoint.loop.sources, out)

    def advance(
        self, state: State, senders: Any, sent: Any, steps: Sequence[int], hears: tuple[Any, Any] | None = None
    ) -> State:
        """Advance a state by several steps, sending and hearing a row of values in each."""
        return dict(self.kernels.run_forward(self, state, senders, sent, steps, hears))

    def adjoint_fields(self, state: State) -> Any:
        """Return the pressure, with its layers and halo."""
        return state["p"]

    def image_sums(self, names: Sequence[str]) -> Images:
        """Make the image of the pressure, and its illumination."""
        return {"pp": (self.images(), self.images())}

    def images(self) -> Any:
        """Make an image in which nothing is seen yet, of what `image_record` returns."""
        return self.kernels.zeros((*self.kernels.lead, *(side.stop - side.start for side in self.window)))

    def sent_back(self, data: NDArray[Any], shot: Shot) -> NDArray[Any]:
        """Turn sums over samples into integrals."""
        return data * (shot.dt / self.dt)

    @staticmethod
    def in_phase(data: NDArray[Any], dt: float) -> NDArray[Any]:
        """Return the derivative of data, backward in time.

        Receivers side by side send waves that are the integral of what each of them sends, times half the velocity.
        """
        return -time_derivative(data, dt)

    def image_record(self, state: State, names: Sequence[str] = ("pp",)) -> State:
        """Return what an image needs of a state: the pressure inside the model, without layers and halo."""
        return {"p": self.kernels.crop(state["p"])}

    def image_window(self, state: State, names: Sequence[str] = ("pp",)) -> State:
        """Return the same where it lies."""
        return {"p": state["p"][(..., *self.window)]}

    def add_image(
        self, adjoint: Any, step: int, sums: Images, record: State, factor: float, condition: Condition | None
    ) -> None:
        """Take the adjoint to the time of a record, and add the product of both pressures to the image."""
        steps_back = adjoint.step > step
        receiver = adjoint.back_to(step, Imaging(*sums["pp"], record["p"], factor) if steps_back else None)
        if not steps_back:  # so no image was made on the way
            p = record["p"]
            seen = p.codec.decode(p) if isinstance(p, Encoded) else p
            self.kernels.correlate(*sums["pp"], seen, receiver, factor)
        if condition is not None:
            condition(self.within(record["p"]), receiver[(..., *self.inside)], step)

    def image_arrays(self, sums: Images) -> Images:
        """Return the model's part of the image as arrays like the model's."""

        def cut(image: Any) -> Any:
            return returned(self.within(image).copy(), self.model.velocity)

        return {name: (cut(image), cut(light)) for name, (image, light) in sums.items()}

    @property
    def sensitive_fields(self) -> tuple[str, ...]:
        """The pressure, of which a gradient makes do."""
        return ("p",)
