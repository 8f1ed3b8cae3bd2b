"""Weights of bounds: how many times the bound each point of an array is allowed, as an illumination says it."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64

from forebay.codec.bounded.format import NOTHING, Tiling
from forebay.errors import CodecError

if TYPE_CHECKING:
    from cuda.core import Stream

    from forebay.cuda.slab import DeviceSlab

MOST = 100
"""The largest exponent of a weight, and, negative, the smallest."""


class Weight:
    """The weights of a codec, and the exponents of the smallest in each tile of an array.

    Parameters
    ----------
    given
        An array, or the path of one in a ``.npy`` file, which is read when it is first needed; to decode it is not.
    """

    def __init__(self, given: Any) -> None:
        self._values: NDArray[Any] | None = None
        if isinstance(given, str | Path):
            self.name = str(given)
        else:
            self._values = values = np.ascontiguousarray(given)
            self.name = xxh3_64(values.tobytes()).hexdigest()
        if not self.name or set(self.name) & set(",="):
            raise CodecError(f"weight={self.name}: give the path of a .npy file, without commas or equals signs")
        self._exponents: dict[tuple[int, ...], NDArray[np.int8]] = {}
        self._on_device: dict[tuple[int, ...], DeviceSlab] = {}

    def exponents(self, shape: tuple[int, ...], planes: int, tiling: Tiling) -> NDArray[np.int8]:
        """Return the power of two below the smallest weight of each tile."""
        if shape not in self._exponents:
            values = self._read()
            try:
                whole = np.broadcast_to(values, (planes, *shape))
            except ValueError:
                raise CodecError(
                    f"a weight of {list(values.shape)} does not fit an array of {list(shape)}: encode without it those "
                    "that it is not for"
                ) from None
            self._exponents[shape] = _exponents(whole, tiling)
        return self._exponents[shape]

    def on_device(self, shape: tuple[int, ...], planes: int, tiling: Tiling, stream: "Stream") -> int:
        """Return the address of the exponents on the current GPU."""
        from forebay.cuda.copy import copy_async
        from forebay.cuda.driver import current_device
        from forebay.cuda.slab import DeviceSlab

        key = (current_device().device_id, *shape)
        if key not in self._on_device:
            exponents = self.exponents(shape, planes, tiling)
            slab = DeviceSlab(max(1, exponents.nbytes))
            copy_async(slab.pointer, exponents.ctypes.data, exponents.nbytes, stream)
            stream.record().sync()
            self._on_device[key] = slab
        return self._on_device[key].pointer

    def _read(self) -> NDArray[Any]:
        if self._values is None:
            if Path(self.name).exists() and not Path(self.name).is_file():  # to open a pipe is to wait for its writer
                raise CodecError(f"weight={self.name}: no array can be read there, for it is no file")
            try:
                self._values = np.asarray(np.load(self.name, mmap_mode="r", allow_pickle=False))
            except Exception as error:  # a file may be wrong in any way
                raise CodecError(f"weight={self.name}: no array can be read there ({error})") from error
        if self._values.dtype.kind not in "fiu" or not (self._values >= 0).all():
            raise CodecError(f"weight={self.name}: weights are numbers from zero on")
        return self._values


def _exponents(weights: NDArray[Any], tiling: Tiling) -> NDArray[np.int8]:
    if not weights.size:
        return np.zeros(0, np.int8)
    parts = []
    for stride in tiling.strides:
        least = weights.reshape(tiling.extents)[::stride, ::stride, ::stride]
        for axis, (extent, side) in enumerate(zip(least.shape, tiling.tile, strict=True)):
            least = np.minimum.reduceat(least, np.arange(0, extent, side), axis)
        parts.append(least.reshape(-1))
    smallest = np.minimum(np.concatenate(parts).astype(np.float64), 2.0**MOST)
    exponents = np.frexp(smallest)[1] - 1
    return np.where((smallest == 0) | (exponents < -MOST), NOTHING, exponents).astype(np.int8)
