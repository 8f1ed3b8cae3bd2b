"""Where a thread of the CPU works on one tile."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from forebay.codec.bounded.format import LANES
from forebay.codec.bounded.rows import fill, store
from forebay.codec.dense.format import THREADS
from forebay.codec.dense.model import COARSE, FIELD, VALUES
from forebay.codec.dense.words import jit

MOST_ROWS = 64
"""Rows of cells of a tile, at most."""
MOST_WORDS = 4608
"""Words that the symbols of a tile may take, or the quanta of the uppermost grid's."""


class Desk(NamedTuple):
    """Room for one tile, which a thread uses again and again."""

    x: NDArray[Any]
    """its points, kind by kind, or brick by brick"""
    coarse: NDArray[Any]
    """the old points in it and around it"""
    field: NDArray[Any]
    """what is decoded"""
    steps: NDArray[Any]
    """symbols as numbers"""
    listed: NDArray[Any]
    spare: NDArray[Any]
    symbols: NDArray[np.int32]
    codes: NDArray[np.int32]
    masks: NDArray[np.int32]
    """which symbols of each thread are not 0, and a row beside them"""
    unfit: NDArray[np.uint32]
    exact: NDArray[np.int64]
    words: NDArray[np.uint32]
    others: NDArray[np.uint32]
    near: NDArray[Any]
    prefix: NDArray[np.uint32]
    """the words of `near`"""


def desk_for(dtype: np.dtype[Any]) -> Desk:
    """Take room for a tile of some type."""
    near = np.zeros(1, dtype)
    return Desk(
        x=np.zeros(VALUES, dtype),
        coarse=np.zeros(COARSE, dtype),
        field=np.zeros(FIELD, dtype),
        steps=np.zeros(VALUES, dtype),
        listed=np.zeros(VALUES + LANES, dtype),
        spare=np.zeros(LANES, dtype),
        symbols=np.zeros(VALUES, np.int32),
        codes=np.zeros(VALUES + LANES, np.int32),
        masks=np.zeros(THREADS + LANES, np.int32),
        unfit=np.zeros((8, MOST_ROWS), np.uint32),
        exact=np.zeros(VALUES, np.int64),
        words=np.zeros(MOST_WORDS, np.uint32),
        others=np.zeros(MOST_WORDS, np.uint32),
        near=near,
        prefix=near.view(np.uint32),
    )


@jit
def spot_of(symbol: int, begins: Any) -> int:
    """Return the point of a tile that a symbol is of, among those that are numbered kind by kind."""
    row = symbol // LANES
    return int(begins[row // begins.shape[1], row % begins.shape[1]] + symbol % LANES)


@jit
def clear(values: Any, first: Any, count: Any) -> None:
    """Make so many values zero, from one on; rows at a time, as the compiler would store each by itself."""
    for k in range(first, first + count, LANES):
        store(fill(values.dtype.type(0)), values, k)
