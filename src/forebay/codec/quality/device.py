"""Comparing arrays where they are, on a GPU: only the results come to the host."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from cuda.core import Stream
from numpy.typing import NDArray

from forebay.codec.device import callers_stream
from forebay.codec.quality.comparison import Compared
from forebay.cuda.arrays import View, view
from forebay.cuda.kernels import Module, load
from forebay.cuda.mailbox import post
from forebay.cuda.slab import DeviceSlab
from forebay.errors import CodecError

SOURCE = Path(__file__).with_name("quality.cu")
THREADS = 256
MOST_THREAD_BLOCKS = 1024
PART = 32
"""Bytes that a thread block leaves of what it compared."""

TILE_X, TILE_Y = 32, 8
PLANES = 64
"""Windows that a thread follows; with each run of them the first planes are read again."""
MOST_WINDOW = 15
"""A thread keeps the moments of so many planes; more would not fit into its registers."""


def begin_compare(a: Any, b: Any, stream: Stream | None = None) -> Callable[[], Compared]:
    """Begin to find errors and range in one pass, and return what waits for them."""
    first, second = _view(a), _view(b)
    count = math.prod(first.shape)
    thread_blocks = max(1, min(MOST_THREAD_BLOCKS, -(-count // THREADS)))
    module = _module(first.dtype, (1, 1, 1))
    stream = stream or callers_stream()
    room = DeviceSlab(PART * (1 + thread_blocks))
    parts = room.pointer + PART
    module.launch("compare", thread_blocks, THREADS, [first.pointer, second.pointer, count, parts], stream)
    module.launch("compared", 1, THREADS, [parts, thread_blocks, room.pointer], stream)
    numbers = _post(room.pointer, 4, stream)

    def compared() -> Compared:
        worst, squares, least, most = map(float, numbers())
        room.close()  # which waits for all that the device was asked for: not before the results are wanted
        return Compared(worst, squares, least, most, count)

    return compared


def similarity(
    a: Any,
    b: Any,
    shape: tuple[int, int, int],
    window: tuple[int, int, int],
    centre: float,
    c1: float,
    c2: float,
) -> float:
    """Add up the similarity over all windows."""
    if max(window) > MOST_WINDOW:
        raise CodecError(f"a window of {max(window)} on a GPU: give at most {MOST_WINDOW}")
    first, second = _view(a), _view(b)
    rows = [extent - w + 1 for extent, w in zip(shape, window, strict=True)]
    grid = -(-rows[2] // TILE_X), -(-rows[1] // TILE_Y), -(-rows[0] // PLANES)
    thread_blocks = math.prod(grid)
    module = _module(first.dtype, window)
    stream = callers_stream()
    with DeviceSlab(8 * (1 + thread_blocks)) as room:
        sums = room.pointer + 8
        args = [first.pointer, second.pointer, *shape, PLANES, float(centre), float(c1), float(c2), sums]
        module.launch("similarity", grid, THREADS, args, stream)
        module.launch("added", 1, THREADS, [sums, thread_blocks, room.pointer], stream)
        return float(_post(room.pointer, 1, stream)()[0])


def _module(dtype: np.dtype[Any], window: tuple[int, int, int]) -> Module:
    wz, wy, wx = window
    real = "float" if dtype == np.float32 else "double"
    return load(SOURCE, fmad=False, defines={"REAL": real, "WZ": wz, "WY": wy, "WX": wx})


def _view(array: Any) -> View:
    where = view(array)
    if where.dtype not in (np.float32, np.float64):
        raise CodecError(f"arrays of {where.dtype} are not compared on a GPU: only float32 and float64")
    if not where.contiguous:
        raise CodecError("a GPU array with gaps cannot be compared: make it contiguous first")
    return where


def _post(pointer: int, count: int, stream: Stream) -> Callable[[], NDArray[np.float64]]:
    """Send numbers to the host; not by a copy, which would wait for the snapshots that are on their way there."""
    letters = [post(pointer + 8 * number, stream) for number in range(count)]
    return lambda: np.array([letter.value() for letter in letters], np.uint64).view(np.float64)
