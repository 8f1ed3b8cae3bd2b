"""The gradient of a 3-D shot beside what was measured of Deepwave 0.1.0, which is quoted and not run here."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from harness import summary

import forebay as fb
from forebay.wave import AcousticModel, Grid, Shot, gradient, largest_dt, ricker
from forebay.wave.earth.stability import SAFETY
from forebay.wave.gradient import least_squares
from shots.machine import Host

QUOTED = {
    "on the device, every 4": (5.73e-3, 34),
    "compressed on the device, every 4": (6.54e-3, 19),
    "compressed on the host, every 4": (30.0e-3, None),
    "on the host, every 4": (90.7e-3, None),
    "compressed on the device, every 1": (7.8e-3, 32),
}
"""Of Deepwave 0.1.0 on one H200: seconds of a forward and a backward step, and peak GiB; 3-D scalar, 400^3, accuracy 8,
layers of 20 points, 200 steps, float32."""
COLUMNS = "way codec keep schedule step:s wall:.2f deepwave:s times_faster:.2f used_GiB:.1f deepwave_GiB ratio:.1f"


class Gradients:
    """Computes gradients of one shot, and knows what its steps and links cost once it has done so."""

    def __init__(
        self, machine: Host, points: int, steps: int, absorb: int, links: dict[str, Any], directory: str
    ) -> None:
        self.machine, self.links, self.directory, self.empty = machine, links, directory, machine.free()
        self.grid, arrays = Grid((points,) * 3, 10.0, absorb=absorb), machine.arrays
        depth = arrays.linspace(1500, 3000, points, dtype="float32").reshape(-1, 1, 1)
        self.model = AcousticModel(arrays.ascontiguousarray(arrays.broadcast_to(depth, self.grid.shape)), self.grid)
        self.dt = SAFETY * largest_dt(self.model)
        middle, line = points // 2 * 10.0, np.arange(0, points, max(1, points // 20)) * 10.0
        receivers = [(20.0, y, x) for y in line for x in line]
        shot = Shot((20.0, middle, middle), receivers, ricker(12.0, self.dt, steps), self.dt)
        self.shot = shot.with_data(np.zeros((steps, len(receivers)), np.float32))
        self.costs: fb.Costs | None = None

    def row(self, way: str, every: int, codec: str | None, schedule: str, budget: fb.Budget) -> dict[str, Any]:
        """Measure one way; the first is done twice, to compile and to find costs."""
        used: list[int] = []

        def misfit(data: Any, observed: Any) -> Any:
            used.append(self.empty - self.machine.free())  # when the loop turns, all arrays counted
            return least_squares(data, observed)

        how = {"misfit": misfit, "budget": budget, "codec": codec, "schedule": schedule, "directory": self.directory}
        for _ in range(2 if self.costs is None else 1):
            self.machine.release()
            begun = time.perf_counter()
            made = gradient(
                self.shot,
                self.model,
                dt=self.dt,
                every=every,
                costs=self.costs,
                reversals=100,
                progress=False,
                **how,
            )
            wall = time.perf_counter() - begun
            self.costs = replace(made.result.plan.costs, **self.links)
        told, (deepwave, peak) = summary(made.result), QUOTED[way]
        step = told["seconds"] / self.shot.samples
        row = {"way": way, "every": every} | told | {"step": step, "wall": wall, "used_GiB": used[-1] / 2**30}
        return row | {"deepwave": deepwave, "deepwave_GiB": peak, "times_faster": deepwave / step}


def table(
    machine: Host, points: int, steps: int, absorb: int, links: dict[str, Any], directory: str
) -> Iterator[Callable[[], dict[str, Any]]]:
    """Yield the ways that were measured of the other."""
    shot = Gradients(machine, points, steps, absorb, links, directory)
    record = 4 * math.prod(extent + 8 for extent in shot.grid.fields(4))  # bytes at most: rows are filled up on a GPU
    whole, few = int(1.3 * steps * record), int(4.5 * record)
    for way, every, codec, schedule, budget in (
        ("on the device, every 4", 4, None, "storeall", machine.budget(whole // 3)),
        ("compressed on the device, every 4", 4, "bounded:1e-4", "storeall", machine.budget(whole // 12)),
        ("compressed on the host, every 4", 4, "bounded:1e-4", "storeall", machine.budget(few, whole // 8)),
        ("on the host, every 4", 4, None, "auto", machine.budget(few, whole // 3)),
        ("compressed on the device, every 1", 1, "bounded:1e-4", "storeall", machine.budget(whole // 3)),
    ):
        yield partial(shot.row, way, every, codec, schedule, budget)
