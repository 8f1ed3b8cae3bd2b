"""A block worked on in parts: its result is that of the whole block, and what its function needs is that of a part."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from forebay.dask.rescue import OutgrownError

THINNEST = 8
"""Parts are no thinner: many functions do not work on slivers."""
CLOSE = 0.7
"""Parts give what the whole gives where both differ by no more than this power of the dtype's resolution, of the
largest value."""

Run = Callable[[tuple[Any, ...]], Any]


class UncutError(Exception):
    """Says that a block cannot be worked on in parts."""


@dataclass(frozen=True)
class Cut:
    """How blocks are worked on in parts."""

    axis: int
    halo: int
    """elements of its neighbours that a part needs on each side"""

    def most(self, shape: tuple[int, ...]) -> int:
        """Return into how many parts a block may be cut."""
        return shape[self.axis] // max(THINNEST, 2 * self.halo + 1)

    def slices(self, extent: int, count: int) -> Iterator[tuple[Any, Any, Any]]:
        """Yield what each part takes of the block, what of its result is kept, and where that is put."""
        for start, stop in pairwise(extent * number // count for number in range(count + 1)):
            first, last = max(start - self.halo, 0), min(stop + self.halo, extent)
            yield self._along(first, last), self._along(start - first, stop - first), self._along(start, stop)

    def _along(self, start: int, stop: int) -> tuple[slice, ...]:
        return (*(slice(None),) * self.axis, slice(start, stop))


def in_parts(run: Run, blocks: tuple[Any, ...], cut: Cut, count: int, *, check: bool = True) -> Any:
    """Return what a function makes of blocks, from what it makes of their parts.

    Parameters
    ----------
    run
        takes the parts of all blocks
    check
        whether the first part is worked on in halves, too, and has to give the same
    """
    result = None
    for taken, kept, put in cut.slices(blocks[0].shape[cut.axis], count):
        parts = tuple(block[taken] for block in blocks)
        try:
            output = run(parts)
        except OutgrownError:
            raise
        except Exception as error:  # of the function: what it makes of all of the block shows whose fault it is
            raise UncutError from error
        if type(output) is not np.ndarray or output.shape != parts[0].shape:
            raise UncutError
        if result is None:
            if check:
                _compare(output, in_parts(run, parts, cut, 2, check=False))
            result = np.empty(blocks[0].shape, output.dtype)
        if output.dtype != result.dtype:
            raise UncutError
        result[put] = output[kept]
        del output
    return result


def _compare(output: Any, halves: Any) -> None:
    """Raise where the halves of a part do not give what it gives: blocks of other sizes have other results then."""
    if output.dtype.kind not in "fc":
        same = np.array_equal(output, halves)
    else:
        largest = max(float(np.nanmax(np.abs(each), initial=0.0)) for each in (output, halves))
        near = float(np.finfo(output.dtype).eps) ** CLOSE * largest
        same = np.allclose(output, halves, rtol=0.0, atol=near, equal_nan=True)
    if not same:
        raise UncutError
