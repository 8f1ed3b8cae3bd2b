"""A heap never hands out a byte twice, forgets no event, and has room again once everything is back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.tier.heap import Heap, Meter


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 9)), max_size=60), st.sampled_from([None, 10]))
def test_pieces_do_not_overlap_and_come_back(requests, piece):
    heap, taken = Heap(100, piece), []
    for number, (nbytes, which) in enumerate(requests):
        found = heap.take(nbytes)
        if found is not None:
            offset, events = found
            assert offset >= 0 and offset + nbytes <= 100
            for other, size, _ in taken:
                assert offset + nbytes <= other or other + size <= offset
            taken.append((offset, nbytes, [*events, number]))
        elif taken:
            assert max((gap for gap in gaps(taken)), default=0) < nbytes
            heap.give(*taken.pop(which % len(taken)))
        assert heap.used == sum(size for _, size, _ in taken)
    for given_back in taken:
        heap.give(*given_back)
    assert heap.take(100) is not None


def gaps(taken):
    end = 0
    for offset, size, _ in sorted(taken):
        yield offset - end
        end = offset + size
    yield 100 - end


def test_whoever_takes_bytes_learns_of_everything_done_with_them_and_of_nothing_else():
    heap = Heap(100)
    for _ in range(4):
        heap.take(25)
    for number in range(4):
        heap.give(25 * number, 25, [f"use {number}"])
    assert heap.take(60) == (0, ["use 0", "use 1", "use 2"])
    assert heap.take(40)[1] == ["use 2", "use 3"]


def test_events_that_have_passed_are_forgotten_when_pieces_are_joined():
    heap = Heap(100, 50, passed=lambda event: event == "old")
    heap.take(50), heap.take(50)
    heap.give(0, 50, ["old"]), heap.give(50, 50, ["new"])
    assert heap.take(100) == (0, ["new"])


def test_pieces_of_one_size_are_used_in_turn():
    heap = Heap(30, 10)
    assert [heap.take(10)[0] for _ in range(3)] == [0, 10, 20]
    heap.give(10, 10, []), heap.give(0, 10, [])
    assert [heap.take(10)[0] for _ in range(2)] == [10, 0]


@pytest.mark.parametrize("room", [Heap, Meter])
def test_what_is_full_says_so(room):
    full = room(10)
    assert full.take(11) is None and full.take(10) is not None
    assert not full.fits(1) and full.take(1) is None
    full.give(0, 10, [])
    assert full.fits(10)


def test_what_a_heap_grows_by_lies_apart_from_what_it_had():
    heap = Heap(10, None)
    assert [heap.grow(nbytes) for nbytes in (5, 7, 3)] == [11, 17, 25]
    assert (heap.nbytes, heap.used) == (25, 0) and heap.take(11) is None
    assert sorted(heap.take(nbytes)[0] for nbytes in (10, 7, 5, 3)) == [0, 11, 17, 25]


def test_a_piece_that_is_cut_where_a_use_ends_has_that_use_in_one_part_alone():
    heap = Heap(60)
    heap.take(60)
    heap.give(0, 25, ["before"]), heap.give(25, 35, ["after"])
    assert heap.fits(50)  # which joins them
    assert [heap.take(25), heap.take(35)] == [(0, ["before"]), (25, ["after"])]
