"""CuPy and torch, as a pool on a GPU sees them: their arrays, where those lie, and which stream is current."""

import importlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.cuda.arrays import View
from forebay.errors import StateError
from forebay.machine import cuda_arrays, numpy_arrays
from forebay.machine.spec import ArraySpec


@dataclass(frozen=True)
class Library:
    """What both have in common."""

    module: Any

    def form(self, array: Any) -> ArraySpec:
        """Describe an array, refusing one that cannot be kept."""
        shape, dtype = numpy_arrays.describe(array) if self.on_host(array) else cuda_arrays.describe(array)
        return self._formed(tuple(shape), _number_type(dtype), cuda_arrays.kind_of(array))

    def on_host(self, array: Any) -> bool:
        """Tell whether an array is in host memory."""
        if type(array).__module__.partition(".")[0] == "torch":
            return not array.is_cuda
        return not hasattr(array, "__cuda_array_interface__")

    def as_numpy(self, array: Any) -> NDArray[Any]:
        """Give a NumPy view of an array of the host."""
        return numpy_arrays.as_numpy(array)

    def view(self, array: Any) -> View:
        """Tell where an array of the device lies."""
        return cuda_arrays.readable(array)

    def form_of(self, shape: tuple[int, ...], dtype: Any) -> ArraySpec:
        """Describe an array of a shape and type."""
        raise NotImplementedError

    def array_at(self, pointer: int, form: ArraySpec) -> Any:
        """Make an array of what lies at an address."""
        raise NotImplementedError

    def alias(self, array: Any) -> Any:
        """Give another array of the same elements, which shares nothing else."""
        raise NotImplementedError

    def host_copy(self, data: NDArray[np.uint8], form: ArraySpec) -> Any:
        """Give bytes of the host as an array that the caller keeps."""
        raise NotImplementedError

    def stream(self) -> int:
        """Give the handle of the current stream."""
        raise NotImplementedError

    def _formed(self, shape: tuple[int, ...], dtype: np.dtype[Any], kind: Any) -> ArraySpec:
        raise NotImplementedError


class Cupy(Library):
    """CuPy."""

    def form_of(self, shape: tuple[int, ...], dtype: Any) -> ArraySpec:
        """Describe an array of CuPy."""
        return ArraySpec(shape, _number_type(dtype))

    def array_at(self, pointer: int, form: ArraySpec) -> Any:
        """Make an array of CuPy."""
        return self.module.asarray(View.at(pointer, form.shape, form.dtype))

    def alias(self, array: Any) -> Any:
        """Give a view."""
        return array.view()

    def host_copy(self, data: NDArray[np.uint8], form: ArraySpec) -> Any:
        """Give an array of NumPy."""
        return data[: form.nbytes].view(form.dtype).reshape(form.shape)

    def stream(self) -> int:
        """Give the handle of CuPy's stream."""
        return int(self.module.cuda.get_current_stream().ptr)

    def _formed(self, shape: tuple[int, ...], dtype: np.dtype[Any], kind: Any) -> ArraySpec:
        if kind is not None and str(kind) == "torch.bfloat16":
            raise StateError("CuPy has no bfloat16: use a pool with arrays='torch', or convert the array")
        return ArraySpec(shape, dtype)


class Torch(Library):
    """PyTorch."""

    def form_of(self, shape: tuple[int, ...], dtype: Any) -> ArraySpec:
        """Describe a tensor; the type may be torch's or NumPy's."""
        if not isinstance(dtype, self.module.dtype):
            return self._formed(shape, _number_type(dtype), None)
        bare = self.module.empty(0, dtype=dtype, device="cpu")
        return ArraySpec(shape, numpy_arrays.as_numpy(bare).dtype, dtype)

    def array_at(self, pointer: int, form: ArraySpec) -> Any:
        """Make a tensor."""
        with self.module.inference_mode(False):  # it is kept, and may be handed to code that has gradients
            tensor = self.module.as_tensor(View.at(pointer, form.shape, form.dtype), device="cuda")
            return tensor.view(form.kind) if tensor.dtype is not form.kind else tensor

    def alias(self, array: Any) -> Any:
        """Give a tensor that has not the other's gradient, nor its history."""
        return array.detach()

    def host_copy(self, data: NDArray[np.uint8], form: ArraySpec) -> Any:
        """Give a tensor of the host."""
        tensor = self.module.from_numpy(data[: form.nbytes].view(form.dtype).reshape(form.shape))
        return tensor.view(form.kind) if tensor.dtype is not form.kind else tensor

    def stream(self) -> int:
        """Give the handle of torch's stream."""
        return int(self.module.cuda.current_stream().cuda_stream)

    def _formed(self, shape: tuple[int, ...], dtype: np.dtype[Any], kind: Any) -> ArraySpec:
        if kind is None:
            kind = self.module.from_numpy(np.empty(0, dtype)).dtype
        return ArraySpec(shape, dtype, kind)


def library(name: str) -> Library:
    """Load a library of GPU arrays."""
    kind = {"cupy": Cupy, "torch": Torch}[name]
    try:
        return kind(importlib.import_module(name))
    except ImportError as error:
        wheel = {"cupy": "forebay[cuda13]", "torch": "forebay[torch]"}[name]
        raise StateError(f"a pool of {name}'s arrays needs {name}: pip install {wheel!r}") from error


def _number_type(dtype: Any) -> np.dtype[Any]:
    found: np.dtype[Any] = np.dtype(dtype)
    if found.kind not in "biufc" or found.char in "gG" or not found.isnative:
        raise StateError(f"an array of {found} cannot be on a GPU: give it a number type")
    return found
