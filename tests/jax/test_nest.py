"""Nests: cut without a gap, within the room, and about as small as any."""

from itertools import pairwise

import pytest

pytest.importorskip("jax")
from forebay.jax.nest import (
    MOST_LEVELS,
    Sizes,
    choose,
    counts_to_text,
    least_bytes,
    nested_bytes,
    segments,
    smallest,
)

SIZES = [Sizes(100, 150), Sizes(100, 10_000), Sizes(1000, 10), Sizes(100, 150, 400, 700)]


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("steps", [2, 3, 7, 97, 1000, 1999, 2000, 100_003])
def test_segments_follow_each_other_to_the_last_step(steps, sizes):
    for levels in range(1, MOST_LEVELS + 1):
        lengths = smallest(steps, levels, sizes)
        if lengths is None:
            assert steps < 2 ** (levels - 1)
            continue
        assert len(lengths) == levels
        assert all(longer % shorter == 0 and longer > shorter for longer, shorter in pairwise(lengths))
        assert sum(count * inner[0] for count, inner in segments(steps, lengths)) == steps


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("steps", [97, 1000, 1999])
def test_with_one_and_two_levels_none_is_much_smaller(steps, sizes):
    one = min(nested_bytes(steps, (span,), sizes) for span in range(1, steps + 1))
    two = min(
        nested_bytes(steps, (count * span, span), sizes)
        for span in range(1, steps + 1)
        for count in range(2, steps // span + 1)
    )
    for levels, best in ((1, one), (2, two)):
        assert nested_bytes(steps, smallest(steps, levels, sizes), sizes) <= 1.05 * best


@pytest.mark.parametrize("sizes", SIZES)
def test_levels_are_as_few_as_the_room_allows(sizes):
    steps, last = 2000, 0
    least = least_bytes(steps, sizes)
    for room in (100 * least, 10 * least, 3 * least, 2 * least, least):
        lengths = choose(steps, sizes, room)
        assert nested_bytes(steps, lengths, sizes) <= room and len(lengths) >= last
        last = len(lengths)
        fewer = [smallest(steps, levels, sizes) for levels in range(1, len(lengths))]
        assert all(nested_bytes(steps, one, sizes) > room for one in fewer)
    assert choose(steps, sizes, least - 1) is None


def test_counts_are_written_as_they_are_nested():
    assert counts_to_text(2000, (100, 10)) == "20 x 10 x 10 steps"
    assert counts_to_text(1999, (100, 10)) == "19 x 10 x 10 steps + 99"
    assert counts_to_text(7, (3,)) == "2 x 3 steps + 1"
