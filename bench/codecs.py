"""The codec `bounded` beside nvCOMP's Bitcomp on a GPU, and beside zfp on a CPU, on wavefields.

On a GPU: CUDA events around the native calls, everything warm, medians of 15; a large copy is queued before each start,
the output is poisoned before each decoding, and every result is compared with the original. Speeds count bytes of the
array, and leave out the pass for the range of a relative bound, which has a column of its own. Bitcomp's figures leave
out the seal that Penstock puts around its streams.

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
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from penstock.codec import get
from penstock.codec.bounded import Bounded

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

        from penstock.cuda.arrays import view
        from penstock.cuda.stream import create_streams

        self.cupy, self.array, self.source = cupy, array, view(array)
        self.stream = create_streams().compute
        self.out = cupy.empty_like(array)
        self.target = view(self.out)
        self.ballast = [cupy.zeros(2**29, "uint8") for _ in range(2)]
        self.span = float(array.max().astype("float64") - array.min().astype("float64"))

    def bounded(self, bound: float) -> tuple[float, ...]:
        """Run our own codec, the range apart."""
        from penstock.cuda.arrays import view

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
        from penstock.codec import nvcomp
        from penstock.codec.nvcomp import Kind, Layout, Queue
        from penstock.cuda.driver import current_device

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
        from penstock.cuda.copy import copy_async
        from penstock.cuda.stream import mark, seconds

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
    from penstock.codec import nvcomp

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
    """Encode on one thread and on two, and by zfp on one, at the first tolerance with as large an error."""
    array = cpu_field()
    for bound in BOUNDS:
        largest = 0.0
        for threads in (1, 2):
            row, largest = bounded_on_cpu(array, bound, threads)
            yield row
        tolerance = largest
        while zfp_error(array, tolerance) < largest:
            tolerance *= 2
        yield zfp_on_cpu(array, bound, tolerance)


def bounded_on_cpu(array: NDArray[Any], bound: float, threads: int) -> tuple[Row, float]:
    codec = get(f"bounded:{bound},threads={threads}")
    out, room = np.empty_like(array), np.empty(codec.max_bytes(array.shape, array.dtype), np.uint8)
    encoded = codec.encode(array, room)
    codec.decode(encoded, out)
    largest = float(np.abs(array - out).max())
    rates = host_rate(lambda: codec.encode(array, room), array), host_rate(lambda: codec.decode(encoded, out), array)
    return row_on_cpu(array, bound, f"bounded, {threads} threads", encoded.ratio, rates, largest), largest


def zfp_on_cpu(array: NDArray[Any], bound: float, tolerance: float) -> Row:
    import zfpy

    data = zfpy.compress_numpy(array, tolerance=tolerance)
    rates = (
        host_rate(lambda: zfpy.compress_numpy(array, tolerance=tolerance), array),
        host_rate(lambda: zfpy.decompress_numpy(data), array),
    )
    return row_on_cpu(array, bound, "zfpy", array.nbytes / len(data), rates, zfp_error(array, tolerance))


def zfp_error(array: NDArray[Any], tolerance: float) -> float:
    import zfpy

    return float(np.abs(zfpy.decompress_numpy(zfpy.compress_numpy(array, tolerance=tolerance)) - array).max())


def row_on_cpu(
    array: NDArray[Any], bound: float, codec: str, ratio: float, rates: tuple[float, float], error: float
) -> Row:
    span = float(np.ptp(array.astype(np.float64)))
    figures = round(ratio, 2), *(round(rate, 3) for rate in rates), round(error / (bound * span), 4)
    return Row("pulses", str(array.dtype), array.shape, bound, codec, *figures)


def cpu_field(n: int = 192) -> NDArray[np.float32]:
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


def host_rate(call: Callable[[], Any], array: NDArray[Any]) -> float:
    times = []
    for _ in range(5):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return array.nbytes / statistics.median(times) / 1e9


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
        from penstock.cuda.driver import describe_gpus

        about["gpus"] = [asdict(gpu) for gpu in describe_gpus()]
    return about


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cpu", action="store_true", help="measure on the CPU, beside zfpy")
    parser.add_argument("--points", type=int, default=512, help="along each axis of the acoustic fields")
    asked = parser.parse_args()
    rows: list[Row] = []
    out = Path(__file__).parent / "out" / ("codecs-cpu.json" if asked.cpu else "codecs.json")
    out.parent.mkdir(exist_ok=True)
    for row in cpu_rows() if asked.cpu else gpu_rows(asked.points):
        rows.append(row)
        content = {"machine": machine(asked.cpu), "repetitions": REPETITIONS, "rows": [asdict(one) for one in rows]}
        out.write_text(json.dumps(content, indent=2) + "\n")
    show(rows)


if __name__ == "__main__":
    main()
