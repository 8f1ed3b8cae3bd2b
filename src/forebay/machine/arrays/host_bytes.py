"""What is done with the bytes of host arrays of any library: copied, looked at as arrays, encoded and decoded."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.machine.arrays.dispatch import array_in
from forebay.machine.machine import Coded, Pair
from forebay.machine.region import Region
from forebay.machine.spec import ArraySpec, Leaf


def copy_in(data: NDArray[np.uint8], array: NDArray[Any]) -> None:
    """Copy an array into bytes; one with gaps is gathered on the way."""
    np.copyto(data[: array.nbytes].view(array.dtype).reshape(array.shape), array)


def copy(pairs: Sequence[Pair]) -> None:
    """Copy regions, or arrays of the host, into regions."""
    for target, source in pairs:
        copy_in(target.bytes, source.bytes)


def arrays_in(region: Region, leaves: Sequence[Leaf]) -> list[Any]:
    """List the arrays that lie in a region, each of its library."""
    return [array_in(region.cut(leaf.offset, leaf.nbytes).bytes, leaf.spec) for leaf in leaves]


def encode(coded: Sequence[Coded]) -> list[int]:
    """Encode arrays, and return the sizes."""
    return [each.codec.encode_host(_values(each.array, each.spec), each.encoding.bytes) for each in coded]


def decode(coded: Sequence[Coded]) -> None:
    """Decode into arrays."""
    for each in coded:
        each.codec.decode_host(each.encoding.bytes, _values(each.array, each.spec))


def _values(region: Region, spec: ArraySpec) -> NDArray[Any]:
    """Return what lies in a region as an array of NumPy; one with gaps is gathered."""
    return region.bytes.reshape(-1).view(spec.dtype).reshape(spec.shape)
