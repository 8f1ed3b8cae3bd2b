"""What machines ask of a library of arrays; one file a library answers.

`forebay.machine.arrays.dispatch` finds the library of an array.
"""

from contextlib import AbstractContextManager
from typing import Any, Protocol

from forebay.machine.spec import ArraySpec


class ArrayLibrary(Protocol):
    """A library of arrays."""

    name: str

    def device(self, array: Any) -> int | None:
        """Return the number of an array's GPU; None for one on the host, or without elements."""

    def view(self, array: Any) -> Any:
        """Return what copies, codecs and quality read: an array of NumPy, or a `View` of a GPU's memory."""

    def copy(self, array: Any) -> Any:
        """Copy an array."""

    def on_host(self, array: Any) -> bool:
        """Tell whether an array is in host memory, without looking at its elements: they may not be there yet."""

    def leaf_spec(self, array: Any) -> ArraySpec:
        """Describe an array with its order in memory, refusing one that would come back as another."""

    def signature(self, array: Any) -> Any:
        """Return what tells in no time whether an array is like another of the same class."""

    def like(self, array: Any, spec: ArraySpec) -> tuple[Any, Any]:
        """Return the class and the signature of arrays of a spec, in the memory that an array is in."""

    def fit(self, array: Any, spec: ArraySpec) -> Any:
        """Return the same elements with the strides of a spec, without copying; None where that cannot be."""

    def copy_as(self, array: Any, spec: ArraySpec) -> Any:
        """Copy an array, in the order in memory of a spec."""

    def strides(self, array: Any) -> tuple[int, ...]:
        """Return the bytes from neighbour to neighbour along each axis."""

    def references(self, array: Any) -> int:
        """Count the references to an array that `Lent` holds, and to what all views of it share."""

    def address(self, array: Any) -> int | None:
        """Return where an array begins; None for one that nobody can write to, or without elements."""


class DeviceLibrary(ArrayLibrary, Protocol):
    """A library whose arrays lie on GPUs."""

    def spec_of(self, shape: tuple[int, ...], dtype: Any) -> ArraySpec:
        """Describe an array of a shape and type, be it torch's or NumPy's, refusing one that it does not know."""

    def array_at(self, pointer: int, spec: ArraySpec) -> Any:
        """Make an array of what lies at an address of the current device."""

    def alias(self, array: Any) -> Any:
        """Return another array of the same elements, which shares nothing else."""

    def stream(self, device: int) -> int:
        """Return the handle of the stream that is current on a GPU."""

    def current_device(self) -> int:
        """Return the number of the GPU that is current in the calling thread."""

    def on_device(self, device: int) -> AbstractContextManager[Any]:
        """Make a GPU current in the library, and afterwards the one that was."""
