"""Telling the driver how managed memory is used, moving it ahead of time, and asking where it is."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.errors import StateError
from forebay.machine.arrays.dispatch import array_library, view_of
from forebay.machine.arrays.order import is_dense
from forebay.memory.unified import guard
from forebay.memory.unified.unify import room

ADVICE = ("read_mostly", "prefer_device", "prefer_host", "accessed_by")
PLACES = ("device", "host")


@dataclass(frozen=True)
class Where:
    """What the driver tells of an array's memory."""

    kind: str
    """``"managed"``, ``"device"`` (plain memory of the GPU), ``"pinned"`` or ``"host"``"""
    prefetched: str | None = None
    """where all of it was last prefetched to: ``"device"``, ``"host"``, or None where that was never, or in parts"""
    preferred: str | None = None
    """where the driver shall keep it"""
    read_mostly: bool = False


def advise(array: Any, advice: str) -> None:
    """Tell the driver how managed memory will be used.

    Parameters
    ----------
    array
        Of CuPy, torch, or NumPy over managed memory.
    advice : {"read_mostly", "prefer_device", "prefer_host", "accessed_by"}
        The first copies pages instead of moving them, as long as they are only read. The next two keep them on the
        device, or on the host. The last maps them for the device wherever they are, so that its accesses do not fault.
    """
    if advice not in ADVICE:
        raise StateError(f"no advice is called {advice!r}: there are {', '.join(ADVICE)}")
    from forebay.cuda import managed

    managed.advise(*_managed(array), advice)


def prefetch(array: Any, to: str = "device") -> None:
    """Move managed memory in the order of the stream that is current in the array's library, and return at once.

    Parameters
    ----------
    array
        Of CuPy, torch, or NumPy over managed memory.
    to : {"device", "host"}
        Where to.
    """
    if to not in PLACES:
        raise StateError(f"memory cannot be moved to {to!r}: there are {' and '.join(PLACES)}")
    from forebay.cuda import managed

    managed.prefetch(*_managed(array), to, managed.callers_stream(_library(array)))


def where(array: Any) -> Where:
    """Tell what kind of memory an array has, and where that was moved to last."""
    from forebay.cuda import managed

    return Where(**managed.describe(*_without_gaps(array)))


def managed_empty(shape: int | tuple[int, ...], dtype: Any = "float32") -> NDArray[Any]:
    """Make a NumPy array in managed memory, which kernels reach at its address.

    Asking for more than the device has free is refused. Memory handed out before that was not moved there by
    `prefetch` counts as if none of it were there yet.
    """
    from forebay.cuda import managed

    number = np.dtype(dtype)
    extents = (shape,) if isinstance(shape, int) else tuple(shape)
    nbytes = math.prod(extents) * number.itemsize
    guard.decide(max(1, nbytes), room(), spill=None, oversubscribe=False)
    data: NDArray[Any] = managed.allocate(nbytes).view(number)
    return data.reshape(extents)


def _managed(array: Any) -> tuple[int, int]:
    from forebay.cuda import managed

    pointer, nbytes = _without_gaps(array)
    kind = managed.describe(pointer, 0)["kind"]
    if nbytes and kind != "managed":
        raise StateError(
            f"the array is in {kind} memory, which does not move: make it after forebay.memory.unify(), or with "
            "forebay.memory.managed_empty()"
        )
    return pointer, nbytes


def _without_gaps(array: Any) -> tuple[int, int]:
    where = extent(array)
    if where is None:
        raise StateError("the array has gaps: its memory is more than its elements; give one without")
    return where


def extent(array: Any) -> tuple[int, int] | None:
    """Return address and bytes of an array whose elements fill its memory, in any order; None where there are gaps."""
    view = view_of(array)
    pointer = view.ctypes.data if isinstance(view, np.ndarray) else view.pointer
    fills = not view.nbytes or is_dense(view.shape, array_library(array).strides(array), view.dtype.itemsize)
    return (pointer, view.nbytes) if fills else None


def _library(array: Any) -> str:
    return type(array).__module__.partition(".")[0]
