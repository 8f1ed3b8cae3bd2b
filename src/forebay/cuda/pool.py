"""Device memory that is taken and given back in the order of streams, and stays with its owner in between."""

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cuda.bindings import driver
from cuda.core import Stream

from forebay.cuda.driver import checked, current_context, current_device, release
from forebay.errors import DeviceError
from forebay.units import to_text

KEEP = 2**64 - 1
"""Bytes that the pool keeps for its owner: all."""


class DevicePool:
    """A pool of the driver's for each device that is used.

    The driver's own pool gives memory back at each wait, and has to map it again at the next call.
    """

    def __init__(self) -> None:
        self._pools: dict[int, driver.CUmemoryPool] = {}
        self._making = threading.Lock()

    @contextmanager
    def lend(self, nbytes: int, stream: Stream) -> Iterator[int]:
        """Lend memory of the current device in the order of a stream: its address, until the context ends."""
        pool = self._pool_of(current_device().device_id)
        pointer = allocated(driver.cuMemAllocFromPoolAsync(nbytes, pool, stream.handle), nbytes)
        try:
            yield pointer
        finally:
            checked(driver.cuMemFreeAsync(pointer, stream.handle), "giving memory back")

    def idle_bytes(self) -> int:
        """Return the bytes of the current device that are kept and not lent; the driver gives them to whoever asks."""
        if not self._pools or (pool := self._pools.get(current_device().device_id)) is None:
            return 0
        attributes = driver.CUmemPool_attribute
        kept, lent = (
            int(checked(driver.cuMemPoolGetAttribute(pool, attribute), "asking a pool for its size"))
            for attribute in (
                attributes.CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
                attributes.CU_MEMPOOL_ATTR_USED_MEM_CURRENT,
            )
        )
        return kept - lent

    def give_up(self) -> None:
        """Free what the pool keeps of the current device and has not lent."""
        if self.idle_bytes():
            pool = self._pools[current_device().device_id]
            checked(driver.cuMemPoolTrimTo(pool, 0), "freeing the memory of a pool")

    def _pool_of(self, device: int) -> driver.CUmemoryPool:
        with self._making:  # two threads that meet here would make two, one of which nobody knows
            if device not in self._pools:
                self._pools[device] = self._made(device)
            return self._pools[device]

    def _made(self, device: int) -> driver.CUmemoryPool:
        props = driver.CUmemPoolProps()
        props.allocType = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        props.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        props.location.id = device
        pool = checked(driver.cuMemPoolCreate(props), "making a pool of device memory")
        attribute = driver.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
        checked(driver.cuMemPoolSetAttribute(pool, attribute, driver.cuuint64_t(KEEP)), "keeping a pool's memory")
        finalize = weakref.finalize(self, release, current_context(), driver.cuMemPoolDestroy, pool)
        finalize.atexit = False
        return pool


def allocated(result: tuple[Any, ...], nbytes: int) -> int:
    """Return the address of device memory that the driver was asked for; where there is none, say how to have some."""
    if result[0] == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
        free, total = checked(driver.cuMemGetInfo(), "asking for the free memory of the device")
        raise DeviceError(
            f"the device has no {to_text(nbytes)} in one piece: {to_text(free)} of its {to_text(total)} are free; "
            "give a smaller device budget, or free memory that CuPy's or torch's pool still holds"
        )
    return int(checked(result, f"allocating {to_text(nbytes)} on the device"))
