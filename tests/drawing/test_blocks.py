"""Arrays cut into blocks, drawn."""

import re

import pytest

from forebay.drawing.blocks import FINEST, Blocks
from forebay.footprint import Estimate, plan_chunks


def lines(markup):
    """Count the cuts that are drawn on each face."""
    return [path.count("M") - 1 for path in re.findall(r'<path d="([^"]*)" fill="none"', markup)]


@pytest.mark.parametrize(
    ("shape", "chunks", "cuts"),
    [
        ((90, 60, 30), (30, 30, 30), [1, 3, 2]),  # the front, the top and the side
        ((90, 60, 30), (90, 60, 30), [0, 0, 0]),
        ((90, 60), (30, 20), [4]),
        ((90,), (30,), [2]),
        ((7, 90, 60, 30), (1, 30, 30, 30), [1, 3, 2]),
        ((3000, 1, 1), (1, 1, 1), [0, FINEST, FINEST]),
    ],
)
def test_each_cut_is_a_line_until_there_are_too_many(shape, chunks, cuts):
    assert lines(Blocks(shape, chunks).markup) == cuts


def test_it_tells_how_each_axis_is_cut():
    assert Blocks((90, 60, 30), (40, 60, 10)).told == "axis 0: 90 in 3 of 40; axis 1: 60 whole; axis 2: 30 in 3 of 10"


def test_a_plan_of_chunks_shows_them_in_notebooks():
    class Model:
        ndim, dtype = 2, "float32"

        def predict(self, shape):
            size = 8 * shape[0] * shape[1]
            return Estimate(size, size, 0.01, shape, "float32", 1e-9 * size)

    plan = plan_chunks(Model(), (1000, 500), "1MB")
    assert Blocks((1000, 500), plan.chunks).markup in plan._repr_html_()
