import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from forebay.tier.checksum import BLOCK, checksum

checksum(np.zeros(BLOCK, np.uint8))  # compiles: no example of Hypothesis has to wait for that

BLOCKS = 5
WORDS = BLOCKS * BLOCK // 8


def sample() -> NDArray[np.uint8]:
    return np.random.default_rng(7).integers(0, 256, BLOCKS * BLOCK, dtype=np.uint8)


@given(bit=st.integers(0, 8 * BLOCKS * BLOCK - 1))
def test_any_flipped_bit_is_noticed(bit: int) -> None:
    data = sample()
    before = checksum(data)
    data[bit // 8] ^= 1 << (bit % 8)
    assert checksum(data) != before


@given(bits=st.sets(st.tuples(st.integers(0, WORDS - 1), st.integers(0, 63)), min_size=1, max_size=3))
def test_bits_flipped_in_up_to_three_words_never_cancel(bits: set[tuple[int, int]]) -> None:
    data = sample()
    before = checksum(data)
    for word, bit in bits:
        data.view(np.uint64)[word] ^= np.uint64(1 << bit)
    assert checksum(data) != before


@given(first=st.integers(0, WORDS - 1), second=st.integers(0, WORDS - 1))
def test_exchanged_words_are_noticed_even_where_only_a_sign_differs(first: int, second: int) -> None:
    data = sample()
    words = data.view(np.uint64)
    words[second] = words[first] ^ np.uint64(1 << 63)
    before = checksum(data)
    words[[first, second]] = words[[second, first]]
    assert (checksum(data) != before) == (first != second)


@given(first=st.integers(0, BLOCKS - 1), second=st.integers(0, BLOCKS - 1))
def test_exchanged_blocks_are_noticed(first: int, second: int) -> None:
    data = sample()
    before = checksum(data)
    blocks = data.reshape(BLOCKS, BLOCK)
    blocks[[first, second]] = blocks[[second, first]]
    assert (checksum(data) != before) == (first != second)


def test_missing_blocks_are_noticed_even_where_all_are_zero() -> None:
    zeros = np.zeros(BLOCKS * BLOCK, np.uint8)
    assert len({checksum(zeros[: count * BLOCK]) for count in range(BLOCKS + 1)}) == BLOCKS + 1
