"""How well an array was kept, and how small: largest error, PSNR, SSIM and ratio.

The first array is the original, the second what came back; NumPy's are compared on the CPU, those of a GPU library
there. NaN in both, and equal infinities, count as equal.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from forebay.codec.quality.comparison import Compared
from forebay.errors import CodecError

if TYPE_CHECKING:
    from cuda.core import Stream


@dataclass(frozen=True)
class Quality:
    """What an encoding costs and what it is worth."""

    max_error: float
    psnr: float
    """decibels, over the range of the original"""
    ssim: float
    ratio: float
    """how many times smaller"""


def max_error(a: Any, b: Any) -> float:
    """Return the largest absolute error.

    Examples
    --------
    >>> max_error(np.array([1.0, np.nan]), np.array([1.5, np.nan]))
    0.5
    """
    return compare(a, b).worst


def psnr(a: Any, b: Any) -> float:
    """Return the peak signal-to-noise ratio in decibels, the peak being the range of the original.

    Examples
    --------
    >>> round(psnr(np.array([0.0, 10.0]), np.array([0.1, 9.9])), 6)
    40.0
    """
    return compare(a, b).psnr


def ssim(a: Any, b: Any, window: int = 7, span: float | None = None) -> float:
    """Return the mean structural similarity of one-, two- or three-dimensional arrays.

    As Wang, Bovik, Sheikh and Simoncelli define it (IEEE Trans. Image Process. 13, 2004), with a uniform window, sample
    covariances, K1 = 0.01 and K2 = 0.03, over the windows that lie inside and the range of the original: what
    scikit-image computes by default. NaN where a value is not finite in one array alone, or where a range on a GPU is
    beyond 1e-70 or 1e70.

    Parameters
    ----------
    a, b
        The original, and what came back.
    window
        Elements along each axis, odd; axes of one element have one.
    span
        The range that differences are seen against, where the arrays are a part of something larger; that of the
        original unless told.

    Examples
    --------
    >>> image = np.outer(np.arange(9.0), np.arange(9.0))
    >>> ssim(image, image)
    1.0
    """
    compared = compare(a, b)
    return _ssim(a, b, compared, window, compared.span if span is None else span)


def measure(a: Any, b: Any, encoded_nbytes: int, window: int = 7) -> Quality:
    """Measure all at once.

    Parameters
    ----------
    a, b
        The original, and what came back.
    encoded_nbytes
        Bytes of the encoding between the two.
    window
        Of the structural similarity.
    """
    compared = compare(a, b)
    nbytes = compared.count * _dtype(a).itemsize
    return Quality(
        compared.worst, compared.psnr, _ssim(a, b, compared, window, compared.span), nbytes / max(1, encoded_nbytes)
    )


def compare(a: Any, b: Any, stream: "Stream | None" = None) -> Compared:
    """Find errors and range in one pass; on a GPU in the order of a stream, the caller's unless given."""
    return begin_compare(a, b, stream)()


def begin_compare(a: Any, b: Any, stream: "Stream | None" = None) -> Callable[[], Compared]:
    """Begin to find errors and range, and return what gives them, which on a GPU waits for the stream."""
    _check_pair(a, b)
    if not isinstance(a, np.ndarray):
        from forebay.codec.quality import device  # it needs cuda.core

        return device.begin_compare(a, b, stream)
    from forebay.codec.quality import host  # it needs Numba

    compared = Compared(*host.compare(a, b), a.size)
    return lambda: compared


def _ssim(a: Any, b: Any, compared: Compared, window: int, span: float) -> float:
    shape, extents = _windows(tuple(a.shape), window)
    if span == 0:  # every term would be 0 / 0
        return 1.0 if compared.worst == 0 else 0.0
    if not 1e-70 < span < 1e70:  # its fourth power has to be a number
        if not isinstance(a, np.ndarray):
            return math.nan
        a, b = a.astype(np.float64) / span, b.astype(np.float64) / span
        compared, span = compare(a, b), 1.0
    centre = compared.least + compared.span / 2
    c1, c2 = (0.01 * span) ** 2, (0.03 * span) ** 2
    if isinstance(a, np.ndarray):
        from forebay.codec.quality import host

        total = host.similarity(a.reshape(shape), b.reshape(shape), extents, centre, c1, c2)
    else:
        from forebay.codec.quality import device

        total = device.similarity(a, b, shape, extents, centre, c1, c2)
    return total / math.prod(extent - w + 1 for extent, w in zip(shape, extents, strict=True))


def _windows(shape: tuple[int, ...], window: int) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """Return the shape with three axes, and the window's extent along each."""
    if window < 3 or window % 2 == 0:
        raise CodecError(f"a window of {window}: give an odd number of at least 3")
    if not 1 <= len(shape) <= 3 or math.prod(shape) == 1:
        raise CodecError(f"SSIM of a {list(shape)}: give an array of one to three axes and several elements")
    full = (1,) * (3 - len(shape)) + shape
    if any(1 < extent < window or extent == 0 for extent in full):
        raise CodecError(f"a window of {window} does not fit into {list(shape)}: give a smaller one")
    wide = [window if extent > 1 else 1 for extent in full]
    return (full[0], full[1], full[2]), (wide[0], wide[1], wide[2])


def _check_pair(a: Any, b: Any) -> None:
    if isinstance(a, np.ndarray) != isinstance(b, np.ndarray):
        raise CodecError("one array is on the host and one on a GPU: bring them together first")
    if tuple(a.shape) != tuple(b.shape) or _dtype(a) != _dtype(b):
        raise CodecError(f"a {_dtype(a)}{list(a.shape)} cannot be compared with a {_dtype(b)}{list(b.shape)}")
    if _dtype(a).kind not in "fiub":
        raise CodecError(f"arrays of {_dtype(a)} cannot be compared: only those of real numbers")


def _dtype(array: Any) -> np.dtype[Any]:
    if not isinstance(array, np.ndarray):
        from forebay.cuda.arrays import view

        return view(array).dtype
    dtype: np.dtype[Any] = array.dtype
    return dtype
