"""Tiles on the CPU: where they lie in an array, and copying their values to and fro.

What Numba compiles in this folder is the twin of ``bounded.cu``, and defines what that gives. A tile is worked through
row by row, and a row is a vector of 32 lanes.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from forebay.codec import compiled
from forebay.codec.bounded.format import HALF, LANES, ROWS, SIDE, VALUES

F = TypeVar("F", bound=Callable[..., Any])


def jit(function: F) -> F:
    """Compile a function for one thread that leaves the others theirs."""
    return compiled.jit(function, error_model="numpy")


@jit
def brick_of(lane: int, rank: int) -> tuple[int, int]:
    """Return where a lane's brick lies in a tile, along the two faster axes."""
    if rank == 3:
        return lane // 16 * 8, lane % 16
    if rank == 2:
        return lane // 4 * 8, lane % 4 * 8
    return 0, lane * ROWS


@jit
def locate(tile: int, rank: int, extents: Any, counts: Any) -> tuple[int, int, int, int]:
    """Return where a tile begins along each axis, and how many values it has."""
    row, tx = divmod(tile, counts[2])
    if rank == 3:
        tz, ty = divmod(row, counts[1])
        z, y, x = tz * 8, ty * 16, tx * 16
        values = min(8, extents[0] - z) * min(16, extents[1] - y) * min(16, extents[2] - x)
        return z, y, x, values
    if rank == 2:
        y, x = row * 64, tx * 32
        return 0, y, x, min(64, extents[1] - y) * min(32, extents[2] - x)
    x = tx * VALUES
    return 0, 0, x, min(VALUES, extents[2] - x)


@jit
def exists(place: tuple[int, int, int, int], row: int, lane: int, rank: int, extents: Any) -> bool:
    """Tell whether a value of a tile is one of the array."""
    dy, dx = brick_of(lane, rank)
    i, j = divmod(row, SIDE)
    z, y, x = place[0], place[1] + dy, place[2] + dx
    if rank == 3:
        z, y = z + i, y + j
    elif rank == 2:
        y, x = y + j, x + i
    else:
        x += row
    return bool(z < extents[0] and y < extents[1] and x < extents[2])


@jit
def gather(array: Any, place: tuple[int, int, int, int], rank: int, extents: Any, tile: Any) -> None:
    """Copy the values of a tile, repeating the last ones where it sticks out of the array."""
    slow, middle, fast = extents[0] - 1, extents[1] - 1, extents[2] - 1
    for half in range(2 * ROWS if rank == 3 else 0):
        row, far = half // 2, half % 2
        z, y = min(place[0] + row // SIDE, slow), min(place[1] + row % SIDE + SIDE * far, middle)
        at = (z * extents[1] + y) * extents[2]
        for k in range(HALF):
            tile[half * HALF + k] = array[at + min(place[2] + k, fast)]
    for lane in range(LANES if rank < 3 else 0):
        dy, dx = brick_of(lane, rank)
        for j in range(SIDE):
            at, first, side = 0, place[2] + dx + j, SIDE
            if rank == 2:
                at, first, side = min(place[1] + dy + j, middle) * extents[2], place[2] + dx, 1
            for i in range(SIDE):
                tile[(i * SIDE + j) * LANES + lane] = array[at + min(first + i * side, fast)]


@jit
def scatter(tile: Any, place: tuple[int, int, int, int], rank: int, extents: Any, array: Any) -> None:
    """Copy the values of a tile back to where they belong."""
    for half in range(2 * ROWS if rank == 3 else 0):
        row, far = half // 2, half % 2
        z, y = place[0] + row // SIDE, place[1] + row % SIDE + SIDE * far
        if z < extents[0] and y < extents[1]:
            at = (z * extents[1] + y) * extents[2] + place[2]
            for k in range(min(HALF, extents[2] - place[2])):
                array[at + k] = tile[half * HALF + k]
    for lane in range(LANES if rank < 3 else 0):
        dy, dx = brick_of(lane, rank)
        for j in range(SIDE):
            at, first, side = 0, place[2] + dx + j, SIDE
            if rank == 2:
                if place[1] + dy + j >= extents[1]:
                    break
                at, first, side = (place[1] + dy + j) * extents[2], place[2] + dx, 1
            for i in range(SIDE):
                if first + i * side < extents[2]:
                    array[at + first + i * side] = tile[(i * SIDE + j) * LANES + lane]
