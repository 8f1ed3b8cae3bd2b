"""Measuring what the links of this machine carry: between host and device, inside each, and to a disk."""

import mmap
import os
import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

import numpy as np

from forebay.cuda.available import gpu_count
from forebay.tier.capacity import disk_capacity
from forebay.tier.files import open_unnamed
from forebay.tier.sectors import whole_sectors
from forebay.units import to_bytes, to_text

MOST_REPETITIONS = 5
ENOUGH_SECONDS = 0.7
"""A link on which repetitions took this long is not measured again."""
DISK_BLOCK = 8 * 2**20
FASTEST = 100e9
"""Bytes a second that no link is assumed to exceed: so many are enqueued beside a step."""


@dataclass(frozen=True)
class Links:
    """Bytes per second of each link, the median of up to five repetitions; None where there is nothing to measure."""

    host_copy: float
    """From host memory to host memory, on one thread."""
    device_copy: float | None = None
    """From device memory to device memory; each byte is read and written once."""
    pinned_up: float | None = None
    """From pinned host memory to the device."""
    pinned_down: float | None = None
    """From the device to pinned host memory."""
    pinned_both: float | None = None
    """Each way, while the other way is as busy."""
    beside: float | None = None
    """How many times longer a step takes while copies run beside it, where one is given."""
    pageable_up: float | None = None
    """From ordinary host memory to the device."""
    pageable_down: float | None = None
    """From the device to ordinary host memory."""
    pin_seconds_per_byte: float | None = None
    """What it costs to pin host memory that is not yet there."""
    disk_write: float | None = None
    """To the disk, on one thread, in order, until the disk has it."""
    disk_read: float | None = None
    """From the disk, on one thread, in order, not from the kernel's cache."""
    disk_method: str | None = None
    """How the kernel's cache was kept out, or why the disk was not measured."""


def measure_links(
    directory: Path | None = None, nbytes: str | int = "256MB", step: Callable[[], float] | None = None
) -> Links:
    """Measure the links of this machine, in a few seconds.

    Parameters
    ----------
    directory : Path, optional
        Where to measure a disk; without it, none is measured.
    nbytes : str or int
        How much is moved in each repetition.
    step : callable, optional
        A step on the device, which returns its seconds; it is timed alone and beside copies.

    Examples
    --------
    >>> measure_links(nbytes="1MB").host_copy > 0
    True
    """
    size = to_bytes(nbytes)
    links = Links(host_copy=host_copy(size))
    if gpu_count():
        links = _with_device(links, size, step)
    return links if directory is None else _with_disk(links, directory, size)


def _medians(repetition: Callable[[], tuple[float, ...]]) -> tuple[float, ...]:
    """Return the median of each of the seconds that a repetition measures."""
    start = perf_counter()
    times = [repetition()]
    while len(times) < MOST_REPETITIONS and perf_counter() - start < ENOUGH_SECONDS:
        times.append(repetition())
    return tuple(statistics.median(column) for column in zip(*times, strict=True))


def speed(nbytes: int, repetition: Callable[[], float]) -> float:
    """Return the bytes per second of a repetition, which times itself; one goes before, uncounted, to warm up."""
    repetition()
    return nbytes / max(1e-9, _medians(lambda: (repetition(),))[0])


def host_copy(nbytes: int) -> float:
    """Return the bytes per second of a copy from host memory to host memory."""
    source, target = np.ones((2, nbytes), dtype=np.uint8)

    def copy() -> float:
        start = perf_counter()
        np.copyto(target, source)
        return perf_counter() - start

    return speed(nbytes, copy)


def _with_device(links: Links, nbytes: int, step: Callable[[], float] | None) -> Links:
    # These need cuda-core, which is there only where a GPU is.
    from forebay.cuda.copy import copy_async
    from forebay.cuda.driver import device_memory
    from forebay.cuda.slab import DeviceSlab, PinnedSlab
    from forebay.cuda.stream import create_streams, mark, seconds

    streams = create_streams()
    nbytes = min(nbytes, device_memory()[0] // 4)  # a card that is nearly full can still be measured

    def pin() -> tuple[float]:
        start = perf_counter()
        slab = PinnedSlab(nbytes)
        taken = perf_counter() - start
        slab.close()
        return (taken,)

    pageable = np.ones(nbytes, dtype=np.uint8)
    with DeviceSlab(2 * nbytes) as device, PinnedSlab(2 * nbytes) as pinned:
        low, high = (device.pointer, pinned.pointer), (device.pointer + nbytes, pinned.pointer + nbytes)

        def copy(target: int, source: int) -> float:
            start = mark(streams.up)
            copy_async(target, source, nbytes, streams.up)
            return seconds(start, mark(streams.up))

        def copy_both() -> float:
            start = mark(streams.up)
            start.hold(streams.down)
            copy_async(low[0], low[1], nbytes, streams.up)
            copy_async(high[1], high[0], nbytes, streams.down)
            streams.up.wait(streams.down.record())
            return seconds(start, mark(streams.up))

        def copy_pageable(target: int, source: int) -> float:
            start = perf_counter()  # the host's part, through the driver's own staging, counts
            copy_async(target, source, nbytes, streams.up)
            streams.up.sync()
            return perf_counter() - start

        def slower(step: Callable[[], float]) -> float:
            """Time a step beside copies of each way in turn, of which enough are enqueued to last longer."""
            alone = step()
            beside = []
            for way in ((streams.up, *low), (streams.down, *reversed(low))):
                for _ in range(1 + int(2 * alone * FASTEST / nbytes)):
                    copy_async(way[1], way[2], nbytes, way[0])
                beside.append(step())
                way[0].sync()
            return max(1.0, statistics.mean(beside) / min(alone, step()))

        ordinary = pageable.ctypes.data
        return replace(
            links,
            device_copy=speed(nbytes, lambda: copy(high[0], low[0])),
            pinned_up=speed(nbytes, lambda: copy(low[0], low[1])),
            pinned_down=speed(nbytes, lambda: copy(low[1], low[0])),
            pinned_both=speed(nbytes, copy_both),
            pageable_up=speed(nbytes, lambda: copy_pageable(low[0], ordinary)),
            pageable_down=speed(nbytes, lambda: copy_pageable(ordinary, low[0])),
            pin_seconds_per_byte=_medians(pin)[0] / nbytes,
            beside=statistics.median(slower(step) for _ in range(3)) if step else None,
        )


def _with_disk(links: Links, directory: Path, nbytes: int) -> Links:
    block = mmap.mmap(-1, min(DISK_BLOCK, whole_sectors(nbytes)))  # on a page boundary, as O_DIRECT asks
    nbytes = max(nbytes // len(block), 1) * len(block)
    if disk_capacity(directory).free < 2 * nbytes:
        return replace(links, disk_method=f"not measured: the disk has no {to_text(2 * nbytes)} free")
    block.write(np.random.default_rng(0).bytes(len(block)))  # file systems that compress shall gain nothing
    file, direct = open_unnamed(directory)
    try:
        write, read = _medians(lambda: _write_and_read(file, nbytes, block))
    finally:
        os.close(file)
    method = _DIRECT if direct else _FLUSHED
    return replace(links, disk_write=nbytes / write, disk_read=nbytes / read, disk_method=method)


_DIRECT = "O_DIRECT"
_FLUSHED = "fsync and posix_fadvise(DONTNEED), because this file system takes no O_DIRECT"


def _write_and_read(file: int, nbytes: int, block: mmap.mmap) -> tuple[float, float]:
    """Time a file written anew, and read."""
    os.ftruncate(file, 0)
    os.lseek(file, 0, os.SEEK_SET)
    start = perf_counter()
    _whole(nbytes, lambda: os.writev(file, [block]))
    os.fsync(file)
    write = perf_counter() - start
    os.posix_fadvise(file, 0, nbytes, os.POSIX_FADV_DONTNEED)
    os.lseek(file, 0, os.SEEK_SET)
    start = perf_counter()
    _whole(nbytes, lambda: os.readv(file, [block]))
    return write, perf_counter() - start


def _whole(nbytes: int, transfer: Callable[[], int]) -> None:
    """Repeat a transfer of one block, each of which may fall short, until all bytes have passed."""
    done = 0
    while done < nbytes:
        done += transfer()
