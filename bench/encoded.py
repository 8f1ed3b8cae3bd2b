"""What a codec is worth: the reversal of the 3-D acoustic loop over full fields, with and without one, in one run.

The loop, the kernels and the budget are those of ``reversal.py``. It starts from a field that is full everywhere:
noise of 10 to 30 points a wavelength, the worst a migration has at late times. States and records (one field of two)
are kept as they are and encoded; every row is what "auto" plans for it. Images are compared with the exact one.

Run ``python bench/encoded.py [--codec bounded:1e-4]``: takes 96 GB of host memory and about two minutes on an H200,
prints a table and writes ``bench/out/encoded.json``; ``--tiny`` is over in seconds.
"""

import argparse
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import reversal
from reversal import Loop, Report, Setting, about, console, measure
from rich.table import Table

import penstock as ps
from penstock.units import seconds_to_text, to_text


@dataclass
class Row:
    """What was measured of one way to keep snapshots."""

    kept: str
    codec: str
    schedule: str
    seconds: float
    predicted_seconds: float
    stall_seconds: float
    compress_seconds: float
    decompress_seconds: float
    moved_bytes: int
    ratio: float
    worst_ratio: float
    spilled: int
    recomputed: int
    peak_device_bytes: int
    peak_host_bytes: int
    allowed_device_bytes: int
    sampled_error: float
    """the largest, relative to the range, in bricks of sampled steps"""
    image_error: float
    """relative to the exact image, in the 2-norm"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--codec", default="bounded:1e-4")
    parser.add_argument("--steps", type=int, help="steps of the loop, 1000 otherwise")
    parser.add_argument("--host", default="96GB", help="host memory for snapshots")
    parser.add_argument("--tiny", action="store_true", help="a small grid and few steps, to see that it works")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "out" / "encoded.json")
    arguments = parser.parse_args()
    from penstock.cuda.available import why_not

    if reason := why_not():
        sys.exit(reason)
    shape = (64, 64, 64) if arguments.tiny else (310, 676, 676)
    steps = arguments.steps or (60 if arguments.tiny else 1000)
    loop = Loop(shape, steps)
    fill(loop)
    host = 12 * loop.snapshot if arguments.tiny else ps.Budget(host=arguments.host)["host"]
    budget = ps.Budget(device=6 * loop.snapshot, host=host)
    report = Report(arguments.output, about(Setting(shape, steps, 8, 6, host, 0.0), loop))
    codec = ps.codec.get(arguments.codec)
    costs = with_codec(loop, measure(loop, report), codec)
    loop.let_go()
    report.about["codec"] = asdict(costs.codecs[codec.name])
    rows, exact = [], None
    for record in (None, (0,)):
        for name in (None, codec.name):
            row, image = run(loop, steps, budget, costs, record, name, exact)
            exact = image if exact is None else exact
            rows.append(row)
            report.about["encoded"] = [asdict(one) for one in rows]
            report.write()
    show(rows, report)


def fill(loop: Loop) -> None:
    """Start from noise that is full everywhere and has 10 to 30 points a wavelength."""
    cupy = loop.cupy
    random = cupy.random.default_rng(0)
    spectrum = cupy.fft.rfftn(random.standard_normal(loop.shape, dtype="float32"))
    axes = [cupy.fft.fftfreq(extent).astype("float32") for extent in loop.shape[:2]]
    axes.append(cupy.fft.rfftfreq(loop.shape[2]).astype("float32"))
    z, y, x = (axis.reshape([-1 if place == number else 1 for place in range(3)]) for number, axis in enumerate(axes))
    frequency = cupy.sqrt(z**2 + y**2 + x**2)
    spectrum *= (frequency > 1 / 30) & (frequency < 1 / 10)
    field = cupy.fft.irfftn(spectrum, loop.shape).astype("float32")
    field /= cupy.abs(field).max()
    for axis in range(3):
        edge = cupy.moveaxis(field, axis, 0)
        edge[: reversal.RADIUS] = edge[-reversal.RADIUS :] = 0
    for array in loop.start:
        array[...] = field
    del spectrum, frequency
    loop.let_go()
    cupy.fft.config.get_plan_cache().clear()


def with_codec(loop: Loop, costs: ps.Costs, codec: Any) -> ps.Costs:
    """Time the codec on the field that the loop starts from, which is as full as any."""
    field = loop.start[0]
    room = loop.cupy.empty(codec.max_bytes(field.shape, field.dtype), "uint8")
    back = loop.cupy.empty_like(field)
    encoded = codec.encode(field, out=room)
    ratio = encoded.ratio
    encode = loop.seconds(lambda: codec.encode(field, out=room))
    decode = loop.seconds(lambda: codec.decode(encoded, out=back))
    known = ps.CodecCost(ratio, field.nbytes / encode, field.nbytes / decode, room.nbytes / field.nbytes)
    speed = f"{known.encode / 1e9:.0f} GB/s in, {known.decode / 1e9:.0f} GB/s out"
    console.print(f"{codec.name} on the full field, its range found too: {ratio:.2f} times smaller, {speed}")
    return replace(costs, codecs={codec.name: known})


def run(
    loop: Loop,
    steps: int,
    budget: ps.Budget,
    costs: ps.Costs,
    record: tuple[int, ...] | None,
    codec: str | None,
    exact: Any,
) -> tuple[Row, Any]:
    """Reverse once, and compare the image."""
    loop.reset()
    loop.let_go()
    before = least = loop.free_memory()

    def backward(state: Any, step: int) -> None:
        nonlocal least
        loop.backward(state, step)
        if step % max(1, steps // 4) == 0:
            least = min(least, loop.free_memory())

    call = {"budget": budget, "costs": costs, "record": record, "codec": codec, "progress": False}
    for _ in range(2):  # the first time pins what the second finds
        loop.reset()
        begun = time.perf_counter()
        result = ps.reverse(loop.forward, backward, loop.start, steps, **call)
        loop.wait()
        wall = time.perf_counter() - begun
    metrics, samples = result.metrics, result.metrics.samples
    image = loop.image.copy()
    norm = loop.cupy.linalg.norm
    error = 0.0 if exact is None else float(norm((image - exact).ravel()) / norm(exact.ravel()))
    row = Row(
        kept=result.plan.keep,
        codec=result.plan.codec or "none",
        schedule=str(result.plan.schedule),
        seconds=metrics.seconds,
        predicted_seconds=result.plan.prediction.seconds,
        stall_seconds=metrics.phases["stall"],
        compress_seconds=metrics.phases["compress"],
        decompress_seconds=metrics.phases["decompress"],
        moved_bytes=sum(metrics.moved.values()),
        ratio=metrics.mean_ratio if metrics.ratios else 1.0,
        worst_ratio=min(metrics.ratios, default=1.0),
        spilled=metrics.spilled,
        recomputed=metrics.recomputed,
        peak_device_bytes=before - least,
        peak_host_bytes=metrics.peak["host"],
        allowed_device_bytes=budget["device"] + loop.snapshot,
        sampled_error=max((sample.relative for sample in samples), default=0.0),
        image_error=error,
    )
    console.print(f"{row.kept} with {row.codec}: {seconds_to_text(row.seconds)}, wall {seconds_to_text(wall)}")
    console.print(result.explain(), highlight=False)
    return row, image


def show(rows: list[Row], report: Report) -> None:
    first = rows[0]
    table = Table(
        *("kept", "codec", "schedule", "measured", "predicted", "times faster", "stall", "compress", "decompress"),
        *(
            "moved",
            "times fewer",
            "ratio",
            "worst",
            "spilled",
            "recomputed",
            "device above",
            "host",
            "sampled",
            "image",
        ),
        title=f"reversal of {report.about['setting']['steps']} steps over full fields",
    )
    for row in rows:
        table.add_row(
            row.kept,
            row.codec,
            row.schedule,
            seconds_to_text(row.seconds),
            seconds_to_text(row.predicted_seconds),
            f"{first.seconds / row.seconds:.2f}",
            *(seconds_to_text(one) for one in (row.stall_seconds, row.compress_seconds, row.decompress_seconds)),
            to_text(row.moved_bytes),
            f"{first.moved_bytes / max(1, row.moved_bytes):.2f}",
            f"{row.ratio:.2f}",
            f"{row.worst_ratio:.2f}",
            str(row.spilled),
            str(row.recomputed),
            to_text(max(0, row.peak_device_bytes - row.allowed_device_bytes)),
            to_text(row.peak_host_bytes),
            f"{row.sampled_error:.2g}",
            f"{row.image_error:.2g}",
        )
    console.print(table)
    console.print(f"written to {report.path}")


if __name__ == "__main__":
    main()
