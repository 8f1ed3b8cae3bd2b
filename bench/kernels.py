"""Our propagators on a GPU: points a second of forward, adjoint and imaging steps, and their share of a copy's speed.

Grids are counted with their absorbing layers of 40 points; one point sends and a thousand hear. The limit is a copy of
a field inside the device, timed in the same run, and a step's share of it is that of its bytes: 16 a point for the
acoustic stencil, 120 for the elastic ones or 72 in two dimensions, and 20 more for each point of the model where an
image and its illumination are made. With ``--elastic`` elastic steps are timed instead of acoustic ones.
"""

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from harness import Report, arg, benchmark, median

ACOUSTIC = {
    "512^3": (512, 512, 512),
    "310 x 676 x 676": (310, 676, 676),
    "400^3": (400, 400, 400),
    "4000^2": (4000, 4000),
    "600^2": (600, 600),
}
ELASTIC = {"400 x 400 x 505": (400, 400, 505), "256^3": (256, 256, 256), "1200^2": (1200, 1200)}
"""Points that are computed, layers included."""
LAYER, RECEIVERS, REPETITIONS = 40, 1000, 9
PICTURE = 20
"""Bytes a point: a record read, image and illumination updated."""


class Case:
    """A propagator with noise in its fields, a source and receivers."""

    def __init__(self, elastic: bool, shape: tuple[int, ...], order: int) -> None:
        import cupy

        from forebay.wave import Acoustic, AcousticModel, Elastic, ElasticModel, Grid, largest_dt
        from forebay.wave.imaging import Imaging

        self.points = math.prod(shape)
        inner = tuple(points - 2 * LAYER for points in shape)
        grid, noise, rng = Grid(inner, 10.0, absorb=LAYER), cupy.random.default_rng(1), np.random.default_rng(0)
        if elastic:
            rough = ((1800, 700), (0.4, 0.15), (1500, 900))
            vp, share, rho = (low + more * noise.random(inner, dtype="float32") for low, more in rough)
            model: Any = ElasticModel(vp, share * vp, rho, grid)
            del vp, share, rho
        else:
            depth = cupy.linspace(1500.0, 4500.0, inner[0], dtype="float32").reshape(-1, *(1 for _ in inner[1:]))
            model = AcousticModel(cupy.ascontiguousarray(cupy.broadcast_to(depth, inner)), grid)
        self.propagator: Any = (Elastic if elastic else Acoustic)(model, 0.9 * largest_dt(model, order), order)
        self.steps = (10 if self.points > 1e7 else 400) if elastic else max(10, min(400, int(2e9 / self.points)))
        self.source = self.propagator.antenna(rng.random((1, len(inner))) * grid.end, ["explosion"])
        places = rng.random((RECEIVERS, len(inner))) * grid.end
        self.receivers = self.propagator.antenna(places, ["pressure"] * RECEIVERS)
        self.sent, self.returned, self.heard = (
            cupy.asarray(rng.standard_normal((self.steps, count)) * (1e-6 if elastic else 1), "float32")
            for count in (1, RECEIVERS, RECEIVERS)
        )
        self.state = self.propagator.zeros()
        rows, halo = self.propagator.layout if elastic else self.propagator.rows, order // 2
        for name, field in self.state.items():  # a velocity of 1 goes with a stress of about 4e6
            strength = 4e6 if elastic and name[0] != "v" else 1
            rows.cut(field)[(slice(halo, -halo),) * len(shape)] = (
                noise.standard_normal(shape, dtype="float32") * strength
            )
        (seen,) = self.propagator.seen(self.state, ("pp",)).values()
        self.imaging = Imaging(seen * 0, seen * 0, seen, 1e-6)
        self.nbytes = {"forward": {2: 72, 3: 120}[len(shape)] * self.points if elastic else 16 * self.points}
        self.nbytes["adjoint"] = self.nbytes["forward"]
        self.nbytes["image"] = self.nbytes["forward"] + PICTURE * seen.size

    def forward(self) -> None:
        """Step forward, hearing."""
        hears, steps = (self.receivers, self.heard), range(self.steps)
        self.state = self.propagator.advance(self.state, self.source, self.sent, steps, hears)

    def adjoint(self) -> None:
        """Step back."""
        back = range(self.steps)[::-1]
        self.state = self.propagator.retreat(self.state, self.receivers, self.returned, back)

    def image(self) -> None:
        """Step back, and add to an image at every step."""
        for step in range(self.steps)[::-1]:
            at = range(step, step + 1)
            self.state = self.propagator.retreat(self.state, self.receivers, self.returned, at, self.imaging)


def timed(call: Callable[[], None], stream: Any) -> tuple[float, float]:
    """Return the median seconds of a call on the device, and those that the host took to ask for it."""
    from forebay.cuda.stream import mark, seconds

    device, host = [], []
    for _ in range(REPETITIONS + 2):
        stream.sync()
        start, begun = mark(stream), time.perf_counter()
        call()
        host.append(time.perf_counter() - begun)
        device.append(seconds(start, mark(stream)))
    return median(device[2:]), median(host[2:])


@benchmark(
    arg("--elastic", action="store_true", help="time elastic steps instead of acoustic ones"),
    arg("--copied", type=int, default=2 * 10**9, tiny=2**24, help="bytes of the copy that gives the limit"),
    needs=("gpu", "cupy"),
)
def main(asked: Any, report: Report) -> None:
    import cupy  # before a stream is made current, which is done only in libraries that have been imported

    from forebay.cuda.driver import current_device
    from forebay.cuda.stream import current

    sizes = {"140^2": (140, 140)} if asked.tiny else ELASTIC if asked.elastic else ACOUSTIC
    stream = current_device().create_stream()
    with current(stream):
        # Marks on another stream than the kernels' would time nothing.
        assert cupy.cuda.get_current_stream().ptr == int(stream.handle)
        source = cupy.random.default_rng(2).standard_normal(asked.copied // 4, dtype="float32")
        target = cupy.empty_like(source)
        limit = 2 * source.nbytes / timed(lambda: cupy.copyto(target, source), stream)[0]  # read and written
        report.facts["copy_GBps"] = limit / 1e9
        for name, order in [(name, order) for name in sizes for order in ((8,) if asked.elastic else (4, 8))]:
            case, row = Case(asked.elastic, sizes[name], order), {"problem": name, "order": order}
            for kind, nbytes in case.nbytes.items():
                device, host = timed(getattr(case, kind), stream)
                speed = {"Gpoints": case.points * case.steps / device / 1e9, "us": device / case.steps * 1e6}
                share = {"share": nbytes * case.steps / device / limit, "host_us": host / case.steps * 1e6}
                row[kind] = speed | share
            report.add(row)
            assert all(bool(cupy.isfinite(field).all()) for field in case.state.values()), "the waves have grown"
            del case
            cupy.get_default_memory_pool().free_all_blocks()
    figures = (f"{kind}.{what}" for kind in ("forward", "adjoint", "image") for what in ("Gpoints:.2f", "share:.3f"))
    title = f"forward, adjoint, adjoint and image: Gpoint/s, share of a copy at {limit / 1e9:.0f} GB/s"
    report.table(title, f"problem order {' '.join(figures)} forward.us:.1f forward.host_us:.1f")


if __name__ == "__main__":
    main()
