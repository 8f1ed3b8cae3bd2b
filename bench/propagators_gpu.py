"""Our propagators on a GPU: points a second of forward, adjoint and imaging steps, and their share of a copy's speed.

Grids are counted with their absorbing layers of 40 points; one point sends and a thousand hear. The limit is a copy of
a field inside the device, timed in the same run, and a step's share of it is that of its bytes: 16 a point for the
acoustic stencil, 120 for the elastic ones or 72 in two dimensions, and 20 more for each point of the model where an
image and its illumination are made.

Run ``python bench/propagators_gpu.py [--elastic] [--variants] [--output FILE]``: prints a table of acoustic or elastic
steps, writes ``bench/out/propagators_gpu.json`` or ``bench/out/elastic_gpu.json``. Elastic steps are timed as the
kernels are launched and as they were first; with ``--variants``, acoustic steps are timed in all variants of their
kernel, and the two halves of an elastic step each in all of theirs.
"""

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from shots import elastic_steps

from forebay.cuda.driver import current_device, describe_gpus
from forebay.cuda.stream import current, mark, seconds
from forebay.wave import Acoustic, AcousticModel, Grid, largest_dt
from forebay.wave.acoustic_gpu import GpuKernels
from forebay.wave.elastic_gpu import FASTEST, ElasticVariant
from forebay.wave.imaging import Imaging
from forebay.wave.variant import Variant

CASES = {
    "512^3": (512, 512, 512),
    "310 x 676 x 676": (310, 676, 676),
    "400^3": (400, 400, 400),
    "4000^2": (4000, 4000),
    "600^2": (600, 600),
}
"""Points that are computed, layers included."""
ORDERS = (4, 8)
LAYER = 40
RECEIVERS = 1000
REPETITIONS = 9
COPIED = 2 * 10**9
"""Bytes of the copy that gives the limit."""
STENCIL, PICTURE = 16, 20
"""Bytes a point: p, p_old and velocity read, a field written; a record read, image and illumination updated."""
VARIANTS = (
    Variant(),
    Variant(known=False),
    Variant(early=False),
    Variant(ahead=2),
    Variant(ahead=4),
    Variant(early=False, ahead=4),
    Variant(block=(32, 8), blocks=3, early=False),
    Variant(block=(32, 8), blocks=3),
    Variant(block=(32, 4), blocks=4),
    Variant(block=(32, 4), blocks=5, early=False),
    Variant(block=(32, 16), blocks=1),
    Variant(block=(32, 16), blocks=1, ahead=4),
    Variant(block=(16, 16), blocks=2),
    Variant(block=(16, 16), blocks=2, ahead=4),
    Variant(block=(16, 32), blocks=1),
    Variant(block=(64, 4), blocks=2),
    Variant(chunks=4),
    Variant(chunks=8),
)


class Case:
    """A propagator on the GPU with noise in its fields, stepped by any variant of the kernels."""

    def __init__(self, shape: tuple[int, ...], order: int) -> None:
        import cupy

        self.points = math.prod(shape)
        inner = tuple(points - 2 * LAYER for points in shape)
        grid = Grid(inner, 10.0, absorb=LAYER)
        depth = np.linspace(1500.0, 4500.0, inner[0], dtype=np.float32).reshape(-1, *(1 for _ in inner[1:]))
        model = AcousticModel(cupy.ascontiguousarray(cupy.broadcast_to(cupy.asarray(depth), inner)), grid)
        self.propagator = Acoustic(model, 0.9 * largest_dt(model, order), order)
        self.steps = max(10, min(400, int(2e9 / self.points)))
        rng = np.random.default_rng(0)
        self.source = self.propagator.antenna(rng.random((1, len(inner))) * grid.end)
        self.receivers = self.propagator.antenna(rng.random((RECEIVERS, len(inner))) * grid.end)
        self.sent, self.returned, self.heard = (
            cupy.asarray(rng.standard_normal((self.steps, count)), "float32") for count in (1, RECEIVERS, RECEIVERS)
        )
        self.state = self.propagator.zeros()
        halo, first = order // 2, self.propagator.rows.before + order // 2
        place = (*(slice(halo, -halo) for _ in shape[1:]), slice(first, first + shape[-1]))
        for field in self.state.values():
            field[place] = cupy.random.default_rng(1).standard_normal(shape, dtype="float32")
        self.image, self.light = self.propagator.images(), self.propagator.images()
        self.seen = self.propagator.seen(self.state)["p"]

    def runs(self, variant: Variant) -> dict[str, tuple[Callable[[], None], int]]:
        """Give each kind of run, as many steps long, and the bytes that a step must move."""
        propagator = self.propagator
        kernels = GpuKernels(propagator.model.grid, propagator.halo, np.dtype("float32"), variant=variant)
        steps, stencil = range(self.steps), STENCIL * self.points
        imaging = Imaging(self.image, self.light, self.seen, 1e-6)

        def forward() -> None:
            hears = self.receivers, self.heard
            self.state = kernels.run(propagator, self.state, self.source, self.sent, steps, hears, None)

        def adjoint() -> None:
            back = steps[::-1]
            self.state = kernels.run(propagator, self.state, self.receivers, self.returned, back, None, None)

        def pictured() -> None:
            for step in steps[::-1]:
                one = range(step, step + 1)
                self.state = kernels.run(propagator, self.state, self.receivers, self.returned, one, None, imaging)

        return {
            "forward": (forward, stencil),
            "adjoint": (adjoint, stencil),
            "adjoint and image": (pictured, stencil + PICTURE * self.image.size),
        }


def timed(call: Callable[[], None], stream: Any) -> tuple[float, float]:
    """Give the median seconds of a call on the device, and those that the host took to ask for it."""
    device, host = [], []
    for _ in range(REPETITIONS + 2):
        stream.sync()
        start, begun = mark(stream), time.perf_counter()
        call()
        host.append(time.perf_counter() - begun)
        device.append(seconds(start, mark(stream)))
    return statistics.median(device[2:]), statistics.median(host[2:])


def copy_speed(stream: Any) -> float:
    """Give the bytes a second of a copy inside the device, read and written."""
    import cupy

    source = cupy.random.default_rng(2).standard_normal(COPIED // 4, dtype="float32")
    target = cupy.empty_like(source)
    return float(2 * source.nbytes / timed(lambda: cupy.copyto(target, source), stream)[0])


def rows(
    case: Any,
    about: dict[str, Any],
    variants: tuple[Any, ...],
    limit: float,
    stream: Any,
    *,
    halves: bool,
) -> list[dict[str, Any]]:
    """Measure variants of a case; one after the first that cannot be launched is left out and named."""
    import cupy

    found = []
    for variant in variants:
        row: dict[str, Any] = about | {"variant": asdict(variant)}
        try:
            for kind, (call, nbytes) in (case.halves(variant) if halves else case.runs(variant)).items():
                device, host = timed(call, stream)
                row[kind] = {
                    "Gpoints": round(case.points * case.steps / device / 1e9, 2),
                    "share_of_copy": round(nbytes * case.steps / device / limit, 3),
                    "microseconds": round(device / case.steps * 1e6, 1),
                    "host_microseconds": round(host / case.steps * 1e6, 1),
                }
        except Exception as error:
            row["failed"] = repr(error)[:200]
        print(json.dumps(row), flush=True)
        found.append(row)
    assert "failed" not in found[0], found[0]["failed"]
    # A half alone is no wave, and may grow.
    finite = halves or all(bool(cupy.isfinite(field).all()) for field in case.state.values())
    assert finite, "the waves have grown without end"
    return found


def show(found: list[dict[str, Any]], kinds: tuple[str, ...], limit: float) -> None:
    table = Table(
        "problem", "order", "variant", title=f"Gpoint/s, share of a copy at {limit / 1e9:.0f} GB/s, us a step"
    )
    for kind in (*kinds, "host us"):
        table.add_column(kind)
    for row in found:
        cells = (
            f"{row[kind]['Gpoints']}, {row[kind]['share_of_copy']:.0%}, {row[kind]['microseconds']}"
            if kind in row
            else row.get("failed", "-")[:40]
            for kind in kinds
        )
        asked = str(row.get(kinds[0], {}).get("host_microseconds", "-"))
        table.add_row(row["problem"], str(row["order"]), _told(row["variant"]), *cells, asked)
    Console(width=170).print(table)


def _told(variant: dict[str, Any]) -> str:
    """Say what a variant has that the plain one has not."""
    plain, stress = asdict(ElasticVariant()), variant.get("stress")
    differs = {key: value for key, value in variant.items() if key != "stress" and value != plain[key]}
    text = ", ".join(f"{key} {value}" for key, value in differs.items()) or "plain"
    return text if stress is None else f"{text}; stresses {_told(stress)}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--elastic", action="store_true", help="time elastic steps instead of acoustic ones")
    parser.add_argument("--variants", action="store_true", help="time all variants at 512^3, or at 400 x 400 x 505")
    parser.add_argument("--output", type=Path)
    asked = parser.parse_args()
    import cupy  # before a stream is made current, which is done only in libraries that have been imported

    if asked.output is None:
        name = "elastic_gpu" if asked.elastic else "propagators_gpu"
        asked.output = Path(__file__).parent / "out" / f"{name}.json"
    whole: tuple[str, ...] = ("forward", "adjoint", "adjoint and image")
    half: tuple[str, ...] = ("move", "strain")
    sizes: dict[str, tuple[int, ...]] = elastic_steps.CASES if asked.elastic else CASES
    cases: list[tuple[str, int, tuple[Any, ...], tuple[str, ...]]]
    if asked.elastic:
        cases = [(name, 8, (FASTEST, ElasticVariant()), whole) for name in sizes]
        cases += [("400 x 400 x 505", 8, elastic_steps.VARIANTS, half)] if asked.variants else []
    else:
        cases = [(name, order, VARIANTS[:1], whole) for name in sizes for order in ORDERS]
        cases += [("512^3", order, VARIANTS[1:], whole) for order in reversed(ORDERS)] if asked.variants else []
    stream, found = current_device().create_stream(), {kinds: list[dict[str, Any]]() for kinds in (whole, half)}
    with current(stream):
        # Marks on another stream than the kernels' would time nothing.
        assert cupy.cuda.get_current_stream().ptr == int(stream.handle)
        limit = copy_speed(stream)
        for name, order, variants, kinds in cases:
            case = (elastic_steps.Case if asked.elastic else Case)(sizes[name], order)
            about = {"problem": name, "order": order}
            found[kinds] += rows(case, about, variants, limit, stream, halves=kinds == half)
            asked.output.parent.mkdir(exist_ok=True)
            told = {"gpus": [asdict(gpu) for gpu in describe_gpus()], "copy_GBps": round(limit / 1e9, 1)}
            text = json.dumps({**told, "rows": found[whole] + found[half]}, indent=2)
            asked.output.write_text(text + "\n")
            del case
            cupy.get_default_memory_pool().free_all_blocks()
    for kinds, measured in found.items():
        if measured:
            show(measured, kinds, limit)


if __name__ == "__main__":
    main()
