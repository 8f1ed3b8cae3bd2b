"""The time loop of a shot, forward and back: what `forebay.reverse` is given to run."""

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.errors import WaveError
from forebay.wave.acoustic.propagator import Acoustic, State
from forebay.wave.advice import WaveWarning, advice
from forebay.wave.earth.model import ElasticModel, Model
from forebay.wave.earth.stability import check_dispersion, check_dt, choose_dt
from forebay.wave.imaging import Imaging
from forebay.wave.survey.resample import Resampler
from forebay.wave.survey.shot import Shot
from forebay.wave.survey.wavelet import highest_frequency


class Loop:
    """A shot bound to a propagator: step n takes the fields from time n dt to the next, and data row n is at n dt."""

    def __init__(self, shot: Shot, propagator: Any, *, listens: bool = True) -> None:
        self.shot, self.propagator, self.listens = shot, propagator, listens
        self.kernels, self.dt = propagator.kernels, propagator.dt
        self.steps = math.ceil(shot.samples * shot.dt / self.dt - 1e-6)
        self.sampled = Resampler(self.steps, self.dt, shot.samples, shot.dt)
        self.sources, self.receivers = self._antennas()
        wavelet = np.broadcast_to(shot.wavelet.reshape(shot.samples, -1), (shot.samples, len(shot.source)))
        finer = Resampler(shot.samples, shot.dt, self.steps, self.dt)
        self.sent = self.kernels.put(self._impulses(finer(wavelet.astype(np.float64)) / propagator.model.grid.cell))
        self.heard = self.kernels.zeros((self.steps if listens else 0, len(shot.receivers)))

    def _antennas(self) -> tuple[Any, Any]:
        """Bind sources and receivers to the propagator."""
        for kind in {*self.shot.sends, *self.shot.hears} - {"explosion", "pressure"}:
            raise WaveError(f"{kind!r} in an acoustic model, which knows explosions and pressure: take an ElasticModel")
        return self.propagator.antenna(self.shot.source), self.propagator.antenna(self.shot.receivers)

    def _impulses(self, density: NDArray[np.float64]) -> NDArray[np.float64]:
        """Turn wavelets per volume, at each step, into what a step is given."""
        return density

    def forward(self, state: State, start: int, stop: int, replay: bool = False) -> State:
        """Advance several steps; what the receivers hear is kept the first time only, and where the loop listens."""
        hears = (self.receivers, self.heard) if self.listens and not replay else None
        if run := getattr(self.kernels, "run", None):  # all steps at once
            state = run(self.propagator, state, self.sources, self.sent, range(start, stop), hears, None)
        for step in range(start, stop) if run is None else ():
            if hears is not None:
                self.propagator.record(state, self.receivers, self.heard[step])
            state = self.propagator.step(state, self.sources, self.sent[step])
        return state

    def data(self) -> NDArray[Any]:
        """Give what was heard, at the shot's sampling."""
        return self.sampled(self.kernels.get(self.heard))

    def shown(self, state: State) -> Any:
        """Give the pressure inside the model."""
        return state["p"][self.propagator.inside]


class Adjoint:
    """The wave that receivers send back: after ``back_to(n)`` its p belongs to the same time as p before step n.

    It is the exact transpose of the loop: what it leaves at the sources after step n, read with their weights, is the
    derivative of the data's product with `data` with respect to what they sent in that step.
    """

    def __init__(self, loop: Loop, data: NDArray[Any]) -> None:
        self.loop, self.step = loop, loop.steps
        self.sent = loop.kernels.put(loop.sampled.transpose(data))
        self.state = loop.propagator.zeros()

    def back_to(self, step: int, image: Imaging | None = None) -> Any:
        """Step back, add to an image what is to be seen there, and give the pressure."""
        if run := getattr(self.loop.kernels, "run", None):
            between = range(self.step - 1, step - 1, -1)
            self.state = run(self.loop.propagator, self.state, self.loop.receivers, self.sent, between, None, image)
            self.step = step
            return self.state["p"]
        while self.step > step:
            self.step -= 1
            self.state = self.loop.propagator.step_back(self.state, self.loop.receivers, self.sent[self.step])
        if image is not None:
            q = self.state["p"][self.loop.propagator.window]
            self.loop.kernels.correlate(image.image, image.illumination, image.seen, q, image.factor)
        return self.state["p"]


def prepare(
    shot: Shot,
    model: Model,
    dt: float | None,
    order: int,
    dtype: Any,
    *,
    every: int | None = None,
    listens: bool = True,
) -> Loop:
    """Check a shot against a model and bind them; without `dt`, a fitting part of the shot's sampling is taken."""
    frequency = highest_frequency(shot.wavelet, shot.dt)
    check_dispersion(model, frequency, order)
    step = choose_dt(model, shot.dt, frequency, order) if dt is None else dt
    check_dt(model, step, order, frequency)
    for note in advice(model, shot.wavelet, shot.dt, step, every):
        warnings.warn(note, WaveWarning, stacklevel=3)  # whoever called simulate, migrate or gradient
    if isinstance(model, ElasticModel):
        from forebay.wave.elastic.loop import ElasticLoop  # which is a Loop

        return ElasticLoop(shot, model, step, order, dtype, listens=listens)
    return Loop(shot, Acoustic(model, step, order, dtype), listens=listens)


def simulate(
    shot: Shot,
    model: Model,
    *,
    dt: float | None = None,
    order: int = 8,
    dtype: Any = np.float32,
    watch: Callable[[NDArray[Any], int], None] | None = None,
) -> NDArray[Any]:
    """Compute what the receivers of a shot hear: one row per sample of its wavelet, one column per receiver.

    Parameters
    ----------
    shot
        Sources, wavelet, receivers; its data are not looked at.
    model
        What the waves travel through.
    dt
        Seconds per step; unless told, the shot's sampling, or a whole part of it that is stable and fine enough.
    order
        Of the stencil in space: any even number.
    dtype
        float32 or float64.
    watch
        ``watch(pressure, step)`` sees the pressure inside the model before every step.

    Examples
    --------
    >>> from forebay.wave import AcousticModel, Grid, ricker
    >>> model = AcousticModel(np.full((60, 81), 2000.0), Grid((60, 81), spacing=10.0))
    >>> shot = Shot((50, 400), [(50, 200), (50, 600)], ricker(15, 0.004, 100), dt=0.004)
    >>> data = simulate(shot, model)
    >>> data.shape, bool(np.allclose(data[:, 0], data[:, 1], atol=1e-6 * abs(data).max()))
    ((100, 2), True)
    """
    loop = prepare(shot, model, dt, order, dtype)
    state = loop.propagator.zeros()
    if watch is None:
        loop.forward(state, 0, loop.steps)
        return loop.data()
    for step in range(loop.steps):
        watch(loop.shown(state), step)
        state = loop.forward(state, step, step + 1)
    return loop.data()
