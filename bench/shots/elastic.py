"""The cost of history of an elastic shot, beside the same loops with nothing kept."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

import forebay as fb
from forebay.wave import ElasticModel, Grid, Shot, highest_frequency, largest_dt, migrate, ricker
from forebay.wave.elastic_loop import ElasticAdjoint, ElasticLoop
from forebay.wave.elastic_rtm import seen_of, window_of
from forebay.wave.imaging import imaging_interval
from forebay.wave.stability import SAFETY, points_per_wavelength
from shots.machine import Host, Taken
from shots.waves import smoothed, velocities


@dataclass
class Row:
    """One shot under a budget."""

    shape: tuple[int, ...]
    steps: int
    every: int
    codec: str
    keep: str
    schedule: str
    seconds: float
    nothing: float
    cost: float
    points_a_second: float
    """of a forward and a backward step together, with nothing kept"""
    ratio: float | None
    worst_ratio: float | None
    peak: dict[str, int]
    phases: dict[str, float] = field(default_factory=dict)


def row(
    machine: Host, shape: tuple[int, ...], steps: int, absorb: int, budget: fb.Budget, codec: str, directory: str
) -> Row:
    """Migrate one shot of the salt model, whose layers are inside the shape, and time it without its history."""
    inner = tuple(points - 2 * absorb for points in shape)
    vp, spacing = velocities(machine, "salt", inner)
    vp = smoothed(machine.arrays, vp, 4.0)
    grid = Grid(inner, spacing, absorb=absorb)
    model = ElasticModel(vp, vp / np.float32(1.8), 310 * vp ** np.float32(0.25), grid)
    dt = SAFETY * largest_dt(model)
    highest = 0.98 * model.slowest / (points_per_wavelength(8, staggered=True) * max(spacing))
    long = max(steps, int(12 / (highest * dt)))
    dominant = highest / (highest_frequency(ricker(highest / 3, dt, long), dt) / (highest / 3))
    middle = [points // 2 * step for points, step in zip(inner, spacing, strict=True)]
    line = np.arange(0, inner[-1], 10) * spacing[-1]
    receivers = [(2 * spacing[0], *middle[1:-1], x) for x in line]
    shot = Shot((2 * spacing[0], *middle[1:]), receivers, grid.cell * ricker(dominant, dt, long)[:steps], dt)
    every = imaging_interval(highest_frequency(ricker(dominant, dt, long), dt), dt)
    data = np.random.default_rng(0).standard_normal((steps, len(receivers))).astype(np.float32)
    nothing = nothing_kept(machine, shot, model, dt, every, data)
    found = migrate(
        shot.with_data(data),
        model,
        dt=dt,
        every=every,
        budget=budget,
        codec=codec,
        directory=directory,
        reversals=100,
        progress=False,
    )
    plan, metrics = found.result.plan, found.result.metrics
    return Row(
        shape,
        steps,
        every,
        plan.codec or "none",
        plan.keep,
        str(plan.schedule),
        metrics.seconds,
        nothing.seconds,
        metrics.seconds / nothing.seconds,
        2 * steps * np.prod(shape, dtype=float) / nothing.seconds,
        metrics.mean_ratio if metrics.ratios else None,
        metrics.ratios.worst if metrics.ratios else None,
        dict(metrics.peak),
        dict(metrics.phases),
    )


def nothing_kept(machine: Host, shot: Shot, model: ElasticModel, dt: float, every: int, data: Any) -> Taken:
    """Time forward, backward and imaging, with one record for all steps; once before, uncounted, with few steps."""
    loop = ElasticLoop(shot, model, dt, listens=False)
    propagator, kernels = loop.propagator, loop.kernels
    shape = tuple(one.stop - one.start for one in window_of(propagator))
    image, light = kernels.zeros(shape), kernels.zeros(shape)
    picture = getattr(kernels, "picture", None)
    seen = seen_of(propagator, propagator.zeros(), ("pp",))

    def run(steps: int) -> None:
        adjoint.step = steps
        loop.forward(propagator.zeros(), 0, steps)
        for step in range((steps - 1) // every * every, -1, -every):
            if picture is not None:
                picture(adjoint, max(step - 1, 0), {"pp": (image, light)}, seen, every * dt)
            else:
                other = seen_of(propagator, adjoint.back_to(max(step - 1, 0)), ("pp",))
                kernels.correlate(image, light, seen["div"], other["div"], every * dt)

    adjoint = ElasticAdjoint(loop, data)
    run(min(2 * every, loop.steps))
    return machine.timed(lambda: run(loop.steps))
