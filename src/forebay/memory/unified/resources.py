"""The stack of RMM's resources behind unified memory: managed memory, its prefetch, a pool, and what is past it."""

import importlib
import threading
import warnings
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from forebay.errors import DeviceError
from forebay.memory.unified.adopt import AllocatorWarning
from forebay.units import to_text

GRAIN = 256
"""RMM's pools have a multiple of this."""
FIRST = 2**30
"""Bytes that a pool starts with; it doubles when it needs more."""


class SpillWarning(UserWarning):
    """An array is in host memory, and kernels that use it run at the speed of the link."""


@dataclass
class Spill:
    """Two resources: the first as long as it has room, then the second.

    What is there stays there: nothing is evicted, so nothing can be evicted wrongly, and no kernel faults.
    """

    first: Any
    second: Any
    """what hands out memory, as RMM has it: `allocate` returns an address, or raises MemoryError"""
    limit: int
    """bytes of the first, for the message"""
    live: int = 0
    """bytes in the second"""
    peak: int = 0
    _elsewhere: set[int] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _warned: bool = False

    def allocate(self, nbytes: int, stream: Any) -> int:
        """Allocate memory from the first that has it."""
        try:
            return int(self.first.allocate(nbytes, stream))
        except MemoryError:
            pointer = int(self.second.allocate(nbytes, stream))
        with self._lock:
            self._elsewhere.add(pointer)
            self.live += nbytes
            self.peak = max(self.peak, self.live)
            warned, self._warned = self._warned, True
        if not warned:
            warnings.warn(
                f"an allocation of {to_text(nbytes)} finds no room within the limit of {to_text(self.limit)} and lies "
                "in pinned host memory, as will others: kernels reach it over the link, so that what is bound by "
                "memory runs slower by the ratio of the two bandwidths (`forebay doctor` measures both). "
                "forebay.memory.report() tells how much it is",
                SpillWarning,
                stacklevel=2,
            )
        return pointer

    def deallocate(self, ptr: int, nbytes: int, stream: Any) -> None:
        """Return memory to where it came from."""
        with self._lock:
            elsewhere = ptr in self._elsewhere
            if elsewhere:
                self._elsewhere.remove(ptr)
                self.live -= nbytes
        (self.second if elsewhere else self.first).deallocate(ptr, nbytes, stream)


@dataclass(frozen=True)
class Stack:
    """The resources, from the bottom to the top."""

    pool: Any
    """the pool, or None"""
    spill: Spill | None
    top: Any
    """what libraries allocate from"""
    plain: Any
    """the pool of plain device memory for exchange between processes, or None"""
    prefetched: bool
    """whether pages were put on the device when they were taken"""


def rmm() -> Any:
    """Load RMM."""
    try:
        return importlib.import_module("rmm")
    except ImportError as error:
        raise DeviceError("unified memory needs RMM: install Forebay with its extra cuda12 or cuda13") from error


def build(mr: Any, limit: int | None, *, pool: bool, prefetch: bool, spill: bool, plain: int, host: int) -> Stack:
    """Stack resources of the module ``rmm.mr``, of which `limit` may be handed out.

    With a `pool`, memory is kept for the next allocation; with `prefetch`, pages are put on the device when they are
    taken from the driver. With `spill`, what exceeds the limit goes to the host, up to `host` bytes. So many bytes of
    `plain` device memory are kept apart.
    """
    top = mr.ManagedMemoryResource()
    if prefetch:  # below the pool: once for its pages, rather than once for every array
        top = mr.PrefetchResourceAdaptor(top)
    most = None if limit is None else max(GRAIN, limit // GRAIN * GRAIN)
    if most is not None:  # below the pool, which would otherwise take half of what is left to its limit each time
        top = mr.LimitingResourceAdaptor(top, most)
    kept = None
    if pool:
        top = kept = mr.PoolMemoryResource(top, initial_pool_size=FIRST if most is None else min(FIRST, most))
    spilling = None
    if spill:
        assert most is not None
        pinned = mr.LimitingResourceAdaptor(mr.PinnedHostMemoryResource(), host)
        beyond = mr.PoolMemoryResource(pinned, initial_pool_size=GRAIN)
        spilling = Spill(top, beyond, most)
        top = mr.CallbackMemoryResource(spilling.allocate, spilling.deallocate)
    else:
        top = mr.FailureCallbackResourceAdaptor(top, partial(_explain, most))
    apart = None
    if plain:
        size = -(-plain // GRAIN) * GRAIN
        apart = mr.PoolMemoryResource(mr.CudaMemoryResource(), initial_pool_size=size, maximum_pool_size=size)
    return Stack(kept, spilling, top, apart, prefetch)


def _explain(limit: int | None, nbytes: int) -> bool:
    """Say why an allocation fails: RMM's error, which follows, does not know."""
    room = "what the machine has" if limit is None else f"the limit of {to_text(limit)}"
    warnings.warn(
        f"an allocation of {to_text(nbytes)} finds no room within {room} and fails: other arrays are there, or "
        "what is free lies in smaller pieces, which a pool keeps apart as it took them. Give unify() a larger "
        "limit, or spill='host'; or let forebay.memory.Pool move arrays inside a budget",
        AllocatorWarning,
        stacklevel=2,
    )
    return False  # do not try again
