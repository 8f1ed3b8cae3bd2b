"""Elastic steps on a GPU to be timed: in a rough medium, with noise in the fields, by any variant of the kernels."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from forebay.wave import Elastic, ElasticModel, Grid, largest_dt
from forebay.wave.elastic_gpu import ElasticGpuKernels, ElasticVariant
from forebay.wave.imaging import Imaging

CASES = {"400 x 400 x 505": (400, 400, 505), "256^3": (256, 256, 256), "1200^2": (1200, 1200)}
"""Points that are computed, layers included."""
LAYER = 40
RECEIVERS = 1000
HALVES = {2: {"move": 32, "strain": 40}, 3: {"move": 52, "strain": 68}}
"""Bytes a point of the halves of a step, by the number of axes: each field read or written once."""
PICTURE = 20
"""Bytes a point: a record read, image and illumination updated."""
VARIANTS = (
    ElasticVariant(),
    ElasticVariant(early=False),
    ElasticVariant(early=False, ahead=2),
    ElasticVariant(block=(32, 16), blocks=1),
    ElasticVariant(block=(16, 16)),
    ElasticVariant(block=(32, 4), blocks=4),
    ElasticVariant(width=1, blocks=3),
    ElasticVariant(width=1, blocks=4, early=False),
    ElasticVariant(width=1, block=(32, 16), blocks=2, early=False),
    ElasticVariant(width=1, block=(64, 8), blocks=2, early=False),
    ElasticVariant(width=4, blocks=1),
    ElasticVariant(width=4, block=(16, 16), blocks=1),
    ElasticVariant(width=4, blocks=1, early=False),
    ElasticVariant(known=False),
)


class Case:
    """A propagator with noise in its fields; an explosion is sent and pressure is heard."""

    def __init__(self, shape: tuple[int, ...], order: int) -> None:
        import cupy

        self.points, self.axes = math.prod(shape), len(shape)
        inner = tuple(points - 2 * LAYER for points in shape)
        grid, noise = Grid(inner, 10.0, absorb=LAYER), cupy.random.default_rng(1)
        vp, share, rho = (
            low + more * noise.random(inner, dtype="float32") for low, more in ((1800, 700), (0.4, 0.15), (1500, 900))
        )
        model = ElasticModel(vp, share * vp, rho, grid)
        del vp, share, rho
        self.propagator = Elastic(model, 0.9 * largest_dt(model, order), order)
        self.steps = 10 if self.points > 1e7 else 400
        rng = np.random.default_rng(3)
        self.source = self.propagator.antenna(rng.random((1, self.axes)) * grid.end, ["explosion"])
        places = rng.random((RECEIVERS, self.axes)) * grid.end
        self.receivers = self.propagator.antenna(places, ["pressure"] * RECEIVERS)
        self.sent, self.returned, self.heard = (
            cupy.asarray(rng.standard_normal((self.steps, count)) * 1e-6, "float32")
            for count in (1, RECEIVERS, RECEIVERS)
        )
        self.state = self.propagator.zeros()
        halo, first = order // 2, self.propagator.layout.before + order // 2
        place = (*(slice(halo, -halo) for _ in shape[1:]), slice(first, first + shape[-1]))
        for name, field in self.state.items():  # a velocity of 1 goes with a stress of about 4e6
            field[place] = noise.standard_normal(shape, dtype="float32") * (1 if name[0] == "v" else 4e6)

    def kernels(self, variant: ElasticVariant) -> ElasticGpuKernels:
        """Give the kernels in a variant."""
        grid, halo = self.propagator.model.grid, self.propagator.halo
        return ElasticGpuKernels(grid, halo, np.dtype("float32"), variant=variant)

    def runs(self, variant: ElasticVariant) -> dict[str, tuple[Callable[[], None], int]]:
        """Give each kind of run, as many steps long, and the bytes that a step must move."""
        kernels, propagator, steps = self.kernels(variant), self.propagator, range(self.steps)
        seen = kernels.see(propagator, self.state, ("pp",))["div"]
        image, light = seen * 0, seen * 0
        imaging, stencils = Imaging(image, light, seen, 1e-6), sum(HALVES[self.axes].values()) * self.points

        def forward() -> None:
            hears = self.receivers, self.heard
            kernels.run(propagator, self.state, self.source, self.sent, steps, hears, None)

        def adjoint() -> None:
            kernels.run(propagator, self.state, self.receivers, self.returned, steps[::-1], None, None)

        def pictured() -> None:
            for step in steps[::-1]:
                one = range(step, step + 1)
                kernels.run(propagator, self.state, self.receivers, self.returned, one, None, imaging)

        return {
            "forward": (forward, stencils),
            "adjoint": (adjoint, stencils),
            "adjoint and image": (pictured, stencils + PICTURE * image.size),
        }

    def halves(self, variant: ElasticVariant) -> dict[str, tuple[Callable[[], None], int]]:
        """Give the halves of a step, each launched as often as there are steps, and the bytes that one must move."""
        kernels = self.kernels(variant)
        fields = kernels._fields({name: kernels.device.address(field) for name, field in self.state.items()})
        found = {}
        for (name, nbytes), launch in zip(HALVES[self.axes].items(), kernels._halves(self.propagator), strict=True):
            launch.set(**fields)

            def repeated(launch: Any = launch) -> None:
                for _ in range(self.steps):
                    launch(kernels.device.stream())

            found[name] = repeated, nbytes * self.points
        return found
