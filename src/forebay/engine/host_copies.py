"""Arrays of any library to host memory and back, into the arrays that are there."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.machine.arrays.dispatch import array_in, view_of
from forebay.machine.spec import ArraySpec, JaxKind


def to_host(array: Any) -> NDArray[Any]:
    """Copy the elements of an array to the host, in C order; types that only torch has come as their bits."""
    if not isinstance(view_of(array), np.ndarray):
        array = array.detach().cpu() if hasattr(array, "detach") else _cupy(array).get()
    return np.array(view_of(array), order="C")


def fill(array: Any, elements: NDArray[Any]) -> None:
    """Copy elements from the host into an array, in place, whatever its order is."""
    view = view_of(array)
    if isinstance(view, np.ndarray):
        np.copyto(view, elements.view(view.dtype))  # names of types that only libraries have are lost in files
    elif hasattr(array, "detach"):
        import torch

        host = torch.from_numpy(elements)
        with torch.no_grad():
            array.copy_(host.view(array.dtype) if array.dtype is not host.dtype else host)
    else:
        _cupy(array)[...] = _cupy(elements)


def refilled(array: Any, spec: ArraySpec, elements: NDArray[Any]) -> Any:
    """Return an array with other elements: itself, or a new one where it cannot be written to."""
    if isinstance(spec.kind, JaxKind):
        return array_in(np.ascontiguousarray(elements).reshape(-1).view(np.uint8), spec)
    fill(array, elements)
    return array


def _cupy(array: Any) -> Any:
    import cupy

    return cupy.asarray(array)
