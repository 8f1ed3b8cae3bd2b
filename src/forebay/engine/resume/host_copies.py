"""Arrays of any library to host memory and back, into the arrays that are there."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.machine.arrays.dispatch import view_of


def to_host(array: Any) -> NDArray[Any]:
    """Copy the elements of an array to the host, in C order; bfloat16 of torch comes as its bits."""
    if not isinstance(view_of(array), np.ndarray):
        array = array.detach().cpu() if hasattr(array, "detach") else _cupy(array).get()
    return np.array(view_of(array), order="C")


def fill(array: Any, elements: NDArray[Any]) -> None:
    """Copy elements from the host into an array, in place, whatever its order is."""
    view = view_of(array)
    if isinstance(view, np.ndarray):
        np.copyto(view, elements)
    elif hasattr(array, "detach"):
        import torch

        host = torch.from_numpy(elements)
        with torch.no_grad():
            array.copy_(host.view(array.dtype) if array.dtype is torch.bfloat16 else host)
    else:
        _cupy(array)[...] = _cupy(elements)


def _cupy(array: Any) -> Any:
    import cupy

    return cupy.asarray(array)
