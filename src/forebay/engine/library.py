"""Which memory the arrays of a state are in, and what follows from it: the backend is chosen from the arrays."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forebay.codec import Codec
from forebay.engine import measure
from forebay.engine.host import HostBackend
from forebay.engine.layout import Layout, arrays_of
from forebay.errors import StateError
from forebay.machine import numpy_arrays
from forebay.planner import CodecCost, Costs
from forebay.tier.capacity import device_capacity, host_capacity


@dataclass(frozen=True)
class Library:
    """What the engine needs to know of arrays in one memory."""

    tier: str
    """the first tier: device or host"""
    describe: Callable[[Any], Any]
    readable: Callable[[Any], Any]
    """gives an array that codecs and quality read"""
    kind_of: Callable[[Any], Any]
    copy: Callable[[Any], Any]
    backend: Callable[[list[Any], Path, bool], Any]
    measure: Callable[..., Costs]
    measure_codec: Callable[[Layout, Codec, list[Any], float | None], CodecCost | None]
    free_bytes: Callable[[], int]


def library_of(state: Any) -> Library:
    """Find out where the arrays of a state are."""
    arrays = list(arrays_of(state))
    if not arrays:
        raise StateError("the state holds no arrays: give a tuple, list or dict of arrays")
    on_device = [_on_device(array) for array in arrays]
    if any(on_device) != all(on_device):
        raise StateError("some arrays of the state are on the host and some on a GPU: move them to one place")
    return _device() if on_device[0] else _host()


def _on_device(array: Any) -> bool:
    if type(array).__module__.partition(".")[0] == "torch":
        return bool(array.is_cuda)  # its interface raises where the tensor needs a gradient
    return hasattr(array, "__cuda_array_interface__")


def _host() -> Library:
    return Library(
        tier="host",
        describe=numpy_arrays.describe,
        readable=numpy_arrays.as_numpy,
        kind_of=numpy_arrays.kind_of,
        copy=_copy,
        backend=lambda kinds, where, synchronous: HostBackend(kinds, where),
        measure=measure.measure_host,
        measure_codec=measure.measure_host_codec,
        free_bytes=lambda: host_capacity().free,
    )


def _device() -> Library:
    from forebay.engine import cuda  # it needs cuda.core
    from forebay.machine import cuda_arrays

    def free_bytes() -> int:
        capacity = device_capacity()
        return capacity.free if capacity else 0

    return Library(
        tier="device",
        describe=cuda_arrays.describe,
        readable=cuda_arrays.readable,
        kind_of=cuda_arrays.kind_of,
        copy=_copy,
        backend=cuda.CudaBackend,
        measure=measure.measure_device,
        measure_codec=measure.measure_device_codec,
        free_bytes=free_bytes,
    )


def _copy(array: Any) -> Any:
    return array.detach().clone() if hasattr(array, "detach") else array.copy()
