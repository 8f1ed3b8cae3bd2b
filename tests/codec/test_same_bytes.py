"""The same array gives the same bytes, and the same bytes the same array, always: encodings are kept and read later.

`same_bytes.json` holds checksums. `python -m tests.codec.test_same_bytes` writes it anew, where a format is meant to
change; its version then changes too.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from xxhash import xxh3_64_hexdigest

from forebay.codec import get
from forebay.codec.bounded import Bounded
from forebay.codec.quality import measure

KNOWN = Path(__file__).with_name("same_bytes.json")
SHAPES = [(5000,), (70, 45), (24, 32, 40), (3, 9, 21, 34), (0, 4), ()]


def field(kind, shape, dtype):
    """An array whose bits do not depend on how sines are computed."""
    random = np.random.default_rng(3)
    array = random.standard_normal(shape)
    for axis in range(array.ndim):
        array = array.cumsum(axis)  # one sum after the other
    array = np.array(array / max(1.0, np.abs(array).max(initial=0.0)) * 37).astype(dtype)
    flat = array.reshape(-1)
    if kind == "sparse":
        flat[np.abs(flat) < 9] = 0
        flat[: flat.size // 3] = 0
    elif kind == "special":
        for value in (np.nan, np.inf, -np.inf, np.finfo(dtype).max, np.finfo(dtype).smallest_subnormal, -0.0):
            flat[random.integers(0, max(1, flat.size), min(flat.size, 1 + flat.size // 700))] = value
    elif kind == "noise":
        flat[:] = random.standard_normal(flat.size) * 10.0 ** random.integers(-30, 30, flat.size)
    return array


def coded(codec, array):
    encoded = codec.encode(array)
    decoded = codec.decode(encoded)
    return [len(encoded.to_bytes()), *(xxh3_64_hexdigest(each) for each in (encoded.to_bytes(), decoded.tobytes()))]


def measured(window, dtype):
    from forebay.codec.nvcomp import cpu  # whichever is there: tests.codec.plain puts another in its place

    one = field("wave", (20, 24, 30), dtype)
    other = one + field("noise", one.shape, dtype).clip(-1, 1) * np.asarray(0.1, dtype)
    quality = measure(one, other, 1000, window)
    values = field("wave", (4001,), dtype)
    words = np.arange(333, dtype=np.uint64) * np.uint64(7**20)
    spreads = [float(cpu.spread(values, deviation)) for deviation in (False, True)]
    return [*vars(quality).values(), *spreads, str(cpu.mixed_sum(words, 5))]


def weighted():
    array = field("wave", (40, 60), "float32")
    weight = (1 + np.arange(60) % 17).astype(np.float32)
    return coded(Bounded(1e-3, weight=weight), array)


def cases():
    """Yield the name of each case, and what makes it anew."""
    for name in ("bounded:1e-3", "bounded:abs=0.02", "dense:1e-3"):
        for shape in SHAPES:
            for kind in ("wave", "special") if len(shape) == 2 else ("sparse", "noise"):
                dtypes = ("float32", "float64") if shape in SHAPES[:2] and name != "bounded:abs=0.02" else ("float32",)
                for dtype in dtypes:
                    about = name, kind, shape, dtype
                    yield " ".join(map(str, about)), lambda a=about: coded(get(a[0]), field(*a[1:]))
    for name in ("cast:float16", "cast:bfloat16", "zfp:8", "zfp:tol=0.01", "raw"):
        for shape, dtype in (((500,), "float32"), ((33, 20), "float64"), ((12, 9, 17), "float32")):
            kind = "sparse" if name.startswith("zfp") else "special"
            about = name, kind, shape, dtype
            yield " ".join(map(str, about)), lambda a=about: coded(get(a[0]), field(*a[1:]))
    for window in (5, 7):
        for dtype in ("float32", "float64"):
            yield f"measured {window} {dtype}", lambda a=(window, dtype): measured(*a)
    yield "weighted", weighted


def marked(name):
    """Return marks of a case: kernels of `dense` for float64 take longer to compile than all other cases together."""
    return [pytest.mark.slow] if name.startswith("dense") and name.endswith("float64") else []


@pytest.mark.parametrize(("name", "make"), [pytest.param(*case, id=case[0], marks=marked(case[0])) for case in cases()])
def test_the_same_comes_of_the_same(name, make):
    if name.startswith("zfp"):
        pytest.importorskip("zfpy")
    known = json.loads(KNOWN.read_text())[name]
    told = [*make()]
    assert len(told) == len(known)
    for one, other in zip(told, known, strict=True):
        assert one == (pytest.approx(other, rel=1e-6) if isinstance(one, float) else other)


if __name__ == "__main__":
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(make())}" for name, make in cases())
    KNOWN.write_text(f"{{\n{lines}\n}}\n")
