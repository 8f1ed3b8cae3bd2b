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
from forebay.errors import CodecError
from forebay.machine.arrays.dispatch import region_of, stored_view
from forebay.machine.machine import ReversalMachine
from forebay.machine.packing import Packing, snapshot_bytes
from forebay.machine.spec import Extent
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
    """Time forward on host arrays, copies of `nbytes`, and the disk; all of it is synchronous."""
    room = np.frombuffer(mmap.mmap(-1, 2 * nbytes), np.uint8)
    snapshot, other = room[:nbytes], room[nbytes:]
    snapshot[:], other[:] = 1, 2  # pages are there before they are timed
    copy = _seconds(lambda: np.copyto(other, snapshot))
    step = _step(forward, fresh, steps, lambda call: _seconds(call, 1))
    disk = _disk(snapshot, other, directory) if directory is not None else None
    return Costs(forward=step, backward=step, copy=nbytes / copy, disk=disk)


def measure_device(
    forward: Callable[[Any, int, int], Any],
    fresh: Callable[[], Any],
    nbytes: int,
    steps: int,
    directory: Path | None,
    synchronous: bool,
) -> Costs:
    """Time forward on GPU arrays by events, and the links of the device with `nbytes`."""
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
    links = measure_links(directory, nbytes)
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


def measure_codec(
    machine: ReversalMachine, layout: Layout, tier: str, codec: Codec, arrays: list[Any], error: float | None
) -> CodecCost | None:
    """Time a codec on a state of the first steps; None where it does not keep the error that all must keep."""
    try:
        packing = Packing.of(layout.leaves, codec, tier)
        machine.reserve(0, layout.nbytes + packing.most)
        room, data = machine.region(0, 0, layout.nbytes), machine.region(0, layout.nbytes, packing.most)
        regions = list(map(region_of, arrays))
        for step in range(1 + REPEATS):  # the first compiles
            sizes = machine.encode("compute", step, packing.coded(regions, data, packing.worst), []).sizes()
            where = [Extent(start, size) for (start, _), size in zip(packing.worst, sizes, strict=True)]
            machine.decode("compute", step, packing.coded(packing.arrays_in(room), data, where), [])
        machine.finish()
        before, after = (list(map(stored_view, several)) for several in (arrays, machine.arrays(room, layout.leaves)))
        if error is not None and not _keeps_error(before, after, error):
            return None
    except CodecError:
        if error is None:
            raise
        return None  # it does not work here
    finally:
        machine.close()
    encoded, decoded = (
        median(span.stop - span.start for span in machine.metrics.timeline if span.step and span.what == what)
        for what in ("compress", "decompress")
    )
    ratio = layout.nbytes / snapshot_bytes(packing.extents(sizes))
    return CodecCost(
        ratio=ratio if packing.fixed else min(ratio, BELIEVED),
        encode=layout.nbytes / max(encoded, 1e-9),
        decode=layout.nbytes / max(decoded, 1e-9),
        worst=packing.most / layout.nbytes,
        spread=1.0 if packing.fixed else SPREAD,
    )


def _keeps_error(before: Sequence[Any], after: Sequence[Any], error: float) -> bool:
    """Tell whether every array came back within an error relative to its range."""
    pairs = [pair for pair in zip(before, after, strict=True) if pair[0].dtype.kind == "f"]
    differences = (quality.compare(*pair) for pair in pairs)
    return not any(difference.worst > error * difference.span for difference in differences)


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


def _disk(snapshot: Any, other: Any, directory: Path) -> Link:
    """Time the disk tier itself, with a snapshot."""
    down, up = [], []
    with Disk(directory, snapshot.nbytes) as disk:
        for step in range(REPEATS):
            down.append(_seconds(lambda step=step: disk.write(step, snapshot).result(), 1))  # type: ignore[misc]
            up.append(_seconds(lambda step=step: disk.read(step, other).result(), 1))  # type: ignore[misc]
            disk.drop(step)
    return Link(up=snapshot.nbytes / median(up), down=snapshot.nbytes / median(down))


def _seconds(call: Callable[[], Any], repeats: int = REPEATS) -> float:
    taken = []
    for _ in range(repeats):
        start = perf_counter()
        call()
        taken.append(perf_counter() - start)
    return max(median(taken), 1e-9)
