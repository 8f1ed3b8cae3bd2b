"""Operations on rows, compiled, do what their plain forms of `tests.codec.plain` do."""

import numba
import numpy as np
import pytest
from tests.codec import plain

from forebay.codec.bounded import rows
from forebay.codec.dense import words

OF_INTEGERS = """
def run(ints, unsigned, out, sums):
    one, other, by = load(ints, 3), load(ints, 40), load(ints, 80) & fill(np.int32(31))
    store(one + other, out, 0)
    store(one - other, out, 32)
    store(one * other, out, 64)
    store(one & other, out, 96)
    store(one | other, out, 128)
    store(one ^ other, out, 160)
    store(one << by, out, 192)
    store(one >> by, out, 224)
    store(shift_down(one, by), out, 256)
    store(larger(one, other), out, 288)
    store(larger_unsigned(one, other), out, 320)
    store(smaller_unsigned(one, other), out, 352)
    store(counts_of(one), out, 384)
    store(chosen(unsigned[5], one, other), out, 416)
    store(spread_16(unsigned, 1), out, 448)
    store(spread_8(unsigned, 2), out, 480)
    store(spread_4(unsigned, 3), out, 512)
    store(spread_2(unsigned, 4), out, 544)
    store(spread_1(unsigned, 5), out, 576)
    store(load_half(ints, 7), out, 608)
    store_halves(one, out, 656, 624)
    store(load(unsigned, 2) >> fill(np.uint32(3)), out, 688)
    store(symbol(one), out, 720)
    store(listed_8(ints, 5, np.int32(-9)), out, 752)
    store(listed_4(ints, 3, np.int32(7)), out, 760)
    store(widened(chosen(unsigned[6], fill(np.uint8(200)), fill(np.uint8(3)))), out, 784)
    prefetch(ints, 0)
    prefetch_to_write(out, 0)
    sums[0], sums[1], sums[2] = largest(one), largest_unsigned(one), smallest_unsigned(one)
    sums[3], sums[4], sums[5] = any_of(by), sum_of(one), below(one, other)
    sums[6], sums[7], sums[8] = other_than(one, chosen(unsigned[5], one, other)), count_of(unsigned[6]), 0
    sums[9], sums[10], sums[11] = lowest_of(unsigned[7]), width_of(ints[9]), width_of(np.int32(0))
    sums[12], sums[13] = lowest_of(np.uint32(0)), largest(load_half(ints, 7))
"""
OF_REALS = """
def run(reals, ints, out, found, sums):
    one, other, third = load(reals, 3), load(reals, 40), load(reals, 80)
    store(one + other, out, 0)
    store(one - other, out, 32)
    store(one * other, out, 64)
    store(absolute(one), out, 96)
    store(fill(reals[1]), out, 128)
    store(load_halves(reals, 50, 9), out, 160)
    store(load_pieces(reals, 1, 21), out, 192)
    store(load_evens(reals, 1, 21), out, 224)
    store(load_odds(reals, 1, 21), out, 256)
    store_pairs(one, other, out, 288, 18)
    store(holding(load(ints, 3) >> fill(np.int32(9)), reals), out, 384)
    store(reals_of(load(ints, 3), reals), out, 416)
    store(numbers_of(bits_of(one), reals), out, 448)
    store(numbers_of(joined(load(ints, 3), load(ints, 50), reals), reals), out, 480)
    store(low_words(bits_of(one)), found, 0)
    store(high_words(bits_of(one)), found, 32)
    store(low_words(magnitudes(one)), found, 64)
    store(high_words(magnitudes(one)), found, 96)
    sums[0], sums[1], sums[2] = below(one, other), other_than(one, other), below(other, one)
FUSED
"""
FUSED = "    store(fused(one, other, third), out, 512)"


def made(source, names):
    """Make a function of a source, which finds operations by these names."""
    scope = {**names, "np": np}
    exec(source, scope)
    return scope["run"]


def both(source):
    """Make a function of rows that are compiled, and of plain ones."""
    source, symbol = source.replace("FUSED", ""), "symbol"
    compiled = {**vars(rows), **vars(words), symbol: numba.njit(lambda row: row ^ (row + row))}
    plainly = {**vars(plain._rows()), symbol: lambda row: row ^ (row + row)}
    narrow = source.replace("np.int32(", "int32(").replace("np.uint32(", "uint32(")
    return numba.njit(made(source, compiled)), made(narrow, plainly)


def bits(count, seed, dtype):
    values = np.random.default_rng(seed).integers(0, 2**63, count, dtype=np.uint64) * np.uint64(3)
    return values.astype(f"u{np.dtype(dtype).itemsize}").view(dtype)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_operations_on_integers():
    ints, unsigned = bits(128, 1, "int32"), bits(64, 2, "uint32")
    told = [(np.zeros(816, np.int32), np.zeros(16, np.int64)) for _ in range(2)]
    for run, (out, sums) in zip(both(OF_INTEGERS), told, strict=True):
        run(ints, unsigned, out, sums)
    for one, other in zip(*told, strict=True):
        assert one.any() and np.array_equal(one, other)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.slow)])
def test_operations_on_reals(dtype):
    reals, ints = np.random.default_rng(3).normal(0, 2, 160).astype(dtype), bits(128, 4, "int32")
    reals[[4, 5, 44]], reals[6] = (np.nan, -0.0, -np.inf), reals[43]
    told = [(np.zeros(576, dtype), np.zeros(128, np.int32), np.zeros(3, np.uint32)) for _ in range(2)]
    source = OF_REALS.replace("FUSED", FUSED) if dtype == "float32" else OF_REALS
    for run, room in zip(both(source), told, strict=True):
        run(reals, ints, *room)
    for one, other in zip(*told, strict=True):
        assert one.any() and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
