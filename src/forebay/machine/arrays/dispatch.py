"""Which library an array is of, or is to be made in.

An array's library is known by its type; that of an array to be made by the kind of its spec: torch's type, JAX's
device, or None for NumPy on the host and CuPy on a GPU.
"""

import sys
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.cuda.arrays import View
from forebay.machine.arrays.library import ArrayLibrary, DeviceLibrary
from forebay.machine.arrays.numpy_arrays import NumpyArrays, array_at_bytes
from forebay.machine.arrays.order import in_memory_order
from forebay.machine.region import Region
from forebay.machine.spec import ArraySpec, JaxKind

NUMPY = NumpyArrays()

_known: dict[type[Any], ArrayLibrary] = {np.ndarray: NUMPY}
"""Libraries by the classes of their arrays, as far as the class alone tells."""


def array_library(array: Any) -> ArrayLibrary:
    """Return the library of an array."""
    library = _known.get(type(array))
    if library is None:
        library = _found(array)
        if library is not None:
            _known[type(array)] = library
        else:
            library = _cupy() if hasattr(array, "__cuda_array_interface__") else NUMPY
    return library


def _found(array: Any) -> ArrayLibrary | None:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return _torch()
    jax = sys.modules.get("jax")
    if jax is not None and isinstance(array, jax.Array):
        return _jax()
    return _cupy() if type(array).__module__.partition(".")[0] == "cupy" else None


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


@cache
def _jax() -> ArrayLibrary:
    from forebay.machine.arrays.jax_arrays import JaxArrays  # it needs JAX

    return JaxArrays()


def array_in(data: NDArray[np.uint8], spec: ArraySpec) -> Any:
    """Return bytes of the host as an array of the library that its spec names, without copying; JAX's is a copy."""
    # Views of an array refer to the last array before memory of another kind: here to one that it alone shares.
    array = array_at_bytes(np.frombuffer(data.data, np.uint8) if data.nbytes else data, spec)
    if spec.kind is None:
        return array
    if isinstance(spec.kind, JaxKind):
        from forebay.machine.arrays import jax_arrays

        return jax_arrays.from_numpy(array, spec.kind)
    from forebay.machine.arrays.torch_arrays import from_numpy

    return from_numpy(array, spec.kind)


def view_of(array: Any) -> Any:
    """Return what copies, codecs and quality read of an array of any library."""
    return array_library(array).view(array)


def stored_view(array: Any) -> Any:
    """Return the same of a dense array, with its axes turned into C order."""
    view = view_of(array)
    if isinstance(view, np.ndarray):
        return in_memory_order(view)
    return view if view.contiguous else View.at(view.pointer, (view.nbytes // view.dtype.itemsize,), view.dtype)


def region_of(array: Any) -> Region:
    """Return where an array of any library lies; on a GPU the host does not reach it."""
    view = stored_view(array)
    return Region(0, view.nbytes, view) if isinstance(view, np.ndarray) else Region(view.pointer, view.nbytes)
