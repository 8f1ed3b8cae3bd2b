"""The codecs `bounded` and `dense` beside nvCOMP's Bitcomp on a GPU, and beside zfp on a CPU, on wavefields.

On a GPU: CUDA events around the native calls, everything warm, medians of 15; a large copy is queued before each start,
the output is poisoned before each decoding, and every result is compared with the original. Speeds count bytes of the
array, and leave out the pass for the range of a relative bound, which has a column of its own. Bitcomp's figures leave
out the seal that Forebay puts around its streams. It takes about a minute on an H200.

With ``--cpu``: `bounded`, `dense` and zfpy in turns, medians of 15, each on one thread, by the processor time that they
took, so that other work on the machine counts little; ``pip install pysz`` adds SZ3. What two threads gain is timed by
the clock on the wall.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
from cases import wavefields
from harness import Report, arg, benchmark, median, medians, no_gpu, turns
from numpy.typing import NDArray

from forebay.codec import get

WARM_UPS = 2
BOUNDS = (1e-3, 1e-4)


class Gpu:
    """Codecs on one array, timed by events of one stream."""

    def __init__(self, array: Any, repetitions: int) -> None:
        import cupy

        from forebay.cuda.arrays import view
        from forebay.cuda.stream import create_streams

        self.cupy, self.array, self.source = cupy, array, view(array)
        self.stream, self.repetitions = create_streams().compute, repetitions
        self.out = cupy.empty_like(array)
        self.target = view(self.out)
        self.ballast = [cupy.zeros(2**29, "uint8") for _ in range(2)]
        self.span = float(array.max().astype("float64") - array.min().astype("float64"))

    def ours(self, bound: float, word: str) -> dict[str, float]:
        """Run a codec of our own, the range apart."""
        from forebay.cuda.arrays import view

        codec: Any = get(f"{word}:{bound}")
        room = view(self.keep(self.cupy.empty(codec.max_bytes(self.array.shape, self.array.dtype), "uint8")))
        found = []

        def find() -> None:
            found[:] = [codec.range_device(self.source, room, self.stream)]

        return self.run(
            lambda: codec.tiles_device(self.source, room, found[0], self.stream),
            lambda: codec.decode_device(room, self.target, self.stream),
            lambda: int(self.kept[:8].get().view(np.uint64)[0]),
            bound * self.span,
            find,
        )

    def bitcomp(self, bound: float) -> dict[str, float]:
        """Run nvCOMP's, at the largest delta that keeps the bound."""
        from forebay.codec.nvcomp import library as nvcomp
        from forebay.cuda.driver import current_device

        kind = nvcomp.Kind.F32 if self.array.dtype == np.float32 else nvcomp.Kind.F64
        layout = nvcomp.StreamLayout(self.array.nbytes, kind, nvcomp.ALGORITHMS["sparse"])
        queue = nvcomp.Queue(current_device().device_id, int(self.stream.handle))
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
        before: Callable[[], None] | None = None,
    ) -> dict[str, float]:
        """Return ratio, compression, decompression and the pass before it in GB/s, and the largest error."""
        seconds: dict[str, list[float]] = {"range": [], "compress": [], "decompress": []}
        worst = 0.0
        for repetition in range(WARM_UPS + self.repetitions):
            times = {"range": self.timed(before or (lambda: None)), "compress": self.timed(encode)}
            self.out.fill(self.cupy.nan)
            self.cupy.cuda.get_current_stream().synchronize()
            times["decompress"] = self.timed(decode)
            worst = max(worst, self.error())
            if repetition >= WARM_UPS:
                for what, took in times.items():
                    seconds[what].append(took)
        if not worst <= bound:
            raise AssertionError(f"an error of {worst} is above the bound of {bound}")
        nbytes = self.array.nbytes
        rates = {what: nbytes / median(took) / 1e9 for what, took in seconds.items() if what != "range" or before}
        return {"ratio": nbytes / size(), **rates, "error": worst / bound}

    def timed(self, call: Callable[[], None]) -> float:
        """Return the seconds of a call's kernels; the copy before hides its launches, and empties the cache."""
        from forebay.cuda.copy import copy_async
        from forebay.cuda.stream import mark, seconds

        here, there = self.ballast
        copy_async(here.data.ptr, there.data.ptr, here.nbytes, self.stream)
        start = mark(self.stream)
        call()
        return seconds(start, mark(self.stream))

    def error(self) -> float:
        """Return the largest error, in double precision; infinite where something was left poisoned."""
        worst = 0.0
        for part in np.array_split(np.arange(self.array.shape[0]), 8):
            exact, decoded = (array[part[0] : part[-1] + 1].astype("float64") for array in (self.array, self.out))
            worst = max(worst, float(self.cupy.nan_to_num(abs(exact - decoded), nan=np.inf).max()))
        return worst


def on_gpu(n: int, repetitions: int, report: Report) -> None:
    from forebay.codec import nvcomp

    codecs = ["bounded", "dense", *(["bitcomp"] if nvcomp.available() else [])]
    for name, array, bounds in gpu_fields(n):
        describe(name, array, report)
        bench = Gpu(array, repetitions)
        for bound in bounds:
            for codec in codecs:
                about = {"field": name, "dtype": str(array.dtype), "shape": array.shape, "bound": bound, "codec": codec}
                report.add(about | (bench.bitcomp(bound) if codec == "bitcomp" else bench.ours(bound, codec)))


def gpu_fields(n: int) -> Iterator[tuple[str, Any, tuple[float, ...]]]:
    """Yield acoustic waves at three times, the late one also as doubles and in other shapes, and an elastic one."""
    import cupy

    small = n < 512
    late: Any = None
    steps = {name: step * n // 512 for name, step in wavefields.ACOUSTIC.items()} if small else None
    for name, late in wavefields.acoustic(n, steps):
        yield name, late, BOUNDS
    yield "late, odd", late[: n - 11, : n - 9, : n - 7].copy(), BOUNDS[:1]
    # The shape 310 x 676 x 676, if of 512^3: lines are then multiples of 16 bytes, but not of 32.
    flat, side = 310 * n // 512, 676 * n // 512
    wide = cupy.pad(late[(n - flat) // 2 :][:flat], ((0, 0), (0, side - n), (0, side - n)), mode="reflect")
    yield "late, mirrored", wide, BOUNDS
    del wide
    yield "late, planes", late.reshape(n * n, n), BOUNDS[:1]
    yield "late, line", late.reshape(-1), BOUNDS[:1]
    yield "late, doubles", late.astype("float64"), BOUNDS
    for name, field in wavefields.elastic(96 if small else 384, 300 if small else 1400):
        yield f"elastic {name}", field, BOUNDS


def describe(name: str, field: Any, report: Report) -> None:
    peak, span = float(abs(field).max()), float(field.max() - field.min())
    rms = float((field.astype("float64") ** 2).mean()) ** 0.5
    above, zero = float((abs(field) > 1e-4 * peak).mean()), float((field == 0).mean())
    report.say(
        f"{name}: {above:.1%} above 1e-4 of the largest, {zero:.1%} exactly zero, rms {rms / span:.2%} of the range"
    )


def on_cpu(n: int, repetitions: int, report: Report) -> None:
    """Encode on one thread, by zfp at the first tolerance with as large an error, and by SZ3 at the bound; in turns."""
    import zfpy

    for name, array in cpu_fields(n):
        describe(name, array, report)
        for bound in BOUNDS:
            span = bound * float(np.ptp(array.astype(np.float64)))
            pairs: dict[str, Any] = {}
            for word in ("bounded", "dense"):
                codec = get(f"{word}:{bound},threads=1")
                room = np.empty(codec.max_bytes(array.shape, array.dtype), np.uint8)
                pairs[word] = partial(codec.encode, array, room), partial(codec.decode, out=np.empty_like(array))
            least = tolerance = error_of(array, *pairs["bounded"])
            while "zfpy" not in pairs or error_of(array, *pairs["zfpy"]) < least:
                pairs["zfpy"] = partial(zfpy.compress_numpy, array, tolerance=tolerance), zfpy.decompress_numpy
                tolerance *= 2
            if find_spec("pysz"):
                pairs["SZ3"] = sz3(array, span)
            encoded, calls = dict[str, Any](), dict[str, Callable[[], Any]]()
            for kind, (compress, decompress) in pairs.items():
                encoded[kind] = compress()
                calls |= {f"{kind} compress": compress, f"{kind} decompress": partial(decompress, encoded[kind])}
            taken = medians(turns(calls, repetitions, time.thread_time))
            about = {"field": name, "dtype": str(array.dtype), "shape": array.shape, "bound": bound}
            for kind, data in encoded.items():
                nbytes = len(data) if kind == "zfpy" else data.nbytes
                error = error_of(array, *pairs[kind]) / span
                row = about | {"codec": kind, "ratio": array.nbytes / nbytes, "error": error}
                for what in ("compress", "decompress"):
                    row[what] = array.nbytes / taken[f"{kind} {what}"] / 1e9
                    row[f"{what}_times_zfpy"] = taken[f"zfpy {what}"] / taken[f"{kind} {what}"]
                report.add(row)


def error_of(array: NDArray[Any], compress: Callable[[], Any], decompress: Callable[[Any], Any]) -> float:
    return float(np.abs(decompress(compress()) - array).max())


def sz3(array: NDArray[Any], bound: float) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    from pysz import sz, szConfig, szErrorBoundMode

    asked = szConfig(array.shape)
    asked.errorBoundMode, asked.absErrorBound, asked.openmp = szErrorBoundMode.ABS, bound, False
    return lambda: sz.compress(array, asked)[0], lambda data: sz.decompress(data, array.dtype, array.shape)[0]


def cpu_fields(n: int) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Yield a wave at three times, as on the GPU but in a smaller box, and pulses that fill all of another, or half."""
    from cases.host_fields import acoustic, pulses

    steps = {"early": 480, "middle": 700, "late": 1000}
    yield from acoustic(n, {name: step * n // 192 for name, step in steps.items()})
    field = pulses(n)
    yield "pulses", field
    half = field.copy()
    half[: n // 2] = 0
    yield "pulses, half empty", half


def scaling(n: int, repetitions: int) -> dict[str, float]:
    """Return how many times as fast two threads are by the clock."""
    from cases.host_fields import pulses

    array, calls = pulses(n), dict[str, Callable[[], Any]]()
    for threads in (1, 2):
        codec = get(f"bounded:1e-3,threads={threads}")
        room, out = np.empty(codec.max_bytes(array.shape, array.dtype), np.uint8), np.empty_like(array)
        calls[f"compress {threads}"] = partial(codec.encode, array, room)
        calls[f"decompress {threads}"] = partial(codec.decode, codec.encode(array), out)
    taken = medians(turns(calls, repetitions))
    return {what: taken[f"{what} 1"] / taken[f"{what} 2"] for what in ("compress", "decompress")}


@benchmark(
    arg("--cpu", action="store_true", tiny=no_gpu(), help="measure on the CPU, beside zfpy and SZ3"),
    arg(
        "--points",
        type=int,
        tiny=40 if no_gpu() else 64,
        help="along each axis of the acoustic fields: 512, or 192 with --cpu",
    ),
    arg("--repetitions", type=int, default=15, tiny=3),
    needs=lambda asked: ("zfpy",) if asked.cpu else ("gpu", "cupy"),
)
def main(asked: Any, report: Report) -> None:
    if asked.cpu:
        on_cpu(asked.points or 192, asked.repetitions, report)
        report.facts["two threads"] = scaling(asked.points if asked.tiny else 256, asked.repetitions)
        report.say(f"two threads, times as fast: {report.facts['two threads']}")
    else:
        on_gpu(asked.points or 512, asked.repetitions, report)
    columns = "field dtype shape bound codec ratio:.2f compress:.4g decompress:.4g error:.4f "
    times = "compress_times_zfpy:.1f decompress_times_zfpy:.1f" if asked.cpu else "range:.4g"
    report.table("GB/s of the array, medians; the largest error over the bound", columns + times)


if __name__ == "__main__":
    main()
