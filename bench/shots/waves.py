"""The shot that is reversed: a built-in model, a source and receivers near its surface, and what migration does there.

Models are made at half their resolution and interpolated, which takes seconds instead of minutes. The wavelet has the
highest frequency that the grid carries, and the time step is the largest that is stable, less a margin.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from cases.machine import Host, Taken
from numpy.typing import NDArray

import forebay as fb
from forebay.engine import Result
from forebay.engine.layout import Layout
from forebay.wave import Acoustic, AcousticModel, Adjoint, Grid, Loop, Shot, highest_frequency, largest_dt, ricker
from forebay.wave.earth.builtin import make
from forebay.wave.earth.smoothing import smooth
from forebay.wave.earth.stability import SAFETY
from forebay.wave.imaging import DARK, FLOOR, Imaging, imaging_interval, laplacian_filter
from forebay.wave.loop import image_records
from forebay.wave.survey.wavelet import band_limited

DEEP = 2
"""Points below the surface at which the source is, and the receivers are."""
SMOOTHED = 8.0
"""Points of the standard deviation of the bell that smooths a model for migration."""


@dataclass(frozen=True)
class Setup:
    """What a shot is made of."""

    name: str
    """of a built-in model"""
    shape: tuple[int, ...]
    """points that are computed, layers included"""
    steps: int
    absorb: int = 20
    apart: int = 20
    """points between receivers"""
    order: int = 8

    @property
    def grid_shape(self) -> tuple[int, ...]:
        """Points of the model."""
        return tuple(points - 2 * self.absorb for points in self.shape)


class Ran(NamedTuple):
    """A reversal that was carried out."""

    taken: Taken
    """`seconds` from the first action to the last, `wall` of the whole call"""
    result: Result
    memory: int
    """bytes taken from the device above what was taken before the call, looked at in some backward steps"""


class Waves:
    """A shot in a model, whose loop can be reversed in any way; images start anew each time."""

    def __init__(self, machine: Host, setup: Setup, *, echoes: bool = False) -> None:
        self.machine, self.setup = machine, setup
        values, spacing = velocities(machine, setup.name, setup.grid_shape)
        self.grid = Grid(setup.grid_shape, spacing, absorb=setup.absorb)
        smooth = AcousticModel(smoothed(values, SMOOTHED), self.grid)
        true = AcousticModel(values, self.grid)
        self.dt = SAFETY * min(largest_dt(model, setup.order) for model in (true, smooth))
        # Of both models the slowest velocity is the water's.
        highest = min(true.slowest, smooth.slowest) / (Acoustic.points_per_wavelength(setup.order) * max(spacing))
        self.dominant, full = widest(highest, self.dt, setup.steps)
        wavelet = self.grid.cell * full[: setup.steps]  # far from what underflows
        self.shot = Shot(middle(self.grid), self._receivers(), wavelet, self.dt)
        self.frequency = highest_frequency(full, self.dt)
        self.every = imaging_interval(self.frequency, self.dt)
        data = self._echoes(true, smooth) if echoes else self._diffraction()
        self.propagator = Acoustic(smooth, self.dt, setup.order)
        self.loop = Loop(self.shot, self.propagator, listens=False)
        self.adjoint = Adjoint(self.loop, band_limited(data, self.dt, self.frequency).astype(np.float32))
        self.image, self.light = self.propagator.images(), self.propagator.images()
        self.start = self.propagator.zeros()
        self.layout, self.record_layout = Layout.of(self.start), Layout.of(self.propagator.image_record(self.start))
        machine.release()

    @property
    def points(self) -> int:
        """Points that a step computes."""
        return math.prod(points + 2 * self.setup.absorb for points in self.grid.shape)

    def _receivers(self) -> NDArray[np.float64]:
        axes = zip(self.grid.shape[1:], self.grid.spacing[1:], strict=True)
        lines = np.meshgrid(*(np.arange(0, n, self.setup.apart) * step for n, step in axes), indexing="ij")
        deep = np.full(lines[0].size, DEEP * self.grid.spacing[0])
        return np.column_stack([deep, *(line.ravel() for line in lines)])

    def _diffraction(self) -> NDArray[np.float64]:
        """Make the data of one point in the deep, heard from a third of the shot on: something to send back."""
        point = np.array([0.5, 0.45, 0.55])[: self.grid.ndim] * self.grid.end
        way = np.linalg.norm(self.shot.source[0] - point) + np.linalg.norm(self.shot.receivers - point, axis=1)
        arrival = self.setup.steps * self.dt / 3 * way / way.min()
        times = np.arange(self.setup.steps)[:, None] * self.dt - arrival
        squared = (np.pi * self.dominant * times) ** 2
        return np.asarray((1 - 2 * squared) * np.exp(-squared))

    def _echoes(self, true: AcousticModel, smooth: AcousticModel) -> NDArray[np.float64]:
        """Model the shot in the true ground and take away what the smooth one gives: the echoes are left."""
        heard = []
        for model in (true, smooth):
            loop = Loop(self.shot, Acoustic(model, self.dt, self.setup.order))
            loop.forward(loop.propagator.zeros(), 0, loop.steps)
            heard.append(loop.data().astype(np.float64))
        return np.asarray(heard[0] - heard[1])

    def reset(self) -> None:
        """Make adjoint and images what they are before a reversal."""
        self.adjoint.state, self.adjoint.step = self.propagator.zeros(), self.loop.steps
        self.image, self.light = self.propagator.images(), self.propagator.images()

    def backward(self, seen: Any, step: int, every: int) -> None:
        """Step the adjoint back and correlate, as `forebay.wave.migrate` does."""
        self.adjoint.back_to(step, Imaging(self.image, self.light, seen["p"], every * self.dt))

    def reverse(self, *, every: int = 1, directory: str | None = None, **how: Any) -> Ran:
        """Reverse the loop by `forebay.reverse`."""
        self.reset()
        self.machine.release()
        steps, before = self.setup.steps, self.machine.free()
        least, looks = [before], max(1, steps // (8 * every)) * every

        def backward(seen: Any, step: int) -> None:
            self.backward(seen, step, every)
            if step % looks == 0:
                least.append(self.machine.free())

        how |= {"every": every, "directory": directory} | image_records(self.propagator, ("pp",), how)
        done: list[Result] = []
        taken = self.machine.timed(
            lambda: done.append(fb.reverse(self.loop.forward, backward, self.start, steps, progress=False, **how))
        )
        return Ran(Taken(done[0].metrics.seconds, taken.wall), done[0], before - min(least))

    def nothing_kept(self, every: int) -> Taken:
        """Time the same forward, backward and imaging, with one record for all steps: what a history is free from."""
        self.reset()
        state, steps = self.propagator.zeros(), self.setup.steps
        seen = self.propagator.image_record(state)

        def whole() -> None:
            self.loop.forward(state, 0, steps)
            for step in range((steps - 1) // every * every, -1, -every):
                self.backward(seen, step, every)

        self.machine.release()
        return self.machine.timed(whole)

    def late(self) -> Any:
        """Return the state at a late step, whose fields are as full as they get."""
        return self.loop.forward(self.propagator.zeros(), 0, max(1, 9 * self.setup.steps // 10))

    def step_seconds(self) -> tuple[float, float]:
        """Time a forward step, and a backward one with its image."""
        count = min(20, self.setup.steps)
        state = self.propagator.zeros()

        def back() -> None:
            self.adjoint.step = self.loop.steps
            for step in range(self.loop.steps - 1, self.loop.steps - 1 - count, -1):
                # As after a state was restored, of which an image takes its part.
                self.backward(self.propagator.image_record(state), step, 1)

        forward = self.machine.shortest(lambda: self.loop.forward(state, 0, count)) / count
        backward = self.machine.shortest(back) / count
        self.reset()
        return forward, backward

    def picture(self) -> Any:
        """Return the image as it is looked at: over the light, rid of its smooth part, without the source's zone."""
        arrays = self.machine.arrays
        image, light = map(self.propagator.within, (self.image, self.light))
        least = FLOOR * arrays.median(light[light > DARK * light.max()])  # as `normalise` has it
        clean = laplacian_filter(image / arrays.maximum(light, least), self.grid)
        return clean * self._outside_source()

    def _outside_source(self) -> Any:
        """Fade from 0 within one wavelength of the source to 1 at two."""
        arrays = self.machine.arrays
        axes = zip(self.grid.shape, self.grid.spacing, self.shot.source[0], strict=True)
        places = [arrays.arange(points, dtype="float32") * step - position for points, step, position in axes]
        squared = sum(place**2 for place in arrays.meshgrid(*places, indexing="ij", sparse=True))
        wavelength = self.propagator.model.slowest / self.dominant
        ramp = arrays.clip(arrays.sqrt(squared) / arrays.float32(wavelength) - 1, 0, 1)
        return arrays.sin(arrays.float32(np.pi / 2) * ramp) ** 2


def velocities(machine: Host, name: str, shape: Sequence[int]) -> tuple[Any, tuple[float, ...]]:
    """Make a model of a shape, where the machine computes, and return its spacing too."""
    arrays, coarse = machine.arrays, tuple(max(2, -(-points // 2)) for points in shape)
    made = make(name, shape=coarse)
    factors = [points / fewer for points, fewer in zip(shape, coarse, strict=True)]
    ndimage = import_module("scipy.ndimage" if arrays is np else "cupyx.scipy.ndimage")
    values = ndimage.zoom(arrays.asarray(made.values), factors, order=1, mode="nearest", grid_mode=True)
    assert values.shape == tuple(shape)
    spacing = tuple(step / factor for step, factor in zip(made.spacing, factors, strict=True))
    return arrays.ascontiguousarray(values), spacing


def smoothed(values: Any, width: float) -> Any:
    """Average the slowness under a bell of a width in points."""
    return smooth(values, (1.0,) * values.ndim, width)


def middle(grid: Grid) -> NDArray[np.float64]:
    """Return the place in the middle of the surface, a little below it."""
    return np.array([DEEP, *(points // 2 for points in grid.shape[1:])]) * grid.spacing


def widest(highest: float, dt: float, steps: int) -> tuple[float, NDArray[np.float64]]:
    """Return the dominant frequency of the wavelet whose band ends at a frequency, and that wavelet, to its end."""
    long, guess = max(steps, math.ceil(12 / (highest * dt))), highest / 3
    dominant = 0.98 * highest / (highest_frequency(ricker(guess, dt, long), dt) / guess)
    return dominant, ricker(dominant, dt, long)
