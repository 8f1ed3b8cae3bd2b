"""`zfp:RATE` and `zfp:tol=E`: the streams of zfp, by zfpy on the CPU and by kernels of ours on a GPU."""

import math
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from forebay.codec.codec import Codec
from forebay.errors import CodecError, EncodingError, needs

if TYPE_CHECKING:
    from cuda.core import Stream

    from forebay.cuda.arrays import View

SOURCE = Path(__file__).with_name("zfp.cu")
THREADS = 64
"""in a thread block of the kernels; each takes one of zfp's blocks"""

SIDE = 4
"""values along each axis of a block"""
HEADERS = {np.dtype(np.float32): 1 + 8, np.dtype(np.float64): 1 + 11}
"""bits of a block before its values: whether there are any but zeros, and their exponent"""
SIZE = 8
"""bytes of the total size that an encoding of variable size begins with"""
MOST_RATE = 64
MOST_RATE_ON_GPU = 32


class Zfp(Codec):
    """Codes zfp's blocks, four values along each axis, either all in the same room or all to the same accuracy.

    At a fixed rate, ``zfp:8``, a block takes `rate` bits a value whatever it holds, so that the size is known before,
    but no error is promised. To a fixed accuracy, ``zfp:tol=1e-3``, each value comes back within `tol` as far as the
    precision of its type and of its block's largest value allows, and the size is known after.

    At a fixed rate the encoding is zfp's stream without its header, in whole words of 64 bits: what
    ``zfpy.compress_numpy(array, rate=rate, write_header=False)`` gives and ``zfpy._decompress`` takes. To a fixed
    accuracy the size of the encoding stands before it, as eight bytes. Arrays of more than three axes are folded into
    three: the last two stay. NaN and infinities cannot be encoded. Neither do float32 blocks whose largest magnitude is
    below 2^-98 survive zfp's own encoder on a CPU: what comes back is as small, but has nothing else in common.

    On a GPU the rate must be fixed, at most 32 and a multiple of 1/2, and the arrays float32 of three axes or more. The
    streams are the same, but for such tiny blocks, which keep their values. A block with NaN or infinities is encoded
    as zeros, and the flag of `forebay.codec.device` is raised. Damage to a stream of fixed rate cannot be noticed: all
    bytes are the stream of some array.

    Parameters
    ----------
    rate
        Bits a value; zfp rounds them to whole bits a block.
    tol
        The largest absolute error; zfp rounds it down to a power of two.

    Examples
    --------
    >>> Zfp(8).max_bytes((10, 100, 100), np.dtype(np.float32))
    120000
    """

    lossy = True
    most_ratio = 2**14  # a bit for a block of 4^4

    def __init__(self, rate: str | float | None = None, tol: str | float | None = None) -> None:
        if (rate is None) == (tol is None):
            raise CodecError("zfp takes either a rate in bits a value or a tolerance: zfp:8 or zfp:tol=1e-3")
        self.rate = None if rate is None else _number(rate, "rate", MOST_RATE)
        self.tol = None if tol is None else _number(tol, "tolerance", math.inf)
        self.fixed = self.rate is not None
        self.name = f"zfp:{_text(self.rate)}" if self.rate is not None else f"zfp:tol={_text(self.tol)}"

    def max_bytes(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
        """Return the room of all zfp blocks in whole words; to a fixed accuracy, where nothing is small."""
        bits = _blocks(shape) * self._block_bits(shape, dtype)
        return -(-bits // 64) * 8 + (0 if self.fixed else SIZE)

    def encode_host(self, array: NDArray[Any], out: NDArray[np.uint8]) -> int:
        """Have zfpy encode it."""
        nbytes = 0 if self.fixed else SIZE
        if array.size:
            # Either is NaN where any value is: no array of truth values is needed.
            if not (np.isfinite(array.min()) and np.isfinite(array.max())):
                raise CodecError(f"{self.name} does not encode NaN and infinities: use bounded, which keeps them")
            folded = array.reshape(_fold(array.shape))
            stream = _zfpy().compress_numpy(folded, **self._mode(array.shape, array.dtype), write_header=False)
            out[nbytes : nbytes + len(stream)] = np.frombuffer(stream, np.uint8)
            nbytes += len(stream)
        if not self.fixed:
            out[:SIZE] = np.frombuffer(nbytes.to_bytes(SIZE, "little"), np.uint8)
        return nbytes

    def decode_host(self, payload: NDArray[np.uint8], out: NDArray[Any]) -> None:
        """Have zfpy decode it."""
        stream = self._stream_of(payload, out)
        if not out.size:
            return
        zfpy = _zfpy()
        kind = zfpy.dtype_to_ztype(out.dtype)
        shape = _fold(out.shape)
        zfpy._decompress(stream, kind, shape, out=out.reshape(shape), **self._mode(out.shape, out.dtype))

    def handles_on_device(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
        """Take what our kernels do."""
        return dtype == np.float32 and len(shape) >= 3

    def encode_device(self, array: "View", out: "View", stream: "Stream") -> None:
        """Encode with our kernels."""
        self._check_gpu(array)
        _check_aligned(out)
        self._launch("zfp_encode", array, [array.pointer, out.pointer], stream)

    def decode_device(self, payload: "View", out: "View", stream: "Stream") -> None:
        """Decode with our kernels."""
        self._check_gpu(out)
        _check_aligned(payload)
        if payload.nbytes != self.max_bytes(out.shape, out.dtype):
            raise EncodingError(f"{payload.nbytes} bytes cannot be a {self.name} of a {out.dtype}{list(out.shape)}")
        self._launch("zfp_decode", out, [payload.pointer, out.pointer], stream)

    def _launch(self, kernel: str, array: "View", args: list[int], stream: "Stream") -> None:
        from forebay.codec.device import damage_flag
        from forebay.cuda.kernels import load

        if not (blocks := _blocks(array.shape)):
            return
        if kernel == "zfp_encode":
            args = [*args, damage_flag()]
        nz, ny, nx = _fold(array.shape)
        whole_rows = nx % SIDE == 0 and array.pointer % (SIDE * array.dtype.itemsize) == 0
        module = load(SOURCE, fmad=False, defines={"WORDS": self._block_bits(array.shape, array.dtype) // 32})
        module.launch(kernel, -(-blocks // THREADS), THREADS, [*args, nx, ny, nz, blocks, int(whole_rows)], stream)

    def _check_gpu(self, array: "View") -> None:
        if self.rate is None:
            raise CodecError(
                f"{self.name} works on a CPU only: on a GPU give zfp a rate, or use bounded:abs={self.tol}"
            )
        if self.rate > MOST_RATE_ON_GPU or 2 * self.rate % 1:
            raise CodecError(
                f"{self.name} works on a CPU only: on a GPU give a multiple of 1/2 up to {MOST_RATE_ON_GPU}"
            )
        if array.dtype != np.float32 or len(array.shape) < 3:
            what = f"{array.dtype}{list(array.shape)}"
            raise CodecError(f"on a GPU zfp encodes float32 of three axes or more, not {what}: use bounded")

    def _block_bits(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
        """Return the bits that a zfp block takes at most."""
        values = _block_values(shape)
        header = HEADERS[dtype]
        if self.rate is None:
            # Each value has one bit in each plane; each value but the last may need a question answered.
            return header + values * 8 * dtype.itemsize + values - 1
        bits = math.floor(values * self.rate + 0.5)
        if bits < header:
            raise CodecError(
                f"{self.name} leaves {bits} bits to a block of {values} values, of which the exponent alone takes "
                f"{header}: give a rate of at least {_text(header / values)}"
            )
        return bits

    def _mode(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> dict[str, float]:
        if self.tol is not None:
            return {"tolerance": self.tol}
        return {"rate": self._block_bits(shape, dtype) / _block_values(shape)}

    def _stream_of(self, payload: NDArray[np.uint8], out: NDArray[Any]) -> NDArray[np.uint8]:
        """Take zfp's stream out of an encoding, so that zfpy, which trusts it, reads nothing beyond."""
        most = self.max_bytes(out.shape, out.dtype)
        if self.fixed:
            if payload.nbytes != most:
                raise EncodingError(f"{payload.nbytes} bytes cannot be a {self.name} of a {out.dtype}{list(out.shape)}")
            return payload if payload.ctypes.data % 8 == 0 else payload.copy()
        size = int.from_bytes(payload[:SIZE].tobytes(), "little")
        if not SIZE <= size == payload.nbytes <= most:
            raise EncodingError(f"{payload.nbytes} bytes cannot be a {self.name}: it says that it has {size}")
        stream = np.zeros(most - SIZE, np.uint8)  # pages that are never touched take no memory
        stream[: size - SIZE] = payload[SIZE:]
        return stream


def _fold(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the axes that zfp sees."""
    return (math.prod(shape[:-2]), *shape[-2:]) if len(shape) > 3 else shape or (1,)


def _block_values(shape: tuple[int, ...]) -> int:
    return math.prod([SIDE] * len(_fold(shape)))


def _blocks(shape: tuple[int, ...]) -> int:
    return math.prod(-(-extent // SIDE) for extent in _fold(shape))


def _check_aligned(payload: "View") -> None:
    if payload.pointer % 8:
        raise CodecError("zfp's words have eight bytes: give room that begins at a multiple of that")


def _number(value: str | float, what: str, most: float) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not 0 < number <= most or math.isinf(number):
        raise CodecError(
            f"{value!r} cannot be zfp's {what}: give a number above 0" + f" up to {most:g}" * (most < math.inf)
        )
    return number


def _text(number: float | None) -> str:
    return repr(number).removesuffix(".0")


def _zfpy() -> Any:
    try:
        return import_module("zfpy")
    except ImportError as error:
        raise CodecError(needs("zfp on a CPU", "zfpy", "codecs")) from error
