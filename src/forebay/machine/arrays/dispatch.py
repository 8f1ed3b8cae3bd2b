"""Which library an array is of, or is to be made in.

An array's library is known by its type; that of an array to be made by the kind of its spec: torch's type, or None for
NumPy on the host and CuPy on a GPU.
"""

import sys
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.machine.arrays.library import ArrayLibrary, DeviceLibrary
from forebay.machine.arrays.numpy_arrays import NumpyArrays
from forebay.machine.region import Region
from forebay.machine.spec import ArraySpec

NUMPY = NumpyArrays()


def library_of(array: Any) -> ArrayLibrary:
    """Return the library of an array."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return _torch()
    # CuPy's own are not asked for the interface, which takes longer than all the rest.
    if type(array).__module__.partition(".")[0] == "cupy" or hasattr(array, "__cuda_array_interface__"):
        return _cupy()
    return NUMPY


def device_library(spec: ArraySpec) -> DeviceLibrary:
    """Return the library in which an array of a GPU is made."""
    return _cupy() if spec.kind is None else _torch()


def named_library(name: str) -> DeviceLibrary:
    """Return "cupy" or "torch"."""
    return _cupy() if name == "cupy" else _torch()


@cache
def _cupy() -> DeviceLibrary:
    from forebay.machine.arrays.cupy_arrays import CupyArrays  # it needs cuda.core

    return CupyArrays()


@cache
def _torch() -> DeviceLibrary:
    from forebay.machine.arrays.torch_arrays import TorchArrays  # it needs torch

    return TorchArrays()


def array_in(data: NDArray[np.uint8], spec: ArraySpec) -> Any:
    """Return bytes of the host as an array of the library that its spec names, without copying."""
    array = data[: spec.nbytes].view(spec.dtype).reshape(spec.shape)
    if spec.kind is None:
        return array
    from forebay.machine.arrays.torch_arrays import from_numpy

    return from_numpy(array, spec.kind)


def describe(array: Any) -> ArraySpec:
    """Describe an array of any library."""
    return library_of(array).spec(array)


def view_of(array: Any) -> Any:
    """Return what copies, codecs and quality read of an array of any library."""
    return library_of(array).view(array)


def region_of(array: Any) -> Region:
    """Return where an array of any library lies; on a GPU the host does not reach it."""
    view = view_of(array)
    return Region(0, view.nbytes, view) if isinstance(view, np.ndarray) else Region(view.pointer, view.nbytes)
