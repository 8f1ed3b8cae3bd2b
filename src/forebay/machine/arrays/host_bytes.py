"""What is done with the bytes of host arrays of any library: copied in, looked at as arrays, encoded and decoded."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.machine.arrays.dispatch import array_in, view_of
from forebay.machine.packing import Packing
from forebay.machine.spec import Extent, Leaf


def copy_in(data: NDArray[np.uint8], array: NDArray[Any]) -> None:
    """Copy an array into bytes; one with gaps is gathered on the way."""
    np.copyto(data[: array.nbytes].view(array.dtype).reshape(array.shape), array)


def copy_all_in(data: NDArray[np.uint8], leaves: Sequence[Leaf], arrays: Sequence[Any]) -> None:
    """Copy arrays of any library into their places."""
    for leaf, array in zip(leaves, arrays, strict=True):
        copy_in(data[leaf.offset : leaf.offset + leaf.nbytes], view_of(array))


def arrays_in(data: NDArray[np.uint8], leaves: Sequence[Leaf]) -> list[Any]:
    """List the arrays that lie in bytes, each of its library."""
    return [array_in(data[leaf.offset : leaf.offset + leaf.nbytes], leaf.spec) for leaf in leaves]


def views_in(data: NDArray[np.uint8], leaves: Sequence[Leaf]) -> list[NDArray[Any]]:
    """List the arrays that lie in bytes, as NumPy's."""
    return [array_in(data[leaf.offset : leaf.offset + leaf.nbytes], leaf.spec._replace(kind=None)) for leaf in leaves]


def encode(packing: Packing, staging: NDArray[np.uint8], arrays: Sequence[NDArray[Any]]) -> list[int]:
    """Encode arrays, each into its worst place, and return the sizes."""
    return [
        codec.encode_host(np.ascontiguousarray(array), staging[start : start + most])
        for codec, (start, most), array in zip(packing.codecs, packing.worst, arrays, strict=True)
    ]


def gather(packing: Packing, target: NDArray[np.uint8], staging: NDArray[np.uint8], extents: Sequence[Extent]) -> None:
    """Copy encodings from their worst places to those they get."""
    for (source, _), (start, size) in zip(packing.worst, extents, strict=True):
        target[start : start + size] = staging[source : source + size]


def decode(
    packing: Packing, data: NDArray[np.uint8], extents: Sequence[Extent], arrays: Sequence[NDArray[Any]]
) -> None:
    """Decode bytes into arrays."""
    for codec, (start, size), array in zip(packing.codecs, extents, arrays, strict=True):
        codec.decode_host(data[start : start + size], array)
