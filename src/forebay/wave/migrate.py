"""Reverse-time migration of a shot: where the source's wave and the data, sent back in time, meet."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from forebay.codec import Codec, get
from forebay.engine import Result, reverse
from forebay.errors import WaveError
from forebay.wave.earth.grid import Grid
from forebay.wave.earth.strips import in_strips
from forebay.wave.imaging import Imaging, check_every, imaging_interval, inverse_scattering, laplacian_filter, normalise
from forebay.wave.loop import Adjoint, frequencies_of, image_records, pairs, prepare, rehearsed
from forebay.wave.paged.door import reversal_within
from forebay.wave.physics import Condition, EarthModel, Images, Physics, State, physics_of
from forebay.wave.survey.shot import Shot
from forebay.wave.survey.wavelet import band_limited


@dataclass(frozen=True, eq=False)
class LossyImage:
    """The image that a shot has where a codec encodes the records of its history."""

    image: Any
    illumination: Any
    ratio: float
    """how many times smaller the records are, all in all"""


@dataclass(frozen=True, eq=False)
class Migration:
    """The image of a shot, and how it came about; its arrays are where the model's are, of the same library."""

    image: Any
    """the product of both waves, integrated over time"""
    illumination: Any
    """the square of the source's wave, integrated over time"""
    every: int
    """steps between two contributions to the image"""
    dt: float
    """seconds of a step"""
    grid: Grid
    result: Result
    """of the reversal: its plan and what it measured"""
    images: Images = field(default_factory=dict)
    """image and illumination by name, where a model has several; the first one is `image`"""
    compared: dict[str, LossyImage] = field(default_factory=dict)
    """what `image` is with each of the codecs that were to be compared"""

    def clean(self) -> Any:
        """Return the image divided by the illumination and rid of its smooth part, where the image is."""
        return laplacian_filter(normalise(self.image, self.illumination), self.grid)

    def inverse_scattering(self) -> Any:
        """Return what `imaging.inverse_scattering` makes of the image, where that is."""
        return inverse_scattering(self.image, self.illumination, self.grid)


@overload
def migrate(shot: Shot, model: EarthModel, **options: Any) -> Migration: ...


@overload
def migrate(shot: Sequence[Shot], model: EarthModel | Sequence[EarthModel], **options: Any) -> list[Migration]: ...


def migrate(
    shot: Shot | Sequence[Shot],
    model: EarthModel | Sequence[EarthModel],
    *,
    dt: float | None = None,
    order: int = 8,
    every: int | None = None,
    dtype: Any = np.float32,
    images: Sequence[str] = ("pp",),
    zero_phase: bool = False,
    condition: Condition | None = None,
    compare: Sequence[str | Codec] = (),
    **reversal: Any,
) -> Migration | list[Migration]:
    """Migrate a shot through a (smooth) model, inside a budget.

    Without a lossy codec the image is bit-equal for every budget and schedule.

    Parameters
    ----------
    shot
        With its data, from which the direct wave has been removed where that matters. They are limited to the band of
        the wavelet, beyond which the source's wave has nothing to be compared with. At their end they fade out. Several
        shots in two dimensions may be given at once: they advance together, in one reversal, and each has the image
        that it would have alone.
    model
        What the waves travel through; of several shots one for all, or one for each, of the same shape and spacing.
    dt, order, dtype
        As for `simulate`.
    every
        Steps between two contributions to the image. Unless told, they are as many as the wavelet's band allows, see
        `imaging.imaging_interval`; a `WaveWarning` says when they are more.
    images
        Of an elastic model: "pp", "velocity" or both, see `elastic.images`. An acoustic one has the image of its
        pressure.
    zero_phase
        Whether the image of a step in velocity has its peak there, positive where the velocity rises with depth. The
        acoustic image of the exact adjoint otherwise falls through zero there: receivers side by side send the integral
        of what they heard. So the derivative of the data is sent back instead.
    condition
        An imaging condition of your own, ``condition(source, receiver, step)``, beside the built-in one. At each
        contribution, latest first, it sees the pressure of both waves inside the model, read-only. Of an elastic model
        it sees the fields that its images need, by name. Fields of several shots have an axis for them before the
        others.
    compare
        Codecs to compare: what each makes of the image is seen beside it, in the same passage through the steps. Every
        record is encoded and decoded by each of them, and takes part in an image of its own.
    **reversal
        For `forebay.reverse`: `budget`, `codec`, `schedule`, `plan`, `costs`, `directory`, ... Where the `budget` of an
        acoustic model on the host names a device, that computes, and fields larger than its part are paged. With
        `resume`, a directory for this shot alone, a process that is killed loses a part of the shot only: the same call
        goes on.
        One with other data, model or images is refused.
        What `condition` writes is its own to keep. Of several shots, the bound of a codec is relative to the range of
        all of them.

    Examples
    --------
    >>> from forebay.wave import AcousticModel, simulate, ricker
    >>> grid = Grid((60, 80), spacing=10.0, absorb=20)
    >>> true, smooth = np.full((60, 80), 2000.0), np.full((60, 80), 2000.0)
    >>> true[40:] = 2500.0
    >>> shot = Shot((50, 400), [(50, x) for x in range(0, 800, 20)], ricker(15, 0.004, 150), dt=0.004)
    >>> echo = simulate(shot, AcousticModel(true, grid)) - simulate(shot, AcousticModel(smooth, grid))
    >>> migration = migrate(shot.with_data(echo), AcousticModel(smooth, grid), budget="2MB")
    >>> bool(abs(migration.clean()[20:, 40].argmax() - 20) <= 2)
    True
    """
    shots, models = pairs(shot, model)
    if any(own.data is None for own in shots):
        raise WaveError("a shot without data: add what its receivers heard with shot.with_data(...)")
    if not isinstance(shot, Shot) and (compare or reversal.get("resume") is not None):
        raise WaveError("compare= and resume= are for a shot alone: give shots one by one, or leave them out")
    physics_of(models[0]).check_images(images)
    names = tuple(dict.fromkeys(images))
    check_every(every)
    with reversal_within(model, order, dtype, reversal, Imaging) as (paging, reversal):
        loop = prepare(shot, model, dt, order, dtype, every=every, listens=False, paging=paging)
        propagator = loop.propagator
        sums = propagator.image_sums(names)
        frequencies = frequencies_of(shots)
        intervals = {imaging_interval(frequency, loop.dt) for frequency in frequencies} if every is None else {every}
        if len(intervals) > 1:
            raise WaveError(f"shots that would be imaged every {sorted(intervals)} steps: give one every for all")
        steps_between = intervals.pop()
        data = dict[int, NDArray[Any]]()

        def prepare_data(part: slice) -> None:
            data[part.start] = _sent_back(shots[part.start], frequencies[part.start], propagator, zero_phase)

        in_strips(prepare_data, (len(shots),), points=1)
        adjoint = Adjoint(loop, np.concatenate([data[number] for number in range(len(shots))], axis=1))

        comparisons = [
            _Comparison(get(codec) if isinstance(codec, str) else codec, propagator, names) for codec in compare
        ]

        def backward(record: State, step: int) -> None:
            factor = steps_between * loop.dt
            propagator.add_image(adjoint, step, sums, record, factor, condition)
            for comparison in comparisons:
                propagator.add_image(adjoint, step, comparison.sums, comparison.lossy(record), factor, None)

        def rehearse() -> Callable[[], None]:
            record, own, factor = (
                propagator.image_record(propagator.zeros(), names),
                propagator.image_sums(names),
                loop.dt,
            )
            return rehearsed(
                adjoint, steps_between, lambda wave, step: propagator.add_image(wave, step, own, record, factor, None)
            )

        if reversal.get("resume") is not None:
            if comparisons:
                raise WaveError("compare= beside resume=, which keeps one image: leave one of them out")
            reversal["adjoint"] = adjoint.kept_with(sums)
        needs_arrays = condition is not None or bool(comparisons) or "adjoint" in reversal
        records = image_records(propagator, names, reversal, needs_arrays)
        result = reverse(
            loop.forward,
            backward,
            propagator.zeros(),
            loop.steps,
            every=steps_between,
            **{"signature": loop.signature, "rehearse": rehearse} | records | reversal,
        )
        negative = set(propagator.negative_images if zero_phase else ())
        arrays = _arrays(propagator, sums, negative)
        named = arrays if propagator.image_names else {}
        compared = {
            comparison.codec.name: LossyImage(
                *_arrays(propagator, comparison.sums, negative)[names[0]], comparison.ratio
            )
            for comparison in comparisons
        }
        if isinstance(shot, Shot):
            return Migration(*arrays[names[0]], steps_between, loop.dt, models[0].grid, result, named, compared)
        seen = zip(*arrays[names[0]], models, strict=True)
        return [Migration(image, light, steps_between, loop.dt, own.grid, result) for image, light, own in seen]


def _sent_back(shot: Shot, frequency: float, propagator: Physics, zero_phase: bool) -> NDArray[Any]:
    """Return what the receivers of a shot send back, of waves up to a frequency.

    Summed over time, what the data hold beyond the source's band meets nothing; taken every few steps only, it would.
    """
    assert shot.data is not None
    data = band_limited(shot.data, shot.dt, frequency) if frequency > 0 else np.zeros(shot.data.shape)
    return propagator.sent_back(propagator.in_phase(data, shot.dt) if zero_phase else data, shot)


def _arrays(propagator: Physics, sums: Images, negative: set[str]) -> Images:
    """Return images as arrays like the model's, some with their sign changed."""
    arrays = propagator.image_arrays(sums)
    return {name: (-image if name in negative else image, light) for name, (image, light) in arrays.items()}


class _Comparison:
    """An image in the making, of records that a codec has encoded."""

    def __init__(self, codec: Codec, propagator: Physics, names: Sequence[str]) -> None:
        self.codec = codec
        self.sums = propagator.image_sums(names)
        self.raw_bytes = self.encoded_bytes = 0

    def lossy(self, record: State) -> State:
        """Return a record as it comes back from the codec."""
        decoded = {}
        for name, values in record.items():
            encoded = self.codec.encode(values)
            decoded[name] = self.codec.decode(encoded)
            self.raw_bytes += values.nbytes
            self.encoded_bytes += encoded.nbytes
        return decoded

    @property
    def ratio(self) -> float:
        """How many times smaller the records are, all in all."""
        return self.raw_bytes / max(self.encoded_bytes, 1)
