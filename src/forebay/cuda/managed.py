"""Managed memory, by the driver's own calls: taken, advised, moved, and asked about."""

import ctypes
import weakref
from typing import Any

import numpy as np
from cuda.bindings import driver
from cuda.core import LEGACY_DEFAULT_STREAM, Stream
from numpy.typing import NDArray

from forebay.cuda.driver import checked, current_context, current_device, release
from forebay.cuda.stream import callers_streams, stream_of
from forebay.units import to_text

_ADVICE = {
    "read_mostly": (driver.CUmem_advise.CU_MEM_ADVISE_SET_READ_MOSTLY, "device"),
    "prefer_device": (driver.CUmem_advise.CU_MEM_ADVISE_SET_PREFERRED_LOCATION, "device"),
    "prefer_host": (driver.CUmem_advise.CU_MEM_ADVISE_SET_PREFERRED_LOCATION, "host"),
    "accessed_by": (driver.CUmem_advise.CU_MEM_ADVISE_SET_ACCESSED_BY, "device"),
}

_alive: dict[int, int] = {}  # bytes by address


def allocate(nbytes: int) -> NDArray[np.uint8]:
    """Take managed memory, and give it as bytes that NumPy keeps alive."""
    current_device()
    flags = driver.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL.value
    doing = f"allocating {to_text(nbytes)} of managed memory"
    pointer = int(checked(driver.cuMemAllocManaged(max(1, nbytes), flags), doing))
    _alive[pointer] = nbytes
    memory = (ctypes.c_uint8 * nbytes).from_address(pointer)
    weakref.finalize(memory, _free, current_context(), pointer).atexit = False
    return np.ctypeslib.as_array(memory)


def untouched() -> int:
    """Count the bytes handed out here that may still come to the device, and that the driver calls free until then.

    It tells where a range was moved to, not where its pages are: of one that was never moved to the device, all count.
    """
    last = driver.CUmem_range_attribute.CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION
    ranges = [(pointer, nbytes) for pointer, nbytes in list(_alive.items()) if nbytes]
    return sum(nbytes for pointer, nbytes in ranges if _place(last, pointer, nbytes) != "device")


def advise(pointer: int, nbytes: int, advice: str) -> None:
    """Tell the driver how a range will be used."""
    what, place = _ADVICE[advice]
    if nbytes:
        checked(driver.cuMemAdvise(pointer, nbytes, what, _location(place)), f"advising {advice}")


def prefetch(pointer: int, nbytes: int, place: str, stream: Stream) -> None:
    """Enqueue the movement of a range."""
    if nbytes:
        result = driver.cuMemPrefetchAsync(pointer, nbytes, _location(place), 0, stream.handle)
        checked(result, f"moving {to_text(nbytes)} to the {place}")


def describe(pointer: int, nbytes: int) -> dict[str, Any]:
    """Tell the kind of the memory at an address, and for managed memory where the range was moved to."""
    kind = _kind(pointer)
    if kind != "managed" or not nbytes:
        return {"kind": kind}
    attribute = driver.CUmem_range_attribute
    return {
        "kind": kind,
        "prefetched": _place(attribute.CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, pointer, nbytes),
        "preferred": _place(attribute.CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, pointer, nbytes),
        "read_mostly": bool(_range(attribute.CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, pointer, nbytes)),
    }


def callers_stream(library: str) -> Stream:
    """Return the stream that is current in the library of an array.

    For arrays of others it is CuPy's, or torch's where there is no CuPy, or the default one where there is neither.
    """
    stream = stream_of(library) if library in ("cupy", "torch") else next(iter(callers_streams()), None)
    return LEGACY_DEFAULT_STREAM if stream is None else stream


def _free(context: Any, pointer: int) -> None:
    _alive.pop(pointer, None)
    release(context, driver.cuMemFree, pointer)


def _kind(pointer: int) -> str:
    current_device()
    attribute = driver.CUpointer_attribute
    status, managed = driver.cuPointerGetAttribute(attribute.CU_POINTER_ATTRIBUTE_IS_MANAGED, pointer)
    if status != driver.CUresult.CUDA_SUCCESS:
        return "host"  # the driver has never heard of it
    if managed:
        return "managed"
    status, memory = driver.cuPointerGetAttribute(attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer)
    if status != driver.CUresult.CUDA_SUCCESS:
        return "host"
    return "device" if int(memory) == int(driver.CUmemorytype.CU_MEMORYTYPE_DEVICE) else "pinned"


def _place(attribute: Any, pointer: int, nbytes: int) -> str | None:
    """Tell a place by the number of its device: the host has one too, and so has nowhere."""
    number = int(_range(attribute, pointer, nbytes))
    return {int(driver.CU_DEVICE_CPU): "host", int(driver.CU_DEVICE_INVALID): None}.get(number, "device")


def _range(attribute: Any, pointer: int, nbytes: int) -> Any:
    return checked(driver.cuMemRangeGetAttribute(4, attribute, pointer, nbytes), "asking about managed memory")


def _location(place: str) -> Any:
    location = driver.CUmemLocation()
    kinds = driver.CUmemLocationType
    location.type = kinds.CU_MEM_LOCATION_TYPE_DEVICE if place == "device" else kinds.CU_MEM_LOCATION_TYPE_HOST
    location.id = current_device().device_id if place == "device" else 0
    return location
