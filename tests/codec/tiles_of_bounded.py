"""What kernels of `bounded`, and of comparisons, do with single tiles and numbers: cases of `plain.json`.

Most are held against NumPy or against the array itself; the others are known by what they told before.
"""

from dataclasses import replace
from importlib import import_module
from itertools import product
from unittest.mock import patch

import numpy as np
from xxhash import xxh3_64_hexdigest


def kernels(name):
    return import_module(f"forebay.codec.{name}")


def digest(*arrays):
    return xxh3_64_hexdigest(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays))[:8]


def rising(count, dtype="float32"):
    """Numbers of which no two neighbours are alike, computed from integers."""
    return ((np.arange(count) * 37 % 101 - 50) / 8).astype(dtype)


def extremes():
    """Hold the extremes of tiles against NumPy's, with the largest and the smallest at many places."""
    tile_extremes, tiles = kernels("bounded.extremes").tile_extremes, kernels("bounded.tiles")
    for rank, extents, dtype in (
        (1, (1, 1, 4103), "float32"),
        (1, (1, 1, 16), "float64"),
        (2, (1, 67, 49), "float32"),
        (3, (9, 18, 33), "float32"),
        (3, (4, 5, 16), "float64"),
    ):
        sides = {1: (1, 1, 2048), 2: (1, 64, 32), 3: (8, 16, 16)}[rank]
        counts = tuple(-(-extent // side) for extent, side in zip(extents, sides, strict=True))
        size, itemsize = int(np.prod(extents)), np.dtype(dtype).itemsize
        bands = int(np.prod(counts)) // (counts[2] if rank > 1 else 1)
        for at in (0, 1, 15, 16, size // 2 + 3, size - 17, size - 1):
            at = at % size
            for value, other in ((9.0, 0.25), (-9.0, -0.25)):
                array = np.full(size, 1.0 if value > 0 else -1.0, dtype)
                array[at], array[(at + size // 3) % size] = value, other
                words = array.view(f"i{itemsize}")
                places = np.zeros(int(np.prod(counts)), np.uint32)
                told = tile_extremes(words, (rank, extents, counts), (0, bands), places)
                unsigned = words.view(f"u{itemsize}")
                expected = words.max(), unsigned.max(), unsigned.min()
                assert [int(each) % 2 ** (8 * itemsize) for each in told] == [
                    int(each) % 2 ** (8 * itemsize) for each in expected
                ]
                magnitudes = (words & np.iinfo(words.dtype).max) >> (8 * itemsize - 32)
                for tile, found in enumerate(places):
                    z, y, x = tiles.locate(tile, rank, extents, counts)[:3]
                    mine = tuple(slice(first, first + side) for first, side in zip((z, y, x), sides, strict=True))
                    assert found == magnitudes.reshape(extents)[mine].max()
    yield True


def ranges():
    """Hold ranges of finite values against NumPy's."""
    finite_range = kernels("bounded.extremes").finite_range
    for size, dtype in product((1, 4096, 4097, 8193), ("float32", "float64")):
        for at, value in ((0, 60.0), (-1, -60.0), (0, np.nan), (-1, np.inf), (size // 2, -np.inf)):
            array = rising(size, dtype)
            array[at] = value
            finite = array[np.isfinite(array)]
            expected = (finite.min(), finite.max()) if finite.size else (0, 0)
            assert finite_range(array, array.view(f"i{array.itemsize}")) == expected
    yield True


def largest_of_nothing():
    """Find the largest magnitude of which only zeros stay: it does, and the next does not."""
    largest_empty = kernels("bounded.extremes").largest_empty
    for step, bound, dtype in ((0.25, 0.1, "float32"), (0.25, 0.2, "float32"), (3e-5, 1e-3, "float64")):
        real, word = np.dtype(dtype).type, f"i{np.dtype(dtype).itemsize}"
        magic = real(1.5 * 2**23 if dtype == "float32" else 1.5 * 2**52)
        test = real(bound).view(word)
        told = largest_empty((real(step), real(1) / real(step), test, magic, np.int32(0)))
        for top, stays in ((told, True), (told + 1, False)):
            last = (top + 1 << 8 * np.dtype(dtype).itemsize - 32) - 1
            value = np.array(last, word).view(dtype)[()]
            assert (last < test and value * (real(1) / real(step)) + magic == magic) == stays
        yield int(told)


def warmed():
    """Which values are read ahead: those of tiles side by side, and no others."""
    warm, extents = kernels("bounded.encoder").warm, (9, 18, 50)
    seen = []
    for place, columns in (((0, 0, 0, 2048), 48), ((1, 2, 16, 2048), 16), ((0, 1, 2, 2048), 32)):
        inside = np.zeros(extents, bool)
        inside[0, 0, :16] = True  # with which it begins
        inside[place[0] : place[0] + 8, place[1] : place[1] + 16, place[2] : place[2] + columns] = True
        for z, y, x in product((0, 1, 8), (0, 1, 17), (1, 2, 15, 16, 33, 34, 47, 48)):
            array = np.zeros(extents, np.float32)
            array[z, y, x] = 1
            touched = warm(array.reshape(-1), place, extents, columns) != 0
            if touched != inside[z, y, x]:
                seen.append((place, z, y, x))
    assert not seen
    yield True


def bricks():
    """Take arrays apart into tiles of `bounded` and together again; what sticks out repeats the last."""
    tiles = kernels("bounded.tiles")
    sides = {1: (1, 1, 2048), 2: (1, 64, 32), 3: (8, 16, 16)}
    for rank, extents in ((1, (1, 1, 2050)), (1, (1, 1, 3)), (2, (1, 65, 33)), (2, (1, 2, 40)), (3, (9, 17, 18))):
        counts = tuple(-(-extent // side) for extent, side in zip(extents, sides[rank], strict=True))
        array, tile = rising(np.prod(extents)), np.zeros(2048, np.float32)
        back, gathered = np.zeros_like(array), []
        for number in range(np.prod(counts)):
            place = tiles.locate(number, rank, extents, counts)
            tiles.gather(array, place, rank, extents, tile)
            tiles.scatter(tile, place, rank, extents, back)
            gathered.append(tile.copy())
            rows = range(0, 64, 9)
            there = sum(tiles.exists(place, row, lane, rank, extents) for row in rows for lane in range(32))
            gathered.append(np.array([*place, there]))
        assert (back == array).all()
        yield digest(*gathered)


def widths():
    """Widths of rows, some of which take a byte, written and read; and read of words that end too soon."""
    encoder, decoder = kernels("bounded.encoder"), kernels("bounded.decoder")
    for kind in ([0] * 64, [32] * 3 + [15] * 2 + [14] * 59, [1] * 63 + [31], [16] * 64, [40] + [0] * 63):
        widths, words, read = np.array(kind), np.zeros(120, np.uint32), np.zeros(64, np.int64)
        escapes = sum(width >= 15 for width in kind)
        after = encoder.write_widths(widths, escapes, words, 3)
        row = [int(after), digest(words)]
        for end, each in product((3, 10, 11, 12, int(after) - 1, int(after), 5000), (1, 2)):
            told = decoder.read_widths(words, 3, end, each, read)
            row.append([int(value) for value in told])
            assert told[1] < 0 or (read == kind).all()
        total = row[-2][1]
        for end in (int(after) + total - 1, int(after) + total):
            row.append(int(decoder.read_widths(words, 3, end, 1, read)[1]))
        yield row


def apart():
    """Where shares of tiles may begin, so that none writes over the next."""
    host, codec = kernels("bounded.host"), kernels("bounded").Bounded(1.0)
    for shape in ((5000,), (130, 70), (17, 40, 50)):
        tiling = codec._tiling(shape, np.dtype("float32"))
        for shift in (2, 5):
            other = replace(tiling, shift=shift)
            yield [int(host._first_word(tile, other)) for tile in range(tiling.tiles)]
    host, codec = kernels("dense.host"), kernels("dense").Dense(1.0)
    for shape in ((9000,), (130, 70), (17, 40, 50)):
        tiling = replace(codec._tiling(shape, np.dtype("float32")), shift=5)
        with patch.object(kernels("bounded.host"), "FEWEST_TILES", 1):
            yield [sorted(map(int, host._first_words(level, tiling, 100, 3).values())) for level in tiling.levels]
    shares_of = kernels("bounded.host").shares_of
    for tiles, threads, count in ((1000, 4, 1000), (1000, 4, 3), (5, 4, 5), (31, 8, 7), (64, 2, 9)):
        yield [list(share) for share in shares_of(tiles, threads, count)]


def compared():
    """Compare arrays of numbers that are none, and of ones that agree in that."""
    quality, cpu = kernels("quality.host"), kernels("nvcomp.cpu")
    odd = [np.nan, np.inf, -np.inf, 1.0]
    for first, second in product(odd, odd):
        one, other = np.ones((5, 5, 6)), np.full((5, 5, 6), 1.5)
        one[2, 2, 0], other[2, 2, 0] = first, second
        told = [*quality.compare(one, other), quality.similarity(one, other, (5, 5, 5), 0.5, 1e-4, 9e-4)]
        yield [round(each, 9) if np.isfinite(each) else str(each) for each in told]
    for values in ([np.nan, np.inf], [np.inf, 3.0, 5.0], [1e300, -1e300], [2.0], [np.nan, -1.0, 4.0]):
        yield [str(float(cpu.spread(np.array(values), deviation))) for deviation in (False, True)]


def cases():
    """Yield the name of each case, and what makes it anew."""
    for case in (extremes, ranges, largest_of_nothing, warmed, bricks, widths, apart, compared):
        yield f"{case.__name__.replace('_', ' ')}", lambda case=case: list(case())
