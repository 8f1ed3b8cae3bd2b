"""`cast:float16` and `cast:bfloat16`: half as many bytes or fewer, at a stated relative error.

An array is scaled by a power of two so that its largest finite value fits, where the smaller type would not hold it:
always but for float32 as bfloat16, whose exponents are alike. Sixteen bytes of header hold that largest value.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from forebay.codec.codec import Codec
from forebay.errors import CodecError, EncodingError

if TYPE_CHECKING:
    from cuda.core import Stream

    from forebay.cuda.arrays import View

HEADER = 16
SOURCE = Path(__file__).with_name("cast.cu")
THREADS = 256
MOST_THREAD_BLOCKS = 4096


@dataclass(frozen=True)
class Half:
    """A floating-point type of 16 bits."""

    mantissa: int
    bias: int


HALVES = {"float16": Half(mantissa=10, bias=15), "bfloat16": Half(mantissa=7, bias=127)}


class Cast(Codec):
    """Keeps each value as a 16-bit float.

    With u = 2^-11 for float16 and 2^-8 for bfloat16, a finite value x comes back within u |x| + t. NaN and infinities
    stay. Of the largest finite magnitude in the array, t is 2^-38 for float16 and 2^-259 for float64 as bfloat16; for
    float32 as bfloat16 it is 2^-133.

    Examples
    --------
    >>> codec = Cast("float16")
    >>> encoded = codec.encode(np.array([1e30, 1e28, np.inf], np.float32))
    >>> codec.decode(encoded).tolist()[2], encoded.nbytes
    (inf, 22)
    """

    lossy = True
    fixed = True

    def __init__(self, to: str) -> None:
        if to not in HALVES:
            raise CodecError(f"cast:{to}: cast to one of {', '.join(HALVES)}")
        self.name = f"cast:{to}"
        self._half = HALVES[to]

    def max_bytes(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
        """Return two bytes a value, and the header."""
        return HEADER + 2 * math.prod(shape)

    def encode_host(self, array: NDArray[Any], out: NDArray[np.uint8]) -> int:
        """Find the largest value, then round all."""
        from forebay.codec import cast_cpu  # it needs Numba
        from forebay.codec.compiled import read_only

        nbytes = self.max_bytes(array.shape, array.dtype)
        values = read_only(array.reshape(-1))
        largest = cast_cpu.largest(values) if self._scales(array.dtype) else 0.0
        out[:HEADER].view(np.float64)[:] = largest, 0.0
        half = self._half
        words = out[HEADER:nbytes].view(np.uint16)
        cast_cpu.encode(values, words, *self._factors(largest), half.mantissa, half.bias)
        return nbytes

    def decode_host(self, payload: NDArray[np.uint8], out: NDArray[Any]) -> None:
        """Widen all, and scale back."""
        from forebay.codec import cast_cpu
        from forebay.codec.compiled import read_only

        if payload.nbytes != self.max_bytes(out.shape, out.dtype):
            raise EncodingError(f"{payload.nbytes} bytes cannot be a {self.name} of a {out.dtype}{list(out.shape)}")
        largest = float(payload[:8].copy().view(np.float64)[0])
        first, second = self._factors(largest)
        body = payload[HEADER:]
        words = read_only((body if body.ctypes.data % 2 == 0 else body.copy()).view(np.uint16))
        most = float(np.finfo(out.dtype).max)
        cast_cpu.decode(words, out.reshape(-1), 1 / first, 1 / second, most, self._half.mantissa, self._half.bias)

    def encode_device(self, array: "View", out: "View", stream: "Stream") -> None:
        """Do the same on the device, where the largest value stays."""
        count = math.prod(array.shape)
        module = self._module(array.dtype)
        module.launch("clear", 1, 1, [out.pointer], stream)
        if self._scales(array.dtype) and count:
            module.launch("largest", _thread_blocks(count), THREADS, [array.pointer, count, out.pointer], stream)
        if count:
            module.launch("encode", _thread_blocks(count), THREADS, [array.pointer, count, out.pointer], stream)

    def decode_device(self, payload: "View", out: "View", stream: "Stream") -> None:
        """Do the same on the device."""
        from forebay.codec.device import damage_flag

        if payload.nbytes != self.max_bytes(out.shape, out.dtype):
            raise EncodingError(f"{payload.nbytes} bytes cannot be a {self.name} of a {out.dtype}{list(out.shape)}")
        count = math.prod(out.shape)
        if count:
            args = [payload.pointer, count, out.pointer, damage_flag()]
            self._module(out.dtype).launch("decode", _thread_blocks(count), THREADS, args, stream)

    def _scales(self, dtype: np.dtype[Any]) -> bool:
        return not (dtype == np.float32 and self._half.bias == 127)

    def _factors(self, largest: float) -> tuple[float, float]:
        """Return two powers of two whose product brings the largest value just below the type's; one could overflow."""
        if not math.isfinite(largest) or largest < 0:
            raise EncodingError("the encoding is damaged: its largest value is none")
        if largest == 0:
            return 1.0, 1.0
        shift = self._half.bias - math.frexp(largest)[1]
        return math.ldexp(1.0, shift // 2), math.ldexp(1.0, shift - shift // 2)

    def _module(self, dtype: np.dtype[Any]) -> Any:
        from forebay.cuda.kernels import load

        half = self._half
        real = "float" if dtype == np.float32 else "double"
        return load(SOURCE, fmad=False, defines={"REAL": real, "MANTISSA": half.mantissa, "BIAS": half.bias})


def _thread_blocks(count: int) -> int:
    return min(MOST_THREAD_BLOCKS, -(-count // THREADS))
