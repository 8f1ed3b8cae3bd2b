"""Tensors of torch, on the host or on a GPU; loaded where a program uses them."""

from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from forebay.cuda.arrays import View, view
from forebay.errors import StateError
from forebay.machine.arrays.library import contiguous
from forebay.machine.spec import ArraySpec, number_type


class TorchArrays:
    """PyTorch."""

    def device(self, array: Any) -> int | None:
        """Return the number of a tensor's GPU."""
        return int(array.device.index) if array.is_cuda and array.numel() else None

    def view(self, array: Any) -> Any:
        """Return an array of NumPy or a `View`: tensors with gradients, and those of bfloat16, offer neither."""
        array = array.detach()
        if array.dtype is torch.bfloat16:
            array = array.view(torch.int16)
        if array.is_cuda:
            return view(array)
        if array.device.type != "cpu":
            raise StateError(f"a tensor on {array.device} cannot be kept: move it to the host or to an NVIDIA GPU")
        return array.numpy()

    def spec(self, array: Any) -> ArraySpec:
        """Describe a tensor, refusing one with gaps on a GPU."""
        where = self.view(array)
        return contiguous(where, array.dtype) if array.is_cuda else ArraySpec(where.shape, where.dtype, array.dtype)

    def adopt(self, spec: ArraySpec) -> ArraySpec:
        """Describe a tensor of the same numbers."""
        return spec if spec.kind is not None else self.spec_of(spec.shape, spec.dtype)

    def spec_of(self, shape: tuple[int, ...], dtype: Any) -> ArraySpec:
        """Describe a tensor; the type may be torch's or NumPy's."""
        if isinstance(dtype, torch.dtype):
            return ArraySpec(shape, self.view(torch.empty(0, dtype=dtype, device="cpu")).dtype, dtype)
        number = number_type(dtype)
        return ArraySpec(shape, number, torch.from_numpy(np.empty(0, number)).dtype)

    def copy(self, array: Any) -> Any:
        """Copy a tensor, without its history."""
        return array.detach().clone()

    def array_at(self, pointer: int, spec: ArraySpec) -> Any:
        """Make a tensor."""
        from forebay.cuda.driver import device_at  # tensors on the host do without a driver

        with torch.inference_mode(False):  # it is kept, and may be handed to code that has gradients
            gpu = self.current_device() if 0 in spec.shape else device_at(pointer)  # nothing may lie past the end
            tensor = torch.as_tensor(View.at(pointer, spec.shape, spec.dtype), device=torch.device("cuda", gpu))
            return tensor.view(spec.kind) if tensor.dtype is not spec.kind else tensor

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
