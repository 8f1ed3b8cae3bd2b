"""Timing a loop and its links on the first real steps, so that a plan can be made."""

import mmap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from forebay.codec import Codec, quality
from forebay.engine.layout import Layout
from forebay.engine.loop import TimeLoop
from forebay.errors import CodecError
from forebay.machine.arrays.dispatch import region_of, stored_view
from forebay.machine.machine import ReversalMachine
from forebay.machine.packing import Packing, in_a_row, snapshot_bytes
from forebay.planner import CodecCost, Costs, HostCost, Link
from forebay.tier.disk import Disk
from forebay.tier.kept import kept
from forebay.tier.links import device_links, host_copy, slowdown
from forebay.tier.space import Extent

REPEATS = 3
SHORT = 1e-3
"""Seconds below which several steps are timed in one call: alone, the time to ask for a step would count as its own."""
LIMITED = SHORT / 10
"""Seconds of a device's step below which the host may be the limit."""
MANY = 8
PROBE = 2**28
"""Bytes that are moved at most to time a link of a device."""
SPREAD = 1.1
"""How much more room than the mean is planned for snapshots whose sizes differ."""
BELIEVED = 4.0
"""The ratio taken from the first steps at most, whose fields may still be empty; later ones will shrink less."""
TIMES_AS_SMALL = 2.0
"""How many times as small as another codec's encodings one's may be taken to be, if both shrink by more than that."""

Clock = Callable[[Callable[[], Any]], float]


def measure_host(loop: TimeLoop, nbytes: int, directory: Path | None, step_costs: Sequence[float] = ()) -> Costs:
    """Time forward on host arrays, copies of a snapshot's size, and the disk; all of it is synchronous."""
    run = Steps(loop.advance, loop.fresh, loop.coarse_steps, _seconds, step_costs)
    step, _ = run.typical()
    disk = _disk(nbytes, directory, run) if directory is not None else None
    copy = kept(("copy", nbytes), lambda: host_copy(nbytes))
    return Costs(forward=step, backward=step, copy=copy, disk=disk)


def measure_device(
    loop: TimeLoop, nbytes: int, directory: Path | None, synchronous: bool, step_costs: Sequence[float] = ()
) -> Costs:
    """Time forward on GPU arrays by events, and the links of the device with `nbytes`."""
    from forebay.cuda.stream import callers_streams, current, kept_streams, mark, seconds

    def timed(call: Callable[[], Any]) -> float:
        start = mark(compute)
        call()
        return seconds(start, mark(compute))

    def start() -> Any:
        state = loop.fresh()
        if synchronous:
            mark(compute).sync()  # forward will read the copy on a stream of its own
        return state

    with kept_streams() as streams:
        for stream in callers_streams():
            streams.compute.wait(stream)  # the state may still be on its way there
        with current(streams.compute) as compute:
            run = Steps(loop.advance, start, loop.coarse_steps, timed, step_costs)
            step, asked = run.typical()
            nbytes = min(nbytes, PROBE)
            links = device_links(nbytes)
            # Where steps are this short the host is the limit, and what slows them is lost in its noise.
            beside = 1.0 if step < LIMITED else slowdown(nbytes, lambda: run()[0])
            compute.record().sync()
    both = min(1.0, links.both / min(links.up, links.down))
    return Costs(
        forward=step,
        backward=step,
        copy=links.copy,
        host=Link(links.up, links.down, both, beside),
        disk=_kept_disk(nbytes, directory) if directory is not None else None,
        pin=links.pin,
        operations=HostCost() if synchronous else HostCost(forward=asked, backward=asked, ahead=True),
    )


class Steps:
    """Times steps of a loop, one call after the other, from the start on and then once more.

    The seconds are those of a mean step: `costs`, where they are known, say how many of those each step is worth.
    """

    def __init__(
        self,
        forward: Callable[[Any, int, int], Any],
        fresh: Callable[[], Any],
        steps: int,
        timed: Clock,
        costs: Sequence[float] = (),
    ) -> None:
        self._forward, self._fresh, self._steps, self._timed = forward, fresh, steps, timed
        self._costs = costs
        self._state, self._reached, self._many = forward(fresh(), 0, 1), 1, 1  # the first call may compile
        self.lasted: float
        """seconds of the last call"""

    def __call__(self) -> tuple[float, float]:
        """Run one call, and return the seconds of a mean step, and the host's to ask for one."""
        if self._reached == self._steps:
            self._state = None  # its memory may be what the next one takes
            self._state, self._reached = self._fresh(), 0
        many = min(self._many, self._steps - self._reached)
        asked = 0.0

        def call() -> None:
            nonlocal asked
            start = perf_counter()
            self._state = self._forward(self._state, self._reached, self._reached + many)
            asked = perf_counter() - start

        self.lasted = self._timed(call)
        # Of steps that are said to cost nothing each counts as one.
        mean_steps = sum(self._costs[self._reached : self._reached + many]) or many
        self._reached += many
        return max(self.lasted / mean_steps, 1e-9), asked / many

    def typical(self) -> tuple[float, float]:
        """Return the medians of several calls, of several steps each where the first is short."""
        timed = [self()]
        if self.lasted < SHORT:
            self._many, timed = MANY, []
        timed += [self() for _ in range(REPEATS - len(timed))]
        taken, asked = zip(*timed, strict=True)
        return median(taken), median(asked)


def measure_codec(
    machine: ReversalMachine, layout: Layout, tier: str, codec: Codec, arrays: list[Any], error: float | None
) -> CodecCost | None:
    """Time a codec on a state of the first steps; None where it does not keep the error that all must keep."""
    try:
        packing = Packing.of(layout.leaves, codec, tier)
        machine.reserve(0, layout.nbytes + packing.most)
        room, data = machine.region(0, 0, layout.nbytes), machine.region(0, layout.nbytes, packing.most)
        regions = list(map(region_of, arrays))
        asked: list[tuple[float, float]] = []
        for step in range(1 + REPEATS):  # the first compiles
            start = perf_counter()
            encoding = machine.encode("compute", step, packing.coded(regions, data, packing.worst), [])
            encoding_asked = perf_counter() - start
            sizes = encoding.sizes()
            where = [Extent(start, size) for (start, _), size in zip(packing.worst, sizes, strict=True)]
            start = perf_counter()
            machine.decode("compute", step, packing.coded(packing.arrays_in(room), data, where), [])
            asked.append((encoding_asked, perf_counter() - start))
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
    ratio = layout.nbytes / snapshot_bytes(in_a_row(sizes))
    return CodecCost(
        ratio=ratio,
        encode=layout.nbytes / max(encoded, 1e-9),
        decode=layout.nbytes / max(decoded, 1e-9),
        worst=packing.most / layout.nbytes,
        spread=1.0 if packing.fixed else SPREAD,
        encode_host=min(each[0] for each in asked[1:]),
        decode_host=min(each[1] for each in asked[1:]),
    )


def believed(measured: Mapping[str, CodecCost]) -> dict[str, CodecCost]:
    """Return what was measured of codecs on the first steps, with ratios that later ones may have.

    How codecs compare holds for later fields too: one that makes the others' half makes half of what is believed.
    """
    large = {name: cost.ratio for name, cost in measured.items() if cost.spread > 1 and cost.ratio > BELIEVED}
    least = min(large.values(), default=BELIEVED)
    later = {name: BELIEVED * min(ratio / least, TIMES_AS_SMALL) for name, ratio in large.items()}
    return {name: replace(cost, ratio=later.get(name, cost.ratio)) for name, cost in measured.items()}


def _keeps_error(before: Sequence[Any], after: Sequence[Any], error: float) -> bool:
    """Tell whether every array came back within an error relative to its range."""
    pairs = [pair for pair in zip(before, after, strict=True) if pair[0].dtype.kind == "f"]
    differences = (quality.compare(*pair) for pair in pairs)
    return not any(difference.worst > error * difference.span for difference in differences)


def _kept_disk(nbytes: int, directory: Path) -> Link:
    """Return what a disk carries, timed once in a process: see `forget_costs`."""
    return kept(("disk", directory.stat().st_dev, nbytes), lambda: _disk(nbytes, directory))


def _disk(nbytes: int, directory: Path, run: Steps | None = None) -> Link:
    """Time the disk tier itself, with snapshots: each way alone, both at once, and steps beside them."""
    source, target = (np.frombuffer(mmap.mmap(-1, nbytes), np.uint8) for _ in range(2))
    source[:], target[:] = 1, 2  # pages are there before they are timed
    ups, downs, boths, besides = [], [], [], list[float]()
    with Disk(directory, 2 * nbytes) as disk:
        for step in range(REPEATS):
            downs.append(_seconds(lambda step=step: disk.write(step, source).result()))  # type: ignore[misc]
            ups.append(_seconds(lambda step=step: disk.read(step, target).result()))  # type: ignore[misc]
            alone = run()[0] if run else 0.0
            start = perf_counter()
            ways = disk.write(-1, source), disk.read(step, target)
            if run and run.lasted < min(ups[-1], downs[-1]):  # otherwise it would go on after them
                besides.append(run()[0] / alone)
            for way in ways:
                way.result()
            boths.append(perf_counter() - start)
            for done in (step, -1):
                disk.drop(done)
    up, down = median(ups), median(downs)
    # The shorter way meets the longer one all along. Others' work on the machine only ever makes things slower.
    met = max(min(up, down), min(boths) - abs(up - down))
    return Link(nbytes / up, nbytes / down, min(up, down) / met, max(1.0, min(besides, default=1.0)))


def _seconds(call: Callable[[], Any]) -> float:
    start = perf_counter()
    call()
    return max(perf_counter() - start, 1e-9)
