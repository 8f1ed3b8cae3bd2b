"""Arrays of NumPy."""

from ctypes import addressof, c_char
from sys import getrefcount
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.errors import StateError
from forebay.machine.arrays.order import ordered, same_order
from forebay.machine.spec import ArraySpec

PLAIN = (np.ndarray, np.memmap)
"""Classes whose arrays mean no more than their elements."""


class NumpyArrays:
    """NumPy."""

    name = "NumPy"

    def device(self, array: Any) -> None:
        """Return None: they are on the host."""

    def view(self, array: Any) -> NDArray[Any]:
        """Return the array, refusing what cannot be kept."""
        if isinstance(array, np.generic):  # what NumPy makes of arrays without axes
            array = np.asarray(array)
        if not isinstance(array, np.ndarray):
            raise StateError(
                f"a state is made of arrays of NumPy, CuPy or torch, and JAX, not of {type(array).__name__}; "
                "give arrays (numpy.asarray(x) makes one), or tell how to take it apart with forebay.register_state"
            )
        if array.dtype.hasobject:
            raise StateError("an array of Python objects cannot be kept: give it a number type")
        return array

    def copy(self, array: Any) -> Any:
        """Copy an array."""
        return np.array(array, order="C", subok=True)  # an array too of what NumPy makes of arrays without axes

    def on_host(self, array: Any) -> bool:
        """Return True."""
        return True

    def leaf_spec(self, array: Any) -> ArraySpec:
        """Describe an array with its order in memory; what a class of its own means would be lost."""
        view = self.view(array)
        if type(view) not in PLAIN:
            raise StateError(
                f"a {type(view).__name__} would come back as a plain array: give numpy.asarray(x), or tell how to take "
                "it apart with forebay.register_state"
            )
        return ordered(ArraySpec(view.shape, view.dtype), view.strides, gathers=True)

    def signature(self, array: Any) -> Any:
        """Return shape, type and strides."""
        return array.shape, array.dtype, array.strides

    def like(self, array: Any, spec: ArraySpec) -> tuple[Any, Any]:
        """Return the class and the signature of arrays of a spec."""
        return np.ndarray, (spec.shape, spec.dtype, spec.all_strides)

    def fit(self, array: Any, spec: ArraySpec) -> Any:
        """Return an array that may be a view; of a number, an array."""
        view = np.asarray(array)
        if view.strides == spec.all_strides:
            return view
        return _restrided(view, spec.all_strides) if same_order(spec, view.strides) else None

    def copy_as(self, array: Any, spec: ArraySpec) -> Any:
        """Copy an array into new memory."""
        copy = array_at_bytes(np.empty(spec.nbytes, np.uint8), spec)
        np.copyto(copy, array)
        return copy

    def strides(self, array: Any) -> tuple[int, ...]:
        """Return the strides."""
        return np.asarray(array).strides

    def references(self, array: Any) -> int:
        """Count those to the array, and to the one that views of it refer to."""
        return getrefcount(array) + getrefcount(array.base) if array.nbytes else 0

    def address(self, array: Any) -> int | None:
        """Return where it begins."""
        try:
            return addressof(c_char.from_buffer(array))  # a third of the time of what is below
        except (TypeError, ValueError):  # not writable, or in another order than C
            view = np.asarray(array)
            return int(view.__array_interface__["data"][0]) if view.nbytes else None


def array_at_bytes(data: NDArray[np.uint8], spec: ArraySpec) -> NDArray[Any]:
    """Return bytes as an array of a shape, type and order, without copying."""
    return np.ndarray(spec.shape, spec.dtype, data, strides=spec.strides)


def _restrided(array: NDArray[Any], strides: tuple[int, ...]) -> NDArray[Any]:
    """Return a view that differs in strides which are never used."""
    view: NDArray[Any] = np.lib.stride_tricks.as_strided(array, array.shape, strides)
    return view
