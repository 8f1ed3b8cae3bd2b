"""The time loop of a shot in an elastic model: what wavelets and data mean to velocities and stresses.

A force is its wavelet, in newtons. An explosion's wavelet is the acceleration of the volume that it presses into the
medium, in cubic metres per second squared: in a fluid the pressure is then the density times what the acoustic
propagator gives for the same wavelet. In two dimensions both are per metre of a line. Pressures are in pascals,
velocities in metres per second.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.wave.acoustic.propagator import State
from forebay.wave.earth.model import ElasticModel
from forebay.wave.elastic.propagator import Elastic
from forebay.wave.imaging import Imaging
from forebay.wave.loop import Loop
from forebay.wave.survey.shot import Shot

CENTRED = np.array([-1, 9, 9, -1]) / 16
"""Weights of the velocities three and one half steps before a moment, and after it, in the velocity there."""
LAST = np.array([-1, 6, 3]) / 8
"""The same at the last moment, after which there is only one."""


class ElasticLoop(Loop):
    """A shot bound to an elastic propagator; data row n is at n dt, of velocities too, which live between the steps."""

    propagator: Elastic

    def __init__(
        self,
        shot: Shot,
        model: ElasticModel,
        dt: float,
        order: int = 8,
        dtype: Any = np.float32,
        *,
        listens: bool = True,
    ) -> None:
        self.moving = np.flatnonzero([kind != "pressure" for kind in shot.hears])
        super().__init__(shot, Elastic(model, dt, order, dtype), listens=listens)

    def _antennas(self) -> tuple[Any, Any]:
        shot = self.shot
        return self.propagator.antenna(shot.source, shot.sends), self.propagator.antenna(shot.receivers, shot.hears)

    def _impulses(self, density: NDArray[np.float64]) -> NDArray[np.float64]:
        impulses = density * self.propagator.dt
        exploding = [kind == "explosion" for kind in self.shot.sends]
        # A rate between two steps is the sum of what accelerated it before.
        impulses[:, exploding] = -np.cumsum(impulses[:, exploding], axis=0) * self.propagator.dt
        return impulses

    def forward(self, state: State, start: int, stop: int, replay: bool = False) -> State:
        """Advance several steps; what the receivers hear is kept the first time only, and where the loop listens."""
        listening = self.listens and not replay
        if run := getattr(self.kernels, "run", None):  # all steps at once
            hears = (self.receivers, self.heard) if listening else None
            return dict(run(self.propagator, state, self.sources, self.sent, range(start, stop), hears, None))
        for step in range(start, stop):
            if listening:
                self.propagator.record(state, self.receivers, self.heard[step], still=True)
            state = self.propagator.step(state, self.sources, self.sent[step])
            if listening:
                self.propagator.record(state, self.receivers, self.heard[step], still=False)
        return state

    def data(self) -> NDArray[Any]:
        """Give what was heard, at the shot's sampling."""
        return self.sampled(self._half_a_step_earlier(self.kernels.get(self.heard)))

    def data_transposed(self, data: NDArray[Any]) -> NDArray[Any]:
        """Spread data over steps: the transpose of `data`."""
        spread = np.array(self.sampled.transpose(data))
        if len(self.moving):
            at_steps = spread[:, self.moving]
            between = np.zeros((self.steps + 2, len(self.moving)), spread.dtype)
            for k, weight in enumerate(CENTRED):
                between[k : self.steps - 1 + k] += weight * at_steps[:-1]
            between[-3:] += np.multiply.outer(LAST, at_steps[-1])
            spread[:, self.moving] = between[2:]
        return spread

    def _half_a_step_earlier(self, heard: NDArray[Any]) -> NDArray[Any]:
        """Take velocities, which are heard between the steps, to the beginning of each."""
        if not len(self.moving):
            return heard
        between = np.zeros((self.steps + 2, len(self.moving)), heard.dtype)
        between[2:] = heard[:, self.moving]
        at_steps = heard.copy()
        at_steps[:-1, self.moving] = sum(weight * between[k : self.steps - 1 + k] for k, weight in enumerate(CENTRED))
        at_steps[-1, self.moving] = LAST @ between[-3:]
        return at_steps

    def shown(self, state: State) -> Any:
        """Give the pressure inside the model."""
        return self.propagator.pressure(state)


class ElasticAdjoint:
    """The wave that receivers send back, the exact transpose of an `ElasticLoop`.

    After ``back_to(n)`` its stresses belong to the time of those before step n, its velocities to half a step later.
    """

    def __init__(self, loop: ElasticLoop, data: NDArray[Any]) -> None:
        self.loop, self.step = loop, loop.steps
        self.sent = loop.kernels.put(loop.data_transposed(data))
        self.state = loop.propagator.zeros()

    def back_to(self, step: int, image: Imaging | None = None) -> State:
        """Step back, and give the state there; on a GPU, add its divergence to an image on the way."""
        if run := getattr(self.loop.kernels, "run", None):
            between = range(self.step - 1, step - 1, -1)
            run(self.loop.propagator, self.state, self.loop.receivers, self.sent, between, None, image)
            self.step = min(step, self.step)
            return self.state
        while self.step > step:
            self.step -= 1
            self.state = self.loop.propagator.step_back(self.state, self.loop.receivers, self.sent[self.step])
        return self.state
