"""Arrays of CuPy, and of any other library that tells where its arrays lie on a GPU."""

import importlib
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

from forebay.cuda.arrays import View, view
from forebay.cuda.driver import device_at
from forebay.errors import StateError
from forebay.machine.arrays.library import contiguous
from forebay.machine.spec import ArraySpec, number_type


class CupyArrays:
    """CuPy."""

    def device(self, array: Any) -> int | None:
        """Ask the driver whose memory an array lies in."""
        pointer = view(array).pointer
        return device_at(pointer) if pointer else None

    def view(self, array: Any) -> View:
        """Return where an array lies."""
        return view(array)

    def spec(self, array: Any) -> ArraySpec:
        """Describe an array, refusing one with gaps."""
        return contiguous(view(array), None)

    def adopt(self, spec: ArraySpec) -> ArraySpec:
        """Refuse torch's own type of numbers."""
        if str(spec.kind) == "torch.bfloat16":
            raise StateError("CuPy has no bfloat16: use a pool with arrays='torch', or convert the array")
        return self.spec_of(spec.shape, spec.dtype)

    def spec_of(self, shape: tuple[int, ...], dtype: Any) -> ArraySpec:
        """Describe an array of a shape and type."""
        return ArraySpec(shape, number_type(dtype))

    def copy(self, array: Any) -> Any:
        """Copy an array."""
        return array.copy()

    def array_at(self, pointer: int, spec: ArraySpec) -> Any:
        """Make an array of CuPy."""
        return _cupy().asarray(View.at(pointer, spec.shape, spec.dtype))

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
