"""The codec `bounded` beside nvCOMP's Bitcomp on a GPU, and beside zfp on a CPU, on wavefields.

On a GPU: CUDA events around the native calls, everything warm, medians of 15; a large copy is queued before each start,
the output is poisoned before each decoding, and every result is compared with the original. Speeds count bytes of the
array, and leave out the pass for the range of a relative bound, which has a column of its own. Bitcomp's figures leave
out the seal that Forebay puts around its streams.

On a CPU: `bounded` and zfpy in turns, medians of 15, each on one thread, by the processor time that they took, so that
other work on the machine counts little. What two threads gain is timed by the clock on the wall, beside two loops that
share nothing: no more can be had at that moment.

Run ``python bench/codecs.py`` on a machine with a GPU, about a minute on an H200, or ``python bench/codecs.py --cpu``.
Prints tables, writes ``bench/out/codecs.json`` or ``bench/out/codecs-cpu.json``.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from forebay.codec import get
from forebay.codec.bounded import Bounded

sys.path.insert(0, str(Path(__file__).parent))
import wavefields

REPETITIONS = 15
WARM_UPS = 2
BOUNDS = (1e-3, 1e-4)
console = Console(width=140, soft_wrap=True)


@dataclass(frozen=True)
class Row:
    """What was measured of one codec on one field; speeds in GB/s of the array."""

    field: str
    dtype: str
    shape: tuple[int, ...]
    bound: float
    codec: str
    ratio: float
    compress: float
    decompress: float
    error: float
    """largest of all runs, relative to the bound"""
    range: float | None = None


class Gpu:
    """Codecs on one array, timed by events of one stream."""

    def __init__(self, array: Any) -> None:
        import cupy

        from forebay.cuda.arrays import view
        from forebay.cuda.stream import create_streams

        self.cupy, self.array, self.source = cupy, array, view(array)
        self.stream = create_streams().compute
        self.out = cupy.empty_like(array)
        self.target = view(self.out)
        self.ballast = [cupy.zeros(2**29, "uint8") for _ in range(2)]
        self.span = float(array.max().astype("float64") - array.min().astype("float64"))

    def bounded(self, bound: float) -> tuple[float, ...]:
        """Run our own codec, the range apart."""
        from forebay.cuda.arrays import view

        codec = get(f"bounded:{bound}")
        assert isinstance(codec, Bounded)
        room = view(self.keep(self.cupy.empty(codec.max_bytes(self.array.shape, self.array.dtype), "uint8")))
        found = []

        def find() -> None:
            found[:] = [codec.range_device(self.source, room, self.stream)]

        def size() -> int:
            return int(self.kept[:8].get().view(np.uint64)[0])

        return self.run(
            lambda: codec.tiles_device(self.source, room, found[0], self.stream),
            lambda: codec.decode_device(room, self.target, self.stream),
            size,
            bound * self.span,
            find,
        )

    def bitcomp(self, bound: float) -> tuple[float, ...]:
        """Run nvCOMP's, at the largest delta that keeps the bound."""
        from forebay.codec import nvcomp
        from forebay.codec.nvcomp import Kind, Layout, Queue
        from forebay.cuda.driver import current_device

        kind = Kind.F32 if self.array.dtype == np.float32 else Kind.F64
        layout = Layout(self.array.nbytes, kind, nvcomp.ALGORITHMS["sparse"])
        queue = Queue(current_device().device_id, int(self.stream.handle))
        room = self.keep(self.cupy.empty(nvcomp.most_bytes(self.array.nbytes) + 8, "uint8"))
        where, end = room.data.ptr, room.data.ptr + room.nbytes - 8
        delta = 2.0 ** np.floor(np.log2(2 * bound * self.span))

        def size() -> int:
            nvcomp.size_device(where, end, queue)
            self.stream.sync()
            return int(room[-8:].get().view(np.uint64)[0])

        return self.run(
            lambda: nvcomp.compress_device(layout, self.source.pointer, where, float(delta), queue),
            lambda: nvcomp.uncompress_device(layout, where, self.target.pointer, queue),
            size,
            bound * self.span,
        )

    def keep(self, room: Any) -> Any:
        """Keep the room of an encoding alive."""
        self.kept = room
        self.cupy.cuda.get_current_stream().synchronize()
        return room

    def run(
        self,
        encode: Callable[[], None],
        decode: Callable[[], None],
        size: Callable[[], int],
        bound: float,
        before: Callable[[], None] = lambda: None,
    ) -> tuple[float, ...]:
        """Give ratio, compression, decompression and the pass before it in GB/s, and the largest error."""
        seconds: dict[str, list[float]] = {"before": [], "encode": [], "decode": []}
        worst = 0.0
        for repetition in range(WARM_UPS + REPETITIONS):
            times = {"before": self.timed(before), "encode": self.timed(encode)}
            self.out.fill(self.cupy.nan)
            self.cupy.cuda.get_current_stream().synchronize()
            times["decode"] = self.timed(decode)
            worst = max(worst, self.error())
            if repetition >= WARM_UPS:
                for what, took in times.items():
                    seconds[what].append(took)
        if not worst <= bound:
            raise AssertionError(f"an error of {worst} is above the bound of {bound}")
        nbytes = self.array.nbytes
        rates = [nbytes / statistics.median(seconds[what]) / 1e9 for what in ("encode", "decode", "before")]
        return nbytes / size(), *rates, worst / bound

    def timed(self, call: Callable[[], None]) -> float:
        """Give the seconds of a call's kernels; the copy before hides its launches, and empties the cache."""
        from forebay.cuda.copy import copy_async
        from forebay.cuda.stream import mark, seconds

        here, there = self.ballast
        copy_async(here.data.ptr, there.data.ptr, here.nbytes, self.stream)
        start = mark(self.stream)
        call()
        return seconds(start, mark(self.stream))

    def error(self) -> float:
        """Give the largest error, in double precision; infinite where something was left poisoned."""
        worst = 0.0
        for part in np.array_split(np.arange(self.array.shape[0]), 8):
            one, other = (array[part[0] : part[-1] + 1].astype("float64") for array in (self.array, self.out))
            worst = max(worst, float(self.cupy.nan_to_num(abs(one - other), nan=np.inf).max()))
        return worst


def gpu_rows(n: int) -> Iterator[Row]:
    from forebay.codec import nvcomp

    codecs = ["bounded", *(["bitcomp"] if nvcomp.available() else [])]
    for name, array, bounds in gpu_fields(n):
        bench = Gpu(array)
        for bound in bounds:
            for codec in codecs:
                ratio, compress, decompress, before, error = getattr(bench, codec)(bound)
                found = round(before) if codec == "bounded" else None
                figures = round(ratio, 2), round(compress), round(decompress), round(error, 4), found
                yield Row(name, str(array.dtype), array.shape, bound, codec, *figures)


def gpu_fields(n: int) -> Iterator[tuple[str, Any, tuple[float, ...]]]:
    """Acoustic waves at three times, the late one also as doubles and in other shapes, and an elastic one."""
    small = n < 512
    late = None
    steps = {name: step * n // 512 for name, step in wavefields.ACOUSTIC.items()} if small else None
    for name, late in wavefields.acoustic(n, steps):
        describe(name, late)
        yield name, late, BOUNDS
    assert late is not None
    yield "late, odd", late[: n - 11, : n - 9, : n - 7].copy(), BOUNDS[:1]
    yield "late, mirrored", mirrored(late), BOUNDS
    yield "late, planes", late.reshape(n * n, n), BOUNDS[:1]
    yield "late, line", late.reshape(-1), BOUNDS[:1]
    yield "late, doubles", late.astype("float64"), BOUNDS
    for name, field in wavefields.elastic(96 if small else 384, 300 if small else 1400):
        describe(name, field)
        yield f"elastic {name}", field, BOUNDS


def mirrored(field: Any) -> Any:
    """Give a shape of 310 x 676 x 676 to one of 512^3: lines are then multiples of 16 bytes, but not of 32."""
    import cupy

    n = field.shape[0]
    flat, side = 310 * n // 512, 676 * n // 512
    return cupy.pad(field[(n - flat) // 2 :][:flat], ((0, 0), (0, side - n), (0, side - n)), mode="reflect")


def describe(name: str, field: Any) -> None:
    peak, span = float(abs(field).max()), float(field.max() - field.min())
    rms = float((field.astype("float64") ** 2).mean()) ** 0.5
    above, zero = float((abs(field) > 1e-4 * peak).mean()), float((field == 0).mean())
    console.print(
        f"{name}: {above:.1%} above 1e-4 of the largest, {zero:.1%} exactly zero, rms {rms / span:.2%} of the range"
    )


def cpu_rows() -> Iterator[Row]:
    """Encode on one thread, and by zfp at the first tolerance with as large an error; one after the other in turns."""
    for name, array in cpu_fields():
        for bound in BOUNDS:
            codec = get(f"bounded:{bound},threads=1")
            assert isinstance(codec, Bounded)
            out, room = np.empty_like(array), np.empty(codec.max_bytes(array.shape, array.dtype), np.uint8)
            encoded = codec.encode(array, room)
            error = float(np.abs(array - codec.decode(encoded, out)).max())
            tolerance = error
            while zfp_error(array, tolerance) < error:
                tolerance *= 2
            yield from in_turns(name, array, bound, codec, room, out, tolerance)


def in_turns(
    name: str,
    array: NDArray[Any],
    bound: float,
    codec: Bounded,
    room: NDArray[Any],
    out: NDArray[Any],
    tolerance: float,
) -> Iterator[Row]:
    import zfpy

    encoded, data = codec.encode(array, room), zfpy.compress_numpy(array, tolerance=tolerance)
    taken = shares(
        array.nbytes,
        {
            "compress": lambda: codec.encode(array, room),
            "decompress": lambda: codec.decode(encoded, out),
            "zfp compress": lambda: zfpy.compress_numpy(array, tolerance=tolerance),
            "zfp decompress": lambda: zfpy.decompress_numpy(data),
        },
        time.thread_time,
    )
    span = bound * float(np.ptp(array.astype(np.float64)))
    error = float(np.abs(array - codec.decode(encoded, out)).max()) / span, zfp_error(array, tolerance) / span
    rates = {what: round(rate, 3) for what, rate in taken.items()}
    about = name, str(array.dtype), array.shape, bound
    yield Row(*about, "bounded", round(encoded.ratio, 2), rates["compress"], rates["decompress"], round(error[0], 4))
    ratio = round(array.nbytes / len(data), 2)
    yield Row(*about, "zfpy", ratio, rates["zfp compress"], rates["zfp decompress"], round(error[1], 4))
    times = [taken[what] / taken[f"zfp {what}"] for what in ("compress", "decompress")]
    console.print(f"{name} at {bound:g}: compress {times[0]:.1f} times zfpy's speed, decompress {times[1]:.1f} times")


def zfp_error(array: NDArray[Any], tolerance: float) -> float:
    import zfpy

    return float(np.abs(zfpy.decompress_numpy(zfpy.compress_numpy(array, tolerance=tolerance)) - array).max())


def shares(nbytes: int, calls: dict[str, Callable[[], Any]], clock: Callable[[], float]) -> dict[str, float]:
    """Give GB/s of each call, medians of calls made in turns: what else runs on the machine slows all of them alike."""
    taken: dict[str, list[float]] = {what: [] for what in calls}
    for _ in range(REPETITIONS):
        for what, call in calls.items():
            start = clock()
            call()
            taken[what].append(clock() - start)
    return {what: nbytes / statistics.median(times) / 1e9 for what, times in taken.items()}


def scaling() -> dict[str, float]:
    """Give how many times as fast two threads are, by the clock on the wall; beside them, loops that share nothing.

    "Allowed" is what two idle processors would make of it: the processor time of one thread, over that of the longer
    part and of all that is not done in parts.
    """
    array = pulses(256)
    one, two = (get(f"bounded:1e-3,threads={threads}") for threads in (1, 2))
    rooms = [np.empty(one.max_bytes(array.shape, array.dtype), np.uint8) for _ in range(2)]
    out, encoded = np.empty_like(array), one.encode(array)
    spin(1)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(spin, (1, 1)))
        calls: dict[str, Callable[[], Any]] = {
            "compress 1": lambda: one.encode(array, rooms[0]),
            "compress 2": lambda: two.encode(array, rooms[1]),
            "decompress 1": lambda: one.decode(encoded, out),
            "decompress 2": lambda: two.decode(encoded, out),
            "loops 1": lambda: spin(2 * SPINS),
            "loops 2": lambda: list(pool.map(spin, (SPINS, SPINS))),
        }
        rates = shares(array.nbytes, calls, time.perf_counter)
        spent = shares(array.nbytes, calls, time.process_time)
    allowed = {
        what: round(longest(two, calls[f"{what} 1"], calls[f"{what} 2"]), 2) for what in ("compress", "decompress")
    }
    times = {what: rates[f"{what} 2"] / rates[f"{what} 1"] for what in ("compress", "decompress", "loops")}
    work = {what: spent[f"{what} 1"] / spent[f"{what} 2"] for what in times}
    console.print("two threads, times as fast by the clock (processor time, times that of one thread):")
    for what, found in times.items():
        console.print(f"  {what}: {found:.2f} ({work[what]:.2f})")
    console.print(f"  of {os.cpu_count()} processors, others used {busy_elsewhere():.2f} in the last minute")
    console.print(f"  allowed by the way the work is shared: {allowed}")
    return {what: round(found, 2) for what, found in times.items()} | {
        f"{what} allowed": x for what, x in allowed.items()
    }


def longest(codec: Any, one: Callable[[], Any], two: Callable[[], Any]) -> float:
    """Do the parts one after the other instead, and give how many times shorter the longest way through them is."""
    saved = 0.0

    def each(call: Callable[[Any], Any], parts: list[Any]) -> list[Any]:
        nonlocal saved
        results, taken = [], []
        for part in parts:
            start = time.thread_time()
            results.append(call(part))
            taken.append(time.thread_time() - start)
        saved += sum(taken) - max(taken)
        return results

    found = []
    for _ in range(REPETITIONS):
        start = time.thread_time()
        one()
        middle = time.thread_time()
        saved = 0.0
        codec._each = each
        two()
        del codec._each
        found.append((middle - start) / (time.thread_time() - middle - saved))
    return statistics.median(found)


SPINS = 20_000_000


@njit(nogil=True)  # type: ignore[untyped-decorator]
def spin(count: int) -> int:
    """Compute something that needs no memory, and depends on what came before."""
    state = np.uint64(1)
    for k in range(count):
        state = (state ^ (state >> np.uint64(7))) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(k)
    return state  # type: ignore[no-any-return]


def busy_elsewhere() -> float:
    """Give the processors that were busy in the last minute, beside one of this process."""
    return max(0.0, os.getloadavg()[0] - 1)


def cpu_fields() -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Yield a wave at three times, as on the GPU but in a smaller box, and pulses that fill all of another, or half."""
    yield from small_acoustic(192, {"early": 480, "middle": 700, "late": 1000})
    field = pulses(192)
    yield "pulses", field
    field = field.copy()
    field[: field.shape[0] // 2] = 0
    yield "pulses, half empty", field


def small_acoustic(n: int, steps: dict[str, int]) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Yield the pressure at some steps: the wave of `wavefields`, with layers that undulate and a sponge all around."""
    dt, edge = 0.9e-3, 24
    z, y, x = np.meshgrid(*[np.arange(n) / n] * 3, indexing="ij", sparse=True)
    layer = np.clip(8 * (z + 0.018 * (np.sin(9 * x + 1) + np.cos(11 * y))), 0, 7).astype(int)
    speed = 1500 + layer * 3000 / 7 + 60 * np.sin(12 * x) * np.cos(15 * y)
    courant = ((speed * dt / wavefields.SPACING) ** 2).astype(np.float32)
    depth = np.clip(edge - np.minimum(np.arange(n), n - 1 - np.arange(n)), 0, edge)
    sponge = np.exp(-((0.015 * depth) ** 2)).astype(np.float32)
    p, old = np.zeros((2, n, n, n), np.float32)
    wanted = {step: name for name, step in steps.items()}
    for step in range(max(wanted) + 1):
        p[wavefields.DEPTH, n // 2, n // 2] += wavefields.ricker(step, dt)
        advance(p, old, courant, sponge)
        p, old = old, p
        if step in wanted:
            describe(wanted[step], p)
            yield wanted[step], p.copy()


@njit(nogil=True, fastmath=True)  # type: ignore[untyped-decorator]
def advance(p: Any, old: Any, courant: Any, sponge: Any) -> None:
    n = p.shape[0]
    one = np.float32(1)
    c0, c1, c2, c3, c4 = -205 * one / 24, 8 * one / 5, -one / 5, 8 * one / 315, -one / 560
    for z in range(4, n - 4):
        for y in range(4, n - 4):
            damp = sponge[z] * sponge[y]
            for x in range(4, n - 4):
                sum1 = (
                    p[z, y, x - 1] + p[z, y, x + 1] + p[z, y - 1, x] + p[z, y + 1, x] + p[z - 1, y, x] + p[z + 1, y, x]
                )
                sum2 = (
                    p[z, y, x - 2] + p[z, y, x + 2] + p[z, y - 2, x] + p[z, y + 2, x] + p[z - 2, y, x] + p[z + 2, y, x]
                )
                sum3 = (
                    p[z, y, x - 3] + p[z, y, x + 3] + p[z, y - 3, x] + p[z, y + 3, x] + p[z - 3, y, x] + p[z + 3, y, x]
                )
                sum4 = (
                    p[z, y, x - 4] + p[z, y, x + 4] + p[z, y - 4, x] + p[z, y + 4, x] + p[z - 4, y, x] + p[z + 4, y, x]
                )
                change = c0 * p[z, y, x] + c1 * sum1 + c2 * sum2 + c3 * sum3 + c4 * sum4
                new = p[z, y, x] + p[z, y, x] - old[z, y, x] + courant[z, y, x] * change
                old[z, y, x] = new * (damp * sponge[x])


def pulses(n: int) -> NDArray[np.float32]:
    """Spherical wavelets from many sources: smooth, oscillating with about ten points a period, strong and weak."""
    rng = np.random.default_rng(5)
    z, y, x = np.meshgrid(*[np.arange(n, dtype=np.float32)] * 3, indexing="ij", sparse=True)
    field = np.zeros((n, n, n), np.float32)
    for _ in range(40):
        cz, cy, cx = rng.uniform(0, n, 3)
        radius, reach = rng.uniform(10, n), np.sqrt((z - cz) ** 2 + (y - cy) ** 2 + (x - cx) ** 2)
        phase = (np.pi * 0.07 * (reach - radius)) ** 2
        field += ((1 - 2 * phase) * np.exp(-phase) / (reach + 5)).astype(np.float32)
    return field


def show(rows: list[Row]) -> None:
    table = Table(title="GB/s of the array, medians")
    for name in (
        "field",
        "type",
        "shape",
        "bound",
        "codec",
        "ratio",
        "compress",
        "decompress",
        "error/bound",
        "range pass",
    ):
        table.add_column(name, justify="left" if name in ("field", "codec") else "right")
    for row in rows:
        shape = "x".join(str(extent) for extent in row.shape)
        figures = (row.ratio, row.compress, row.decompress, row.error, "" if row.range is None else row.range)
        table.add_row(row.field, row.dtype, shape, f"{row.bound:g}", row.codec, *(str(figure) for figure in figures))
    console.print(table)


def machine(on_cpu: bool) -> dict[str, Any]:
    about: dict[str, Any] = {
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
    }
    if not on_cpu:
        from forebay.cuda.driver import describe_gpus

        about["gpus"] = [asdict(gpu) for gpu in describe_gpus()]
    return about


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cpu", action="store_true", help="measure on the CPU, beside zfpy")
    parser.add_argument("--points", type=int, default=512, help="along each axis of the acoustic fields")
    asked = parser.parse_args()
    rows: list[Row] = []
    content: dict[str, Any] = {}
    out = Path(__file__).parent / "out" / ("codecs-cpu.json" if asked.cpu else "codecs.json")
    out.parent.mkdir(exist_ok=True)
    for row in cpu_rows() if asked.cpu else gpu_rows(asked.points):
        rows.append(row)
        content = {"machine": machine(asked.cpu), "repetitions": REPETITIONS, "rows": [asdict(one) for one in rows]}
        out.write_text(json.dumps(content, indent=2) + "\n")
    show(rows)
    if asked.cpu:
        content["two threads"] = scaling()
        out.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
