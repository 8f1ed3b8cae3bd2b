"""Whether arrays of a state share memory: an engine that keeps each by itself would tear them apart."""

from collections.abc import Sequence
from itertools import combinations, pairwise
from typing import Any

import numpy as np

from forebay.machine.arrays.dispatch import array_library, view_of

WORK = 10_000
"""Steps that NumPy may take to find out about two arrays with gaps; then they are taken to share memory."""

Pair = tuple[int, int]


def sharing(arrays: Sequence[Any], sizes: Sequence[int]) -> Pair | None:
    """Return the numbers of two dense arrays of so many bytes that share memory; None where all are apart.

    Examples
    --------
    >>> x = np.zeros(8)
    >>> sharing([x[:4], x[4:]], [32, 32]), sharing([x, x[4:]], [64, 32])
    (None, (0, 1))
    """
    if len(arrays) == 1:
        return None
    for array in arrays:
        if type(array) is not np.ndarray or array.base is not None:
            break
    else:  # each has memory of its own
        if len(set(map(id, arrays))) == len(arrays):
            return None
    starts = [(array_library(array).address(array), number) for number, array in enumerate(arrays)]
    places = sorted((start, number) for start, number in starts if start is not None)
    for (start, number), (following, other) in pairwise(places):
        if following < start + sizes[number]:
            return min(number, other), max(number, other)
    return None


def sharing_with_gaps(arrays: Sequence[Any], sizes: Sequence[int]) -> Pair | None:
    """Return the same of arrays that may have gaps, in which others may lie."""
    views = [None if array_library(array).address(array) is None else view_of(array) for array in arrays]
    on_host = [(number, view) for number, view in enumerate(views) if isinstance(view, np.ndarray)]
    for (first, one), (second, other) in combinations(on_host, 2):
        if np.may_share_memory(one, other) and _share(one, other):
            return first, second
    return None if on_host else sharing(arrays, sizes)  # on a GPU none have gaps


def _share(one: Any, other: Any) -> bool:
    try:
        return bool(np.shares_memory(one, other, WORK))  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True
