"""Arrays of CuPy, and of any other library that tells where its arrays lie on a GPU."""

import importlib
import sys
from contextlib import AbstractContextManager
from functools import cache
from sys import getrefcount
from typing import Any

import numpy as np

from forebay.cuda.arrays import View, view
from forebay.cuda.driver import device_at
from forebay.errors import StateError
from forebay.machine.arrays.order import ordered, same_order
from forebay.machine.spec import ArraySpec, c_strides, number_type


class CupyArrays:
    """CuPy."""

    name = "CuPy"

    def device(self, array: Any) -> int | None:
        """Ask the driver whose memory an array lies in."""
        pointer = view(array).pointer
        return device_at(pointer) if pointer else None

    def view(self, array: Any) -> View:
        """Return where an array lies."""
        return view(array)

    def spec_of(self, shape: tuple[int, ...], dtype: Any) -> ArraySpec:
        """Describe an array, refusing torch's own types of numbers."""
        library, _, name = str(dtype).rpartition(".")
        if library == "torch" and not hasattr(np, name):
            raise StateError(f"CuPy has no {name}: use a pool with arrays='torch', or convert the array")
        return ArraySpec(shape, number_type(name if library == "torch" else dtype))

    def copy(self, array: Any) -> Any:
        """Copy an array."""
        return array.copy()

    def on_host(self, array: Any) -> bool:
        """Return False."""
        return False

    def leaf_spec(self, array: Any) -> ArraySpec:
        """Describe an array with its order in memory, refusing one with gaps."""
        where = view(array)
        return ordered(ArraySpec(where.shape, number_type(where.dtype)), self.strides(array), gathers=False)

    def signature(self, array: Any) -> Any:
        """Return shape, type, strides and GPU."""
        return array.shape, array.dtype, array.strides, array.data.device_id

    def like(self, array: Any, spec: ArraySpec) -> tuple[Any, Any]:
        """Return the class and the signature of arrays of a spec, on the GPU of an array."""
        cupy = sys.modules.get("cupy")
        signature = (spec.shape, spec.dtype, spec.all_strides, self.device(array))
        return (None if cupy is None else cupy.ndarray), signature

    def fit(self, array: Any, spec: ArraySpec) -> Any:
        """Return an array of CuPy that may be a view."""
        array = _cupy().asarray(array)
        if array.strides == spec.all_strides:
            return array
        if not same_order(spec, array.strides):
            return None
        return _cupy().ndarray(spec.shape, spec.dtype, array.data, spec.all_strides)

    def copy_as(self, array: Any, spec: ArraySpec) -> Any:
        """Copy an array into new memory."""
        flat = _cupy().empty(spec.nbytes, "uint8")
        copy = _cupy().ndarray(spec.shape, spec.dtype, flat.data, spec.all_strides)
        copy[...] = _cupy().asarray(array)
        return copy

    def strides(self, array: Any) -> tuple[int, ...]:
        """Return the strides, which are not told where they are those of C order."""
        interface = array.__cuda_array_interface__
        strides: tuple[int, ...] | None = interface.get("strides")
        return c_strides(view(array).shape, view(array).dtype.itemsize) if strides is None else tuple(strides)

    def references(self, array: Any) -> int:
        """Count those to the array, to its pointer, and to the memory that pointers of views refer to."""
        data = array.data
        return getrefcount(array) + getrefcount(data) + getrefcount(data.mem)

    def address(self, array: Any) -> int | None:
        """Return where it begins."""
        try:
            return int(array.data.ptr) or None
        except AttributeError:  # of another library than CuPy, which takes longer to tell
            return view(array).pointer or None

    def array_at(self, pointer: int, spec: ArraySpec) -> Any:
        """Make an array of CuPy."""
        if 0 in spec.shape:  # nothing may lie at the end of memory
            return _cupy().empty(spec.shape, spec.dtype)
        cuda = _cupy().cuda  # through the interface of arrays it would take three times as long
        memory = cuda.MemoryPointer(cuda.UnownedMemory(pointer, spec.nbytes, None), 0)
        return _cupy().ndarray(spec.shape, spec.dtype, memory, spec.strides)

    def alias(self, array: Any) -> Any:
        """Return a view."""
        return array.view()

    def stream(self, device: int) -> int:
        """Return the handle of CuPy's stream on the GPU, which is the current one."""
        return int(_cupy().cuda.get_current_stream().ptr)

    def current_device(self) -> int:
        """Ask CuPy."""
        return int(_cupy().cuda.runtime.getDevice())

    def on_device(self, device: int) -> AbstractContextManager[Any]:
        """Make a GPU current in CuPy."""
        entering: AbstractContextManager[Any] = _cupy().cuda.Device(device)
        return entering


@cache
def _cupy() -> Any:
    return importlib.import_module("cupy")
