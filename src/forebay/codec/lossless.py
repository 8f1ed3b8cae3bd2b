"""`lossless`: exact, by blosc2 on the CPU and by nvCOMP on the GPU.

The two libraries write different streams behind the same header, which says whose it is. The CPU reads both, that of a
GPU where nvCOMP is installed. A GPU reads its own.
"""

import math
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from forebay.codec.codec import Codec
from forebay.codec.nvcomp import library as nvcomp
from forebay.codec.nvcomp import sealed
from forebay.codec.nvcomp.library import ALGORITHMS, Kind, StreamLayout
from forebay.codec.nvcomp.seal import HEADER, Format, Seal, seal, unseal
from forebay.errors import CodecError, EncodingError, needs
from forebay.processors import processors

if TYPE_CHECKING:
    from cuda.core import Stream

    from forebay.cuda.arrays import View

PIECE = 2**24
"""Bytes that blosc2 compresses at a time; it takes at most 2 GiB."""

KINDS = {1: Kind.U8, 2: Kind.U16, 4: Kind.U32, 8: Kind.U64}


class Lossless(Codec):
    """Keeps every bit, in fewer of them where there is order in the bytes.

    On the CPU bytes of equal weight are gathered (shuffled) and compressed by LZ4 at its fastest; what does not shrink
    is stored. On the GPU it is Bitcomp without loss.

    Parameters
    ----------
    threads
        Of blosc2, half of the cores unless given. Encodings do not depend on it.

    Examples
    --------
    >>> Lossless().max_bytes((1024, 1024), np.dtype("float32"))
    4198496
    """

    name = "lossless"

    def __init__(self, *, threads: str | int | None = None) -> None:
        try:
            self._threads = max(1, processors() // 2) if threads is None else int(threads)
        except ValueError as error:
            raise CodecError(f"lossless:threads={threads}: give a number of threads") from error
        if self._threads < 1:
            raise CodecError(f"lossless:threads={threads}: give at least one thread")
        if threads is not None:
            self.name = f"lossless:threads={self._threads}"

    def handles(self, dtype: np.dtype[Any]) -> bool:
        """Take every type whose elements are bytes."""
        return not dtype.hasobject

    def max_bytes(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
        """Return the bytes of the array, and a thousandth more."""
        return sealed.most_bytes(math.prod(shape) * dtype.itemsize)

    def scratch_bytes(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
        """Return what decoding takes."""
        return sealed.scratch_bytes(math.prod(shape) * dtype.itemsize)

    def encode_host(self, array: NDArray[Any], out: NDArray[np.uint8]) -> int:
        """Compress piece by piece: a table of their sizes comes first."""
        blosc2 = _blosc2()
        data = _bytes_of(array)
        pieces = -(-data.nbytes // PIECE)
        sizes, end = np.zeros(pieces, np.uint64), HEADER + 8 * pieces
        for index in range(pieces):
            piece = data[index * PIECE : (index + 1) * PIECE]
            small = blosc2.compress2(
                piece,
                typesize=array.dtype.itemsize if array.dtype.itemsize < 256 else 1,
                clevel=1,
                codec=blosc2.Codec.LZ4,
                filters=[blosc2.Filter.SHUFFLE],
                filters_meta=[0],
                nthreads=self._threads,
            )
            kept = np.frombuffer(small, np.uint8) if len(small) < piece.nbytes else piece
            out[end : end + kept.nbytes] = kept
            sizes[index], end = kept.nbytes, end + kept.nbytes
        out[HEADER : HEADER + sizes.nbytes] = sizes.view(np.uint8)
        return seal(out, end - HEADER, Seal(Format.BLOSC2, data.nbytes))

    def decode_host(self, payload: NDArray[np.uint8], out: NDArray[Any]) -> None:
        """Decompress whichever stream it is."""
        about, stream = unseal(payload, out.nbytes)
        if about.format == Format.BLOSC2:
            self._decode_pieces(stream, _bytes_of(out))
        elif nvcomp.available():
            sealed.decode_host(_layout(out.dtype, out.nbytes), stream, out)
        else:
            raise CodecError(f"this encoding was made on a GPU: decode it there; elsewhere {nvcomp.NO_NVCOMP}")

    def encode_device(self, array: "View", out: "View", stream: "Stream") -> None:
        """Enqueue Bitcomp without loss."""
        sealed.encode_device(_layout(array.dtype, array.nbytes), array, out, 0.0, stream)

    def decode_device(self, payload: "View", out: "View", stream: "Stream") -> None:
        """Enqueue the decoding; the flag is raised for an encoding made on the CPU too."""
        sealed.decode_device(_layout(out.dtype, out.nbytes), payload, out, stream)

    def _decode_pieces(self, stream: NDArray[np.uint8], out: NDArray[np.uint8]) -> None:
        blosc2 = _blosc2()
        pieces = -(-out.nbytes // PIECE)
        table = stream[: 8 * pieces]
        sizes = [int(size) for size in table.view(np.uint64)] if table.nbytes == 8 * pieces else []
        if len(sizes) != pieces or 8 * pieces + sum(sizes) != stream.nbytes:
            raise EncodingError("the encoding is damaged: its pieces do not fill it")
        start = 8 * pieces
        for index, size in enumerate(sizes):
            kept = stream[start : start + size]
            piece = out[index * PIECE : (index + 1) * PIECE]
            if size == piece.nbytes:
                piece[:] = kept
            else:
                _decompress(blosc2, kept, piece, self._threads)
            start += size


def _decompress(blosc2: Any, kept: NDArray[np.uint8], piece: NDArray[np.uint8], threads: int) -> None:
    try:
        if blosc2.get_cbuffer_sizes(kept)[0] != piece.nbytes:
            raise ValueError("a piece has another size")
        blosc2.decompress2(kept, dst=piece, nthreads=threads)
    except (RuntimeError, ValueError) as error:
        raise EncodingError(f"the encoding is damaged: blosc2 cannot read it ({error})") from error


def _layout(dtype: np.dtype[Any], nbytes: int) -> StreamLayout:
    """Describe an array to nvCOMP: its numbers as unsigned integers, and anything else as bytes."""
    width = dtype.itemsize // 2 if dtype.kind == "c" else dtype.itemsize
    return StreamLayout(nbytes, KINDS.get(width, Kind.U8), ALGORITHMS["default"])


def _bytes_of(array: NDArray[Any]) -> NDArray[np.uint8]:
    return array.reshape(-1).view(np.uint8) if array.nbytes else np.empty(0, np.uint8)


def _blosc2() -> Any:
    try:
        return import_module("blosc2")
    except ImportError as error:
        raise CodecError(needs("lossless on a CPU", "blosc2", "codecs")) from error
