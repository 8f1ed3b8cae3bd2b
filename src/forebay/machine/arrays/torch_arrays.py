"""Tensors of torch, on the host or on a GPU; loaded where a program uses them."""

from contextlib import AbstractContextManager
from sys import getrefcount
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from forebay.cuda.arrays import View, view
from forebay.errors import StateError
from forebay.machine.arrays.order import ordered, same_order
from forebay.machine.spec import ArraySpec, number_type

KNOWN_TO_NUMPY = {
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.float16, torch.float32, torch.float64, torch.complex64, torch.complex128),
}
_storage_references = getattr(torch._C, "_storage_Use_Count", lambda storage: 0)
"""Counts who refers to a storage; private, as is a tensor's `_use_count`: both were seen in torch 2.11 to 2.13."""
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class TorchArrays:
    """PyTorch."""

    name = "torch"

    def device(self, array: Any) -> int | None:
        """Return the number of a tensor's GPU."""
        return int(array.device.index) if array.is_cuda and array.numel() else None

    def view(self, array: Any) -> Any:
        """Return an array of NumPy or a `View`: tensors with gradients, and those of types of torch, offer neither."""
        array = array.detach()
        if array.dtype not in KNOWN_TO_NUMPY:
            array = array.view(_INTEGERS[array.dtype.itemsize])
        if array.is_cuda:
            return view(array)
        if array.device.type != "cpu":
            raise StateError(f"a tensor on {array.device} cannot be kept: move it to the host or to an NVIDIA GPU")
        return array.numpy()

    def spec_of(self, shape: tuple[int, ...], dtype: Any) -> ArraySpec:
        """Describe a tensor; the type may be torch's or NumPy's."""
        if isinstance(dtype, torch.dtype):
            return ArraySpec(shape, self.view(torch.empty(0, dtype=dtype, device="cpu")).dtype, dtype)
        number = number_type(dtype)
        return ArraySpec(shape, number, torch.from_numpy(np.empty(0, number)).dtype)

    def copy(self, array: Any) -> Any:
        """Copy a tensor, without its history."""
        return array.detach().clone()

    def on_host(self, array: Any) -> bool:
        """Tell whether a tensor is in host memory."""
        return not array.is_cuda

    def leaf_spec(self, array: Any) -> ArraySpec:
        """Describe a tensor with its order in memory, refusing what is more or less than a dense array."""
        _check_plain(array)
        spec = ArraySpec(tuple(array.shape), self.spec_of((), array.dtype).dtype, array.dtype)
        return ordered(spec, self.strides(array), gathers=not array.is_cuda)

    def signature(self, array: Any) -> Any:
        """Return all that tells one plain tensor from another."""
        if array.is_nested or array.layout is not torch.strided:
            return None
        noted = array.requires_grad or array.is_conj() or array.is_neg()
        return array.shape, array.dtype, array.stride(), array.device, noted

    def like(self, array: Any, spec: ArraySpec) -> tuple[Any, Any]:
        """Return the class and the signature of tensors of a spec, where a tensor is."""
        return torch.Tensor, (torch.Size(spec.shape), spec.kind, _elements(spec), array.device, False)

    def fit(self, array: Any, spec: ArraySpec) -> Any:
        """Return a tensor without history."""
        array = array.detach()
        if array.stride() == _elements(spec):
            return array
        return array.as_strided(spec.shape, _elements(spec)) if same_order(spec, self.strides(array)) else None

    def copy_as(self, array: Any, spec: ArraySpec) -> Any:
        """Copy a tensor into new memory, without its history."""
        copy = torch.empty_strided(spec.shape, _elements(spec), dtype=array.dtype, device=array.device)
        return copy.copy_(array.detach())

    def strides(self, array: Any) -> tuple[int, ...]:
        """Return the strides in bytes."""
        return tuple(stride * array.dtype.itemsize for stride in array.stride())

    def references(self, array: Any) -> int:
        """Count those to the tensor, of Python and of torch itself, and to the storage that views of it share."""
        uses = array._use_count()  # however many they are, they hold one reference of Python together
        storage = _storage_references(array.untyped_storage()._cdata)
        return int(getrefcount(array) - (uses > 1) + uses + storage)

    def address(self, array: Any) -> int | None:
        """Return where it begins."""
        return int(array.data_ptr()) or None

    def array_at(self, pointer: int, spec: ArraySpec) -> Any:
        """Make a tensor."""
        from forebay.cuda.driver import device_at  # tensors on the host do without a driver

        with torch.inference_mode(False):  # it is kept, and may be handed to code that has gradients
            gpu = self.current_device() if 0 in spec.shape else device_at(pointer)  # nothing may lie past the end
            where = View.at(pointer, spec.stored.shape, spec.dtype)
            tensor = torch.as_tensor(where, device=torch.device("cuda", gpu))
            tensor = tensor.view(spec.kind) if tensor.dtype is not spec.kind else tensor
            return tensor if spec.strides is None else tensor.as_strided(spec.shape, _elements(spec))

    def alias(self, array: Any) -> Any:
        """Return a tensor that has not the other's gradient, nor its history."""
        return array.detach()

    def stream(self, device: int) -> int:
        """Return the handle of torch's stream."""
        return int(torch._C._cuda_getCurrentRawStream(device))

    def current_device(self) -> int:
        """Ask torch."""
        return int(torch._C._cuda_getDevice())

    def on_device(self, device: int) -> AbstractContextManager[Any]:
        """Make a GPU current in torch."""
        return torch.cuda.device(device)


def from_numpy(array: NDArray[Any], kind: torch.dtype) -> torch.Tensor:
    """Return a tensor on the memory of an array, of torch's own type."""
    tensor = torch.from_numpy(array)
    return tensor.view(kind) if tensor.dtype is not kind else tensor


def _elements(spec: ArraySpec) -> tuple[int, ...]:
    """Return strides as torch counts them."""
    return tuple(stride // spec.dtype.itemsize for stride in spec.all_strides)


def _check_plain(tensor: torch.Tensor) -> None:
    """Refuse tensors whose elements do not lie in memory as they are."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        raise StateError(f"a {type(tensor).__name__} would come back as a plain tensor: give one")
    if tensor.is_nested:
        raise StateError("a nested tensor has no single shape: give its parts, or tensor.to_padded_tensor(0)")
    if tensor.layout is not torch.strided:
        raise StateError(f"a tensor of layout {tensor.layout} is sparse or opaque: give tensor.to_dense()")
    if tensor.is_quantized:
        raise StateError("a quantized tensor would lose its scale: give tensor.int_repr(), or tensor.dequantize()")
    if tensor.device.type not in ("cpu", "cuda"):
        raise StateError(f"a tensor on {tensor.device} cannot be kept: move it to the host or to an NVIDIA GPU")
    if tensor.is_conj():
        raise StateError("its conjugation is only noted: give tensor.resolve_conj()")
    if tensor.is_neg():
        raise StateError("its sign is only noted: give tensor.resolve_neg()")
