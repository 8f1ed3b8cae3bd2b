"""What an array is, wherever its elements are."""

import math
from typing import Any, NamedTuple

import numpy as np


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
