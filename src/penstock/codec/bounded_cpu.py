"""`bounded` on the CPU: the twin of the kernels in ``bounded.cu``, which defines what they give.

Loops over the 32 lanes of a row are written so that the compiler turns them into vector instructions. All of it is one
file, because Numba compiles anew what it has kept only when the file of that very function has changed.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numba import njit

from penstock.codec.bounded_format import ESCAPE, EXACT, LANES, RAW, ROWS, SIDE, VALUES

F = TypeVar("F", bound=Callable[..., Any])

PLACE = RAW - 1
PLANE = SIDE * LANES
WIDTH_WORDS = ROWS // 8


def jit(function: F) -> F:
    """Compile a function, and keep the result on disk where Numba finds a place that it may write to."""
    compiled: Any
    try:
        compiled = njit(nogil=True, cache=True, error_model="numpy")(function)
    except RuntimeError:
        compiled = njit(nogil=True, error_model="numpy")(function)
    return compiled  # type: ignore[no-any-return]


@jit
def finite_range(values: Any, bits: Any) -> tuple[float, float]:
    """Give the smallest and the largest finite value; zeros where there is none.

    The bits of floating-point numbers are in the order of the numbers, but for the sign: as integers they are compared
    many at a time, and what is not finite comes out as the smallest or the largest.
    """
    block = 4096
    low, high = np.inf, -np.inf
    sign = bits.dtype.type(8 * bits.itemsize - 1)
    rest = np.iinfo(bits.dtype).max
    ends = np.empty(2, bits.dtype)
    for start in range(0, values.size, block):
        part = bits[start : start + block]
        ends[0] = ends[1] = part[0] ^ (part[0] >> sign & rest)
        below, above = ends[0], ends[1]
        for k in range(part.size):
            x = bits.dtype.type(part[k] ^ (part[k] >> sign & rest))
            below, above = min(below, x), max(above, x)
        ends[0], ends[1] = below ^ (below >> sign & rest), above ^ (above >> sign & rest)
        least, most = ends.view(values.dtype)
        if least - least == 0 and most - most == 0:
            low, high = min(low, float(least)), max(high, float(most))
        else:
            for x in values[start : start + block]:
                if x - x == 0:
                    low, high = min(low, float(x)), max(high, float(x))
    return (low, high) if low <= high else (0.0, 0.0)


@jit
def brick_of(lane: int, rank: int) -> tuple[int, int]:
    """Give where a lane's brick lies in a tile, along the two faster axes."""
    if rank == 3:
        return lane // 16 * 8, lane % 16
    if rank == 2:
        return lane // 4 * 8, lane % 4 * 8
    return 0, lane * ROWS


@jit
def locate(tile: int, rank: int, extents: Any, counts: Any) -> tuple[int, int, int, int]:
    """Give where a tile begins along each axis, and how many values it has."""
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
def position(place: tuple[int, int, int, int], row: int, lane: int, rank: int, extents: Any) -> tuple[int, bool]:
    """Give the index of a value, or of the nearest one that exists, and whether it is the former."""
    dy, dx = brick_of(lane, rank)
    i, j = divmod(row, SIDE)
    z, y, x = place[0], place[1] + dy, place[2] + dx
    if rank == 3:
        z, y = z + i, y + j
    elif rank == 2:
        y, x = y + j, x + i
    else:
        x += row
    exists = z < extents[0] and y < extents[1] and x < extents[2]
    z, y, x = min(z, extents[0] - 1), min(y, extents[1] - 1), min(x, extents[2] - 1)
    return (z * extents[1] + y) * extents[2] + x, exists


@jit
def gather(array: Any, place: tuple[int, int, int, int], rank: int, extents: Any, tile: Any) -> None:
    """Copy the values of a tile, repeating the last ones where it sticks out of the array."""
    if place[3] == VALUES and rank == 3:
        pitch, plane = extents[2], extents[1] * extents[2]
        for row in range(ROWS):
            at = (place[0] + row // SIDE) * plane + (place[1] + row % SIDE) * pitch + place[2]
            # Unsigned, because an index that might be negative keeps a loop from becoming vector instructions.
            near, far = np.uintp(at), np.uintp(at + SIDE * pitch)
            for k in range(16):
                tile[row * LANES + k] = array[near + np.uintp(k)]
            for k in range(16):
                tile[row * LANES + 16 + k] = array[far + np.uintp(k)]
    elif place[3] == VALUES and rank == 2:
        for lane in range(LANES):
            dy, dx = brick_of(lane, rank)
            for j in range(SIDE):
                at = (place[1] + dy + j) * extents[2] + place[2] + dx
                for i in range(SIDE):
                    tile[(i * SIDE + j) * LANES + lane] = array[at + i]
    else:
        for row in range(ROWS):
            for lane in range(LANES):
                tile[row * LANES + lane] = array[position(place, row, lane, rank, extents)[0]]


@jit
def scatter(tile: Any, place: tuple[int, int, int, int], rank: int, extents: Any, array: Any) -> None:
    """Copy the values of a tile back to where they belong."""
    if place[3] == VALUES and rank == 3:
        pitch, plane = extents[2], extents[1] * extents[2]
        for row in range(ROWS):
            at = (place[0] + row // SIDE) * plane + (place[1] + row % SIDE) * pitch + place[2]
            near, far = np.uintp(at), np.uintp(at + SIDE * pitch)
            for k in range(16):
                array[near + np.uintp(k)] = tile[row * LANES + k]
            for k in range(16):
                array[far + np.uintp(k)] = tile[row * LANES + 16 + k]
    elif place[3] == VALUES and rank == 2:
        for lane in range(LANES):
            dy, dx = brick_of(lane, rank)
            for j in range(SIDE):
                at = (place[1] + dy + j) * extents[2] + place[2] + dx
                for i in range(SIDE):
                    array[at + i] = tile[(i * SIDE + j) * LANES + lane]
    else:
        for row in range(ROWS):
            for lane in range(LANES):
                at, exists = position(place, row, lane, rank, extents)
                if exists:
                    array[at] = tile[row * LANES + lane]


@jit
def width_of(bits: Any) -> int:
    """Count the bits up to the highest one that is set."""
    width = 0
    while bits >> width:
        width += 1
    return width


@jit
def predict(q: Any, d: Any, rank: int, zero: int) -> None:
    """Take from every row of `q` what its neighbours before it tell, leaving the residuals in `d`."""
    for k in range(LANES):
        d[k] = q[k] - zero
    for k in range(LANES, VALUES):
        d[k] = q[k] - q[k - LANES]
    if rank == 1:
        return
    for i in range(1, SIDE):
        for k in range(LANES):
            d[i * PLANE + k] = q[i * PLANE + k] - zero
    for back in range(VALUES - PLANE):
        k = VALUES - 1 - back
        d[k] -= d[k - PLANE]


@jit
def unpredict(d: Any, q: Any, rank: int, zero: int) -> None:
    """Add up along j what `unpack` has added up along i; a line goes on from one side to the next."""
    for i in range(SIDE):
        if i == 0 or rank > 1:
            for k in range(LANES):
                q[i * PLANE + k] = d[PLANE + i * PLANE + k] + zero
        else:
            for k in range(LANES):
                q[i * PLANE + k] = d[PLANE + i * PLANE + k] + q[i * PLANE + k - LANES]
        for k in range(LANES, PLANE):
            q[i * PLANE + k] = d[PLANE + i * PLANE + k] + q[i * PLANE + k - LANES]


@jit
def neighbours(q: Any, row: int, rank: int, zero: int, told: Any) -> None:
    """Leave in `told` what the neighbours of one row before it tell of it."""
    here, j = row * LANES, row % SIDE
    for k in range(LANES):
        left = q[here + k - LANES] if row and (rank == 1 or j) else zero
        if rank > 1 and row >= SIDE:
            above = q[here + k - PLANE]
            left += above - (q[here + k - PLANE - LANES] if j else zero)
        told[k] = left


@jit
def quantise(x: Any, t: Any, bits: Any, q: Any, base: Any, magic: Any, inverse: Any) -> None:
    """Leave the multiples of the step in `q`, and in `t` what the decoder will make of them."""
    for k in range(VALUES):
        t[k] = x[k] * inverse + magic
    for k in range(VALUES):
        q[k] = np.int32(bits[k])
    for k in range(VALUES):
        bits[k] = base + q[k]


@jit
def misfits(x: Any, t: Any, magic: Any, step: Any, test: Any, bad: Any) -> int:
    """Mark the rows that have a value off by the bound or more, and count such values."""
    fit = np.int32(0)
    for k in range(VALUES):
        fit = np.int32(fit + (abs(x[k] - (t[k] - magic) * step) < test))
    if fit < VALUES:
        for row in range(ROWS):
            bad[row] = False
            for lane in range(LANES):
                k = row * LANES + lane
                bad[row] |= not abs(x[k] - (t[k] - magic) * step) < test
    return VALUES - int(fit)


@jit
def idle(q: Any, zero: int) -> bool:
    """Tell whether all values of a tile are quantised to 0."""
    for i in range(SIDE):
        some = np.int32(0)
        for k in range(PLANE):
            some = np.int32(some | (q[i * PLANE + k] ^ zero))
        if some:
            return False
    return True


@jit
def measure(d: Any, widths: Any) -> int:
    """Give rows their widths: the bits of the widest value, sign included; 0 where all are 0. Return the largest."""
    largest = 0
    for row in range(ROWS):
        widest = np.int32(0)
        for lane in range(LANES):
            v = d[row * LANES + lane]
            widest = np.int32(widest | (v ^ np.int32(v + v)))
        widths[row] = width_of(np.int64(widest) & 0xFFFFFFFF)
        largest = max(largest, widths[row])
    return largest


@jit
def keep_exactly(q: Any, d: Any, bad: Any, misfit: bool, widths: Any, rank: int, zero: int) -> None:
    """Go through the rows again, where some are kept as they are: those after them are told as if they were not."""
    told = np.empty(LANES, np.int32)
    for row in range(ROWS):
        neighbours(q, row, rank, zero, told)
        widest = np.int32(0)
        for lane in range(LANES):
            v = np.int32(q[row * LANES + lane] - told[lane])
            d[row * LANES + lane] = v
            widest = np.int32(widest | (v ^ np.int32(v + v)))
        widths[row] = width_of(np.int64(widest) & 0xFFFFFFFF)
        if widths[row] == EXACT or (misfit and bad[row]):
            widths[row] = EXACT
            for lane in range(LANES):
                q[row * LANES + lane] = told[lane]


@jit
def pack(d: Any, raw: Any, each: int, widths: Any, words: Any, at: int) -> int:
    """Concatenate the fields of each lane, word by word for all lanes; give the word after the last."""
    stream = np.zeros(LANES, np.uint32)
    filled = 0
    for row in range(ROWS):
        width = widths[row]
        up = np.uint32(filled & 31)
        if width == EXACT:
            for part in range(each):
                to = np.uintp(at)
                down = np.uint32((32 - filled) & 31)
                for lane in range(LANES):
                    value = raw[(row * LANES + lane) * each + part]
                    words[to + np.uintp(lane)] = stream[lane] | np.uint32(value << up)
                    stream[lane] = np.uint32(value >> down) if filled else np.uint32(0)
                at += LANES
        elif width:
            keep = np.uint32((1 << width) - 1)
            filled += width
            if filled < 32:
                for lane in range(LANES):
                    stream[lane] |= np.uint32((np.uint32(d[row * LANES + lane]) & keep) << up)
            else:
                filled -= 32
                to = np.uintp(at)
                # By less than 32 at a time: nothing is left over where the word ends with the field.
                down = np.uint32((width - filled - 1) & 31)
                for lane in range(LANES):
                    value = np.uint32(d[row * LANES + lane]) & keep
                    words[to + np.uintp(lane)] = stream[lane] | np.uint32(value << up)
                    stream[lane] = np.uint32(value >> down) >> np.uint32(1)
                at += LANES
    return push_tail(stream, filled, words, at)


@jit
def push_tail(stream: Any, filled: int, words: Any, at: int) -> int:
    """Write the bits that are left in each lane, as halves, bytes, ... of all lanes side by side."""
    done = 0
    for part in (16, 8, 4, 2, 1):
        if filled & part:
            for k in range(part):
                words[at + k] = 0
            for lane in range(LANES):
                piece = stream[lane] >> np.uint32(done) & np.uint32((1 << part) - 1)
                words[at + lane * part // 32] |= piece << np.uint32(lane * part % 32)
            done += part
            at += part
    return at


@jit
def pull_tail(words: Any, at: int, filled: int, stream: Any) -> None:
    """Read back what `push_tail` wrote."""
    for lane in range(LANES):
        stream[lane] = 0
    done = 0
    for part in (16, 8, 4, 2, 1):
        if filled & part:
            for lane in range(LANES):
                word = words[at + lane * part // 32]
                piece = word >> np.uint32(lane * part % 32) & np.uint32((1 << part) - 1)
                stream[lane] |= piece << np.uint32(done)
            done += part
            at += part


@jit
def encode_tiles(
    array: Any, layout: Any, tiles: tuple[int, int], numbers: Any, words: Any, places: Any, start: int
) -> int:
    """Encode tiles one after the other into `words` from `start` on; give the word after the last.

    Parameters
    ----------
    array
        All of it, flat.
    layout
        Rank, extents, tiles along each axis, and the shift of the places.
    tiles
        The first, and the one after the last.
    numbers
        Step, its inverse, the bound that errors stay below, the number that leaves integers in the lowest bits, what
        those bits are added to, and what 0 is quantised to.
    words, places
        The encoding, and the table in it.
    """
    rank, extents, counts, shift = layout
    step, inverse, test, magic, base, zero = numbers
    x, t = np.empty(VALUES, array.dtype), np.empty(VALUES, array.dtype)
    bits, raw = t.view(base.dtype), x.view(np.uint32)
    each = raw.size // VALUES
    q, d = np.empty(VALUES, np.int32), np.empty(VALUES, np.int32)
    widths, bad = np.empty(ROWS, np.int64), np.empty(ROWS, np.bool_)
    at = start
    for tile in range(tiles[0], tiles[1]):
        place = locate(tile, rank, extents, counts)
        gather(array, place, rank, extents, x)
        quantise(x, t, bits, q, base[0], magic, inverse)
        misfit = misfits(x, t, magic, step, test, bad) > 0
        if not misfit and idle(q, zero):
            places[tile] = 0
            continue
        predict(q, d, rank, zero)
        if measure(d, widths) == EXACT or misfit:
            keep_exactly(q, d, bad, misfit, widths, rank, zero)
        total, escapes = 0, 0
        for row in range(ROWS):
            total += 32 * each if widths[row] == EXACT else widths[row]
            escapes += widths[row] >= ESCAPE
        if total == 0:
            places[tile] = 0
            continue
        here = at >> (shift - 2)
        if WIDTH_WORDS + (escapes + 3) // 4 + total >= place[3] * each:
            places[tile] = np.uint32(here | RAW)
            for row in range(ROWS):
                for lane in range(LANES):
                    if place[3] == VALUES or position(place, row, lane, rank, extents)[1]:
                        for part in range(each):
                            words[at] = raw[(row * LANES + lane) * each + part]
                            at += 1
        else:
            places[tile] = np.uint32(here)
            at = pack(d, raw, each, widths, words, write_widths(widths, escapes, words, at))
        while at % (1 << (shift - 2)):
            words[at] = 0
            at += 1
    return at


@jit
def write_widths(widths: Any, escapes: int, words: Any, at: int) -> int:
    """Write the widths of a tile's rows."""
    for k in range(WIDTH_WORDS):
        word = 0
        for row in range(8):
            word |= min(widths[8 * k + row], ESCAPE) << 4 * row
        words[at + k] = word
    at += WIDTH_WORDS
    count = 0
    for k in range((escapes + 3) // 4):
        words[at + k] = 0
    for row in range(ROWS):
        if widths[row] >= ESCAPE:
            words[at + count // 4] |= np.uint32(widths[row] << 8 * (count % 4))
            count += 1
    return at + (escapes + 3) // 4


@jit
def read_widths(words: Any, at: int, end: int, each: int, widths: Any) -> tuple[int, int]:
    """Read the widths of a tile; give the word after them and the bits of a stream, -1 where they are damaged."""
    if at + WIDTH_WORDS > end:
        return at, -1
    escapes = 0
    for row in range(ROWS):
        widths[row] = words[at + row // 8] >> np.uint32(4 * (row % 8)) & np.uint32(15)
        escapes += widths[row] == ESCAPE
    at += WIDTH_WORDS
    if at + (escapes + 3) // 4 > end:
        return at, -1
    count = total = 0
    for row in range(ROWS):
        if widths[row] == ESCAPE:
            widths[row] = words[at + count // 4] >> np.uint32(8 * (count % 4)) & np.uint32(255)
            count += 1
            if widths[row] > EXACT:
                return at, -1
        total += 32 * each if widths[row] == EXACT else widths[row]
    at += (escapes + 3) // 4
    if at + total > end:
        return at, -1
    return at, total


@jit
def unpack(words: Any, at: int, total: int, each: int, widths: Any, rank: int, buffer: Any, d: Any, raw: Any) -> None:
    """Read the fields that `pack` wrote: residuals into `d`, rows kept as they are into `raw`.

    `d` begins with eight rows of zeros. But for a line, to each row is added the one eight before it.
    """
    whole = total // 32 * LANES
    here = np.uintp(at)
    for k in range(whole):
        buffer[k] = words[here + np.uintp(k)]
    pull_tail(words, at + whole, total % 32, buffer[whole : whole + LANES])
    next_word, low = np.uintp(LANES), np.uintp(0)
    taken = 0
    for row in range(ROWS):
        width = widths[row]
        above = np.uintp(row * LANES if rank > 1 else 0)
        if width == 0 or width == EXACT:
            for lane in range(LANES):
                d[PLANE + row * LANES + lane] = d[above + np.uintp(lane)]
            for part in range(each if width else 0):
                down, left = np.uint32(taken & 31), np.uint32((32 - taken) & 31)
                for lane in range(LANES):
                    value = np.uint32(buffer[low + np.uintp(lane)] >> down)
                    if taken:
                        value |= np.uint32(buffer[low + next_word + np.uintp(lane)] << left)
                    raw[(row * LANES + lane) * each + part] = value
                low += next_word
            continue
        # A field is moved to the top of its word, and back with its sign.
        back = np.int32((32 - width) & 31)
        taken += width
        if taken <= 32:
            left = np.uint32((32 - taken) & 31)
            for lane in range(LANES):
                field = np.int32(np.uint32(buffer[low + np.uintp(lane)] << left)) >> back
                d[PLANE + row * LANES + lane] = field + d[above + np.uintp(lane)]
        else:
            down, left = np.uint32(taken & 31), np.uint32((64 - taken) & 31)
            for lane in range(LANES):
                window = np.uint32(buffer[low + np.uintp(lane)] >> down)
                window |= np.uint32(buffer[low + next_word + np.uintp(lane)] << left)
                d[PLANE + row * LANES + lane] = (np.int32(window) >> back) + d[above + np.uintp(lane)]
        if taken >= 32:
            taken -= 32
            low += next_word


@jit
def restore(t: Any, magic: Any, step: Any, widths: Any, x: Any) -> None:
    """Multiply by the step, but for the rows that are kept as they are."""
    for row in range(ROWS):
        if widths[row] < EXACT:
            for lane in range(LANES):
                x[row * LANES + lane] = (t[row * LANES + lane] - magic) * step


@jit
def restore_in_place(t: Any, magic: Any, step: Any, place: tuple[int, int, int, int], extents: Any, array: Any) -> None:
    """Do what `restore` and `scatter` do, for a whole tile of a volume that has no rows kept as they are."""
    pitch, plane = extents[2], extents[1] * extents[2]
    for row in range(ROWS):
        at = (place[0] + row // SIDE) * plane + (place[1] + row % SIDE) * pitch + place[2]
        near, far = np.uintp(at), np.uintp(at + SIDE * pitch)
        for k in range(16):
            array[near + np.uintp(k)] = (t[row * LANES + k] - magic) * step
        for k in range(16):
            array[far + np.uintp(k)] = (t[row * LANES + 16 + k] - magic) * step


@jit
def decode_tiles(
    words: Any, end: int, start: int, layout: Any, tiles: tuple[int, int], numbers: Any, places: Any, array: Any
) -> int:
    """Decode tiles; give how many are damaged, which are left zero."""
    rank, extents, counts, shift = layout
    step, magic, base, zero = numbers
    x, t = np.empty(VALUES, array.dtype), np.empty(VALUES, array.dtype)
    bits, raw = t.view(base.dtype), x.view(np.uint32)
    each = raw.size // VALUES
    # The bits of a float32 are those of what it was quantised to.
    q = t.view(np.int32) if each == 1 else np.empty(VALUES, np.int32)
    d = np.zeros(PLANE + VALUES, np.int32)
    widths = np.empty(ROWS, np.int64)
    buffer = np.empty((ROWS * each + 2) * LANES, np.uint32)  # the streams, and a word that no field reaches into
    damaged = 0
    for tile in range(tiles[0], tiles[1]):
        place = locate(tile, rank, extents, counts)
        code = np.int64(places[tile])
        at = (code & PLACE) << (shift - 2)
        whole = code == 0 or at >= start
        if code == 0:
            x[:] = 0
        elif whole and code & RAW:
            whole = at + place[3] * each <= end
            if whole:
                for row in range(ROWS):
                    for lane in range(LANES):
                        if place[3] == VALUES or position(place, row, lane, rank, extents)[1]:
                            for part in range(each):
                                raw[(row * LANES + lane) * each + part] = words[at]
                                at += 1
        elif whole:
            at, total = read_widths(words, at, end, each, widths)
            whole = total >= 0
            if whole:
                unpack(words, at, total, each, widths, rank, buffer, d, raw)
                unpredict(d, q, rank, zero)
                if each == 2:
                    for k in range(VALUES):
                        bits[k] = base[0] + q[k]
                exact = False
                for row in range(ROWS):
                    exact |= widths[row] == EXACT
                if rank == 3 and place[3] == VALUES and not exact:
                    restore_in_place(t, magic, step, place, extents, array)
                    continue
                restore(t, magic, step, widths, x)
        if not whole:
            damaged += 1
            x[:] = 0
        scatter(x, place, rank, extents, array)
    return damaged


@jit
def reorder(words: Any, end: int, start: int, layout: Any, tiles: int, each: int, places: Any, out: Any) -> int:
    """Copy an encoding with its tiles in order; give its words, or -1 where it is damaged."""
    rank, extents, counts, shift = layout
    widths = np.empty(ROWS, np.int64)
    unit = 1 << (shift - 2)
    to = start
    for tile in range(tiles):
        code = np.int64(places[tile])
        at = (code & PLACE) << (shift - 2)
        if code == 0:
            continue
        size = locate(tile, rank, extents, counts)[3] * each
        if not code & RAW:
            after, total = read_widths(words, at, end, each, widths)
            if total < 0:
                return -1
            size = after + total - at
        if at < start or at + size > end or to + size > out.size:
            return -1
        out[to : to + size] = words[at : at + size]
        places[tile] = np.uint32(to >> (shift - 2) | code & RAW)
        to += size
        while to % unit:
            out[to] = 0
            to += 1
    return to


@jit
def values_before(tile: int, rank: int, extents: Any, counts: Any) -> int:
    """Count the values of all tiles before one."""
    total = 0
    for before in range(tile):
        total += locate(before, rank, extents, counts)[3]
    return total


@jit
def shift_left(words: Any, begin: int, end: int, to: int, places: Any, shift: int) -> None:
    """Move a run of tiles towards the front, and what their places say."""
    for k in range(end - begin):
        words[to + k] = words[begin + k]
    units = np.uint32((begin - to) >> (shift - 2))
    for tile in range(places.size):
        if places[tile]:
            places[tile] -= units
