"""What a codec is worth: the reversal of the 3-D acoustic loop over full fields, with and without one, in one run.

The loop, the kernels and the budget are those of `reversal`. It starts from fields that are full everywhere: the late
wavefield of `codecs`, and noise of 10 to 30 points a wavelength, which is harder than what a migration has. States are
kept as they are and encoded, records (one field of two) encoded, by what "auto" plans for each; and the same schedule,
zCut of the most snapshots, is carried out with and without the codec. Images are compared with the exact one.

Takes 96 GB of host memory and about two minutes on an H200.
"""

import time
from dataclasses import asdict, replace
from typing import Any

from cases import wavefields
from cases.acoustic_loop import Loop, pin, prepared, watched
from harness import Report, arg, benchmark, summary
from reversal import Rows

import forebay as fb


@benchmark(
    arg("--codec", default="bounded:1e-4"),
    arg("--steps", type=int, default=1000, tiny=60, help="steps of the loop"),
    arg("--host", default="96GB", help="host memory for snapshots"),
    needs=("gpu", "cupy"),
)
def main(asked: Any, report: Report) -> None:
    loop, budget, costs = prepared(asked, report, asked.steps)
    codec = fb.codec.get(asked.codec)
    pin(budget["host"], report)
    for field, fill in (("late", late), ("noise", noise)):
        fill(loop, report)
        loop.release()
        measured = with_codec(loop, costs, codec, report)
        loop.release()
        report.facts[f"codec on {field}"] = asdict(measured.codecs[codec.name])
        ways: list[Any] = [("auto", None, None), ("auto", None, codec.name), ("auto", (0,), codec.name)]
        for zcut in Rows(loop, asked.steps, budget, costs, report).most(fb.ZCut):
            ways += [(zcut, None, None), (zcut, None, codec.name)]
        exact = None
        for schedule, record, name in ways:
            call = {"budget": budget, "costs": measured, "record": record, "codec": name}
            image = reverse(loop, field, schedule, asked.steps, call, exact, report)
            exact = image if exact is None else exact
    report.table(
        f"reversal of {asked.steps} steps over full fields",
        "field keep codec schedule seconds:s predicted:s times_faster:.2f stall:s phases.compress:s "
        "phases.decompress:s moved:B times_fewer:.2f ratio:.2f worst_ratio:.2f spilled recomputed device_above:B "
        "peak.host:B sampled:.2g image_error:.2g wall:s",
    )


def late(loop: Loop, report: Report) -> None:
    """Start from the late wavefield: the upper planes of a cube, at two steps in a row."""
    nz, _, n = loop.shape
    step = round(wavefields.ACOUSTIC["late"] * n / 512)
    fields = dict(wavefields.acoustic(n, {"before": step - 1, "now": step}))
    start(loop, fields["now"][:nz], fields["before"][:nz], report)


def noise(loop: Loop, report: Report) -> None:
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
    start(loop, field, field, report)
    cupy.fft.config.get_plan_cache().clear()


def start(loop: Loop, now: Any, before: Any, report: Report) -> None:
    """Have the loop start from two fields, scaled to at most 1."""
    largest = abs(now).max()
    for array, field in zip(loop.start, (now, before), strict=True):
        array[...] = field / largest
        loop.clear_edges(array)
    first = loop.start[0]
    span, small = float(first.max() - first.min()), float((abs(first) > 1e-4).mean())
    report.say(f"{small:.1%} above 1e-4 of the largest, rms {float(first.std()) / span:.2%} of the range")


def with_codec(loop: Loop, costs: fb.Costs, codec: Any, report: Report) -> fb.Costs:
    """Time the codec on the field that the loop starts from, which is as full as any."""
    field = loop.start[0]
    room = loop.cupy.empty(codec.max_bytes(field.shape, field.dtype), "uint8")
    back = loop.cupy.empty_like(field)
    encoded = codec.encode(field, out=room)
    ratio = encoded.ratio
    # Several in a row: alone, the device would wait for the host.
    encode = loop.seconds(lambda: [codec.encode(field, out=room) for _ in range(10)]) / 10
    decode = loop.seconds(lambda: [codec.decode(encoded, out=back) for _ in range(10)]) / 10
    cost = fb.CodecCost(ratio, field.nbytes / encode, field.nbytes / decode, room.nbytes / field.nbytes)
    report.say(f"{codec.name} on the full field, its range found too: {cost}")
    return replace(costs, codecs={codec.name: cost})


def reverse(loop: Loop, field: str, schedule: Any, steps: int, call: dict[str, Any], exact: Any, report: Report) -> Any:
    """Reverse once, add a row that is set beside the first of its field and schedule, and return the image."""
    warm = call | {"schedule": "storeall", "progress": False}
    fb.reverse(loop.forward, loop.backward, loop.start, min(24, steps), **warm)  # compiles
    backward, taken = watched(loop, set(range(0, steps, max(1, steps // 4))))
    begun = time.perf_counter()
    result = fb.reverse(loop.forward, backward, loop.start, steps, schedule=schedule, progress=False, **call)
    loop.wait()
    wall = time.perf_counter() - begun
    image, norm = loop.image.copy(), loop.cupy.linalg.norm
    error = 0.0 if exact is None else float(norm((image - exact).ravel()) / norm(exact.ravel()))
    row = {"field": field, "way": str(schedule)} | summary(result) | {"wall": wall, "image_error": error}
    row["sampled"] = max((sample.relative for sample in result.metrics.samples), default=0.0)
    row["device_taken"], allowed = taken(), call["budget"]["device"] + loop.snapshot
    row["device_above"] = max(0, row["device_taken"] - allowed)
    first = report.find(field=field, way=row["way"]) or row
    row["times_faster"] = first["seconds"] / row["seconds"]
    row["times_fewer"] = first["moved"] / max(1, row["moved"])
    report.add(row)
    report.say(result.explain())
    return image


if __name__ == "__main__":
    main()
