"""Continuing a model through its layers, and the transpose of that, whole and a few planes at a time."""

import numpy as np
import pytest

from forebay.wave import Grid
from forebay.wave.earth import folding

GRIDS = [
    Grid((7, 5), 1.0, absorb=3),
    Grid((2, 3), 1.0, absorb=0),
    Grid((6, 5), 1.0, absorb=4, free_surface=True),
    Grid((4, 3, 5), 1.0, absorb=2, free_surface=True),
]


@pytest.mark.parametrize("grid", GRIDS, ids=str)
@pytest.mark.parametrize("planes", [1, 2, 3, 100])
def test_folding_is_the_transpose_of_continuing_however_it_is_cut(grid, planes, monkeypatch):
    rng, fields = np.random.default_rng(1), grid.fields(2)
    monkeypatch.setattr(folding, "POINTS", planes * int(np.prod(fields[1:])))
    inside, around = rng.standard_normal(grid.shape), rng.standard_normal((2, *fields))
    found = folding.folded(grid, 2, lambda planes: [array[planes].copy() for array in around], np.float64)
    for whole, values in zip(found, around, strict=True):
        assert whole.shape == grid.shape and whole.flags.c_contiguous
        assert np.vdot(whole, inside) == pytest.approx(np.vdot(values, grid.extend(inside, 2)), rel=1e-12)


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_some_planes_are_those_of_all(grid):
    values = np.random.default_rng(2).standard_normal(grid.shape)
    whole = grid.extend(values, 3)
    for start in range(len(whole)):
        for stop in range(start + 1, len(whole) + 1):
            assert np.array_equal(grid.extend(values, 3, slice(start, stop)), whole[start:stop])
