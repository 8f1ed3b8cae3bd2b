"""What arrays of other types become before they are encoded: reals of 32 or 64 bits, complex ones part by part."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

BFLOAT16 = np.dtype([("bfloat16", "<u2")])
"""Stands for bfloat16 where ml_dtypes, whose type of that name is taken too, is not installed."""


@dataclass(frozen=True)
class Narrow:
    """A type of 16 bits, whose values are encoded as float32."""

    mantissa: int
    unit: float
    """the largest error of rounding to it, relative to the value"""
    tiny: float
    """the largest error of rounding to its subnormal numbers"""
    largest: int
    """the bits of its largest finite number"""


NARROW = {
    "float16": Narrow(mantissa=10, unit=2.0**-11, tiny=2.0**-25, largest=0x7BFF),
    "bfloat16": Narrow(mantissa=7, unit=2.0**-8, tiny=2.0**-134, largest=0x7F7F),
}


def known(dtype: np.dtype[Any]) -> bool:
    """Tell whether arrays of a type can be encoded."""
    return dtype in (np.float32, np.float64, np.complex64, np.complex128) or narrow(dtype) is not None


def narrow(dtype: np.dtype[Any]) -> Narrow | None:
    """Return what is to be known of a type of 16 bits; nothing of others."""
    return NARROW.get("bfloat16" if dtype == BFLOAT16 else dtype.name)


@cache
def as_reals(shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return the shape and the type that an array is encoded as.

    Examples
    --------
    >>> as_reals((5, 6), np.dtype("complex64"))
    ((2, 5, 6), dtype('float32'))
    """
    if dtype.kind == "c":
        return (2, *shape), np.dtype(f"f{dtype.itemsize // 2}")
    return shape, np.dtype("f4") if narrow(dtype) else dtype


def reals(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array as reals: itself, widened, or all real parts before all imaginary ones."""
    shape, dtype = as_reals(array.shape, array.dtype)
    if array.dtype.kind == "c":
        return np.stack((array.real, array.imag)).reshape(shape)
    kind = narrow(array.dtype)
    if kind is None:
        return array
    bits = array.view(np.uint16)
    if kind.mantissa == 7:
        return (bits.astype(np.uint32) << 16).view(dtype)
    wide = bits.view(np.float16).astype(dtype)
    odd = bits & 0x7C00 == 0x7C00  # processors make signalling NaN quiet
    wide.view(np.uint32)[odd] = (
        (bits[odd].astype(np.uint32) & 0x8000) << 16 | 0x7F800000 | (bits[odd].astype(np.uint32) & 0x3FF) << 13
    )
    return wide


def put_reals(values: NDArray[Any], out: NDArray[Any]) -> None:
    """Undo `reals`: round to the nearest number of 16 bits that is finite where the value is."""
    if out.dtype.kind == "c":
        out.real, out.imag = values
        return
    kind = narrow(out.dtype)
    assert kind is not None
    wide, bits = values.view(np.uint32), out.view(np.uint16)
    sign, finite = (wide >> 16 & 0x8000).astype(np.uint16), wide & 0x7F800000 != 0x7F800000
    if kind.mantissa == 7:
        near = (wide & 0x7FFFFFFF) + (0x7FFF + (wide >> 16 & 1)) >> 16
        kept = wide >> 16 & 0x7FFF
    else:
        with np.errstate(over="ignore"):
            near = np.abs(values).astype(np.float16).view(np.uint16)
        kept = wide >> 13 & 0x3FF | 0x7C00
    bits[...] = np.where(finite, np.minimum(near, kind.largest), kept) | sign
