"""Which memory the arrays of a state are in, and what follows from it: the machine is chosen from the arrays."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from forebay.engine.layout import arrays_of
from forebay.errors import StateError
from forebay.machine.arrays import dispatch
from forebay.machine.host import HostReversal
from forebay.machine.machine import ReversalMachine
from forebay.tier.capacity import host_capacity


@dataclass(frozen=True)
class ArrayMemory:
    """What the engine needs to know of arrays in one memory."""

    tier: str
    """the first tier: device or host"""
    machine: Callable[[Path, bool], ReversalMachine]
    """makes what a reversal runs on, which calls back synchronously or not"""
    free_bytes: Callable[[], int]
    current: Callable[[], AbstractContextManager[None]] = nullcontext
    """makes the GPU of the arrays current, and afterwards the one that was"""


def memory_of(state: Any) -> ArrayMemory:
    """Find out where the arrays of a state are, refusing one that is in several places."""
    arrays = arrays_of(state)
    if not arrays:
        raise StateError("the state holds no arrays: give a tuple, list or dict of arrays")
    libraries = [dispatch.array_library(array) for array in arrays]
    on_host = [library.on_host(array) for library, array in zip(libraries, arrays, strict=True)]
    if any(on_host) != all(on_host):
        raise StateError("some arrays of the state are on the host and some on a GPU: move them to one place")
    if on_host[0]:
        return ArrayMemory("host", lambda where, synchronous: HostReversal(where), lambda: host_capacity().free)
    devices = {library.device(array) for library, array in zip(libraries, arrays, strict=True)} - {None}
    if len(devices) > 1:
        places = " and ".join(f"cuda:{device}" for device in sorted(devices, key=str))
        raise StateError(f"the arrays of the state are on {places}: move them to one GPU")
    return _device(next(iter(devices), None), dispatch.device_library(libraries[0].leaf_spec(arrays[0])))


def _device(index: int | None, arrays: Any) -> ArrayMemory:
    from forebay.cuda.driver import current_device, device_memory, on_device  # they need cuda.core
    from forebay.cuda.slab import kept_device_bytes
    from forebay.machine.cuda_reversal import CudaReversal

    device = current_device().device_id if index is None else index

    def free_bytes() -> int:
        with on_device(device):
            return device_memory()[0] + kept_device_bytes()

    return ArrayMemory("device", partial(CudaReversal, device, arrays), free_bytes, partial(on_device, device))
