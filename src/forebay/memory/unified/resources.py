"""The stack of RMM's resources behind unified memory: managed memory, its prefetch, a pool, and what is past it."""

import importlib
import warnings
from dataclasses import dataclass
from typing import Any

from forebay.errors import DeviceError
from forebay.memory.unified.adopt import AllocatorWarning
from forebay.memory.unified.guard import Limit
from forebay.memory.unified.spill import Spill
from forebay.units import to_text

GRAIN = 256
"""RMM's pools have a multiple of this."""
FIRST = 2**30
"""Bytes that a pool starts with; it doubles when it needs more."""


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


def build(mr: Any, limit: Limit, *, pool: bool, prefetch: bool, spill: bool, plain: int, host: int) -> Stack:
    """Stack resources of the module ``rmm.mr``, of which `limit` may be handed out.

    With a `pool`, memory is kept for the next allocation; with `prefetch`, pages are put on the device when they are
    taken from the driver. With `spill`, what exceeds the limit goes to the host, up to `host` bytes. So many bytes of
    `plain` device memory are kept apart.
    """
    top = mr.ManagedMemoryResource()
    if prefetch:  # below the pool: once for its pages, rather than once for every array
        top = mr.PrefetchResourceAdaptor(top)
    most = None if limit.nbytes is None else max(GRAIN, limit.nbytes // GRAIN * GRAIN)
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
        top = mr.FailureCallbackResourceAdaptor(top, _Explain(most))
    apart = None
    if plain:
        size = -(-plain // GRAIN) * GRAIN
        apart = mr.PoolMemoryResource(mr.CudaMemoryResource(), initial_pool_size=size, maximum_pool_size=size)
    return Stack(kept, spilling, top, apart, prefetch)


class _Explain:
    """Say why an allocation fails: RMM's error, which follows, does not know."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit

    def __call__(self, nbytes: int) -> bool:
        limit = "what the machine has" if self._limit is None else f"the limit of {to_text(self._limit)}"
        warnings.warn(
            f"an allocation of {to_text(nbytes)} finds no room within {limit} and fails: other arrays are there, or "
            "what is free lies in smaller pieces, which a pool keeps apart as it took them. Give unify() a larger "
            "limit, or spill='host'; or let forebay.memory.Pool move arrays inside a budget",
            AllocatorWarning,
            stacklevel=2,
        )
        return False  # do not try again
