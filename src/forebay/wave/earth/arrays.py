"""Arrays of a model, and of what is computed in it: on the host NumPy's, on a GPU CuPy's, or torch's from outside."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.errors import WaveError
from forebay.wave.earth.strips import in_strips

LARGE = 2**28
"""Bytes from which on memory for a copy is asked of the system by all cores: of less, beside a shot, one is enough."""


def computable(values: Any, what: str = "a velocity") -> Any:
    """Return an array of NumPy, or of CuPy where another library's is on a GPU, in the same memory."""
    if isinstance(values, np.ndarray):
        return values
    if not hasattr(values, "__cuda_array_interface__"):
        raise WaveError(f"{what} of type {type(values).__name__}: give an array of NumPy, or one on a GPU")
    import cupy

    return cupy.asarray(values)


def extremes(values: Any) -> tuple[float, float]:
    """Return the smallest and the largest value, both NaN where one is; on the host by all cores.

    Examples
    --------
    >>> extremes(np.array([3.0, 1.0, 2.0]))
    (1.0, 3.0)
    """
    if not isinstance(values, np.ndarray):
        return float(values.min()), float(values.max())
    found: list[tuple[Any, Any]] = []
    in_strips(lambda strip: found.append((values[strip].min(), values[strip].max())), values.shape)
    least, most = np.transpose(found)
    return float(least.min()), float(most.max())


def returned(values: Any, like: Any) -> Any:
    """Return an array of CuPy as one of torch, in the same memory, where another one is torch's; or as it is."""
    if isinstance(values, np.ndarray) or type(like).__module__.partition(".")[0] != "torch":
        return values
    from torch.utils.dlpack import from_dlpack

    return from_dlpack(values)


def beside(values: NDArray[Any], array: Any, dtype: Any = None) -> Any:
    """Return values of the host as an array of the library, in the memory and, unless told, of the type of another."""
    if isinstance(array, np.ndarray):
        return values.astype(dtype or array.dtype)
    import cupy

    on_device = computable(array)
    with on_device.device:
        return returned(cupy.asarray(values.astype(dtype or on_device.dtype)), array)


def on_host(values: Any) -> NDArray[Any]:
    """Return an array as one of NumPy, wherever it is."""
    if not hasattr(values, "__cuda_array_interface__"):
        return np.asarray(values)
    there = computable(values, "an array")
    if there.nbytes < LARGE:
        return np.asarray(there.get())
    copied = np.empty(there.shape, there.dtype)
    in_strips(lambda strip: copied[strip].fill(0), copied.shape)  # else the copy waits for each page
    return np.asarray(there.get(out=copied))
