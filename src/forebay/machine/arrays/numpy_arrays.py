"""Arrays of NumPy."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.errors import StateError
from forebay.machine.spec import ArraySpec


class NumpyArrays:
    """NumPy."""

    def device(self, array: Any) -> None:
        """Return None: they are on the host."""

    def view(self, array: Any) -> NDArray[Any]:
        """Return the array, refusing what cannot be kept."""
        if isinstance(array, np.generic):  # what NumPy makes of arrays without axes
            array = np.asarray(array)
        if not isinstance(array, np.ndarray):
            raise StateError(f"a state is made of arrays of NumPy, CuPy or torch, not of {type(array).__name__}")
        if array.dtype.hasobject:
            raise StateError("an array of Python objects cannot be kept: give it a number type")
        return array

    def spec(self, array: Any) -> ArraySpec:
        """Describe an array."""
        view = self.view(array)
        return ArraySpec(view.shape, view.dtype)

    def spec_of(self, shape: tuple[int, ...], dtype: Any) -> ArraySpec:
        """Describe an array of a shape and type."""
        dtype = np.dtype(dtype)
        if dtype.hasobject:
            raise StateError("an array of Python objects cannot be kept: give it a number type")
        return ArraySpec(shape, dtype)

    def copy(self, array: Any) -> Any:
        """Copy an array."""
        return np.array(array, order="C", subok=True)  # an array too of what NumPy makes of arrays without axes
