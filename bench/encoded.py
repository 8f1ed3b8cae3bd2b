"""What a codec is worth: the reversal of the 3-D acoustic loop over full fields, with and without one, in one run.

The loop, the kernels and the budget are those of `reversal`. It starts from fields that are full everywhere: the late
wavefield of `codecs`, and noise of 10 to 30 points a wavelength, which is harder than what a migration has. States are
kept as they are and encoded, records (one field of two) encoded, by what "auto" plans for each; and the same schedule,
zCut of the most snapshots, is carried out with and without the codec. Images are compared with the exact one.

Takes 96 GB of host memory and about two minutes on an H200.
"""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from cases import wavefields
from cases.acoustic_loop import Loop, prepared
from cases.blocking import codec_cost, pin
from harness import Report, arg, benchmark
from reversal import Rows

import forebay as fb
from forebay.engine.array_memory import memory_of
from forebay.engine.timing.measure import measure_codec


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
        loop.machine.release()
        cost = codec_cost(codec, loop.start[0], loop.cupy, loop.machine.shortest)
        machine = memory_of(loop.start).machine(Path(), False)
        asked_for = measure_codec(machine, loop.layout, "device", codec, list(loop.start), None)
        cost = replace(cost, encode_host=asked_for.encode_host, decode_host=asked_for.decode_host)
        loop.machine.release()
        report.facts[f"codec on {field}"] = asdict(cost)
        ways: list[Any] = [("auto", None, None), ("auto", None, codec.name), ("auto", (0,), codec.name)]
        rows = Rows(loop, asked.steps, budget, replace(costs, codecs={codec.name: cost}), report)
        for zcut in rows.most(fb.ZCut):
            ways += [(zcut, None, None), (zcut, None, codec.name)]
        exact = None
        for schedule, record, name in ways:
            how = {"record": record, "codec": name}
            warm = {"budget": budget, "costs": rows.costs, "schedule": "storeall", "progress": False}
            fb.reverse(loop.forward, loop.backward, loop.start, min(24, asked.steps), **warm, **how)  # compiles
            row = {"field": field} | rows.planned(str(schedule), schedule=schedule, **how)
            exact = loop.image.copy() if exact is None else exact
            wrong, whole = (loop.cupy.linalg.norm(image.ravel()) for image in (loop.image - exact, exact))
            row["image_error"] = float(wrong / whole)
            first = report.find(field=field, way=row["way"]) or row
            row["times_faster"] = first["seconds"] / row["seconds"]
            row["times_fewer"] = first["moved"] / max(1, row["moved"])
            report.add(row)
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
    frequency = cupy.sqrt(sum(axis**2 for axis in cupy.meshgrid(*axes, indexing="ij", sparse=True)))
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


if __name__ == "__main__":
    main()
