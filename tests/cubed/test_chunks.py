"""The door to Cubed: what a function needs is told before anything runs, and chunks fit what is allowed."""

import math
from dataclasses import dataclass

import numpy as np
import pytest

cubed = pytest.importorskip("cubed")

import cubed.array_api as xp  # noqa: E402

import forebay.cubed as door  # noqa: E402
from forebay.errors import BudgetError  # noqa: E402
from forebay.footprint.estimate import Estimate  # noqa: E402


@dataclass
class Known:
    """So many bytes a voxel, of which four are the output."""

    a_voxel: int = 20
    ndim: int = 3
    dtype: np.dtype = np.dtype("float32")  # noqa: RUF009

    def predict(self, shape):
        needed = self.a_voxel * math.prod(shape)
        return Estimate(needed, needed, 0.01, tuple(shape), self.dtype, 1e-7 * math.prod(shape))


def ones(shape, chunks, allowed="200MB"):
    return xp.ones(shape, chunks=chunks, dtype="float32", spec=cubed.Spec(allowed_mem=allowed, reserved_mem="50MB"))


def test_the_output_is_counted_by_cubed_itself():
    assert door.extra_projected_mem(Known(20), (10, 10, 10)) == 16 * 1000


def test_a_halo_is_assembled_in_a_chunk_of_its_own():
    assert door.extra_projected_mem(Known(20), (10, 10, 10), halo=(1, 1, 1)) == (16 + 4) * 12**3


def test_projected_memory_holds_what_the_function_needs():
    array = ones((40, 40, 40), (20, 40, 40))
    block = 20 * 40 * 40
    plain = cubed.map_blocks(np.sqrt, array, dtype="float32").plan().max_projected_mem
    told = door.map_blocks(np.sqrt, array, model=Known(20)).plan().max_projected_mem
    assert told - plain == 16 * block


def test_the_result_is_that_of_the_function():
    result = door.map_blocks(lambda block, add: block + add, ones((40, 40, 40), (20, 40, 40)), model=Known(), add=2)
    assert result.dtype == "float32"
    assert np.array_equal(result.compute(), np.full((40, 40, 40), 3))


def test_what_does_not_fit_is_refused_before_it_runs():
    array = ones((200, 200, 200), (200, 200, 200), allowed="300MB")
    cubed.map_blocks(np.sqrt, array, dtype="float32").plan()
    with pytest.raises(ValueError, match="exceeds allowed_mem"):
        door.map_blocks(np.sqrt, array, model=Known(100)).compute()


def test_chunks_fit_what_is_allowed():
    array = ones((200, 200, 200), (200, 200, 200))
    chunks = door.chunks_for(np.sqrt, array, model=Known(100))
    assert math.prod(chunks) < 200**3
    plan = door.map_blocks(np.sqrt, ones((200, 200, 200), chunks), model=Known(100)).plan()
    assert 0.6 * 150e6 < plan.max_projected_mem - 50e6 <= 150e6


def test_chunks_with_halos():
    def inner(block):
        return (block[:-2] + block[1:-1] + block[2:])[:, 1:-1, 1:-1]

    result = door.map_overlap(inner, ones((40, 40, 40), (20, 40, 40)), depth=1, model=Known(), boundary=1)
    assert np.array_equal(result.compute(), np.full((40, 40, 40), 3))


def test_a_spec_that_allows_nothing_is_refused():
    array = xp.ones((4, 4, 4), chunks=(4, 4, 4), spec=cubed.Spec(allowed_mem="50MB", reserved_mem="50MB"))
    with pytest.raises(BudgetError, match="no more memory than it reserves"):
        door.chunks_for(np.sqrt, array, model=Known())
