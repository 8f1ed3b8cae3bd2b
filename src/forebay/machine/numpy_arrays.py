"""Arrays in host memory, of NumPy or of torch on the CPU: their bytes, and arrays made of bytes."""

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.errors import StateError


def as_numpy(array: Any) -> NDArray[Any]:
    """Give a NumPy view of a host array, refusing what cannot be kept."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        if array.device.type != "cpu":
            raise StateError("some arrays of the state are on the host and some on a GPU: move them to one place")
        array = array.detach()
        if array.dtype is torch.bfloat16:
            array = array.view(torch.int16)
        array = array.numpy()
    if isinstance(array, np.generic):  # what NumPy makes of arrays without axes
        array = np.asarray(array)
    if not isinstance(array, np.ndarray):
        raise StateError(f"a state is made of arrays of NumPy, CuPy or torch, not of {type(array).__name__}")
    if array.dtype.hasobject:
        raise StateError("an array of Python objects cannot be kept: give it a number type")
    return array


def describe(array: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Give shape and dtype of a host array."""
    view = as_numpy(array)
    return view.shape, view.dtype


def copy_in(block: NDArray[np.uint8], layout: Any, arrays: Sequence[Any]) -> None:
    """Copy arrays into a block; those with gaps are gathered on the way."""
    for leaf, array in zip(layout.leaves, arrays, strict=True):
        target = block[leaf.offset : leaf.offset + leaf.nbytes].view(leaf.dtype).reshape(leaf.shape)
        np.copyto(target, as_numpy(array))


def arrays_in(block: NDArray[np.uint8], layout: Any, like: Sequence[Any]) -> list[Any]:
    """Give the arrays that lie in a block, each of the library and type of its counterpart in `like`."""
    torch = sys.modules.get("torch")
    arrays: list[Any] = []
    for leaf, model in zip(layout.leaves, like, strict=True):
        array = block[leaf.offset : leaf.offset + leaf.nbytes].view(leaf.dtype).reshape(leaf.shape)
        if torch is not None and isinstance(model, torch.dtype):
            tensor = torch.from_numpy(array)
            arrays.append(tensor.view(model) if tensor.dtype is not model else tensor)
        else:
            arrays.append(array)
    return arrays


def kind_of(array: Any) -> Any:
    """Tell the library of an array: torch's dtype, or None for NumPy."""
    torch = sys.modules.get("torch")
    return array.dtype if torch is not None and isinstance(array, torch.Tensor) else None
