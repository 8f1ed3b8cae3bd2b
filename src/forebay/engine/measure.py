"""Timing a loop and its links on the first real steps, so that a plan can be made."""

import mmap
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from forebay.codec import Codec, quality
from forebay.engine.layout import Layout
from forebay.engine.packing import Packing, Place, decode, encode, extent
from forebay.errors import CodecError
from forebay.machine import numpy_arrays
from forebay.planner import CodecCost, Costs, Link
from forebay.tier.disk import Disk
from forebay.tier.links import measure_links

REPEATS = 3
SPREAD = 1.1
"""How much more room than the mean is planned for snapshots whose sizes differ."""
BELIEVED = 4.0
"""The largest ratio taken from the first steps, whose fields may still be empty; later ones will shrink less."""


def measure_host(
    forward: Callable[[Any, int, int], Any],
    fresh: Callable[[], Any],
    nbytes: int,
    steps: int,
    directory: Path | None,
    synchronous: bool,
) -> Costs:
    """Time forward on host arrays, copies of a snapshot's size, and the disk; all of it is synchronous."""
    room = np.frombuffer(mmap.mmap(-1, 2 * nbytes), np.uint8)
    block, other = room[:nbytes], room[nbytes:]
    block[:], other[:] = 1, 2  # pages are there before they are timed
    copy = _seconds(lambda: np.copyto(other, block))
    step = _step(forward, fresh, steps, lambda call: _seconds(call, 1))
    disk = _disk(block, other, directory) if directory is not None else None
    return Costs(forward=step, backward=step, copy=nbytes / copy, disk=disk)


def measure_device(
    forward: Callable[[Any, int, int], Any],
    fresh: Callable[[], Any],
    nbytes: int,
    steps: int,
    directory: Path | None,
    synchronous: bool,
) -> Costs:
    """Time forward on GPU arrays by events, and the links of the device."""
    from forebay.cuda.stream import callers_streams, current, kept_streams, mark, seconds

    def timed(call: Callable[[], Any]) -> float:
        start = mark(compute)
        call()
        return seconds(start, mark(compute))

    def start() -> Any:
        state = fresh()
        if synchronous:
            mark(compute).sync()  # forward will read the copy on a stream of its own
        return state

    with kept_streams() as streams:
        for stream in callers_streams():
            streams.compute.wait(stream)  # the state may still be on its way there
        with current(streams.compute) as compute:
            step = _step(forward, start, steps, timed)
            compute.record().sync()
    links = measure_links(directory, min(nbytes, 2**28))
    assert links.device_copy and links.pinned_up and links.pinned_down
    disk = Link(links.disk_read, links.disk_write) if directory and links.disk_read and links.disk_write else None
    return Costs(
        forward=step,
        backward=step,
        copy=links.device_copy,
        host=Link(links.pinned_up, links.pinned_down),
        disk=disk,
        pin=links.pin_seconds_per_byte or 0.0,
    )


def measure_host_codec(layout: Layout, codec: Codec, arrays: list[Any], error: float | None) -> CodecCost | None:
    """Time a codec on a state of the first steps; None where it does not keep the error that all must keep."""
    packing = Packing.of(layout, codec, "host")
    block = np.frombuffer(mmap.mmap(-1, packing.most), np.uint8)
    room = np.frombuffer(mmap.mmap(-1, 2 * layout.nbytes), np.uint8)
    numpy_arrays.copy_in(room, layout, arrays)
    kinds = [None] * len(arrays)
    before = numpy_arrays.arrays_in(room[: layout.nbytes], layout, kinds)
    after = numpy_arrays.arrays_in(room[layout.nbytes :], layout, kinds)
    try:
        sizes = encode(packing, block, before)  # compiles what has to be
    except CodecError:
        if error is None:
            raise
        return None  # it does not work here
    where = [Place(start, size) for (start, _), size in zip(packing.worst, sizes, strict=True)]
    decode(packing, where, block, after)
    if error is not None and not keeps_error(before, after, error):
        return None
    encoded = _seconds(lambda: encode(packing, block, before))
    decoded = _seconds(lambda: decode(packing, where, block, after))
    return codec_cost(layout, packing, sizes, encoded, decoded)


def measure_device_codec(layout: Layout, codec: Codec, arrays: list[Any], error: float | None) -> CodecCost | None:
    """Time a codec on a state of the first steps; None where it does not keep the error that all must keep."""
    from forebay.engine.cuda import CudaBackend
    from forebay.machine.cuda_arrays import kind_of, readable

    packing = Packing.of(layout, codec, "device")
    backend = CudaBackend([kind_of(array) for array in arrays], Path())
    try:
        backend.reserve(0, layout.nbytes + packing.most)
        room, block = backend.block(0, 0, layout.nbytes), backend.block(0, layout.nbytes, packing.most)
        for step in range(1 + REPEATS):  # the first compiles
            sizes = backend.encode(step, block, layout, packing, arrays)()
            where = [Place(start, size) for (start, _), size in zip(packing.worst, sizes, strict=True)]
            backend.decode(step, room, block, layout, packing, where, [])
        backend.finish()
        before, after = ([readable(one) for one in many] for many in (arrays, backend.arrays(room, layout)))
        if error is not None and not keeps_error(before, after, error):
            return None
    except CodecError:
        if error is None:
            raise
        return None  # it does not work here
    finally:
        backend.close()
    spans = [span for span in backend.metrics.timeline if span.step]
    encoded, decoded = (
        sum(span.stop - span.start for span in spans if span.what == what) / REPEATS
        for what in ("compress", "decompress")
    )
    return codec_cost(layout, packing, sizes, max(encoded, 1e-9), max(decoded, 1e-9))


def keeps_error(before: Sequence[Any], after: Sequence[Any], error: float) -> bool:
    """Tell whether every array came back within an error relative to its range."""
    for one, other in zip(before, after, strict=True):
        found = quality.compare(one, other) if one.dtype.kind == "f" else None
        if found is not None and found.worst > error * found.span:
            return False
    return True


def codec_cost(layout: Layout, packing: Packing, sizes: Sequence[int], encoded: float, decoded: float) -> CodecCost:
    """Turn what was measured of a codec into its cost, believing a ratio only so far."""
    ratio = layout.nbytes / extent(packing.places(sizes))
    return CodecCost(
        ratio=ratio if packing.fixed else min(ratio, BELIEVED),
        encode=layout.nbytes / encoded,
        decode=layout.nbytes / decoded,
        worst=packing.most / layout.nbytes,
        spread=1.0 if packing.fixed else SPREAD,
    )


def _step(
    forward: Callable[[Any, int, int], Any],
    fresh: Callable[[], Any],
    steps: int,
    timed: Callable[[Callable[[], Any]], float],
) -> float:
    """Time single steps from the start of the loop, after a first call that may compile."""
    current = forward(fresh(), 0, 1)
    taken = []
    for step in range(1, min(steps, 1 + REPEATS)):
        here = [current]
        taken.append(timed(lambda here=here, step=step: here.append(forward(here[0], step, step + 1))))  # type: ignore[misc]
        current = here[1]
    if not taken:  # a loop of one step
        again = fresh()
        taken.append(timed(lambda: forward(again, 0, 1)))
    return max(median(taken), 1e-9)


def _disk(block: Any, other: Any, directory: Path) -> Link:
    """Time the disk tier itself, with a snapshot."""
    down, up = [], []
    with Disk(directory, block.nbytes) as disk:
        for step in range(REPEATS):
            down.append(_seconds(lambda step=step: disk.write(step, block).result(), 1))  # type: ignore[misc]
            up.append(_seconds(lambda step=step: disk.read(step, other).result(), 1))  # type: ignore[misc]
            disk.drop(step)
    return Link(up=block.nbytes / median(up), down=block.nbytes / median(down))


def _seconds(call: Callable[[], Any], repeats: int = REPEATS) -> float:
    taken = []
    for _ in range(repeats):
        start = perf_counter()
        call()
        taken.append(perf_counter() - start)
    return max(median(taken), 1e-9)
