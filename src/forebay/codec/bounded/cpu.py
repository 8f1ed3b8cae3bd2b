"""`bounded` on the CPU: the twin of the kernels in ``bounded.cu``, which defines what they give.

A tile is worked through row by row, and a row is a vector of 32 lanes. All of it but the vectors is one file, because
Numba compiles anew what it has kept only when the file of that very function has changed.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from forebay.codec.bounded.format import ESCAPE, EXACT, LANES, RAW, ROWS, SIDE, VALUES
from forebay.codec.bounded.rows import (
    any_of,
    bits_of,
    fill,
    high_words,
    holding,
    joined,
    larger,
    larger_unsigned,
    largest,
    largest_unsigned,
    load,
    load_half,
    load_halves,
    low_words,
    magnitudes,
    numbers_of,
    prefetch,
    prefetch_to_write,
    shift_down,
    smaller_unsigned,
    smallest_unsigned,
    spread_1,
    spread_2,
    spread_4,
    spread_8,
    spread_16,
    store,
    store_halves,
    width_of,
)
from forebay.compiled import kept

PLACE = RAW - 1
HALF = LANES // 2
CACHED = 48
"""Tiles of float32 that a cache next to a processor keeps."""
PLANE = SIDE * LANES
WIDTH_WORDS = ROWS // 8


F = TypeVar("F", bound=Callable[..., Any])


def jit(function: F) -> F:
    """Compile a function for one thread that leaves the others theirs."""
    return kept(function, nogil=True, error_model="numpy")


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


@jit
def survey(bits: Any, layout: Any, bands: tuple[int, int], places: Any) -> tuple[int, int, int]:
    """Look through bands of tiles, and leave the largest magnitude of each tile in `places`, which are found later.

    A band is what lies side by side along the fastest axis, of a line a single tile; along it there are 16 values or
    more. Of the bits of numbers, taken as integers, the largest is the largest number, unless all are negative; without
    signs it is the most negative one, unless none is; the smallest without signs is the one that is missing then.

    Returns
    -------
    Those three.
    """
    rank, extents, counts, _ = layout
    tiles, each = (counts[2], 2 if rank == 2 else 1) if rank > 1 else (1, 1)
    found = np.empty((3, tiles * each * HALF), bits.dtype)
    flat = found.reshape(-1)
    rest = np.iinfo(bits.dtype).max
    highest, lowest, nearest = load_half(bits, 0), load_half(bits, 0), load_half(bits, 0)
    for band in range(bands[0], bands[1]):
        survey_band(bits, rank, extents, counts, band, flat)
        for tile in range(tiles):
            peak = bits.dtype.type(0)
            for k in range(tile * each, (tile + 1) * each):
                high, low = load_half(flat, k * HALF), load_half(flat, (tiles * each + k) * HALF)
                highest, lowest = larger(highest, high), larger_unsigned(lowest, low)
                nearest = smaller_unsigned(nearest, load_half(flat, (2 * tiles * each + k) * HALF))
                up, down = largest(high), largest_unsigned(low)
                peak = max(peak, up, bits.dtype.type(down & rest) if down < 0 else up)
            places[band * tiles + tile] = np.uint32(peak >> (8 * bits.itemsize - 32))
    return largest(highest), largest_unsigned(lowest), smallest_unsigned(nearest)


@jit
def survey_band(bits: Any, rank: int, extents: Any, counts: Any, band: int, found: Any) -> None:
    """Leave the largest, the largest without signs and the smallest without signs of each 16 columns in `found`."""
    columns, last = found.size // 3, extents[2] - HALF
    if rank == 1:
        high = low = near = load_half(bits, min(band * VALUES, last))
        for k in range(1, VALUES // HALF):
            x = load_half(bits, min(band * VALUES + k * HALF, last))
            high, low, near = larger(high, x), larger_unsigned(low, x), smaller_unsigned(near, x)
        store(high, found, 0)
        store(low, found, HALF)
        store(near, found, 2 * HALF)
        return
    slow, middle = (band // counts[1] * SIDE, band % counts[1] * 16) if rank == 3 else (0, band * 64)
    lines = min(16 if rank == 3 else 64, extents[1] - middle)
    fresh = True
    for z in range(slow, min(slow + SIDE, extents[0])):
        # Four lines at a time, or the last of them again: less is read and written of what was found before.
        for y in range(0, lines, 4):
            one = (z * extents[1] + middle + y) * extents[2]
            two, three, four = (
                one + min(1, lines - 1 - y) * extents[2],
                one + min(2, lines - 1 - y) * extents[2],
                one + min(3, lines - 1 - y) * extents[2],
            )
            for k in range(0, columns, HALF):
                x = min(k, last)
                a, b, c, d = (
                    load_half(bits, one + x),
                    load_half(bits, two + x),
                    load_half(bits, three + x),
                    load_half(bits, four + x),
                )
                high = larger(larger(a, b), larger(c, d))
                low = larger_unsigned(larger_unsigned(a, b), larger_unsigned(c, d))
                near = smaller_unsigned(smaller_unsigned(a, b), smaller_unsigned(c, d))
                if not fresh:
                    high = larger(high, load_half(found, k))
                    low = larger_unsigned(low, load_half(found, columns + k))
                    near = smaller_unsigned(near, load_half(found, 2 * columns + k))
                store(high, found, k)
                store(low, found, columns + k)
                store(near, found, 2 * columns + k)
            fresh = False


@jit
def largest_idle(numbers: Any) -> int:
    """Give the largest magnitude, as `survey` leaves it, of a tile all of whose values become 0; -1 without any.

    Whether a value does depends on its magnitude alone, and no larger one does where a smaller one does not.
    """
    _, inverse, test, magic, _ = numbers
    bits = np.empty(1, type(test))
    number = bits.view(type(inverse))
    low, high = np.int64(-1), np.int64(test)
    while high - low > 1:
        middle = low + (high - low) // 2
        bits[0] = middle
        if number[0] * inverse + magic == magic:
            low = middle
        else:
            high = middle
    wide = 8 * bits.itemsize - 32
    return int(((low + 1) >> wide) - 1)


@jit
def model(
    array: Any, x: Any, direct: bool, place: Any, rank: int, extents: Any, numbers: Any, above: Any, d: Any, widths: Any
) -> tuple[int, int]:
    """Quantise and predict a tile: residuals go to `d`, and the values of rows that are kept as they are.

    Parameters
    ----------
    array, x, direct
        Values are taken out of the array, if `direct`, or else out of the tile `x`.
    above
        Room for the rows before, of a side.
    d, widths
        What the tile is coded as. Upper words of values follow after all rows.

    Returns
    -------
    The bits of a stream, and how many widths do not fit into four bits.
    """
    step, inverse, test, magic, zero = numbers
    steps, inverses, magics = fill(step), fill(inverse), fill(magic)
    pitch, plane = extents[2], extents[1] * extents[2]
    each = x.itemsize // 4
    total = escapes = 0
    before = fill(zero)
    for j in range(SIDE):
        store(fill(np.int32(0)), above, j * LANES)
    for i in range(SIDE):
        at = (place[0] + i) * plane + place[1] * pitch + place[2]
        if rank > 1:
            before = fill(zero)
        for j in range(SIDE):
            row = i * SIDE + j
            if direct:
                values = load_halves(array, at, at + SIDE * pitch)
                prefetch(array, at + HALF)
                prefetch(array, at + HALF + SIDE * pitch)
                at += pitch
            else:
                values = load(x, row * LANES)
            q = low_words(bits_of(values * inverses + magics))
            off = largest(magnitudes(values - (holding(q, x) - magics) * steps))
            along, told = q - before, load(above, j * LANES)
            residual = along - told
            width = width_of(any_of(residual ^ (residual + residual)))
            if width == EXACT or off >= test:
                width = EXACT
                # Read again, so that registers need not hold it until here.
                values = load_halves(array, at - pitch, at + (SIDE - 1) * pitch) if direct else load(x, row * LANES)
                store(low_words(bits_of(values)), d, row * LANES)
                store(high_words(bits_of(values)), d, VALUES + row * LANES)
                before = before + load(above, j * LANES)
                total += 32 * each
            else:
                store(residual, d, row * LANES)
                if rank > 1:
                    store(along, above, j * LANES)
                before = q
                total += width
            widths[row] = width
            escapes += width >= ESCAPE
    return total, escapes


@jit
def pack(d: Any, each: int, widths: Any, spare: Any, words: Any, at: int) -> int:
    """Concatenate the fields of each lane, word by word for all lanes; give the word after the last."""
    stream = fill(np.int32(0))
    filled = 0
    for row in range(ROWS):
        width = widths[row]
        if width == 0:
            continue
        for part in range(each if width == EXACT else 1):
            value = load(d, part * VALUES + row * LANES) & fill(np.int32((1 << width) - 1))
            stream = stream | value << fill(np.int32(filled))
            filled += width
            if filled >= 32:
                filled -= 32
                store(stream, words, at)
                at += LANES
                # By less than 32 at a time: nothing is left over where the word ends with the field.
                stream = shift_down(shift_down(value, fill(np.int32(width - filled - 1))), fill(np.int32(1)))
    store(stream, spare, 0)
    return push_tail(spare, filled, words, at)


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
def pull_tail(words: Any, at: int, filled: int, tail: Any) -> None:
    """Read back what `push_tail` wrote."""
    stream, done = fill(np.uint32(0)), 0
    if filled & 16:
        stream, done = spread_16(words, at), 16
    if filled & 8:
        stream, done = stream | spread_8(words, at + done) << fill(np.uint32(done)), done + 8
    if filled & 4:
        stream, done = stream | spread_4(words, at + done) << fill(np.uint32(done)), done + 4
    if filled & 2:
        stream, done = stream | spread_2(words, at + done) << fill(np.uint32(done)), done + 2
    if filled & 1:
        stream = stream | spread_1(words, at + done) << fill(np.uint32(done))
    store(stream, tail, 0)


@jit
def warm(array: Any, place: Any, extents: Any, columns: int) -> int:
    """Read tiles that lie side by side, line after line: memory gives them fastest so, and caches keep them."""
    seen = bits_of(load_half(array, 0))
    for z in range(place[0], place[0] + SIDE):
        for y in range(place[1], place[1] + 16):
            at = (z * extents[1] + y) * extents[2] + place[2]
            for k in range(0, columns, HALF):
                seen = seen | bits_of(load_half(array, at + k))
    return any_of(seen)  # type: ignore[no-any-return] # which nobody wants, but what nobody wants is not read


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
        Step, its inverse, the bits of the bound that errors stay below, the number that leaves integers in the lowest
        bits, and what 0 is quantised to.
    words, places
        The encoding, and the table in it, in which `survey` has left the largest magnitudes.
    """
    rank, extents, counts, shift = layout
    x = np.empty(VALUES, array.dtype)
    raw = x.view(np.uint32)
    each = raw.size // VALUES
    d, above = np.empty(2 * VALUES, np.int32), np.empty(PLANE, np.int32)
    widths, spare = np.empty(ROWS, np.int64), np.empty(LANES, np.uint32)
    idle = largest_idle(numbers)
    at, warmed, seen = start, tiles[0], 0
    for tile in range(tiles[0], tiles[1]):
        if np.int64(places[tile]) <= idle:
            places[tile] = 0
            continue
        place = locate(tile, rank, extents, counts)
        direct = rank == 3 and place[3] == VALUES
        if direct and tile >= warmed:
            # As far as there is something to encode in this line of tiles.
            for after in range(tile, min(tile - tile % counts[2] + counts[2], tile + CACHED // each, tiles[1])):
                if np.int64(places[after]) > idle:
                    warmed = after + 1
            seen |= warm(array, place, extents, min((warmed - tile) * HALF, extents[2] - place[2]) // HALF * HALF)
        if not direct:
            gather(array, place, rank, extents, x)
        total, escapes = model(array, x, direct, place, rank, extents, numbers, above, d, widths)
        if total == 0:
            places[tile] = 0
            continue
        here = at >> (shift - 2)
        if WIDTH_WORDS + (escapes + 3) // 4 + total >= place[3] * each:
            places[tile] = np.uint32(here | RAW)
            if direct:
                gather(array, place, rank, extents, x)
            for row in range(ROWS):
                for lane in range(LANES):
                    if place[3] == VALUES or position(place, row, lane, rank, extents)[1]:
                        for part in range(each):
                            words[at] = raw[(row * LANES + lane) * each + part]
                            at += 1
        else:
            places[tile] = np.uint32(here)
            at = pack(d, each, widths, spare, words, write_widths(widths, escapes, words, at))
        while at % (1 << (shift - 2)):
            words[at] = 0
            at += 1
    spare[0] = seen
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
def unpack(words: Any, at: int, total: int, each: int, widths: Any, tail: Any, d: Any) -> None:
    """Read the fields that `pack` wrote."""
    end = at + total // 32 * LANES
    pull_tail(words, end, total % 32, tail)
    word = load(words, at) if at < end else load(tail, 0)
    taken = 0
    for row in range(ROWS):
        width = widths[row]
        if width == 0:
            store(fill(np.int32(0)), d, row * LANES)
            continue
        for part in range(each if width == EXACT else 1):
            # A field is moved to the top of its word, and back with its sign.
            taken += width
            if taken < 32:
                field = word << fill(np.uint32(32 - taken))
            else:
                taken -= 32
                field = shift_down(word, fill(np.uint32(taken)))
                at += LANES
                word = load(words, at) if at < end else load(tail, 0)
                if taken:
                    field = field | word << fill(np.uint32(32 - taken))
            store(field >> fill(np.uint32(32 - width)), d, part * VALUES + row * LANES)


@jit
def rebuild(
    d: Any, widths: Any, rank: int, numbers: Any, above: Any, array: Any, x: Any, direct: bool, place: Any, extents: Any
) -> None:
    """Undo what `model` did, into the array or the tile `x`."""
    step, magic, zero = numbers
    steps, magics = fill(step), fill(magic)
    pitch, plane = extents[2], extents[1] * extents[2]
    before = fill(zero)
    for j in range(SIDE):
        store(fill(np.int32(0)), above, j * LANES)
    for i in range(SIDE):
        at = (place[0] + i) * plane + place[1] * pitch + place[2]
        if rank > 1:
            before = fill(zero)
        for j in range(SIDE):
            row = i * SIDE + j
            if widths[row] == EXACT:
                before = before + load(above, j * LANES)
                upper = VALUES if x.itemsize == 8 else 0
                bits = joined(load(d, row * LANES), load(d, upper + row * LANES), x)
                values = numbers_of(bits, x)
            else:
                along = load(d, row * LANES) + load(above, j * LANES)
                if rank > 1:
                    store(along, above, j * LANES)
                before = before + along
                values = (holding(before, x) - magics) * steps
            if direct:
                store_halves(values, array, at, at + SIDE * pitch)
                prefetch_to_write(array, at + HALF)
                prefetch_to_write(array, at + HALF + SIDE * pitch)
                at += pitch
            else:
                store(values, x, row * LANES)


@jit
def clear(place: Any, extents: Any, length: int, array: Any) -> None:
    """Set whole tiles side by side in a volume to zero."""
    for z in range(place[0], place[0] + SIDE):
        for y in range(place[1], place[1] + 16):
            at = np.uintp((z * extents[1] + y) * extents[2] + place[2])
            for k in range(length):
                array[at + np.uintp(k)] = 0


@jit
def decode_tiles(
    words: Any, end: int, start: int, layout: Any, tiles: tuple[int, int], numbers: Any, places: Any, array: Any
) -> int:
    """Decode tiles; give how many are damaged, which are left zero."""
    rank, extents, counts, shift = layout
    x = np.empty(VALUES, array.dtype)
    raw = x.view(np.uint32)
    each = raw.size // VALUES
    d, above = np.empty(2 * VALUES, np.int32), np.empty(PLANE, np.int32)
    widths, tail = np.empty(ROWS, np.int64), np.empty(LANES, np.uint32)
    damaged = 0
    tile = tiles[0] - 1
    while tile + 1 < tiles[1]:
        tile += 1
        place = locate(tile, rank, extents, counts)
        direct = rank == 3 and place[3] == VALUES
        code = np.int64(places[tile])
        at = (code & PLACE) << (shift - 2)
        whole = code == 0 or at >= start
        if code == 0:
            if direct:
                first, line = tile, tile // counts[2]
                while tile + 1 < tiles[1] and places[tile + 1] == 0 and (tile + 1) // counts[2] == line:
                    if locate(tile + 1, rank, extents, counts)[3] < VALUES:
                        break
                    tile += 1
                clear(place, extents, (tile + 1 - first) * HALF, array)
                continue
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
                unpack(words, at, total, each, widths, tail, d)
                rebuild(d, widths, rank, numbers, above, array, x, direct, place, extents)
                if direct:
                    continue
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
