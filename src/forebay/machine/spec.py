"""What an array is, wherever its elements are."""

import math
from typing import Any, NamedTuple

import numpy as np

from forebay.errors import StateError


class ArraySpec(NamedTuple):
    """Shape and type of an array.

    Examples
    --------
    >>> spec = ArraySpec((2, 3), np.dtype("float32"))
    >>> spec.nbytes, str(spec)
    (24, 'float32[2, 3]')
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    kind: Any = None
    """the type as torch knows it, or a `JaxKind`, where the array is theirs"""
    strides: tuple[int, ...] | None = None
    """bytes from neighbour to neighbour along each axis, where dense elements are not in C order"""

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def all_strides(self) -> tuple[int, ...]:
        """The strides, those of C order too."""
        return c_strides(self.shape, self.dtype.itemsize) if self.strides is None else self.strides

    @property
    def stored(self) -> "ArraySpec":
        """The array with its axes turned into C order, as copies and codecs see it."""
        if self.strides is None:
            return self
        return ArraySpec(tuple(self.shape[axis] for axis in memory_order(self.strides)), self.dtype, self.kind)

    def __str__(self) -> str:
        if isinstance(self.kind, JaxKind):
            return f"{self.dtype}{list(self.shape)} on {self.kind.device}"
        kind = str(self.kind)
        return f"{kind.removeprefix('torch.') if kind.startswith('torch.') else self.dtype}{list(self.shape)}"


class JaxKind(NamedTuple):
    """What an array of JAX is beside its shape and type."""

    device: Any


class Leaf(NamedTuple):
    """One array of a state, and where it begins in a snapshot."""

    spec: ArraySpec
    offset: int
    nbytes: int
    """of its elements"""


def c_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Return the strides of C order.

    Examples
    --------
    >>> c_strides((2, 3, 5), 4)
    (60, 20, 4)
    """
    strides = [itemsize] * len(shape)
    for axis in range(len(shape) - 1, 0, -1):
        strides[axis - 1] = strides[axis] * max(1, shape[axis])
    return tuple(strides)


def memory_order(strides: tuple[int, ...]) -> tuple[int, ...]:
    """Return the axes from the slowest to the fastest.

    Examples
    --------
    >>> memory_order((4, 40, 8))
    (1, 2, 0)
    """
    return tuple(sorted(range(len(strides)), key=lambda axis: -strides[axis]))


def number_type(dtype: Any) -> np.dtype[Any]:
    """Return a type that GPUs know, or refuse it."""
    number: np.dtype[Any] = np.dtype(dtype)
    if number.kind not in "biufc" or number.char in "gG" or not number.isnative:
        raise StateError(f"an array of {number} cannot be on a GPU: give it a number type")
    return number
