"""What every codec is: encode an array into room that is given, decode it again, and say how much room that takes.

Where the array lies decides where the work is done: NumPy arrays on the CPU, arrays with `__cuda_array_interface__` on
the GPU, in the order of the stream that is given and without waiting for it. The encodings are the same.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from forebay.codec import container, registry
from forebay.errors import CodecError, EncodingError, ForebayError

if TYPE_CHECKING:
    from cuda.core import Stream

    from forebay.cuda.arrays import View


@dataclass(frozen=True, eq=False)
class Correlation:
    """What is made of an encoded array x: factor x y is added to one sum, and factor x x to another."""

    other: "View"
    """y, perhaps a window"""
    products: "View"
    squares: "View"
    factor: float
    slots: int
    """the address of a number for each tile: where among `kept` its values are written too, or -1"""
    kept: int
    """the address of room for the tiles that have a slot"""


@dataclass(frozen=True, eq=False)
class Encoded:
    """An array, encoded."""

    codec: "Codec"
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    payload: Any
    """bytes on the host (NumPy) or on the device (a `View`), of which the first `nbytes` count"""
    size: Callable[[], int]
    """gives the bytes of the encoding; on a GPU it waits for the event at which they are known"""
    owner: Any = None
    """what keeps the payload alive, where that is not the caller"""

    @property
    def nbytes(self) -> int:
        """Bytes of the encoding; on a GPU known once the encoder has run."""
        return self.size()

    @property
    def ratio(self) -> float:
        """How many times smaller than the array it is."""
        return math.prod(self.shape) * self.dtype.itemsize / max(1, self.nbytes)

    def to_bytes(self) -> bytes:
        """Write the encoding down, to be read by any later version: codec, shape, checksum and canonical payload."""
        payload = self.codec.canonical(self._on_host(), self.shape, self.dtype).tobytes()
        about = {
            "codec": self.codec.name,
            "version": self.codec.version,
            "shape": self.shape,
            "dtype": _written(self.dtype),
        }
        return container.pack(about, payload)

    @classmethod
    def from_bytes(cls, data: bytes) -> "Encoded":
        """Read an encoding that `to_bytes` wrote, refusing a damaged one.

        Examples
        --------
        >>> encoded = get("cast:bfloat16").encode(np.ones((2, 3), np.float32))
        >>> again = Encoded.from_bytes(encoded.to_bytes())
        >>> again.codec.decode(again).tolist()
        [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
        """
        about, body = container.unpack(data)
        try:
            codec, shape, dtype = get(about["codec"]), _shape(about["shape"]), _dtype(about["dtype"])
            is_newer = codec.version < about["version"]
        except ForebayError:
            raise
        except (KeyError, ValueError, TypeError, SyntaxError, OverflowError, RecursionError) as error:
            raise EncodingError(
                f"the encoding is damaged: what it says of its array makes no sense ({error})"
            ) from error
        if is_newer:
            raise EncodingError(f"{codec.name} of version {about['version']}: read it with a newer Forebay")
        codec.check(dtype)
        payload = np.frombuffer(body, np.uint8)
        _check_size(codec, shape, dtype, payload.nbytes)
        return cls(codec, shape, dtype, payload, lambda: payload.nbytes)

    def _on_host(self) -> NDArray[np.uint8]:
        if isinstance(self.payload, np.ndarray):
            return self.payload[: self.nbytes]
        from forebay.codec import device  # it needs cuda.core

        return device.download(self.payload, self.nbytes)


class Codec(ABC):
    """Makes an array smaller and whole again.

    A codec implements `max_bytes`, `encode_host` and `decode_host`; one that works on a GPU too, `encode_device` and
    `decode_device`. An encoding whose size depends on the data begins with that size, as eight bytes.
    """

    name: str
    """finds the same codec again with `get`"""
    version: int = 1
    """of its encodings; a codec reads all its earlier versions"""
    lossy: bool = False
    fixed: bool = False
    """whether every encoding of an array has `max_bytes`"""
    most_ratio: int = 2**20
    """how many times larger than its encoding an array is at most: what says otherwise is damaged"""

    def handles(self, dtype: np.dtype[Any]) -> bool:
        """Tell whether arrays of this type can be encoded."""
        return dtype in (np.float32, np.float64)

    def handles_on_device(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
        """Tell whether such arrays can be encoded on a GPU."""
        return self.handles(dtype)

    def reads_windows(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
        """Tell whether such arrays are read on a GPU where they lie in larger ones; see `forebay.cuda.arrays`."""
        return False

    def multiplies(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
        """Tell whether encodings of such arrays can be multiplied on a GPU without being decoded to memory."""
        return False

    @abstractmethod
    def max_bytes(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
        """Return the bytes that the encoding of such an array takes at most."""

    def scratch_bytes(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
        """Return the bytes of the device that the codec takes for itself, beside `out`, for arrays like this one."""
        return 0

    @abstractmethod
    def encode_host(self, array: NDArray[Any], out: NDArray[np.uint8]) -> int:
        """Encode a contiguous array into `out`, which has `max_bytes`, and return the bytes written."""

    @abstractmethod
    def decode_host(self, payload: NDArray[np.uint8], out: NDArray[Any]) -> None:
        """Decode into a contiguous array, raising `EncodingError` for bytes that are no encoding of one like it."""

    def encode_device(self, array: "View", out: "View", stream: "Stream") -> None:
        """Enqueue the encoding of an array into `out`; it is contiguous, or a window that `reads_windows` allows."""
        raise CodecError(f"{self.name} does not work on a GPU: use another codec, or none")

    def decode_device(self, payload: "View", out: "View", stream: "Stream") -> None:
        """Enqueue the decoding; bytes that are no encoding raise the flag of `forebay.codec.device`."""
        raise CodecError(f"{self.name} does not work on a GPU: use another codec, or none")

    def kept_tiles(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], places: NDArray[np.int64]
    ) -> tuple[NDArray[np.int32], NDArray[np.uint32], int]:
        """Return the `slots` of tiles that hold places, where each is among `kept`, and how many values that holds.

        Places are indices, a row for each axis; those outside of the array have a place without meaning.
        """
        raise CodecError(f"{self.name} does not multiply what it has encoded: decode it")

    def multiply_device(self, payload: "View", correlation: "Correlation", stream: "Stream") -> None:
        """Enqueue what `Correlation` says of the array that an encoding is of."""
        raise CodecError(f"{self.name} does not multiply what it has encoded: decode it")

    def canonical(self, payload: NDArray[np.uint8], shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[np.uint8]:
        """Return the encoding in the one order that every machine agrees on."""
        return payload

    def encode(self, array: Any, out: Any = None, stream: "Stream | None" = None) -> Encoded:
        """Encode an array.

        Parameters
        ----------
        array
            Contiguous, of NumPy, or of a GPU library; on a GPU, what `reads_windows` allows may be cut out of another.
        out
            Room for `max_bytes`, where the array is: bytes of NumPy, or a GPU array. Allocated where it is not given.
        stream
            On a GPU, the stream whose order is kept; the caller's current one where none is given.
        """
        if not isinstance(array, np.ndarray):
            return self._encode_on_device(array, out, stream)
        shape, dtype = array.shape, array.dtype
        self.check(dtype)
        most = self.max_bytes(shape, dtype)
        out = np.empty(most, np.uint8) if out is None else out
        check_room(out.nbytes, most)
        nbytes = self.encode_host(np.ascontiguousarray(array), out)
        return Encoded(self, shape, dtype, out, lambda: nbytes)

    def decode(self, encoded: Encoded, out: Any = None, stream: "Stream | None" = None) -> Any:
        """Decode an encoding where it lies, into `out` or a new array."""
        if encoded.codec.name != self.name:
            raise CodecError(f"this is an encoding of {encoded.codec.name}, not of {self.name}: use encoded.codec")
        if not isinstance(encoded.payload, np.ndarray):
            return self._decode_on_device(encoded, out, stream)
        out = np.empty(encoded.shape, encoded.dtype) if out is None else out
        whole = out.flags.c_contiguous and out.flags.writeable
        if (out.shape, out.dtype) != (encoded.shape, encoded.dtype) or not whole:
            wanted = f"{encoded.dtype}{list(encoded.shape)}"
            raise CodecError(f"the encoding is of a {wanted}: give such an array, contiguous and writable")
        self.decode_host(encoded.payload[: encoded.nbytes], out)
        return out

    def check(self, dtype: np.dtype[Any]) -> None:
        """Refuse arrays of a type that cannot be encoded."""
        if not self.handles(dtype):
            raise CodecError(f"{self.name} does not encode arrays of {dtype}")

    def __repr__(self) -> str:
        return f"forebay.codec.get({self.name!r})"

    def _encode_on_device(self, array: Any, out: Any, stream: "Stream | None") -> Encoded:
        from forebay.codec import device

        source = device.readable(array, self.reads_windows)
        self.check(source.dtype)
        most = self.max_bytes(source.shape, source.dtype)
        with device.beside(source):
            stream = stream or device.callers_stream()
            room, owner = device.room(most, out)
            check_room(room.nbytes, most)
            self.encode_device(source, room, stream)
            size = (lambda: most) if self.fixed else device.posted(room, stream)
        return Encoded(self, source.shape, source.dtype, room, size, owner)

    def _decode_on_device(self, encoded: Encoded, out: Any, stream: "Stream | None") -> Any:
        from forebay.codec import device

        with device.beside(encoded.payload):
            stream = stream or device.callers_stream()
            out, target = device.target(encoded.shape, encoded.dtype, out)
            self.decode_device(device.start(encoded.payload, encoded.nbytes), target, stream)
        return out


def _written(dtype: np.dtype[Any]) -> Any:
    if dtype.name == "bfloat16":  # what ml_dtypes adds to NumPy has no other name than that of two bytes
        return [("bfloat16", "<u2")]
    return dtype.str if dtype.fields is None else dtype.descr


def _shape(written: Any) -> tuple[int, ...]:
    if not isinstance(written, list) or not all(type(extent) is int and 0 <= extent < 2**62 for extent in written):
        raise EncodingError(f"the encoding is damaged: an array cannot have the shape {written!r:.80}")
    if len(written) > 32:
        raise EncodingError(f"the encoding is damaged: an array of {len(written)} axes")
    return tuple(written)


def _check_size(codec: "Codec", shape: tuple[int, ...], dtype: np.dtype[Any], nbytes: int) -> None:
    """Refuse an array that no such payload can be of, before it takes memory."""
    if math.prod(max(extent, 1) for extent in shape) * max(dtype.itemsize, 1) >= 2**63:  # even of none of them
        raise EncodingError(f"the encoding is damaged: an array cannot have the shape {list(shape)}")
    whole = math.prod(shape) * dtype.itemsize
    if whole > codec.most_ratio * nbytes:
        raise EncodingError(f"the encoding is damaged: {nbytes} bytes of {codec.name} cannot hold an array of {whole}")
    if codec.fixed and codec.max_bytes(shape, dtype) != nbytes:
        raise EncodingError(
            f"the encoding is damaged: its array takes {codec.max_bytes(shape, dtype)} bytes, not {nbytes}"
        )


def _dtype(written: Any) -> np.dtype[Any]:
    return np.dtype(written if isinstance(written, str) else [tuple(field) for field in written])


def check_room(nbytes: int, needed: int) -> None:
    """Refuse room that an encoding might not fit into."""
    if nbytes < needed:
        raise CodecError(f"the room has {nbytes} bytes, but the encoding may take {needed}: give max_bytes()")


def get(name: str) -> Codec:
    """Find a codec by its name and parameters.

    Examples
    --------
    >>> get("cast:bfloat16").name
    'cast:bfloat16'
    """
    codec: Codec = registry.make(name)
    return codec


def canonical(name: str) -> str:
    """Return the one spelling of a codec's name; a name that nobody knows is left as it is."""
    try:
        return get(name).name
    except CodecError:
        return name
