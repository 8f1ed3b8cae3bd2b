"""The clock around a call beside the device's own time: the first call of a process, and later ones."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from cases.machine import Host
from harness import seconds

import forebay as fb
from forebay.wave import Acoustic, AcousticModel, Grid, Loop, Shot, gradient, largest_dt, migrate, ricker, simulate

COLUMNS = "call first:.3f wall:.3f device:.3f ratio:.3f"


def table(machine: Host, points: int, steps: int, budget: fb.Budget) -> Iterator[Callable[[], dict[str, Any]]]:
    """Yield what measures simulate, gradient and migrate of a cube with 20 points of layers inside."""
    grid = Grid((points - 40,) * 3, 10.0)
    model = AcousticModel(machine.arrays.full(grid.shape, 3000.0, np.float32), grid)
    middle, dt = grid.end[0] / 2, 0.9 * largest_dt(model)
    lines = np.arange(0, grid.end[0], 100.0)
    shot = Shot((40.0, middle, middle), [(40.0, y, x) for y in lines for x in lines], ricker(12.0, dt, steps), dt)
    loop, options = Loop(shot, Acoustic(model, dt)), {"dt": dt, "budget": budget, "progress": False}
    heard = shot.with_data(0.9 * simulate(shot, model, dt=dt))

    def row(name: str, call: Callable[[], Any]) -> dict[str, Any]:
        results: list[Any] = []
        first, *walls = (seconds(lambda: (results.append(call()), machine.wait())) for _ in range(4))
        kernels = partial(loop.forward, loop.propagator.zeros(), 0, steps)
        device = machine.shortest(kernels) if name == "simulate" else results[-1].result.metrics.seconds
        return {"call": name, "first": first, "wall": min(walls), "device": device, "ratio": min(walls) / device}

    yield partial(row, "simulate", lambda: simulate(shot, model, dt=dt))
    yield partial(row, "gradient", lambda: gradient(heard, model, **options))
    yield partial(row, "migrate", lambda: migrate(heard, model, **options))
