"""Device memory that is taken and given back in the order of streams, and stays with its owner in between."""

import weakref
from collections.abc import Iterator
from contextlib import contextmanager

from cuda.bindings import driver
from cuda.core import Stream

from forebay.cuda.driver import checked, current_context, current_device, release

KEEP = 2**64 - 1
"""Bytes that the pool keeps for its owner: all."""


class DevicePool:
    """A pool of the driver's for each device that is used.

    The driver's own pool gives memory back at each wait, and has to map it again at the next call.
    """

    def __init__(self) -> None:
        self._pools: dict[int, driver.CUmemoryPool] = {}

    @contextmanager
    def lend(self, nbytes: int, stream: Stream) -> Iterator[int]:
        """Lend memory of the current device in the order of a stream: its address, until the context ends."""
        pool = self._pool_of(current_device().device_id)
        pointer = int(checked(driver.cuMemAllocFromPoolAsync(nbytes, pool, stream.handle), f"taking {nbytes} bytes"))
        try:
            yield pointer
        finally:
            checked(driver.cuMemFreeAsync(pointer, stream.handle), "giving memory back")

    def _pool_of(self, device: int) -> driver.CUmemoryPool:
        if device not in self._pools:
            props = driver.CUmemPoolProps()
            props.allocType = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
            props.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
            props.location.id = device
            pool = checked(driver.cuMemPoolCreate(props), "making a pool of device memory")
            attribute = driver.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
            checked(driver.cuMemPoolSetAttribute(pool, attribute, driver.cuuint64_t(KEEP)), "keeping a pool's memory")
            finalize = weakref.finalize(self, release, current_context(), driver.cuMemPoolDestroy, pool)
            finalize.atexit = False
            self._pools[device] = pool
        return self._pools[device]
