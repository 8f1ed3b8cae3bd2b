"""Kernels that Numba compiles, run as plain Python: they give the bytes that are known, and stay inside their arrays.

`plain.json` holds what more is known than `same_bytes.json` does. `python -m tests.codec.test_plain` writes it anew
with what is compiled, where a format is meant to change.
"""

import json
from dataclasses import replace
from functools import cache
from importlib import import_module
from itertools import product
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from tests.codec import test_same_bytes, tiles_of_bounded, tiles_of_dense
from tests.codec.plain import plain_kernels
from tests.codec.test_same_bytes import coded, field
from xxhash import xxh3_64_hexdigest

from forebay.codec import get
from forebay.codec.bounded import Bounded, numbers
from forebay.codec.bounded.format import HEADER, quanta, scaled
from forebay.codec.dense import Dense
from forebay.codec.dense.format import geometry
from forebay.errors import EncodingError

KNOWN = Path(__file__).with_name("plain.json")
CODECS = {"bounded": Bounded, "dense": Dense}
SHAPES = {
    "bounded": [(2300,), (70, 37), (9, 18, 33), (8, 16, 48)],
    "dense": [(4200,), (65, 33), (17, 8, 18), (16, 16, 48)],
}
"""Small ones, of each rank, with tiles that stick out."""
FEWER = {"bounded": SHAPES["bounded"], "dense": [(5, 9, 17)]}
LEFT_OUT = ("zfp", "raw", "measured 5 float32", "measured 7 float64", "bounded:abs=0.02 noise (3,")
LEFT_OUT += ("dense:1e-3 noise (3,", "dense:1e-3 sparse (24,")
"""Cases of `same_bytes.json` that have no kernels, or whose kernels others run."""


def host_of(name):
    return import_module(f"forebay.codec.{name}.host")


def digest(array):
    return xxh3_64_hexdigest(np.ascontiguousarray(array).tobytes())


def encoding(codec, array, shift=None, threads=1):
    """Encode with places in other units, or by several threads; return the bytes, and how the array is cut."""
    host, tiling = host_of(codec.word), codec._tiling(array.shape, array.dtype)
    tiling = tiling if shift is None else replace(tiling, shift=shift)
    exponents = codec.weight.exponents(array.shape, 1, tiling) if codec.weight else None
    payload = np.full(tiling.max_bytes, 0xAB, np.uint8)
    with patch.object(host_of("bounded"), "FEWEST_TILES", 1):
        asked = host.Asked(codec.bound, codec.relative, exponents=exponents)
        return payload[: host.encode(array, payload, tiling, asked, threads)], tiling


def decoded(codec, payload, tiling, array, threads=1):
    """Return a digest of what bytes decode to, or why they are refused."""
    out = np.full(array.shape, 7, array.dtype)
    try:
        with patch.object(host_of("bounded"), "FEWEST_TILES", 1):
            host_of(codec.word).decode(payload, out, tiling, threads)
    except EncodingError as error:
        return str(error)
    out[np.isnan(out)] = np.nan  # what damage becomes may have either sign
    return digest(out)


def ordered(codec, payload, tiling):
    try:
        return digest(host_of(codec.word).canonical(payload, tiling))
    except EncodingError as error:
        return str(error)


def backwards(payload, tiling):
    """Lay tiles the other way round, as a GPU may leave them."""
    words = payload.view(np.uint32)
    moved, unit = words.copy(), (1 << tiling.shift) // 4
    told = words[HEADER.size // 4 :][: tiling.tiles]
    tiles = [tile for tile in range(tiling.tiles) if told[tile]]
    begins = [int(told[tile] & tiling.most_places - 1) * unit for tile in tiles]
    to = tiling.start // 4
    for tile, begin, end in reversed(list(zip(tiles, begins, [*begins[1:], words.size], strict=True))):
        moved[to : to + end - begin] = words[begin:end]
        moved[HEADER.size // 4 + tile] = to // unit | int(told[tile]) & ~(tiling.most_places - 1)
        to += end - begin
    return moved.view(np.uint8)


def moved(codec, array):
    """Tiles in units of 32 bytes, encoded and decoded by three threads, and laid the other way round between."""
    payload, tiling = encoding(codec, array, shift=5, threads=3)
    other = backwards(payload, tiling)
    return [digest(payload), ordered(codec, other, tiling), decoded(codec, other, tiling, array, threads=3)]


def hurt(codec, array):
    """What becomes of an encoding whose places, first words or length are others."""
    payload, tiling = encoding(codec, array)
    words, first = payload.view(np.uint32), HEADER.size // 4
    start, places = tiling.start // 4, words[first : first + tiling.tiles]
    changes = []
    for tile in {0, tiling.tiles - 1}:
        place, begin = int(places[tile]), int(places[tile] & tiling.most_places - 1)
        changes += [(first + tile, value) for value in (start - 1, words.size - 1, place ^ 1 << 31, place ^ 1 << 30)]
        changes += [(begin + k, value) for k, value in enumerate((0xFFFFFFFF, 0x0F0F0F0F, 0)) if begin]
    changes += [(at, int(words[at]) ^ 1) for at in range(first)]
    changes += [(0, payload.nbytes + 4), (0, tiling.start - 4), (11, 0xFFF00000), (13, 0xFFF00000)]
    told = []
    for at, value in changes:
        if at >= words.size:
            continue
        other = words.copy()
        other[at] = value
        told += [f(codec, other.view(np.uint8), tiling) for f in (ordered, lambda *a: decoded(*a, array))]
    for cut in (1, 9, (words.size - start) // 2, words.size - start):
        other = words[: words.size - cut].copy()
        other[:2] = other.nbytes, 0
        told += [f(codec, other.view(np.uint8), tiling) for f in (ordered, lambda *a: decoded(*a, array))]
    return [xxh3_64_hexdigest(each.encode())[:8] for each in told]


def cut_short(codec, array):
    """What is put in order of an encoding that ends within the last tile, or what fills that up to its unit."""
    payload, tiling = encoding(codec, array, shift=5)
    told = []
    for cut in range(4, 40, 4):
        other = payload[:-cut].copy()
        other.view(np.uint32)[:2] = other.nbytes, 0
        told.append(ordered(codec, other, tiling)[:40])
    return told


def weight_for(shape):
    """Weights that grow by bands of the slowest axis, the last of which allows nothing at one point."""
    size = int(np.prod(shape))
    weight = (0.3 + np.arange(size) * 7 % 5) * 30.0 ** (np.arange(size) * 4 // size - 1)
    weight[-1] = 0
    return weight.reshape(shape)


def ended(array):
    """Set all but the beginning of each line to zero."""
    array[..., array.shape[-1] // 3 :] = 0
    return array


def every_bit(dtype, shape):
    """Numbers of any bits among others that are close together."""
    with np.errstate(over="ignore"):
        array = field("special", shape, "float64").astype(np.float32 if dtype == numbers.BFLOAT16 else dtype)
    if dtype == numbers.BFLOAT16:
        array = (array.view(np.uint32) >> 16).astype(np.uint16).view(dtype)
    words = array.reshape(-1).view(f"u{min(8, array.itemsize)}")
    words[::37] = np.random.default_rng(5).integers(0, 2**63, words[::37].size, dtype=np.uint64)
    return array


FOLDED = [(), (1, 1), (0, 4), (4, 8, 16), (3, 8, 16), (4, 7, 16), (5, 7, 16), (32, 16), (31, 16), (4, 8, 15)]
FOLDED += [(2, 2, 8, 16), (6, 2, 4, 8, 16), (9, 10, 3), (33, 2**27 - 1), (33, 2**27), (1, 40, 1, 50), (2**12,) * 3]
FOLDED += [(2**20, 2**14), (5000,), (70, 45), (2**29 - 300,), (2**29 - 200,)]


def laid_out(codec):
    """How shapes are folded and cut, and where what lies."""
    told = []
    for shape in FOLDED:
        for dtype in ("float32", "float64"):
            tiling = codec._tiling(shape, np.dtype(dtype))
            row = [tiling.rank, *tiling.extents, *tiling.counts, tiling.tiles, tiling.shift, tiling.start]
            row += [tiling.kind, tiling.max_bytes, codec.scratch_bytes(shape, np.dtype("complex64"))]
            told.append(xxh3_64_hexdigest(repr(row).encode()))
    return told


def steps(dtype):
    """Bounds and steps of ranges, and of weights."""
    told = []
    spans = [None, (-2.0, 5.0), (0.0, 5e-5), (3.0, 5.0), (4.0, 4.0), (0.0, 0.0), (-1.5e308, 1.5e308), (0.0, 1e-40)]
    narrow = [None, *numbers.NARROW.values()] if dtype == "float32" else [None]
    for bound, span in product([1e-3, 1e-7, 1e300, 0.3], spans):
        pairs = [quanta(np.dtype(dtype), bound, span, *rest) for rest in product(narrow, [False, True])]
        told.append(xxh3_64_hexdigest(repr(pairs).encode()))
    for bound, step in ((1e-3, 1.9e-3), (0.0, 1.0), (1e-38, 1e-38), (1e30, 1e30)):
        told.append(digest(scaled(bound, step, np.arange(-128, 128).astype(np.int8), np.dtype(dtype))))
    return told


def tables_of_dense():
    """What tiles of each rank are predicted with, and how many new points lie before each."""
    told = []
    for rank, dtype in product((1, 2, 3), ("float32", "float64")):
        made = geometry(rank, np.dtype(dtype))
        told += [digest(table) for table in (made.down, made.across, made.shares, made.rows)]
    for shape in ((9000,), (130, 70), (17, 40, 50)):
        for level in Dense(1.0)._tiling(shape, np.dtype("float32")).levels:
            told.append([level.stride, level.fine, digest(level.fresh_before(len(shape)))])
    return told


def cases():
    """Yield the name of each case, and what makes it anew."""
    yield "tables of dense", tables_of_dense
    for dtype in ("float32", "float64"):
        yield f"steps {dtype}", lambda d=dtype: steps(d)
    for dtype in ("float16", numbers.BFLOAT16, "complex64", "complex128"):
        array = every_bit(dtype, (40, 33))
        for bound in ("1e-3", "abs=0.02"):
            yield f"bounded:{bound} {np.dtype(dtype)}", lambda b=bound, a=array: coded(get(f"bounded:{b}"), a)
    for name, (dtype, least) in product(("float16", "bfloat16"), (("float32", -149), ("float64", -300))):
        array = (-1.1) ** np.arange(900) * np.exp2(np.linspace(0, least - 120, 900)).astype(dtype)
        faint = np.asarray(array, dtype)
        yield f"faint cast:{name} {dtype}", lambda n=name, a=faint: coded(get(f"cast:{n}"), a)
    for name, make in CODECS.items():
        codec = make(1e-3)
        yield f"laid out {name}", lambda c=codec: laid_out(c)
        for shape in SHAPES[name]:
            arrays = {kind: field(kind, shape, "float32") for kind in ("sparse", "special", "wave")}
            arrays = {"ended": ended(arrays["wave"].copy()), **arrays}
            for kind in ("ended", "wave") if shape == (16, 16, 48) else arrays:
                array = arrays[kind]
                used = make(1e-3, weight=weight_for(shape)) if kind == "wave" else codec
                yield f"moved {name} {kind} {shape}", lambda c=used, a=array: moved(c, a)
        array = field("wave", (6000,), "float32")
        light = make(1e-3, weight=weight_for(array.shape) + 1)
        yield f"moved {name} lightly {array.shape}", lambda c=light, a=array: moved(c, a)
        array = field("wave", (65, 37), "float32")
        yield f"cut short {name}", lambda c=codec, a=array: cut_short(c, a)
        for shape in FEWER[name]:
            array = field("sparse", shape, "float32")
            yield f"hurt {name} {shape}", lambda c=codec, a=array: hurt(c, a)

    yield from tiles_of_bounded.cases()
    yield from tiles_of_dense.cases()


def plain_cases():
    """List the cases of both tables that are run here."""
    same = [case for case in test_same_bytes.cases() if not case[0].startswith(LEFT_OUT)]
    return [case for case in same if not (case[0].startswith("dense") and "float64" in case[0])] + list(cases())


@cache
def known():
    return json.loads(test_same_bytes.KNOWN.read_text()) | json.loads(KNOWN.read_text())


def check(name, make):
    told, expected = [*make()], known()[name]
    assert len(told) == len(expected)
    for one, other in zip(told, expected, strict=True):
        assert one == (pytest.approx(other, rel=1e-6) if isinstance(one, float) else other)


@pytest.fixture(scope="module")
def kernels():
    with plain_kernels():
        yield


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # integers wrap
@pytest.mark.parametrize(("name", "make"), [pytest.param(*case, id=case[0]) for case in plain_cases()])
def test_plain_kernels_give_what_is_known(name, make, kernels):
    check(name, make)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "make"), [pytest.param(*case, id=case[0]) for case in cases()])
def test_compiled_kernels_give_the_same(name, make):
    check(name, make)


if __name__ == "__main__":
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(make())}" for name, make in cases())
    KNOWN.write_text(f"{{\n{lines}\n}}\n")
