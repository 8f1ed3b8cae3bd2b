"""What kernels of `dense` do with single tiles, at edges that whole encodings seldom meet: cases of `plain.json`.

Copies to and fro are held against the array itself; the others are known by what they told before.
"""

from itertools import product

import numpy as np
from tests.codec.tiles_of_bounded import digest, kernels, rising
from xxhash import xxh3_64_hexdigest

CUBES = [(35, 35, 35), (37, 35, 35)]
"""With one tile that touches no side; around that of the second, lines may be read whole."""
EXTENTS = {
    1: [(1, 1, extent) for extent in (1, 2, 31, 4097)],
    2: [(1, 65, 64), (1, 66, 130), (1, 3, 2)],
    3: [*CUBES, (2, 17, 3), (16, 1, 32), (17, 16, 18)],
}


def grids():
    """Yield the rank, extents and tiles along each axis of grids whose tiles stick out."""
    tiles = kernels("dense.tiles")
    for rank, several in EXTENTS.items():
        for extents in several:
            sides = [tiles.side_of(rank, axis) for axis in range(3)]
            yield rank, extents, tuple(-(-extent // side) for extent, side in zip(extents, sides, strict=True))


def copied():
    """Halve grids, and take them apart and together again tile by tile; then make whole tiles zero."""
    tiles, model = kernels("dense.tiles"), kernels("dense.model")
    for rank, extents, counts in grids():
        array = rising(np.prod(extents))
        above = np.zeros(np.prod([-(-extent // 2) for extent in extents]), np.float32)
        tiles.halve(array, extents, rank, above)
        steps = tuple(slice(None, None, 2) for _ in range(3))
        assert (above == array.reshape(extents)[steps].reshape(-1)).all()
        known, x, field = np.zeros_like(array), np.zeros(4096, np.float32), np.zeros(model.FIELD, np.float32)
        gathered, wiped = [], []
        for tile in range(np.prod(counts)):
            place = tiles.locate(tile, rank, extents, counts)
            tiles.gather(array, extents, place, rank, x)
            field[model.PAD : model.PAD + 4096] = x
            tiles.scatter(above, field, extents, place, rank, 0, known)
            gathered.append(digest(x))
        assert (known == array).all()
        for tile in range(0, np.prod(counts), 2):
            wiped.append(tiles.wipe(extents, tiles.locate(tile, rank, extents, counts), rank, 0, known))
        yield [xxh3_64_hexdigest("".join(gathered).encode())[:8], sum(map(bool, wiped)), digest(known)]


def surrounded():
    """What lies around tiles: numbers, some that are none, or a single one that is not zero, which few tiles see."""
    tiles, model = kernels("dense.tiles"), kernels("dense.model")
    for rank, extents, counts in grids():
        size = int(np.prod([-(-extent // 2) for extent in extents]))
        numbers, odd = rising(size), rising(size)
        odd[::7], odd[3::11] = np.nan, np.inf
        told = []
        for above in (numbers, odd):
            rooms = []
            for tile in range(np.prod(counts)):
                coarse = np.zeros(model.COARSE, np.float32)
                blank = tiles.surround(above, extents, tiles.locate(tile, rank, extents, counts), rank, coarse)
                lines = coarse[: (2051, 1260, 1452)[rank - 1]].reshape(-1, (2051, 36, 12)[rank - 1])
                rooms += [bool(blank), digest(lines[:, : lines.shape[1] - (rank > 1)].copy())]
            told.append(xxh3_64_hexdigest(repr(rooms).encode())[:8])
        seen = []
        for at in sorted({0, size // 3, size - 1}):
            above = np.zeros(size, np.float32)
            above[at] = 1e-40
            for tile in range(np.prod(counts)):
                place, coarse = tiles.locate(tile, rank, extents, counts), np.zeros(model.COARSE, np.float32)
                seen.append(str(int(tiles.surround(above, extents, place, rank, coarse))))
        yield [*told, "".join(seen)]


def existing():
    """Hold the words that say which points exist against the points one by one."""
    tiles, model = kernels("dense.tiles"), kernels("dense.model")
    sides = {1: [(1, 1, 70), (1, 1, 4095)], 2: [(1, 9, 33), (1, 64, 1)], 3: [(3, 16, 9), (16, 1, 16), (9, 8, 1)]}
    for rank, several in sides.items():
        for extents in several:
            place, cells = (0, 0, 0, *extents), 4096 >> rank
            for kind, row in product(range(1, 1 << rank), range(0, cells // 32, 3)):
                first = kind * cells + row * 32
                each = [bool(tiles.exists(first + lane, rank, place)) for lane in range(32)]
                told = int(model.existing(kind, row, rank, place))
                assert each == [bool(told >> lane & 1) for lane in range(32)]
    yield True


def empty():
    """Tell where points become 0: the largest that do, and the next, at each end of what is looked at."""
    encoder = kernels("dense.encoder")
    numbers = (np.float32(0.25), np.float32(4), np.float32(0.1), np.float32(1.5 * 2**23), np.int32(0x4B400000))
    coarse_bound = (*numbers[:2], np.float32(0.5), *numbers[3:])
    for given, at in product((numbers, coarse_bound), (511, 512, 4095)):
        for value in (0.0, 0.09999, 0.1, 0.1249, 0.125, -0.2, np.inf):
            x = np.zeros(4096, np.float32)
            x[at] = value
            yield bool(encoder.nothing(x, 512, given))


def tops():
    """Quanta of uppermost grids, whose bits or whose differences are fewer, and what is read of those cut short."""
    top = kernels("dense.top")
    places = np.arange(4096)
    kinds = {
        "zeros": places * 0,
        "lines": places // 2 % 500 - 40,
        "rough": places * 7919 % 1021 - 300,
        "one": (places == 4095) * -(2**19),
        "first": (places < 1) * 3,
    }
    for rank, codes in product((1, 2, 3), kinds.values()):
        words, others, x = np.zeros(4608, np.uint32), np.zeros(4608, np.uint32), np.zeros(4096, np.float32)
        given, read = codes.astype(np.int32), np.zeros(4096, np.int32)
        used, odd = top.pack_top(given.copy(), rank, words, others)
        row = [int(used), bool(odd), digest(words[:used])]
        if used:
            assert top.unpack_top(words[: used + 3], odd, rank, np.float32(0.5), read, x) == used
            assert (x == given * np.float32(0.5)).all()
            row += [int(top.measure_top(words[:cut])) for cut in (0, 31, 32, used - 1, used, used + 1)]
            row.append(int(top.unpack_top(words[:31], odd, rank, np.float32(0.5), read, x)))
            for width in (32, 33):
                words.view(np.uint8)[5] = width
                row.append(int(top.measure_top(words)))
        yield row
    for rank, extents, counts in grids():
        array, x = rising(np.prod(extents)), np.zeros(4096, np.float32)
        known, gathered = np.zeros_like(array), []
        for tile in range(0, np.prod(counts), 5):
            place = kernels("dense.tiles").locate(tile, rank, extents, counts)
            top.gather_bricks(array, extents, place, rank, x)
            top.scatter_bricks(x, extents, place, rank, known)
            gathered.append(x.copy())
        yield [digest(*gathered), digest(known)]


def uppermost():
    """Tiles of uppermost grids, coded or kept as they are, with steps of their own; and what is read of damaged."""
    encoder, decoder, host = (kernels(f"dense.{name}") for name in ("encoder", "decoder", "host"))
    form, desk = kernels("bounded.format"), kernels("dense.desk").desk_for(np.dtype("float32"))
    bound, step = 0.05, 0.09
    exponents = np.arange(-3, 3).astype(np.int8)
    scales = form.scaled(bound, step, np.arange(-128, 128).astype(np.int8), np.dtype("float32"))
    numbers = host._numbers(np.dtype("float32"), bound, step)
    for (rank, extents), (own, kind) in product(
        ((1, (1, 1, 4200)), (2, (1, 66, 40)), (3, (3, 3, 18))), ((0, "noise"), (1, "lines"), (0, "few"))
    ):
        sides = {1: (1, 1, 4096), 2: (1, 64, 64), 3: (16, 16, 16)}[rank]
        counts = tuple(-(-extent // side) for extent, side in zip(extents, sides, strict=True))
        size, tiles = int(np.prod(extents)), int(np.prod(counts))
        array = rising(size) * np.float32(1e6)
        if kind != "noise":
            array = (np.arange(size) % extents[2] / 16).astype(np.float32)
            array[: 0 if kind == "lines" else size // 3] = 0
        layout, level = (rank, 4, own), (extents, counts, 0)
        known, words, places = np.zeros_like(array), np.zeros(size + 40 * tiles + 8, np.uint32), np.zeros(tiles, "u4")
        about = (numbers, (exponents[:tiles], scales), words, places, 4, desk)
        end = encoder.encode_top(array, known, layout, level, (0, tiles), *about)
        row = [int(end), digest(words[:end], places), digest(known)]

        def decoded(end, places, start=4, first=0, layout=layout, level=level, words=words, like=array):
            back, tiles = np.full_like(like, 3), (first, places.size)
            told = decoder.decode_top(words, end, start, back, layout, level, tiles, np.float32(step), places, desk)
            return int(told), digest(back)

        def ordered(end, places, room=0, layout=layout, level=level, words=words):
            out = np.zeros(end + room, np.uint32)
            told = decoder.reorder(words, end, layout, level, (), 1, places.copy(), out, 4, desk)
            return int(told)

        assert decoded(end, places) == (0, digest(known)) and ordered(end, places) == end
        last = int(places[-1] & 0x3FFFFFFF) * 4
        for cut in (end - 1, end - 4, last + own + 1, last + own, last):
            row += [
                decoded(cut, places, first=tiles - 1)[0],
                ordered(cut, places, end - cut),
                ordered(end, places, cut - end),
            ]
        row += decoded(end, places, 8, tiles - 1)
        row += decoded(end, places ^ np.uint32(1 << 31), 4, tiles - 1)
        yield row


def planes():
    """Symbols of tiles, few of which are not 0 or whole groups of which are, and what is read of those cut short."""
    planes, reading, form = (kernels(f"dense.{name}") for name in ("planes", "reading", "format"))
    desk = kernels("dense.desk").desk_for(np.dtype("float32"))
    numbers = np.arange(4096)
    kinds = {
        "none": numbers * 0,
        "one": (numbers == 4095) * -1,
        "large": (numbers % 331 == 5) * (2**15 - 1) - (numbers % 501 == 2) * (2**15 - 1),
        "a group": (numbers // 32 % 8 == 4) * (numbers % 7 - 3) + (numbers % 97 == 0),
        "all": (numbers % 3 - 1) * (numbers // 64 % 2 == 0) + 1,
    }
    for rank, (kind, symbols) in product((1, 2, 3), kinds.items()):
        begins, codes, masks = form.rows_of_warps(rank), np.zeros(4128, np.int32), np.zeros(128, np.int32)
        about = (begins, form.geometry(rank, np.dtype("float32")).lists, desk)
        rows = begins.shape[1]
        given = symbols.astype(np.int32)
        given[: 4096 - 128 * rows] = 0
        for outside in (0, 1) if kind in ("none", "one") else (3,):
            words = np.full(4608, 0xABABABAB, np.uint32)
            used, odd = planes.pack(given.copy(), begins, outside, words, masks, codes)
            row = [int(used), bool(odd), digest(words[:used])]
            if used:
                row.append([int(each) for each in reading.measure(words[:used], odd, *about)])
                desk.steps[:] = 7
                told = reading.unpack(words[: used + 1], odd, *about)
                assert told == (outside, used)
                assert (desk.steps[4096 - 128 * rows :] == given[4096 - 128 * rows :]).all()
                cuts = [reading.measure(words[:cut], odd, *about)[5] for cut in range(0, used, 1 + used // 9)]
                cuts.append(reading.measure(words[: used - 1], odd, *about)[5])
                row.append([int(cut) for cut in cuts])
                for first in (128 * rows, 128 * rows + 1, 1 << (16 + rows // 4), ((1 << rows // 4) - 1) << 16):
                    words[0] = first
                    row.append([int(each) for each in reading.measure(words, True, *about)])
            yield row


def bits():
    """Put bits at each place of a word, and read them again."""
    planes, reading = kernels("dense.planes"), kernels("dense.reading")
    for at, count in product((0, 1, 27, 28, 29, 31, 32, 60), (1, 4, 5, 32)):
        words = np.zeros(3, np.uint32)
        planes.put(words, at, np.uint32(0xFFFFFFFF >> (32 - count)), count)
        whole = int.from_bytes(words.tobytes(), "little")
        assert whole == ((1 << count) - 1) << at
        short = words[: (at + count + 31) // 32]
        assert reading.bits_at(short, at, count) == (1 << count) - 1
        assert reading.bits_at(np.full(3, 0xFFFFFFFF, np.uint32) ^ words, at, count) == 0
    for mask in (0, 1, 8, 0x10, 0x80000000, 0x00F00F00, 0x12481248):
        told = int(planes.groups_of(np.uint32(mask)))
        assert told == sum(1 << group for group in range(8) if mask >> 4 * group & 15)
    for whole, count in ((0b0101, 4), (0b1000, 7), (0b0, 8)):
        assert planes.rows_but(whole, 4 * count) == sum(
            1 << row for row in range(4 * count) if not whole >> row // 4 & 1
        )
        told = [group for group in range(count) if not whole >> group & 1]
        for groups in range(1 << count):
            left = sum((groups >> group & 1) << k for k, group in enumerate(told))
            assert int(planes.without(np.uint32(groups), whole, count)) == left
    yield True


def cases():
    """Yield the name of each case, and what makes it anew."""
    for case in (copied, surrounded, existing, empty, tops, uppermost, planes, bits):
        yield f"{case.__name__} in dense", lambda case=case: list(case())
