"""What Numba compiles of codecs, run as the Python that it is written in: rows are NumPy arrays of 32 lanes.

Nothing is compiled, so what a change of a kernel breaks shows within seconds; and every row that is read or written
lies inside its array, or an IndexError says where it does not.
"""

import sys
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

import numpy as np

import forebay.codec
from forebay.codec import compiled
from forebay.codec.bounded.format import LANES

HALF, PIECE = LANES // 2, LANES // 4
BASE = 0x4338000000000000
PARTS = (16, 8, 4, 2, 1)
KERNELS = [f"bounded.{name}" for name in ("tiles", "extremes", "encoder", "decoder", "host")]
KERNELS += [
    f"dense.{name}" for name in ("model", "planes", "reading", "tiles", "top", "desk", "encoder", "decoder", "host")
]
KERNELS += ["cast_cpu", "nvcomp.cpu", "quality.host"]
"""Modules, each after those that it needs."""
STOOD_FOR = ["bounded.rows", "dense.words"]
"""Modules of what LLVM computes, in the place of which is what stands here."""


class PlainRow(np.ndarray):
    """A row, whose operators say what integers are and leave the type alone, as those of LLVM do."""


def row(values):
    return np.array(values).view(PlainRow)


def whole(values):
    return np.asarray(values).view(np.ndarray)


def unsigned(values):
    return whole(values).view(f"u{values.itemsize}")


def signed(values):
    return whole(values).view(f"i{values.itemsize}")


def _operator(name, look=whole):
    def of_rows(self, other):
        if not isinstance(other, PlainRow) or other.itemsize != self.itemsize:
            raise TypeError(f"{name} of a row of {self.dtype} and {getattr(other, 'dtype', other)}")
        return row(getattr(look(self), name)(look(other.view(self.dtype)))).view(self.dtype)

    setattr(PlainRow, name, of_rows)


for _name in ("add", "sub", "mul", "and", "or", "xor", "lshift"):
    _operator(f"__{_name}__")
_operator("__rshift__", signed)


def _part(array, at, lanes):
    if not 0 <= at <= array.size - lanes:
        raise IndexError(f"{lanes} lanes from {at} on, of {array.size}")
    return array[at : at + lanes]


def load(array, at):
    return row(_part(array, at, LANES))


def load_half(array, at):
    return row(_part(array, at, HALF))


def load_halves(array, near, far):
    return row(np.concatenate([_part(array, at, HALF) for at in (near, far)]))


def store(values, array, at):
    _part(array, at, values.size).view(values.dtype)[:] = values


def store_halves(values, array, near, far):
    store(values[:HALF], array, near)
    store(values[HALF:], array, far)


def prefetch(array, at):
    pass


prefetch_to_write = prefetch


def _spreader(part):
    def spread(words, at):
        places = np.arange(LANES) * part
        return row(_part(words, at, part)[places // 32] >> (places % 32).astype(np.uint32) & np.uint32((1 << part) - 1))

    return spread


def fill(value):
    return row(np.full(LANES, value))


def shift_down(a, b):
    return row(unsigned(a) >> unsigned(b)).view(a.dtype)


def larger(a, b):
    return row(np.maximum(signed(a), signed(b))).view(a.dtype)


def larger_unsigned(a, b):
    return row(np.maximum(unsigned(a), unsigned(b))).view(a.dtype)


def smaller_unsigned(a, b):
    return row(np.minimum(unsigned(a), unsigned(b))).view(a.dtype)


def largest(values):
    return signed(values).max().view(values.dtype)


def largest_unsigned(values):
    return unsigned(values).max().view(values.dtype)


def smallest_unsigned(values):
    return unsigned(values).min().view(values.dtype)


def any_of(values):
    return np.bitwise_or.reduce(whole(values))


def sum_of(values):
    return whole(values).sum(dtype=values.dtype)


def bits_of(values):
    return row(signed(values))


def magnitudes(values):
    return row(signed(np.abs(whole(values))))


def numbers_of(bits, like):
    return row(whole(bits).view(like.dtype))


def holding(integers, like):
    wide = whole(integers).astype(np.int64) + BASE if like.itemsize == 8 else whole(integers)
    return row(wide.view(like.dtype))


def low_words(bits):
    return row(whole(bits).astype(np.int32))


def high_words(bits):
    return row((unsigned(bits) >> 8 * bits.itemsize - 32).astype(np.uint32).view(np.int32))


def joined(low, high, like):
    if like.itemsize == 4:
        return low
    return row(unsigned(low).astype(np.int64) | unsigned(high).astype(np.int64) << 32)


def width_of(word):
    return (int(word) & 0xFFFFFFFF).bit_length()


def _word(lanes):
    return np.packbits(whole(lanes), bitorder="little").view(np.uint32)[0]


def below(a, b):
    return _word(whole(a) < whole(b))


def other_than(a, b):
    return _word((whole(a) < whole(b)) | (whole(a) > whole(b)))  # what is no number is not another one


def chosen(word, a, b):
    bits = np.unpackbits(np.array([word], np.uint32).view(np.uint8), bitorder="little")
    return row(np.where(bits, whole(a), whole(b)))


def count_of(word):
    return int(word).bit_count()


def counts_of(values):
    return row(np.bitwise_count(unsigned(values)).astype(values.dtype))


def lowest_of(word):
    return (int(word) & -int(word)).bit_length() - 1 if word else 32


def fused(a, b, c):
    """Return a b + c of float32, rounded once: float64 holds the product, and of the sum a last bit that is odd."""
    product, c = whole(a).astype(np.float64) * whole(b), whole(c).astype(np.float64)
    total = product + c
    back = total - product
    left = (product - (total - back)) + (c - back)
    bits = total.view(np.int64)
    between = np.isfinite(left) & (left != 0) & (bits & 1 == 0)
    bits += np.where(between, np.where((left > 0) == (total > 0), 1, -1), 0)
    return row(total.astype(np.float32))


def absolute(values):
    return row(np.abs(whole(values)))


def reals_of(integers, like):
    return row(whole(integers).astype(like.dtype))


def widened(integers):
    return row(whole(integers).astype(np.int32))


def _lister(lanes):
    return lambda array, at, by: row(_part(array, at, lanes) + by)


listed_8, listed_4 = _lister(8), _lister(4)


def _pieces(array, at, pitch, lanes):
    return [_part(array, at + k * pitch, lanes) for k in range(4)]


def load_pieces(array, at, pitch):
    return row(np.concatenate(_pieces(array, at, pitch, PIECE)))


def load_evens(array, at, pitch):
    return row(np.concatenate([piece[::2] for piece in _pieces(array, at, pitch, HALF)]))


def load_odds(array, at, pitch):
    return row(np.concatenate([piece[1::2] for piece in _pieces(array, at, pitch, HALF)]))


def store_pairs(evens, odds, array, at, pitch):
    for k, piece in enumerate(_pieces(array, at, pitch, HALF)):
        piece[::2], piece[1::2] = (whole(each)[k * PIECE : (k + 1) * PIECE] for each in (evens, odds))


def int32(value):
    return np.uint32(int(value) & 0xFFFFFFFF).view(np.int32)


def uint32(value):
    return np.uint32(int(value) & 0xFFFFFFFF)


def _rows():
    """Return a module that stands for both `rows` and `words`."""
    module = ModuleType("plain")
    vars(module).update({name: value for name, value in globals().items() if callable(value)})
    vars(module).update({f"spread_{part}": _spreader(part) for part in PARTS})
    module.jit = module.inlined = lambda function: function
    return module


def _loaded(name):
    """Run the source of a module; what makes integers of 32 bits drops other bits, as it does where it is compiled."""
    path = Path(forebay.codec.__file__).parent / f"{name.replace('.', '/')}.py"
    module = ModuleType(f"forebay.codec.{name}")
    module.__file__, module.int32, module.uint32 = str(path), int32, uint32
    source = path.read_text().replace("np.int32(", "int32(").replace("np.uint32(", "uint32(")
    sys.modules[module.__name__] = module  # for dataclasses
    exec(compile(source, path, "exec"), vars(module))
    return module


@contextmanager
def plain_kernels():
    """Have codecs run their kernels as plain Python meanwhile."""
    rows, names = _rows(), [f"forebay.codec.{name}" for name in (*STOOD_FOR, *KERNELS)]
    packages = {name: import_module(name) for name in {name.rpartition(".")[0] for name in names}}
    before = {name: sys.modules.get(name) for name in names}
    with ExitStack() as undo:
        undo.enter_context(patch.object(compiled, "jit", lambda function, **options: function))
        undo.enter_context(np.errstate(all="ignore"))
        for package in packages.values():
            undo.enter_context(patch.dict(vars(package)))
        try:
            for name in names:
                package, _, last = name.rpartition(".")
                module = rows if last in ("rows", "words") else _loaded(name.removeprefix("forebay.codec."))
                sys.modules[name] = module
                setattr(packages[package], last, module)
            yield
        finally:
            for name, module in before.items():
                sys.modules.pop(name)
                if module is not None:
                    sys.modules[name] = module
