from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from forebay.tier.sectors import SECTOR, checksum, read_chunk, whole_sectors, write_chunk

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


def test_what_fills_a_sector_is_zeros_and_nothing_of_what_was_there_before(tmp_path: Path) -> None:
    with open(tmp_path / "file", "w+b") as file:
        for size in (SECTOR + 5000, 3):
            data = np.full(size, 7, np.uint8)
            digest = write_chunk(file.fileno(), data, 2 * SECTOR)
            assert read_chunk(file.fileno(), np.empty(size, np.uint8), 2 * SECTOR, digest)
            file.seek(2 * SECTOR)
            written = file.read(whole_sectors(size))
            assert written == b"\x07" * size + bytes(whole_sectors(size) - size)
            assert digest == checksum(np.frombuffer(written, np.uint8))
