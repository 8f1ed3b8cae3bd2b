"""`raw`: the bytes as they are."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from forebay.codec.codec import Codec
from forebay.errors import EncodingError

if TYPE_CHECKING:
    from cuda.core import Stream

    from forebay.cuda.arrays import View


class Raw(Codec):
    """Copies. It encodes what other codecs cannot, such as arrays of integers."""

    name = "raw"
    fixed = True

    def handles(self, dtype: np.dtype[Any]) -> bool:
        """Take every type whose elements are bytes."""
        return not dtype.hasobject

    def max_bytes(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
        """Return the bytes of the array."""
        return math.prod(shape) * dtype.itemsize

    def encode_host(self, array: NDArray[Any], out: NDArray[np.uint8]) -> int:
        """Copy."""
        out[: array.nbytes] = _bytes_of(array)
        return array.nbytes

    def decode_host(self, payload: NDArray[np.uint8], out: NDArray[Any]) -> None:
        """Copy back."""
        if payload.nbytes != out.nbytes:
            raise EncodingError(f"{payload.nbytes} bytes cannot be the {out.nbytes} of the array")
        _bytes_of(out)[:] = payload

    def encode_device(self, array: "View", out: "View", stream: "Stream") -> None:
        """Copy on the device."""
        from forebay.cuda.copy import copy_async

        copy_async(out.pointer, array.pointer, array.nbytes, stream)

    def decode_device(self, payload: "View", out: "View", stream: "Stream") -> None:
        """Copy back on the device."""
        from forebay.cuda.copy import copy_async

        copy_async(out.pointer, payload.pointer, out.nbytes, stream)


def _bytes_of(array: NDArray[Any]) -> NDArray[np.uint8]:
    return array.reshape(-1).view(np.uint8)
