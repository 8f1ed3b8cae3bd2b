"""How far the elements of a function's output look into its input, found by changing parts of small arrays.

What an axis needs of its neighbours is its halo. Where a change anywhere along an axis is seen at its far end, the axis
must stay whole; where that is so along all of them, or blocks do not give what the whole gives, nothing may be cut.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.footprint.errors import CutError, FootprintError
from forebay.footprint.measure.inputs import random_array
from forebay.footprint.measure.process import name_of

Array = NDArray[Any]
Function = Callable[[Array], Array]

SIDES = {1: 4096, 2: 192, 3: 48, 4: 20}
"""the side of the arrays that are looked at, for so many axes"""
SHARE = 3
"""a halo may be this part of the side at most; what reaches farther is taken to reach everywhere"""
CLOSE = 32
"""differences that count for none: so many times the precision of a dtype, of the largest element"""
RARE = 0.003
"""the share of elements that stand out of an array that is even otherwise"""


@dataclass(frozen=True)
class Reach:
    """How an array may be cut for a function."""

    halo: tuple[int, ...]
    """elements that each block needs of its neighbours, for each axis"""
    whole: tuple[int, ...] = ()
    """axes that must not be cut"""


def find_reach(
    function: Function,
    ndim: int,
    dtype: str = "float32",
    side: int | None = None,
    axes: Mapping[int, int] | None = None,
) -> Reach:
    """Find halo and whole axes by running a function on small arrays, and check that blocks give what the whole gives.

    Parameters
    ----------
    function
        takes an array and returns one of its shape; it runs in this process
    ndim, dtype
        of its input
    side
        the length of the axes of the arrays that are looked at, for functions that reach farther than a third of it
    axes
        those that always have one length, as channels do, with that length: they stay whole

    Raises
    ------
    CutError
        where no cut gives what the whole gives
    FootprintError
        where nothing can be told: the function raises, or trims its input

    Examples
    --------
    >>> import numpy as np
    >>> find_reach(lambda x: np.cumsum(np.pad(x, ((1, 1), (0, 0)))[2:] - x, axis=1), ndim=2)
    Reach(halo=(1, 0), whole=(1,))
    """
    name = name_of(function)
    length = side or SIDES.get(ndim, 12)
    fixed = dict(axes or {})
    shape = tuple(fixed.get(axis, length + axis) for axis in range(ndim))  # no two alike: a transpose would pass
    reaches = [None if axis in fixed else _reach_along(function, axis, shape, dtype) for axis in range(ndim)]
    whole = tuple(axis for axis, reach in enumerate(reaches) if reach is None)
    if len(whole) == ndim:
        raise CutError(f"{name} looks at all of its input for each element of its output: it cannot be cut")
    found = Reach(tuple(reach or 0 for reach in reaches), whole)
    for array in _arrays(shape, dtype):
        if _differs(in_blocks(function, array, found), _run(function, array)).any():
            raise CutError(
                f"{name} gives other values in blocks of a small array, with a halo of {found.halo}"
                f"{f' and axes {whole} whole' if whole else ''}, than on all of it: it cannot be cut"
            )
    return found


def in_blocks(function: Function, array: Array, reach: Reach) -> Array:
    """Run a function on the blocks of an array, each with its halo, and put the results together."""
    parts: list[list[tuple[slice, slice, slice]]] = []
    for axis, extent in enumerate(array.shape):
        halo = reach.halo[axis]
        cuts = [0, extent] if axis in reach.whole else [0, extent // 3 + 1, extent // 3 + 1 + extent // 3, extent]
        parts.append([])
        for start, stop in pairwise(cuts):
            first, last = max(start - halo, 0), min(stop + halo, extent)
            parts[-1].append((slice(first, last), slice(start - first, stop - first), slice(start, stop)))
    result: Array | None = None
    for block in product(*parts):
        taken, kept, put = zip(*block, strict=True)
        out = function(array[taken].copy())
        if result is None:
            result = np.empty(array.shape, out.dtype)
        result[put] = out[kept]
    assert result is not None
    return result


def _reach_along(function: Function, axis: int, shape: tuple[int, ...], dtype: str) -> int | None:
    """Return how far an output looks along an axis; None where that is farther than blocks should overlap."""
    extent, farthest = shape[axis], 0
    for array in _arrays(shape, dtype):
        before = _run(function, array)
        for low in (True, False):
            # The half before a plane, or the one after it, becomes larger by far: what orders or scales it sees that.
            plane = extent // 2
            changed = np.moveaxis(array.copy(), axis, 0)
            half = slice(0, plane) if low else slice(plane, extent)
            changed[half] = changed[half][::-1] * 3 + 1 if changed.dtype.kind != "b" else ~changed[half]
            after = _run(function, np.moveaxis(changed, 0, axis))
            other = np.moveaxis(_differs(before, after), axis, 0)
            seen = np.flatnonzero(other.reshape(extent, -1).any(axis=1))
            beyond = seen[seen >= plane] - plane + 1 if low else plane - seen[seen < plane]
            farthest = max(farthest, *beyond.tolist(), 0)
    return farthest if farthest <= extent // SHARE else None


def _arrays(shape: tuple[int, ...], dtype: str) -> Iterator[Array]:
    """Yield noise, and even arrays with a few low and a few high elements: distances and regions are large in these."""
    rng = np.random.default_rng(0)
    noise = random_array(rng, shape, dtype)
    yield noise
    for low in (False, True):
        rare = rng.random(shape) < RARE
        high = noise.max() if noise.dtype.kind != "c" else 1
        yield np.where(rare ^ low, high, 0).astype(noise.dtype)


def _run(function: Function, array: Array) -> Array:
    """Run it, and refuse what blocks cannot be put together from."""
    try:
        result = np.asarray(function(array.copy()))
    except Exception as error:
        raise FootprintError(
            f"{name_of(function)} raises on an array of shape {array.shape}, by which its halo would be found: "
            f"{type(error).__name__}: {error}"
        ) from error
    if result.shape != array.shape:
        gone = [n - m for n, m in zip(array.shape, result.shape, strict=False)]
        trims = result.ndim == array.ndim and all(0 <= n <= min(array.shape) // SHARE for n in gone)
        raise (FootprintError if trims else CutError)(
            f"{name_of(function)} gives {result.shape} for an input of {array.shape}: only what keeps the shape can be "
            "put together from blocks with halos"
        )
    return result


def _differs(one: Array, other: Array) -> Array:
    if one.dtype.kind not in "fc":
        return np.asarray(one != other)
    size = max(float(np.nanmax(np.abs(array), initial=0.0)) for array in (one, other))
    near = CLOSE * float(np.finfo(one.dtype).eps) * size
    return np.asarray(~np.isclose(one, other, rtol=0.0, atol=near, equal_nan=True))
