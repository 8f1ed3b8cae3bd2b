"""`bitcomp`: NVIDIA's closed error-bounded compressor, through nvCOMP.

It rounds to multiples of a delta that is a power of two, so the bound that holds is between half of the one asked for
and all of it; it is written into the encoding. NaN, infinities, and values too far from zero for its integers are kept
exactly.
"""

import math
import struct
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from forebay.codec.codec import Codec, Encoded
from forebay.codec.nvcomp import library, sealed
from forebay.codec.nvcomp.library import ALGORITHMS, Kind, StreamLayout
from forebay.codec.nvcomp.seal import HEADER
from forebay.errors import CodecError, EncodingError

if TYPE_CHECKING:
    from cuda.core import Stream

    from forebay.cuda.arrays import View
    from forebay.cuda.slab import DeviceSlab

SOURCE = Path(__file__).with_name("spread.cu")
THREADS = 256
MOST_THREAD_BLOCKS = 1024
PART = 40
"""Bytes that a thread block leaves of its share of an array."""

EXPONENTS = {Kind.F32: (-126, 104), Kind.F64: (-1022, 971)}
"""Of the smallest and largest delta: normal, and no coarser than the type itself is at its largest value, which rounded
further would be infinite."""


class Bitcomp(Codec):
    """Keeps values within a bound, by nvCOMP's Bitcomp.

    On the CPU it is slow, but reads what a GPU has written.

    Parameters
    ----------
    bound
        The same as ``abs``.
    algo
        ``sparse``, or nvCOMP's ``default``, which is slower, and makes somewhat smaller encodings at small bounds.
    **asked
        One of ``abs``, the largest error; ``rel``, the same relative to the array's range; ``sigma``, relative to its
        standard deviation. The last two are taken over finite values, and make the host wait: the library wants the
        delta as a number of the host.

    Examples
    --------
    >>> from forebay.codec import get
    >>> get("bitcomp:1e-8").name
    'bitcomp:abs=1e-08,algo=sparse'
    """

    lossy = True

    def __init__(self, bound: str | float | None = None, *, algo: str = "sparse", **asked: str | float) -> None:
        bounds = [*([] if bound is None else [("abs", bound)]), *asked.items()]
        if len(bounds) != 1 or bounds[0][0] not in ("abs", "rel", "sigma"):
            raise CodecError("bitcomp takes one bound: abs=1e-3, rel=1e-4 or sigma=0.01")
        if algo not in ALGORITHMS:
            raise CodecError(f"bitcomp:algo={algo}: there are {' and '.join(ALGORITHMS)}")
        self._relative_to, value = bounds[0]
        try:
            self._bound = float(value)
        except ValueError as error:
            raise CodecError(f"bitcomp:{self._relative_to}={value}: give a number") from error
        if not 0 < self._bound < math.inf:
            raise CodecError(f"bitcomp:{self._relative_to}={value}: a bound must be above zero, and finite")
        self._algorithm = ALGORITHMS[algo]
        self.name = f"bitcomp:{self._relative_to}={self._bound!r},algo={algo}"

    def max_bytes(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
        """Return the bytes of the array, and a thousandth more."""
        return sealed.most_bytes(math.prod(shape) * dtype.itemsize)

    def scratch_bytes(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
        """Return what decoding takes, and the search for the range or the deviation."""
        parts = 0 if self._relative_to == "abs" else 8 + PART * MOST_THREAD_BLOCKS
        return parts + sealed.scratch_bytes(math.prod(shape) * dtype.itemsize)

    def encode_host(self, array: NDArray[Any], out: NDArray[np.uint8]) -> int:
        """Encode by the library's calls for the host."""
        layout = self._layout(array.dtype, array.nbytes)
        scale = 1.0
        if self._relative_to != "abs" and array.size:
            from forebay.codec.nvcomp.cpu import spread  # it needs Numba

            scale = float(spread(array.reshape(-1), self._relative_to == "sigma"))
        return sealed.encode_host(layout, array, out, self._delta(layout, scale))

    def decode_host(self, payload: NDArray[np.uint8], out: NDArray[Any]) -> None:
        """Decode by the library's calls for the host."""
        library.library()
        stream = sealed.open_host(payload, out.nbytes)
        sealed.decode_host(self._layout(out.dtype, out.nbytes), stream, out)

    def encode_device(self, array: "View", out: "View", stream: "Stream") -> None:
        """Enqueue the encoding, after waiting for the array's scale where the bound is relative."""
        layout = self._layout(array.dtype, array.nbytes)
        scale = 1.0
        if self._relative_to != "abs" and array.nbytes:
            scale = _spread_device(array, self._relative_to == "sigma", stream)
        sealed.encode_device(layout, array, out, self._delta(layout, scale), stream)

    def decode_device(self, payload: "View", out: "View", stream: "Stream") -> None:
        """Enqueue the checking and decoding."""
        sealed.decode_device(self._layout(out.dtype, out.nbytes), payload, out, stream)

    def _layout(self, dtype: np.dtype[Any], nbytes: int) -> StreamLayout:
        return StreamLayout(nbytes, Kind.F32 if dtype == np.float32 else Kind.F64, self._algorithm)

    def _delta(self, layout: StreamLayout, scale: float) -> float:
        """Return the largest power of two that is no more than twice the bound."""
        least, most = EXPONENTS[layout.kind]
        if not math.isfinite(scale):
            raise CodecError(f"{self.name}: the values lie too far apart for a relative bound: give abs=")
        if scale == 0:  # the values are all alike
            return math.ldexp(1.0, least)
        exponent = math.frexp(self._bound * scale)[1]  # 2 * bound = fraction * 2^(exponent + 1), fraction >= 1/2
        if exponent < least or self._bound * scale == 0:
            raise CodecError(f"{self.name}: a bound of {self._bound * scale:.3g} is below its numbers: use lossless")
        return math.ldexp(1.0, min(exponent, most))


def bound_of(encoded: Encoded) -> float:
    """Return the largest error that an encoding by `bitcomp` allows; waits for it on a GPU."""
    payload = encoded.payload
    if not isinstance(payload, np.ndarray):
        from forebay.codec.device import download

        payload = download(payload, min(HEADER, encoded.nbytes))
    if payload.nbytes < HEADER:
        raise EncodingError("the encoding is cut short")
    return float(struct.unpack("<d", payload[40:48].tobytes())[0])


class _Parts(threading.local):
    """Room for the parts of a reduction, one a device; a thread waits for one reduction before it starts the next."""

    def __init__(self) -> None:
        self.on: dict[int, DeviceSlab] = {}


_parts = _Parts()


def _spread_device(array: "View", deviation: bool, stream: "Stream") -> float:
    from forebay.cuda.driver import current_device
    from forebay.cuda.kernels import load
    from forebay.cuda.mailbox import post
    from forebay.cuda.slab import DeviceSlab

    device = current_device().device_id
    if device not in _parts.on:
        _parts.on[device] = DeviceSlab(8 + PART * MOST_THREAD_BLOCKS)
    result = _parts.on[device].pointer
    count = math.prod(array.shape)
    thread_blocks = min(MOST_THREAD_BLOCKS, -(-count // THREADS))
    module = load(SOURCE, fmad=False, defines={"REAL": "float" if array.dtype == np.float32 else "double"})
    module.launch("gather", thread_blocks, THREADS, [array.pointer, count, result + 8], stream)
    module.launch("scale", 1, THREADS, [result + 8, thread_blocks, int(deviation), result], stream)
    return float(struct.unpack("<d", struct.pack("<Q", post(result, stream).value()))[0])
