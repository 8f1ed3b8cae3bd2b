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
    """the type as torch knows it, where the array is torch's"""

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        return math.prod(self.shape) * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.dtype if self.kind is None else str(self.kind).removeprefix('torch.')}{list(self.shape)}"


class Leaf(NamedTuple):
    """One array of a state, and where it begins in a snapshot."""

    spec: ArraySpec
    offset: int
    nbytes: int
    """of its elements"""


class Extent(NamedTuple):
    """Where the encoding of one array lies in a region."""

    offset: int
    nbytes: int


def number_type(dtype: Any) -> np.dtype[Any]:
    """Return a type that GPUs know, or refuse it."""
    number: np.dtype[Any] = np.dtype(dtype)
    if number.kind not in "biufc" or number.char in "gG" or not number.isnative:
        raise StateError(f"an array of {number} cannot be on a GPU: give it a number type")
    return number
