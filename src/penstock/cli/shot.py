"""The demo's problem: one shot of reverse time migration in two dimensions, small enough for any machine.

A wave runs through a smooth medium, receivers near the surface record it, and their difference from what they would
have recorded over the real medium is sent back in time. Where both waves meet is what the smooth medium lacks.
"""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[np.float32]
State = dict[str, Array]

SPACING = 10.0
"""metres from point to point"""
TIME_STEP = 1e-3
FREQUENCY = 12.0
"""of the source, at its strongest"""
EDGE = 40
"""points on every side in which waves fade; source and receivers lie just below"""
SMOOTH = 41
"""points over which the medium is averaged in depth"""


class Shot:
    """A source in the middle of a line of receivers, and the image of what lies below.

    Parameters
    ----------
    velocity
        metres a second at every point, first axis downwards, all edges included
    steps
        of the loop
    """

    def __init__(self, velocity: Array, steps: int) -> None:
        self.velocity, self.background, self.steps = velocity, smoothed(velocity), steps
        shape = velocity.shape
        self.source = EDGE + 2, shape[1] // 2
        self.line = (EDGE + 2, slice(EDGE, shape[1] - EDGE))
        self.wavelet = ricker(steps)
        self.damping = fading(shape)
        self.pace = courant(self.background)
        self.recorded = np.zeros((steps, shape[1] - 2 * EDGE), np.float32)
        self.observed = np.zeros_like(self.recorded)
        self.residual = np.zeros_like(self.recorded)
        self.adjoint = self.start()
        self.correlation, self.light = np.zeros(shape, np.float32), np.zeros(shape, np.float32)

    def start(self) -> State:
        """Make the state at rest."""
        return {"p": np.zeros_like(self.velocity), "p_old": np.zeros_like(self.velocity)}

    def observe(self) -> None:
        """Record what a survey over the real medium would; everything else happens in the smooth one."""
        self._run(self.start(), 0, self.steps, courant(self.velocity), self.observed)

    def forward(self, state: State, start: int, stop: int, replay: bool) -> State:
        """Advance the wave; the receivers record it the first time only."""
        return self._run(state, start, stop, self.pace, None if replay else self.recorded)

    def _run(self, state: State, start: int, stop: int, pace: Array, record: Array | None) -> State:
        p, p_old = state["p"], state["p_old"]
        for step in range(start, stop):
            advance(p, p_old, pace, self.damping)
            p, p_old = p_old, p
            p[self.source] += self.wavelet[step]
            if record is not None:
                record[step] = p[self.line]
        return {"p": p, "p_old": p_old}

    def turn(self, final: State) -> None:
        """Form what is sent back: what was seen and not foreseen, fading where the receivers end."""
        ends = np.linspace(0, 1, self.residual.shape[1] // 8)
        self.residual[:] = self.observed - self.recorded
        self.residual[:, : ends.size] *= ends
        self.residual[:, -ends.size :] *= ends[::-1]

    def backward(self, state: State, step: int) -> None:
        """Take the adjoint wave one step back, fed by the receivers, and correlate it with the forward one."""
        q, q_old = self.adjoint["p"], self.adjoint["p_old"]
        q[self.line] += self.residual[step]
        advance(q, q_old, self.pace, self.damping)
        self.adjoint = {"p": q_old, "p_old": q}
        correlate(self.correlation, self.light, state["p"], q_old)

    def image(self) -> Array:
        """Give the image: evenly lit, without what varies slowly, and mute around source and receivers."""
        even = self.correlation / (self.light + 1e-3 * self.light.max())
        edges = np.zeros_like(even)
        edges[1:-1, 1:-1] = 4 * even[1:-1, 1:-1] - even[:-2, 1:-1] - even[2:, 1:-1] - even[1:-1, :-2] - even[1:-1, 2:]
        depth = np.arange(even.shape[0], dtype=np.float32)[:, None] - self.line[0]
        return np.asarray(edges * np.clip(depth / EDGE - 0.5, 0, 1), np.float32)


def layers(depth: int = 340, width: int = 760) -> Array:
    """Lay a faster layer with a dome, and a still faster one that dips, under ground that grows faster with depth."""
    x, z = np.linspace(-1, 1, width)[None, :], np.linspace(0, 1, depth)[:, None]
    dome, dip = 0.53 - 0.1 * np.exp(-((x / 0.35) ** 2)), 0.76 + 0.08 * x
    velocity = 1500 + 700 * z
    for interface in (dome, dip):
        velocity = velocity + 350 * np.clip(depth * (z - interface) + 0.5, 0, 1)  # over a point, so without stairs
    return velocity.astype(np.float32)


def smoothed(velocity: Array) -> Array:
    """Average a medium in depth, so that it carries waves at the right speed and reflects little."""
    window = np.hanning(SMOOTH + 2)
    window /= window.sum()
    padded = np.pad(velocity, ((window.size // 2, window.size // 2), (0, 0)), mode="edge")
    columns = [np.convolve(column, window, "valid") for column in padded.T]
    return np.stack(columns, axis=1).astype(np.float32)


def courant(velocity: Array) -> Array:
    """Give the squares of points travelled in a step."""
    return np.asarray((velocity * TIME_STEP / SPACING) ** 2, np.float32)


def ricker(steps: int) -> Array:
    """Give the source's pulse over time."""
    phase = (np.pi * FREQUENCY * (np.arange(steps) * TIME_STEP - 1.2 / FREQUENCY)) ** 2
    return np.asarray((1 - 2 * phase) * np.exp(-phase), np.float32)


def fading(shape: tuple[int, ...]) -> Array:
    """Give the damping of a step, which grows towards the edges from nothing."""

    def ramp(points: int) -> Any:
        inside = np.minimum(np.arange(points), np.arange(points)[::-1])
        return np.clip(1 - inside / EDGE, 0, 1) ** 2

    return np.asarray(0.08 * np.maximum(ramp(shape[0])[:, None], ramp(shape[1])[None, :]), np.float32)


@njit(nogil=True)  # type: ignore[untyped-decorator]
def advance(p: Array, p_old: Array, pace: Array, damping: Array) -> None:
    """Take one step of the wave equation in place, of eighth order in space: p_old becomes the new field."""
    c0, c1, c2 = np.float32(-205 / 36), np.float32(8 / 5), np.float32(-1 / 5)
    c3, c4 = np.float32(8 / 315), np.float32(-1 / 560)
    one, two = np.float32(1), np.float32(2)
    laplace = np.zeros(p.shape[1], np.float32)
    for i in range(4, p.shape[0] - 4):
        # A row at a time, through a row that overlaps nothing: only so does the compiler make vectors of it.
        here, old, paces, losses = p[i], p_old[i], pace[i], damping[i]
        up1, up2, up3, up4 = p[i - 1], p[i - 2], p[i - 3], p[i - 4]
        down1, down2, down3, down4 = p[i + 1], p[i + 2], p[i + 3], p[i + 4]
        for j in range(4, p.shape[1] - 4):
            laplace[j] = (
                c0 * here[j]
                + c1 * (up1[j] + down1[j] + here[j - 1] + here[j + 1])
                + c2 * (up2[j] + down2[j] + here[j - 2] + here[j + 2])
                + c3 * (up3[j] + down3[j] + here[j - 3] + here[j + 3])
                + c4 * (up4[j] + down4[j] + here[j - 4] + here[j + 4])
            )
        for j in range(4, p.shape[1] - 4):
            moved = two * here[j] - (one - losses[j]) * old[j] + paces[j] * laplace[j]
            old[j] = moved / (one + losses[j])


@njit(nogil=True)  # type: ignore[untyped-decorator]
def correlate(correlation: Array, light: Array, p: Array, q: Array) -> None:
    """Add the product of two waves, and the square of the first."""
    for i in range(p.shape[0]):
        for j in range(p.shape[1]):
            correlation[i, j] += p[i, j] * q[i, j]
            light[i, j] += p[i, j] * p[i, j]
