"""Measuring what the links of this machine carry: between host and device, inside each, and to a disk."""

import mmap
import os
import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from forebay.cuda.available import gpu_count
from forebay.tier.capacity import disk_capacity
from forebay.tier.files import open_unnamed
from forebay.tier.kept import kept
from forebay.tier.sectors import whole_sectors
from forebay.units import to_bytes, to_text

if TYPE_CHECKING:
    from forebay.tier.device_probe import DeviceProbe

MOST_REPETITIONS = 5
ENOUGH_SECONDS = 0.7
"""A link on which repetitions took this long is not measured again."""
DISK_BLOCK = 8 * 2**20


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


@dataclass(frozen=True)
class DeviceLinks:
    """What plans ask of the links of one device, in bytes per second."""

    copy: float
    """From device memory to device memory."""
    up: float
    """From pinned host memory to the device."""
    down: float
    """From the device to pinned host memory."""
    both: float
    """Each way, while the other way is as busy."""
    pin: float
    """Seconds to pin a byte of host memory that is not yet there."""


def device_links(nbytes: int) -> DeviceLinks:
    """Return the links of the current device, measured with so many bytes once in a process: see `forget_costs`."""
    from forebay.cuda.driver import current_device  # it needs cuda-core, which is there only where a GPU is
    from forebay.tier.device_probe import device_probe, fitting

    def measure() -> DeviceLinks:
        with device_probe(nbytes) as probe:
            return _links_of(probe)

    nbytes = fitting(nbytes)
    return kept(("links", current_device().device_id, nbytes), measure)


def slowdown(nbytes: int, step: Callable[[], float]) -> float:
    """Return how many times longer a step on the current device takes while copies of so many bytes run beside it."""
    from forebay.tier.device_probe import device_probe, fitting

    with device_probe(fitting(nbytes)) as probe:
        return probe.slowdown(step)


def _links_of(probe: "DeviceProbe") -> DeviceLinks:
    carried = probe.carried
    return DeviceLinks(
        copy=speed(probe.nbytes, probe.inside),
        up=speed(carried, probe.up),
        down=speed(carried, probe.down),
        both=speed(carried, probe.both),
        pin=_medians(lambda: (probe.pin(),))[0] / carried,
    )


def _with_device(links: Links, nbytes: int, step: Callable[[], float] | None) -> Links:
    from forebay.tier.device_probe import device_probe, fitting

    with device_probe(fitting(nbytes)) as probe:
        found, ordinary = _links_of(probe), np.ones(probe.carried, dtype=np.uint8)
        return replace(
            links,
            device_copy=found.copy,
            pinned_up=found.up,
            pinned_down=found.down,
            pinned_both=found.both,
            pageable_up=speed(probe.carried, lambda: probe.pageable_up(ordinary.ctypes.data)),
            pageable_down=speed(probe.carried, lambda: probe.pageable_down(ordinary.ctypes.data)),
            pin_seconds_per_byte=found.pin,
            beside=probe.slowdown(step) if step else None,
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
