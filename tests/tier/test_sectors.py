import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from forebay.tier.sectors import SECTOR, checksum

SECTORS = 5
WORDS = SECTORS * SECTOR // 8


def sample() -> NDArray[np.uint8]:
    return np.random.default_rng(7).integers(0, 256, SECTORS * SECTOR, dtype=np.uint8)


@given(bit=st.integers(0, 8 * SECTORS * SECTOR - 1))
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


@given(first=st.integers(0, SECTORS - 1), second=st.integers(0, SECTORS - 1))
def test_exchanged_sectors_are_noticed(first: int, second: int) -> None:
    data = sample()
    before = checksum(data)
    sectors = data.reshape(SECTORS, SECTOR)
    sectors[[first, second]] = sectors[[second, first]]
    assert (checksum(data) != before) == (first != second)


def test_missing_sectors_are_noticed_even_where_all_are_zero() -> None:
    zeros = np.zeros(SECTORS * SECTOR, np.uint8)
    assert len({checksum(zeros[: count * SECTOR]) for count in range(SECTORS + 1)}) == SECTORS + 1
