"""Arrays in the memory of a GPU, of CuPy or torch: where they lie, and arrays made of what lies there."""

from typing import Any

import numpy as np

from forebay.cuda.arrays import View, view
from forebay.errors import StateError


def describe(array: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Give shape and dtype of a GPU array, refusing one that cannot be kept."""
    found = readable(array)
    if not found.contiguous:
        raise StateError(
            "an array of the state has gaps or another order: make it contiguous first "
            "(cupy.ascontiguousarray(x), tensor.contiguous())"
        )
    return found.shape, found.dtype


def readable(array: Any) -> View:
    """Give a view that codecs and quality read."""
    return view(_readable(array))


def kind_of(array: Any) -> Any:
    """Tell the library of an array: torch's dtype, or None for CuPy."""
    return array.dtype if type(array).__module__.partition(".")[0] == "torch" else None


def _readable(array: Any) -> Any:
    """Give a view that has an interface: torch's tensors with gradients, and those of bfloat16, have none."""
    if kind_of(array) is None:
        return array
    import torch

    array = array.detach()
    return array.view(torch.int16) if array.dtype is torch.bfloat16 else array


def array_at(pointer: int, shape: tuple[int, ...], dtype: np.dtype[Any], kind: Any) -> Any:
    """Give the array that lies at an address, of the library and type that `kind_of` told."""
    there = View.at(pointer, shape, dtype)
    if kind is None:
        import cupy

        return cupy.asarray(there)
    import torch

    tensor = torch.as_tensor(there, device="cuda")
    return tensor.view(kind) if tensor.dtype is not kind else tensor
