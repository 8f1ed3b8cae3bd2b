"""What machines ask of a library of arrays; one file a library answers.

`forebay.machine.arrays.dispatch` finds the library of an array.
"""

from contextlib import AbstractContextManager
from typing import Any, Protocol

from forebay.cuda.arrays import View
from forebay.errors import StateError
from forebay.machine.spec import ArraySpec


class ArrayLibrary(Protocol):
    """A library of arrays."""

    def device(self, array: Any) -> int | None:
        """Return the number of an array's GPU; None for one on the host, or without elements."""

    def view(self, array: Any) -> Any:
        """Return what copies, codecs and quality read: an array of NumPy, or a `View` of a GPU's memory."""

    def spec(self, array: Any) -> ArraySpec:
        """Describe an array, refusing one that cannot be kept."""

    def spec_of(self, shape: tuple[int, ...], dtype: Any) -> ArraySpec:
        """Describe an array of a shape and type."""

    def copy(self, array: Any) -> Any:
        """Copy an array."""


class DeviceLibrary(ArrayLibrary, Protocol):
    """A library whose arrays lie on GPUs."""

    def adopt(self, spec: ArraySpec) -> ArraySpec:
        """Describe an array as it will be in this library, refusing what it does not know."""

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


def contiguous(where: View, kind: Any) -> ArraySpec:
    """Describe an array of a GPU, refusing one with gaps."""
    if not where.contiguous:
        raise StateError(
            "an array of the state has gaps or another order: make it contiguous first "
            "(cupy.ascontiguousarray(x), tensor.contiguous())"
        )
    return ArraySpec(where.shape, where.dtype, kind)
