"""Which shots stand out of a survey, to the last strength, and how images are summed where they only touch."""

import math
from itertools import pairwise

import numpy as np
import pytest

from forebay.wave.earth.grid import Grid
from forebay.wave.job import stack
from forebay.wave.job.stack import PartialImage, outliers, tree_sum

EQUAL = dict.fromkeys(range(1, 6), 1.0)
APART = {shot: math.exp(shot - 3) for shot in range(1, 6)}
"""Whose logarithms lie 1 in the median from their own."""
FAR = {shot: math.exp(9 * (shot - 3)) for shot in range(1, 6)}
LIMIT = 4 * 1.4826
"""Standard deviations of logarithms: four of a spread of one median deviation."""


@pytest.mark.parametrize(
    ("others", "strength", "times"),
    [
        (EQUAL, 10.0, None),
        (EQUAL, 10.5, 10.5),
        (APART, math.exp(LIMIT - 0.01), None),
        (APART, math.exp(LIMIT + 0.01), math.exp(LIMIT + 0.01)),
        (FAR, 1000.0, None),
        (FAR, 1000.5, 1000.5),
        ({1: 1e-9, 2: 1e-9}, 1.0, 1e9),  # however weak all of them are
        ({1: 1.0, 2: 0.0}, 1e9, 1e9),
        ({1: 0.0, 2: 0.0}, 1e9, None),
        ({}, 1e9, None),
    ],
)
def test_a_shot_stands_out_from_twenty_to_sixty_decibels(others, strength, times):
    found = outliers({**others, 0: strength})
    mine = {shot: ratio for shot, ratio in found.items() if shot == 0}
    assert mine == ({} if times is None else {0: pytest.approx(times)})


def test_parts_that_only_touch_are_not_mixed():
    low = PartialImage(np.ones((2, 2)), np.ones((2, 2)), (slice(0, 2), slice(3, 5)))
    high = PartialImage(np.full((2, 2), 3.0), np.full((2, 2), 3.0), (slice(2, 4), slice(1, 3)))
    total = low + high
    assert total.box == (slice(0, 4), slice(1, 5)) and total.image.dtype == np.float64
    assert total.image.tolist() == [[0, 0, 1, 1], [0, 0, 1, 1], [3, 3, 0, 0], [3, 3, 0, 0]]
    assert (low + PartialImage(*[np.ones((2, 2), np.float32)] * 2, low.box)).image.tolist() == [[2, 2], [2, 2]]
    whole = PartialImage(np.ones((2, 2)), np.ones((2, 2)), (slice(0, 2), slice(0, 2)))
    assert whole.spread((2, 2)) is whole and whole.arrays.keys() == {"image", "illumination"}


@pytest.mark.parametrize("shape", [(5, 3), (5, 3, 2)])
def test_the_top_fades_along_the_depth_alone(shape, monkeypatch):
    monkeypatch.setattr(stack, "laplacian_filter", lambda image, grid: image)
    monkeypatch.setattr(stack, "normalise", lambda image, illumination: image)
    sums = PartialImage(np.ones(shape, np.float32), np.ones(shape), ())
    image = stack.finish(sums, Grid(shape, (50.0, 10.0, 10.0)[: len(shape)]), 300.0)
    fade = [math.sin(math.pi / 2 * min(max(2 * row * 50 / 300 - 1, 0), 1)) ** 2 for row in range(5)]
    assert image.dtype == np.float32 and image.shape == shape
    assert image.reshape(5, -1) == pytest.approx(np.repeat(np.array(fade)[:, None], math.prod(shape[1:]), axis=1))
    assert all(low <= high for low, high in pairwise(fade)) and 0 < fade[4] < 1


@pytest.mark.parametrize(
    ("parts", "total"),
    [
        ([], None),
        ([None], None),
        (["a"], "a"),
        (["a", None, None, None, "e"], "(ae)"),
        ([None, "b", "c"], "(bc)"),
        (list("abcdefghi"), "((((ab)(cd))((ef)(gh)))i)"),
    ],
)
def test_sums_go_by_the_places_of_their_parts(parts, total):
    assert tree_sum(parts, add=lambda one, other: f"({one}{other})") == total
