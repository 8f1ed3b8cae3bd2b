"""Where snapshots lie in a file: which hole each takes, how far the file grows, and what is joined again."""

from itertools import pairwise
from random import Random

import pytest

from forebay.tier.space import Extent, FileSpace, pieces


def holes(*sizes):
    """A file with free ranges of these sizes, each behind a byte that is taken, and one taken byte at the end."""
    space, free = FileSpace(), []
    for size in sizes:
        space.take(1)
        free += space.take(size)[0]
    space.take(1)
    space.give(free)
    return space, free


def test_the_smallest_hole_that_is_large_enough_is_taken():
    space, (_, small, large) = holes(3, 5, 9)
    assert space.take(4) == ([Extent(small.offset, 4)], Extent(space.end, 0))
    assert space.take(9)[0] == [large]
    assert space.take(3)[0] == [Extent(1, 3)], "a hole of just that size, not the rest of another"


def test_where_no_hole_is_large_enough_the_largest_are_taken_together_and_the_file_grows_by_the_rest():
    space, (first, second, third) = holes(2, 6, 4)
    end = space.end
    taken, grown = space.take(13)
    assert taken == [first, second, third, Extent(end, 1)]
    assert grown == Extent(end, 1) and space.end == end + 1
    space, (first, second, third) = holes(2, 6, 4)
    assert space.take(9)[0] == [second, Extent(third.offset, 3)], "the largest first, and no more than is needed"
    assert space.take(3)[1].nbytes == 0 and space.take(1)[1].nbytes == 1


def test_what_is_given_back_is_joined_with_its_neighbours():
    space = FileSpace()
    parts = [space.take(10)[0] for _ in range(4)]
    for number in (0, 2, 1):
        space.give(parts[number])
    assert space.take(30) == ([Extent(0, 30)], Extent(40, 0))
    assert space.take(0) == ([], Extent(40, 0))


@pytest.mark.parametrize("seed", range(20))
def test_ranges_never_overlap_and_the_file_is_as_long_as_it_was_full(seed):
    random, space, held, most = Random(seed), FileSpace(), [], 0
    for _ in range(200):
        if held and random.random() < 0.45:
            space.give(held.pop(random.randrange(len(held))))
        else:
            wanted = random.randint(1, 30)
            ranges, grown = space.take(wanted)
            assert sum(each.nbytes for each in ranges) == wanted and grown.end == space.end
            held.append(ranges)
        taken = sorted(each for ranges in held for each in ranges)
        assert all(one.end <= other.offset for one, other in pairwise(taken))
        most = max(most, sum(each.nbytes for each in taken))
        assert space.end == most


def test_pieces_are_cut_at_their_most_and_at_the_end_of_a_snapshot():
    cut = [tuple(piece) for piece in pieces([Extent(100, 10), Extent(0, 10)], 17, 4)]
    assert cut == [(100, 0, 4), (104, 4, 8), (108, 8, 10), (0, 10, 14), (4, 14, 17), (8, 17, 17)]
    assert list(pieces([Extent(5, 8)], 8, 8)) == [(5, 0, 8)]
