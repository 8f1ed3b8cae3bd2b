"""Where fields that are paged are at home, and where they are computed: host memory above a disk, or a GPU above it."""

import mmap
import os
import warnings
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.errors import DiskError
from forebay.machine.region import Region, aligned
from forebay.tier.capacity import check_spills
from forebay.tier.files import check_platform, open_unnamed
from forebay.tier.kept import kept
from forebay.tier.links import device_links, measure_links, speed
from forebay.units import to_text
from forebay.wave.acoustic.cpu import MANY, advance
from forebay.wave.advice import WaveWarning
from forebay.wave.earth.grid import Grid
from forebay.wave.earth.strips import in_strips
from forebay.wave.kernels.points import scatter
from forebay.wave.kernels.rows import Rows
from forebay.wave.paged.cpu import CpuSteps
from forebay.wave.paged.kernels import PassSteps, Place
from forebay.wave.paged.lanes import CudaLanes, HostLanes, PagingLanes
from forebay.wave.paged.plan import STEP_NUMBERS, LinkRates, PagingPlan
from forebay.wave.paged.points import PassPoints
from forebay.wave.survey.points import Points

SMALL = 2**20
"""Bytes of arrays that are no fields: they are not worth a place of their own."""
MEASURED, WRITTEN = 2**26, 2**24
"""Bytes with which the link of a device is measured, and a disk."""
CLEARED = 2**24
"""Bytes of pinned memory that a thread clears at once."""
CUBE = 96
"""Points along each axis of fields with which a step of the CPU is timed."""


class DiskPlace(Place):
    """Fields at home in files without a name, which go with the process, and a window in host memory."""

    def __init__(self, directory: Path, needed: int) -> None:
        check_platform()
        check_spills(directory, needed)
        self._directory = directory

    def rows(self, grid: Grid, radius: int, dtype: np.dtype[Any]) -> Rows:
        """Return how rows lie in memory, as in the grid; measure what passes of such a type are planned by."""
        links = kept(("paging", self._directory), lambda: measure_links(self._directory, WRITTEN))
        slower = min(links.disk_write or links.host_copy, links.disk_read or links.host_copy)
        inside = kept(("step in a window", radius, dtype), lambda: step_rate(radius, dtype))
        self.rates = LinkRates(both=slower / 2, inside=inside)
        return Rows()

    def zeros(self, nbytes: int) -> NDArray[np.uint8]:
        """Return memory that the system keeps in a file, once it has none left for it."""
        if nbytes < SMALL:
            return np.zeros(nbytes, np.uint8)
        file, _ = open_unnamed(self._directory)
        try:
            os.posix_fallocate(file, 0, nbytes)
            return np.frombuffer(mmap.mmap(file, nbytes), np.uint8)
        except OSError as error:
            raise DiskError(
                f"fields cannot be kept in {self._directory} ({error.strerror}): choose a directory on a local disk "
                "with room for them"
            ) from error
        finally:
            os.close(file)

    def lanes(self, nbytes: int) -> list[PagingLanes]:
        """Return threads that copy."""
        return [HostLanes(nbytes)]

    def steps(
        self, propagator: Any, plan: PagingPlan, memory: Region, points: PassPoints, back: bool, device: int
    ) -> PassSteps:
        """Return loops of the CPU."""
        return CpuSteps(propagator, plan.window, memory, points, back)

    def reach(self, regions: Iterable[Region]) -> None:
        """Do nothing: threads reach all memory alike."""

    def scatter(self, field: NDArray[Any], points: Points, values: Any, factors: Any) -> None:
        """Add values at points to a field."""
        about = points.touched, points.shares, points.sharers, points.share_weights
        scatter[len(points.cells) >= MANY](field.reshape(-1), *about, values, factors)

    def close(self) -> None:
        """Do nothing: files go with the arrays in them."""


def step_rate(radius: int, dtype: np.dtype[Any]) -> float:
    """Return the bytes a second that a step of the CPU moves, as `plan` counts them."""
    p, p_old, squared = np.zeros((3, CUBE, CUBE, CUBE), dtype)
    step, weights = advance(3, radius, dtype, True), (dtype.type(0),) * 3

    def timed() -> float:
        start = perf_counter()
        step(p, p_old, squared, weights)
        return perf_counter() - start

    return speed(int(STEP_NUMBERS * p.nbytes), timed)


class DevicePlace(Place):
    """Fields at home in pinned host memory, which the process keeps, and a window on each of some devices."""

    def __init__(self, needed: int, devices: Sequence[int]) -> None:
        self._needed, self._devices, self._held = needed, devices, ExitStack()
        self._rest = Region(0, 0, np.empty(0, np.uint8))
        self._pinned: dict[int, Region] = {}  # by their addresses, as those of others
        self._registered: dict[int, Region] = {}
        links = device_links(MEASURED)
        self.rates = LinkRates(both=links.both, inside=2 * links.copy, devices=len(devices))

    def rows(self, grid: Grid, radius: int, dtype: np.dtype[Any]) -> Rows:
        """Return how rows lie in memory: as the kernels want them, of which each device has its own."""
        from forebay.cuda.driver import on_device
        from forebay.wave.paged.gpu import WindowKernels

        self._kernels = []
        for device in self._devices:
            with on_device(device):
                self._kernels.append(WindowKernels(grid, radius, dtype))
        return self._kernels[0].rows

    def zeros(self, nbytes: int) -> NDArray[np.uint8]:
        """Return pinned memory: of one slab, as far as the fields take it."""
        from forebay.cuda.slab import kept_pinned

        if nbytes < SMALL:
            return np.zeros(nbytes, np.uint8)
        if aligned(nbytes) > self._rest.nbytes:
            # With some room for what is heard.
            slab = self._held.enter_context(kept_pinned(max(aligned(nbytes), self._needed + self._needed // 16)))
            self._rest, self._needed = Region(slab.pointer, slab.nbytes, slab.array), 0
            self._pinned[slab.pointer] = self._rest
        taken, size = self._rest.bytes[:nbytes], aligned(nbytes)
        self._rest = self._rest.cut(size, self._rest.nbytes - size)
        in_strips(lambda part: taken[part].fill(0), taken.shape, points=CLEARED)
        return taken

    def lanes(self, nbytes: int) -> list[PagingLanes]:
        """Return streams of the devices."""
        with ExitStack() as held:  # where one of them has no room, all let go of theirs
            found = list[PagingLanes]()
            for device in self._devices:
                found.append(CudaLanes(nbytes, device))
                held.callback(found[-1].close)
            held.pop_all()
            return found

    def steps(
        self, propagator: Any, plan: PagingPlan, memory: Region, points: PassPoints, back: bool, device: int
    ) -> PassSteps:
        """Return kernels of the GPU."""
        from forebay.wave.paged.gpu import GpuSteps

        return GpuSteps(self._kernels[device], propagator, plan.window, memory, points, back)

    def reach(self, regions: Iterable[Region]) -> None:
        """Pin memory of others, as long as this is open."""
        from cuda.bindings import driver

        for region in regions:
            begin, end = region.pointer, region.pointer + region.nbytes
            known = {**self._registered, **self._pinned}
            if any(first <= begin and end <= first + held.nbytes for first, held in known.items()):
                continue
            (result,) = driver.cuMemHostRegister(begin, region.nbytes, driver.CU_MEMHOSTREGISTER_PORTABLE)
            if result == driver.CUresult.CUDA_SUCCESS:
                self._registered[begin] = region  # with its array, so that nobody else gets the memory
                self._held.callback(self._unregister, begin)
            elif result != driver.CUresult.CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED:  # of a part copies raise that
                slow = f"{to_text(region.nbytes)} of fields cannot be pinned ({result.name}): copies of them are slow"
                warnings.warn(slow, WaveWarning, stacklevel=2)

    def scatter(self, field: NDArray[Any], points: Points, values: Any, factors: Any) -> None:
        """Add values at points to a field, on the device: the cells that are touched go there and come back."""
        flat, kernels = field.reshape(-1), self._kernels[0]
        there = kernels.put(flat[points.touched])
        some = replace(points, touched=np.arange(len(points.touched))).moved(kernels.put)
        kernels.add(there, some, kernels.put(np.asarray(values)), kernels.put(np.asarray(factors)))
        flat[points.touched] = kernels.get(there)

    def close(self) -> None:
        """Leave the pinned memory to the process."""
        self._held.close()

    def _unregister(self, pointer: int) -> None:
        from cuda.bindings import driver

        from forebay.cuda.driver import checked

        checked(driver.cuMemHostUnregister(pointer), "letting go of pinned memory")
        del self._registered[pointer]
