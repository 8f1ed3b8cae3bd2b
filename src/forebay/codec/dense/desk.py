"""Where a thread of the CPU works on one tile."""

import threading
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from forebay.codec.bounded.format import LANES
from forebay.codec.bounded.rows import fill, store
from forebay.codec.dense.format import THREADS
from forebay.codec.dense.model import COARSE, FIELD, VALUES
from forebay.codec.dense.words import jit

CACHE_LINE = 64
"""Bytes."""
MOST_ROWS = 64
"""Rows of cells of a tile, at most."""
MOST_GROUPS = 7
"""Groups of symbols of a thread, at most."""
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
    groups: NDArray[np.int32]
    """where groups begin that have symbols other than 0, and some more"""
    spots: NDArray[np.uint32]
    """the points of symbols that are listed, and some more"""
    unfit: NDArray[np.uint32]
    exact: NDArray[np.int64]
    words: NDArray[np.uint32]
    others: NDArray[np.uint32]
    near: NDArray[Any]
    prefix: NDArray[np.uint32]
    """the words of `near`"""


class _Desks(threading.local):
    def __init__(self) -> None:
        self.of_types: dict[np.dtype[Any], Desk] = {}


DESKS = _Desks()
"""Of each thread those that it has used: to take them anew for each grid of small arrays would cost a tenth."""


def desk_for(dtype: np.dtype[Any]) -> Desk:
    """Return the calling thread's room for a tile of some type, with zeros around what each tile writes."""
    if dtype not in DESKS.of_types:
        DESKS.of_types[dtype] = _new_desk(dtype)
    desk = DESKS.of_types[dtype]
    desk.field[:] = desk.coarse[:] = 0
    return desk


def _new_desk(dtype: np.dtype[Any]) -> Desk:
    near = _room(1, dtype)
    return Desk(
        x=_room(VALUES, dtype),
        coarse=_room(COARSE, dtype),
        field=_room(FIELD, dtype),
        steps=_room(VALUES, dtype),
        listed=_room(VALUES + LANES, dtype),
        spare=_room(LANES, dtype),
        symbols=_room(VALUES, np.int32),
        codes=_room(VALUES + LANES, np.int32),
        masks=_room(THREADS, np.int32),
        groups=_room(THREADS * MOST_GROUPS + LANES, np.int32),
        spots=_room(VALUES + LANES, np.uint32),
        unfit=_room(8 * MOST_ROWS, np.uint32).reshape(8, MOST_ROWS),
        exact=_room(VALUES, np.int64),
        words=_room(MOST_WORDS, np.uint32),
        others=_room(MOST_WORDS, np.uint32),
        near=near,
        prefix=near.view(np.uint32),
    )


def _room(count: int, dtype: Any) -> NDArray[Any]:
    """Return zeros that begin with a line of the processor's caches: rows then lie in as few lines as can be."""
    nbytes = count * np.dtype(dtype).itemsize
    room = np.zeros(nbytes + CACHE_LINE, np.uint8)
    first = -room.ctypes.data % CACHE_LINE
    return room[first : first + nbytes].view(dtype)


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
