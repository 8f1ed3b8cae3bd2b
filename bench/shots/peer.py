"""The gradient of a 3-D shot beside what was measured of Deepwave 0.1.0, which is quoted and not run here."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

import forebay as fb
from forebay.wave import AcousticModel, Grid, Shot, gradient, largest_dt, ricker
from forebay.wave.gradient import least_squares
from forebay.wave.stability import SAFETY
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
DIFFERS = (
    "Deepwave: CPML, one 8-bit codec of fixed rate without a bound, machine code for sm_86 and sm_89 or older PTX, one "
    "record ahead. Forebay: a symmetric damping layer of as many points, bounded:1e-4 of the range, kernels "
    "compiled for the device, plans with as many records on their way as the budget holds. Both: second order in time, "
    "eighth in space, one source, the gradient of squared differences. Deepwave's figures are of another run on a card "
    "of the same kind: its wheels could not be installed beside this one."
)


@dataclass
class Row:
    """One way to have the history of a gradient."""

    way: str
    every: int
    codec: str
    keep: str
    schedule: str
    step: float
    """seconds of the reversal for each step of the loop"""
    wall: float
    """seconds of the whole call, with preparation, plan and what the host does to the gradient at the end"""
    quoted: float | None
    quoted_peak: float | None
    """GiB"""
    used: int
    """bytes of the device in use when the loop turns, all arrays counted"""
    peak: dict[str, int]
    ratio: float | None
    phases: dict[str, float] = field(default_factory=dict)


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

    @property
    def record(self) -> int:
        """Bytes of a record, at most: rows are filled up on a GPU."""
        return 4 * math.prod(extent + 8 for extent in self.grid.fields(4))

    def row(self, way: str, every: int, codec: str | None, schedule: str, budget: fb.Budget) -> Row:
        """Measure one way; the first is done twice, to compile and to find costs."""
        used: list[int] = []

        def misfit(data: Any, observed: Any) -> Any:
            used.append(self.empty - self.machine.free())
            return least_squares(data, observed)

        for _ in range(2 if self.costs is None else 1):
            self.machine.let_go()
            begun = time.perf_counter()
            found = gradient(
                self.shot,
                self.model,
                dt=self.dt,
                every=every,
                misfit=misfit,
                budget=budget,
                codec=codec,
                schedule=schedule,
                costs=self.costs,
                reversals=100,
                directory=self.directory,
                progress=False,
            )
            wall = time.perf_counter() - begun
            self.costs = replace(found.result.plan.costs, **self.links)
        plan, metrics = found.result.plan, found.result.metrics
        return Row(
            way,
            every,
            plan.codec or "none",
            plan.keep,
            str(plan.schedule),
            metrics.seconds / self.shot.samples,
            wall,
            *QUOTED[way],
            used[-1],
            dict(metrics.peak),
            metrics.mean_ratio if metrics.ratios else None,
            dict(metrics.phases),
        )


def table(
    machine: Host, points: int, steps: int, absorb: int, links: dict[str, Any], directory: str
) -> Iterator[Callable[[], Row]]:
    """Give the ways that were measured of the other."""
    one = Gradients(machine, points, steps, absorb, links, directory)
    whole, few = int(1.3 * steps * one.record), int(4.5 * one.record)

    def only(first: int) -> fb.Budget:
        return fb.Budget(**{machine.tiers[0]: first})

    for way, every, codec, schedule, budget in (
        ("on the device, every 4", 4, None, "storeall", only(whole // 3)),
        ("compressed on the device, every 4", 4, "bounded:1e-4", "storeall", only(whole // 12)),
        ("compressed on the host, every 4", 4, "bounded:1e-4", "storeall", machine.budget(few, whole // 8)),
        ("on the host, every 4", 4, None, "auto", machine.budget(few, whole // 3)),
        ("compressed on the device, every 1", 1, "bounded:1e-4", "storeall", only(whole // 3)),
    ):
        yield partial(one.row, way, every, codec, schedule, budget)
