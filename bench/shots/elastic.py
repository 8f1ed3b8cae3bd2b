"""The cost of history of an elastic shot, beside the same loops with nothing kept."""

from math import prod
from typing import Any

import numpy as np
from harness import summary

import forebay as fb
from forebay.wave import Adjoint, Elastic, ElasticModel, Grid, Loop, Shot, highest_frequency, imaging_interval, migrate
from forebay.wave.earth.stability import SAFETY, largest_dt
from shots.machine import Host, Taken
from shots.waves import middle, smoothed, velocities, widest


def row(
    machine: Host, shape: tuple[int, ...], steps: int, absorb: int, budget: fb.Budget, codec: str, directory: str
) -> dict[str, Any]:
    """Migrate one shot of the salt model, whose layers are inside the shape, and time it without its history."""
    inner = tuple(points - 2 * absorb for points in shape)
    vp, spacing = velocities(machine, "salt", inner)
    vp = smoothed(vp, 4.0)
    grid = Grid(inner, spacing, absorb=absorb)
    model = ElasticModel(vp, vp / np.float32(1.8), 310 * vp ** np.float32(0.25), grid)
    dt = SAFETY * largest_dt(model)
    highest = model.slowest / (Elastic.points_per_wavelength(8) * max(spacing))
    _, full = widest(highest, dt, steps)
    source = middle(grid)
    receivers = [(*source[:-1], x) for x in np.arange(0, inner[-1], 10) * spacing[-1]]
    shot = Shot(source, receivers, grid.cell * full[:steps], dt)
    every = imaging_interval(highest_frequency(full, dt), dt)
    data = np.random.default_rng(0).standard_normal((steps, len(receivers))).astype(np.float32)
    nothing = nothing_kept(machine, shot, model, dt, every, data).seconds
    how = {"budget": budget, "codec": codec, "directory": directory, "reversals": 100, "progress": False}
    told = summary(migrate(shot.with_data(data), model, dt=dt, every=every, **how).result)
    about = {"shape": shape, "steps": steps, "every": every, "nothing": nothing, "cost": told["seconds"] / nothing}
    # Of a forward and a backward step together, with nothing kept.
    return about | told | {"Gpoints": 2 * steps * prod(shape) / nothing / 1e9}


def nothing_kept(machine: Host, shot: Shot, model: ElasticModel, dt: float, every: int, data: Any) -> Taken:
    """Time forward, backward and imaging, with one record for all steps; once before, uncounted, with few steps."""
    loop = Loop(shot, Elastic(model, dt), listens=False)
    propagator, adjoint = loop.propagator, Adjoint(loop, data)
    sums, seen = propagator.image_sums(("pp",)), propagator.image_record(propagator.zeros(), ("pp",))

    def run(steps: int) -> None:
        adjoint.step = steps
        loop.forward(propagator.zeros(), 0, steps)
        for step in range((steps - 1) // every * every, -1, -every):
            propagator.add_image(adjoint, step, sums, seen, every * dt, None)

    run(min(2 * every, loop.steps))
    return machine.timed(lambda: run(loop.steps))
