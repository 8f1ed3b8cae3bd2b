"""Reading where an array of any GPU library lies, through ``__cuda_array_interface__``, and giving one out again."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

FARTHEST_ROW = 2**31
"""Bytes from one row of a window to the next stay below it, so that kernels count them in 32 bits."""


@dataclass(frozen=True)
class View:
    """Where the elements of an array lie on the device.

    A view does not keep the memory alive. It is itself an array to other libraries: ``cupy.asarray(view)`` and
    ``torch.as_tensor(view, device="cuda")`` give arrays on the same memory.
    """

    pointer: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    nbytes: int
    """Bytes of the elements."""
    contiguous: bool
    """Whether they lie in C order without gaps, so that `nbytes` from `pointer` are exactly the array."""
    strides: tuple[int, ...] | None = None
    """Bytes from neighbour to neighbour along each axis, where it is not contiguous."""

    @classmethod
    def at(cls, pointer: int, shape: tuple[int, ...], dtype: Any) -> "View":
        """Describe a contiguous array that lies, or shall lie, at an address.

        Examples
        --------
        >>> View.at(4096, (2, 3), "float32").nbytes
        24
        """
        dtype = np.dtype(dtype)
        return cls(pointer, shape, dtype, math.prod(shape) * dtype.itemsize, contiguous=True)

    @property
    def is_window(self) -> bool:
        """Whether it is cut out of a larger array in C order, its rows whole: kernels may read it where it lies."""
        return self.strides is not None and is_window(self.shape, self.strides, self.dtype.itemsize)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if not self.contiguous:
            raise AttributeError("a view of an array with gaps cannot be given out: make the array contiguous first")
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.pointer, False),
            "version": 3,
            "stream": None,  # whoever made the view orders the streams
        }


def view(array: Any) -> View:
    """Read where an array of CuPy, torch, Numba or any other library lies on the device.

    The interface's ``stream`` is not waited for: order your stream after the one that fills the array.

    Examples
    --------
    >>> view(View.at(4096, (2, 3), "float32")).shape
    (2, 3)
    """
    interface = getattr(array, "__cuda_array_interface__", None)
    if interface is None:
        kind = f"{type(array).__module__}.{type(array).__qualname__}"
        raise TypeError(f"{kind} is not an array on a GPU: move it there first (cupy.asarray(x), tensor.cuda())")
    shape = tuple(int(extent) for extent in interface["shape"])
    dtype = np.dtype(interface["typestr"])
    strides = interface.get("strides")
    contiguous = _is_contiguous(shape, strides, dtype.itemsize)
    return View(
        pointer=int(interface["data"][0] or 0),
        shape=shape,
        dtype=dtype,
        nbytes=math.prod(shape) * dtype.itemsize,
        contiguous=contiguous,
        strides=None if contiguous else tuple(map(int, strides)),
    )


def _is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...] | None, itemsize: int) -> bool:
    if strides is None or 0 in shape:
        return True
    expected = itemsize
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1 and stride != expected:  # the stride of an axis with one element is never used
            return False
        expected *= extent
    return True


def is_window(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> bool:
    """Tell whether elements with such strides are cut out of a larger array in C order, along rows without gaps.

    Examples
    --------
    >>> is_window((2, 3), (32, 4), 4), is_window((2, 3), (32, 8), 4), is_window((2, 3), (4, 8), 4)
    (True, False, False)
    """
    if not shape or strides[-1] != itemsize or max(strides[-2:]) >= FARTHEST_ROW:
        return False
    within = itemsize * shape[-1]
    for extent, stride in zip(reversed(shape[:-1]), reversed(strides[:-1]), strict=True):
        if stride < within or stride % itemsize:
            return False
        within = stride * extent
    return True
