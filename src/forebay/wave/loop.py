"""The time loop of a shot, forward and back: what `forebay.reverse` is given to run."""

import math
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from copy import copy
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from forebay.checksums import checksum_of, raw_bytes
from forebay.codec.auto import choices
from forebay.errors import StateError, WaveError
from forebay.planner import Plan
from forebay.wave.acoustic.propagator import Acoustic
from forebay.wave.advice import WaveWarning, advice
from forebay.wave.earth.model import AcousticModel
from forebay.wave.earth.stability import check_dispersion, check_dt, choose_dt
from forebay.wave.imaging import Imaging, imaging_interval
from forebay.wave.paged.door import Paging
from forebay.wave.physics import EarthModel, Images, Physics, State, physics_of
from forebay.wave.survey.batch import together
from forebay.wave.survey.resample import Resampler
from forebay.wave.survey.shot import Shot
from forebay.wave.survey.wavelet import highest_frequency


class Loop:
    """A shot bound to a propagator: step n takes the fields from time n dt to the next, and data row n is at n dt.

    Shots that advance together are one, see `survey.batch`.
    """

    def __init__(self, shot: Shot, propagator: Physics, *, listens: bool = True) -> None:
        self.shot, self.propagator, self.listens = shot, propagator, listens
        self.kernels, self.dt = propagator.kernels, propagator.dt
        self.steps = math.ceil(shot.samples * shot.dt / self.dt - 1e-6)
        self.sampled = Resampler(self.steps, self.dt, shot.samples, shot.dt)
        self.sources = propagator.antenna(shot.source, shot.sends)
        self.receivers = propagator.antenna(shot.receivers, shot.hears)
        self.finer = Resampler(shot.samples, shot.dt, self.steps, self.dt)
        self.sent = self.impulses(shot.wavelet)
        self.heard = self.kernels.zeros((self.steps if listens else 0, len(shot.receivers)))

    def impulses(self, wavelet: NDArray[Any]) -> Any:
        """Return what sources send in each step, of a wavelet at the shot's sampling: a column for each, or for all."""
        columns = np.broadcast_to(wavelet.reshape(self.shot.samples, -1), (self.shot.samples, len(self.shot.source)))
        density = self.finer(columns.astype(np.float64)) / self.propagator.model.grid.cell
        return self.kernels.put(self.propagator.impulses(density, self.shot.sends))

    def impulses_transposed(self, arrived: Any) -> NDArray[Any]:
        """Return a column for each source of what they are owed at the shot's sampling: the transpose of `impulses`."""
        owed = self.propagator.impulses_transposed(self.kernels.get(arrived).astype(np.float64), self.shot.sends)
        per_volume: NDArray[Any] = self.finer.transpose(owed) / self.propagator.model.grid.cell
        return per_volume

    def forward(self, state: State, start: int, stop: int, replay: bool = False) -> State:
        """Advance several steps; what the receivers hear is kept the first time only, and where the loop listens."""
        hears = (self.receivers, self.heard) if self.listens and not replay else None
        return self.propagator.advance(state, self.sources, self.sent, range(start, stop), hears)

    @property
    def signature(self) -> Hashable:
        """What the seconds of a step follow from beside the state's arrays, as `forebay.reverse` asks for it.

        Points that send and hear cost little, so about as many of them are as good as the same.
        """
        model, shot = self.propagator.model, self.shot
        counts = len(shot.source).bit_length(), len(shot.receivers).bit_length()
        kinds = type(self.propagator), type(self.kernels), type(model)
        return *kinds, model.grid.shape, model.grid.layers(), self.listens, *counts

    def data(self) -> NDArray[Any]:
        """Return what was heard, at the shot's sampling."""
        return self.sampled(self.propagator.at_steps(self.kernels.get(self.heard), self.shot.hears))

    def data_transposed(self, data: NDArray[Any]) -> NDArray[Any]:
        """Spread data over steps: the transpose of `data`."""
        return self.propagator.at_steps_transposed(self.sampled.transpose(data), self.shot.hears)

    def pressure(self, state: State) -> Any:
        """Return the pressure inside the model."""
        return self.propagator.pressure(state)


class Adjoint:
    """The wave that receivers send back: after ``back_to(n)`` its state belongs to that of the loop before step n.

    It is the exact transpose of the loop: what it leaves at the sources after step n, read with their weights, is the
    derivative of the data's product with `data` with respect to what they sent in that step.
    """

    def __init__(self, loop: Loop, data: NDArray[Any]) -> None:
        self.loop, self.step = loop, loop.steps
        self.sent = loop.kernels.put(loop.data_transposed(data))
        self.state = loop.propagator.zeros()

    def back_to(self, step: int, image: Imaging | None = None, **sensing: Any) -> Any:
        """Step back, add to an image or a gradient what the last step tells, and return the fields there.

        Of acoustic waves that is the pressure, of others the state: see `Physics.adjoint_fields`.
        """
        between = range(self.step - 1, step - 1, -1)
        self.state = self.loop.propagator.retreat(self.state, self.loop.receivers, self.sent, between, image, **sensing)
        self.step = min(step, self.step)
        return self.loop.propagator.adjoint_fields(self.state)

    def at_sources(self) -> Any:
        """Go back to the beginning; return what the product of data with `data` owes to what was sent in each step."""
        arrived = self.loop.kernels.zeros(self.loop.sent.shape)
        for step in reversed(range(self.step)):
            self.loop.propagator.arrive(self, step, arrived[step])
        return arrived

    def apart(self) -> "Adjoint":
        """Return a wave of its own that the same receivers send back, from the last step on."""
        other = copy(self)
        other.step, other.state = self.loop.steps, self.loop.propagator.zeros()
        return other

    def kept_with(self, sums: Images) -> tuple[Callable[[BinaryIO], None], Callable[[BinaryIO], None]]:
        """Return what saves this wave and images made of it into a file, and what loads them: `adjoint` of `reverse`.

        What is loaded replaces the arrays of both. It is refused where receivers sent back something else.
        """
        kernels, names = self.loop.kernels, sorted(self.state)
        identity = checksum_of([raw_bytes(kernels.get(self.sent)), " ".join(sums).encode()])

        def save(file: BinaryIO) -> None:
            np.save(file, np.array(identity))
            np.save(file, np.int64(self.step))
            for array in (*(self.state[name] for name in names), *(array for pair in sums.values() for array in pair)):
                np.save(file, kernels.get(array))

        def load(file: BinaryIO) -> None:
            if str(np.load(file)) != identity:
                raise StateError(
                    "the progress is of other data, or of other images: go on with those, or name another directory"
                )
            self.step = int(np.load(file))
            self.state = {name: kernels.put(np.load(file)) for name in names}
            for name in sums:
                sums[name] = kernels.put(np.load(file)), kernels.put(np.load(file))

        return save, load


def image_records(
    propagator: Physics, names: Sequence[str], reversal: Mapping[str, Any], needs_arrays: bool = False
) -> dict[str, Any]:
    """Return what `forebay.reverse` is told of records that images need, by its other arguments.

    What a codec may encode stays where it lies in the state, and is handed over as it is kept where images can be made
    of that, unless something else `needs_arrays`. All else is copied, by the kernels of waves.
    """
    codec, plan = reversal.get("codec"), reversal.get("plan")
    planned = plan.codec if isinstance(plan, Plan) and codec is None else None
    encoders = choices(codec if planned is None else planned)[0]
    see = propagator.image_window if encoders else propagator.image_record
    correlates = bool(encoders) and not needs_arrays and all(map(propagator.correlates_encoded, encoders))
    return {"record": lambda state, step: see(state, names), "encoded": correlates}


def rehearsed(adjoint: Adjoint, every: int, meet: Callable[[Adjoint, int], None]) -> Callable[[], None]:
    """Return what takes a wave of its own back to the next record as a backward computation does, call after call.

    `meet` is given that wave and the step, and adds what is seen there to sums of its own.
    """
    wave = adjoint.apart()
    return lambda: meet(wave, max(0, (wave.step - 1) // every * every))


def prepare(
    shot: Shot | Sequence[Shot],
    model: EarthModel | Sequence[EarthModel],
    dt: float | None,
    order: int,
    dtype: Any,
    *,
    every: int | None = None,
    listens: bool = True,
    paging: Paging | None = None,
) -> Loop:
    """Check a shot against a model and bind them; without `dt`, a fitting part of the shot's sampling is taken.

    Several shots advance together in one loop. Where there is `paging`, the fields of an acoustic shot are paged.
    """
    shots, models = pairs(shot, model)
    steps, notes = set(), dict[str, None]()
    about = zip(shots, models, frequencies_of(shots), strict=True)
    for own, medium, frequency in {(id(each[0].wavelet), id(each[1])): each for each in about}.values():
        check_dispersion(medium, frequency, order)
        step = choose_dt(medium, own.dt, frequency, order) if dt is None else dt
        check_dt(medium, step, order, frequency)
        notes |= dict.fromkeys(advice(frequency, step, every))
        steps.add(step)
    for note in notes:
        warnings.warn(note, WaveWarning, stacklevel=3)  # whoever called simulate, migrate or gradient
    if len(steps) > 1:
        raise WaveError(f"shots that would advance in steps of {sorted(steps)} s: give one dt for all")
    physics = physics_of(models[0])
    if paging is not None:
        if paging.look is not None:
            paging.every = every or imaging_interval(frequency, step)
        propagator = Acoustic(cast(AcousticModel, models[0]), step, order, dtype, paging=paging)
        warnings.warn(paging.told().explain(), WaveWarning, stacklevel=3)
        return Loop(shots[0], propagator, listens=listens)
    if isinstance(shot, Shot):
        return Loop(shot, physics(models[0], step, order, dtype), listens=listens)
    return Loop(together(shots), physics.of_batch(models, step, order, dtype), listens=listens)


def frequencies_of(shots: Sequence[Shot]) -> list[float]:
    """Return the highest frequency of each shot's wavelet; one that several share is looked at once."""
    wavelets = {id(shot.wavelet): shot for shot in shots}
    known = {key: highest_frequency(shot.wavelet, shot.dt) for key, shot in wavelets.items()}
    return [known[id(shot.wavelet)] for shot in shots]


def pairs(shot: Shot | Sequence[Shot], model: EarthModel | Sequence[EarthModel]) -> tuple[list[Shot], list[EarthModel]]:
    """Return shots, be it one or several, and as many models: one for each, or the same for all."""
    shots = [shot] if isinstance(shot, Shot) else list(shot)
    models = list(model) if isinstance(model, Sequence) else [model] * len(shots)
    if not shots or len(shots) != len(models):
        raise WaveError(f"{len(models)} models for {len(shots)} shots: give shots, and a model for all or for each")
    return shots, models
