"""Kernels that Numba compiles, run as plain Python: they give the bytes that are known, and stay inside their arrays.

`plain.json` holds what more is known than `same_bytes.json` does. `python -m tests.codec.test_plain` writes it anew with
what is compiled, where a format is meant to change.
"""

import json
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from tests.codec import test_same_bytes
from tests.codec.plain import plain_kernels
from tests.codec.test_same_bytes import coded, field
from xxhash import xxh3_64_hexdigest

from forebay.codec import get
from forebay.codec.bounded import Bounded
from forebay.codec.bounded.format import HEADER
from forebay.codec.dense import Dense
from forebay.errors import EncodingError

KNOWN = Path(__file__).with_name("plain.json")
CODECS = {"bounded": Bounded, "dense": Dense}
SHAPES = {"bounded": [(2300,), (70, 37), (9, 18, 33), (8, 16, 48)], "dense": [(4200,), (65, 33), (17, 8, 18)]}
"""Small ones whose tiles are not all whole, of each rank."""


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


def in_units(codec, array):
    """Tiles in units of 32 bytes by one thread and by three, and laid the other way round."""
    told = []
    for threads in (1, 3):
        payload, tiling = encoding(codec, array, shift=5, threads=threads)
        told += [digest(payload), decoded(codec, payload, tiling, array, threads)]
    moved = backwards(payload, tiling)
    return [*told, decoded(codec, moved, tiling, array), ordered(codec, moved, tiling)]


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
    return told


def weight_for(shape):
    """Weights that grow by bands of the slowest axis, the last of which allows nothing at one point."""
    size = int(np.prod(shape))
    weight = (0.3 + np.arange(size) * 7 % 5) * 30.0 ** (np.arange(size) * 4 // size - 1)
    weight[-1] = 0
    return weight.reshape(shape)


def ended(array):
    """Set all but the beginning of an array to zero."""
    array.reshape(-1)[array.size // 3 :] = 0
    return array


def cases():
    """Yield the name of each case, and what makes it anew."""
    for name, shapes in SHAPES.items():
        for shape in shapes:
            for kind in ("sparse", "special"):
                array, codec = field(kind, shape, "float32"), CODECS[name](1e-3)
                yield f"in units {name} {kind} {shape}", lambda c=codec, a=array: in_units(c, a)
            yield f"hurt {name} {shape}", lambda c=codec, a=field("sparse", shape, "float32"): hurt(c, a)
            array, codec = ended(field("wave", shape, "float32")), CODECS[name](1e-3)
            yield f"ended {name} {shape}", lambda c=codec, a=array: in_units(c, a)
            array = field("wave", shape, "float32")
            codec = CODECS[name](1e-3, weight=weight_for(shape))
            yield f"weighted {name} {shape}", lambda c=codec, a=array: in_units(c, a)


def write():
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(make())}" for name, make in cases())
    KNOWN.write_text(f"{{\n{lines}\n}}\n")


def sweep_cases():
    from functools import partial
    known = json.loads(test_same_bytes.KNOWN.read_text())
    out = []
    def check(make, known):
        told = [*make()]
        for one, other in zip(told, known, strict=True):
            assert one == (pytest.approx(other, rel=1e-6) if isinstance(one, float) else other)
    for name, make in test_same_bytes.cases():
        if name.startswith(("zfp", "raw")) or (name.startswith("dense") and "float64" in name): continue
        out.append(("same "+name, partial(check, make, known[name])))
    known = json.loads(KNOWN.read_text())
    for name, make in cases():
        out.append((name, partial(check, make, known[name])))
    out.sort(key=lambda item: ("hurt" in item[0], "in units" in item[0], not item[0].startswith("same"), "noise" in item[0]))
    return out


if __name__ == "__main__":
    write()
