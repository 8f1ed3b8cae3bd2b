"""What a codec is worth: the reversal of the 3-D acoustic loop over full fields, with and without one, in one run.

The loop, the kernels and the budget are those of ``reversal.py``. It starts from fields that are full everywhere: the
late one of ``wavefields.py``, and noise of 10 to 30 points a wavelength, which is harder than what a migration has.
States are kept as they are and encoded, records (one field of two) encoded, by what "auto" plans for each; and the same
schedule, zCut of the most snapshots, is carried out with and without the codec. Images are compared with the exact one.

Run ``python bench/encoded.py [--codec bounded:1e-4]``: takes 96 GB of host memory and about two minutes on an H200,
prints tables and writes ``bench/out/encoded.json``; ``--tiny`` is over in seconds.
"""

import argparse
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import reversal
import wavefields
from reversal import Loop, Report, Setting, about, console, measure
from rich.table import Table

import forebay as fb
from forebay.units import seconds_to_text, to_text


@dataclass
class Row:
    """What was measured of one way to keep snapshots."""

    field: str
    way: str
    """auto, or a schedule that was asked for"""
    kept: str
    codec: str
    schedule: str
    seconds: float
    wall_seconds: float
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
    from forebay.cuda.available import why_not

    if reason := why_not():
        sys.exit(reason)
    shape = (64, 64, 64) if arguments.tiny else (310, 676, 676)
    steps = arguments.steps or (60 if arguments.tiny else 1000)
    loop = Loop(shape, steps)
    host = 20 * loop.snapshot if arguments.tiny else fb.Budget(host=arguments.host)["host"]
    budget = fb.Budget(device=6 * loop.snapshot, host=host)
    setting = Setting(shape, steps, 8, 6, host, 0.0)
    report = Report(arguments.output, about(setting, loop))
    codec = fb.codec.get(arguments.codec)
    costs = measure(loop, report)
    pin(host, report)
    rows: list[Row] = []
    for field, fill in (("late", late), ("noise", noise)):
        fill(loop)
        loop.let_go()
        known = with_codec(loop, costs, codec)
        loop.let_go()
        report.about[f"codec on {field}"] = asdict(known.codecs[codec.name])
        same = reversal.most(fb.ZCut, setting, loop.snapshot, budget, costs)
        exact = None
        for schedule, record, name in (
            ("auto", None, None),
            ("auto", None, codec.name),
            ("auto", (0,), codec.name),
            (same, None, None),
            (same, None, codec.name),
        ):
            if schedule is not None:
                row, image = run(loop, field, schedule, steps, budget, known, record, name, exact)
                exact = image if exact is None else exact
                rows.append(row)
                report.about["encoded"] = [asdict(one) for one in rows]
                report.write()
    show(rows, report)


def pin(nbytes: int, report: Report) -> None:
    """Pin all of the host's memory, which the process keeps: the rows find it."""
    from forebay.cuda.slab import kept_pinned

    begun = time.perf_counter()
    with kept_pinned(nbytes):
        taken = time.perf_counter() - begun
    report.about["pinning"] = {"bytes": nbytes, "seconds": taken}
    console.print(f"pinning {to_text(nbytes)} took {seconds_to_text(taken)}; it is in no row")


def late(loop: Loop) -> None:
    """Start from the late wavefield: the upper planes of a cube, at two steps in a row."""
    nz, _, n = loop.shape
    step = round(wavefields.ACOUSTIC["late"] * n / 512)
    fields = dict(wavefields.acoustic(n, {"before": step - 1, "now": step}))
    start(loop, fields["now"][:nz], fields["before"][:nz])


def noise(loop: Loop) -> None:
    """Start from noise that is full everywhere and has 10 to 30 points a wavelength."""
    cupy = loop.cupy
    random = cupy.random.default_rng(0)
    spectrum = cupy.fft.rfftn(random.standard_normal(loop.shape).astype("float32"))
    axes = [cupy.fft.fftfreq(extent).astype("float32") for extent in loop.shape[:2]]
    axes.append(cupy.fft.rfftfreq(loop.shape[2]).astype("float32"))
    z, y, x = (axis.reshape([-1 if place == number else 1 for place in range(3)]) for number, axis in enumerate(axes))
    frequency = cupy.sqrt(z**2 + y**2 + x**2)
    spectrum *= (frequency > 1 / 30) & (frequency < 1 / 10)
    field = cupy.fft.irfftn(spectrum, loop.shape).astype("float32")
    start(loop, field, field)
    cupy.fft.config.get_plan_cache().clear()


def start(loop: Loop, now: Any, before: Any) -> None:
    """Have the loop start from two fields, scaled to at most 1."""
    largest = abs(now).max()
    for array, field in zip(loop.start, (now, before), strict=True):
        array[...] = field / largest
        for axis in range(3):
            edge = loop.cupy.moveaxis(array, axis, 0)
            edge[: reversal.RADIUS] = edge[-reversal.RADIUS :] = 0
    first = loop.start[0]
    span, small = float(first.max() - first.min()), float((abs(first) > 1e-4).mean())
    console.print(f"{small:.1%} above 1e-4 of the largest, rms {float(first.std()) / span:.2%} of the range")


def with_codec(loop: Loop, costs: fb.Costs, codec: Any) -> fb.Costs:
    """Time the codec on the field that the loop starts from, which is as full as any."""
    field = loop.start[0]
    room = loop.cupy.empty(codec.max_bytes(field.shape, field.dtype), "uint8")
    back = loop.cupy.empty_like(field)
    encoded = codec.encode(field, out=room)
    ratio = encoded.ratio
    # Several in a row: alone, the device would wait for the host.
    encode = loop.seconds(lambda: [codec.encode(field, out=room) for _ in range(10)]) / 10
    decode = loop.seconds(lambda: [codec.decode(encoded, out=back) for _ in range(10)]) / 10
    known = fb.CodecCost(ratio, field.nbytes / encode, field.nbytes / decode, room.nbytes / field.nbytes)
    speed = f"{known.encode / 1e9:.0f} GB/s in, {known.decode / 1e9:.0f} GB/s out"
    console.print(f"{codec.name} on the full field, its range found too: {ratio:.2f} times smaller, {speed}")
    return replace(costs, codecs={codec.name: known})


def run(
    loop: Loop,
    field: str,
    schedule: Any,
    steps: int,
    budget: fb.Budget,
    costs: fb.Costs,
    record: tuple[int, ...] | None,
    codec: str | None,
    exact: Any,
) -> tuple[Row, Any]:
    """Reverse once, and compare the image."""
    call = {"budget": budget, "costs": costs, "record": record, "codec": codec, "progress": False}
    fb.reverse(loop.forward, loop.backward, loop.start, min(24, steps), schedule="storeall", **call)  # compiles
    loop.reset()
    loop.let_go()
    before = least = loop.free_memory()

    def backward(state: Any, step: int) -> None:
        nonlocal least
        loop.backward(state, step)
        if step % max(1, steps // 4) == 0:
            least = min(least, loop.free_memory())

    begun = time.perf_counter()
    result = fb.reverse(loop.forward, backward, loop.start, steps, schedule=schedule, **call)
    loop.wait()
    wall = time.perf_counter() - begun
    metrics, samples = result.metrics, result.metrics.samples
    image = loop.image.copy()
    norm = loop.cupy.linalg.norm
    error = 0.0 if exact is None else float(norm((image - exact).ravel()) / norm(exact.ravel()))
    row = Row(
        field=field,
        way=str(schedule),
        kept=result.plan.keep,
        codec=result.plan.codec or "none",
        schedule=str(result.plan.schedule),
        seconds=metrics.seconds,
        wall_seconds=wall,
        predicted_seconds=result.plan.prediction.seconds,
        stall_seconds=metrics.phases["stall"],
        compress_seconds=metrics.phases["compress"],
        decompress_seconds=metrics.phases["decompress"],
        moved_bytes=sum(metrics.moved.values()),
        ratio=metrics.mean_ratio if metrics.ratios else 1.0,
        worst_ratio=metrics.ratios.worst if metrics.ratios else 1.0,
        spilled=metrics.spilled,
        recomputed=metrics.recomputed,
        peak_device_bytes=before - least,
        peak_host_bytes=metrics.peak["host"],
        allowed_device_bytes=budget["device"] + loop.snapshot,
        sampled_error=max((sample.relative for sample in samples), default=0.0),
        image_error=error,
    )
    taken = f"{seconds_to_text(row.seconds)}, wall {seconds_to_text(wall)}"
    console.print(f"{field}, {row.schedule}, {row.kept} with {row.codec}: {taken}")
    console.print(result.explain(), highlight=False)
    return row, image


def show(rows: list[Row], report: Report) -> None:
    """Set every row beside the first of its field and schedule, which has no codec."""
    table = Table(
        *(
            "field",
            "kept",
            "codec",
            "schedule",
            "measured",
            "predicted",
            "times faster",
            "stall",
            "compress",
            "decompress",
        ),
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
        first = next(one for one in rows if (one.field, one.way) == (row.field, row.way))
        table.add_row(
            row.field,
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
