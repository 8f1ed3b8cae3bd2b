"""What a reversal takes of a GPU, in the pieces of the driver: never more than its budget and the working state."""

import os

import pytest

import forebay as fb
from forebay.cuda.available import gpu_count

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(gpu_count() == 0, reason="no GPU"),
    pytest.mark.skipif("PYTEST_XDIST_WORKER" in os.environ, reason="the card's free memory is everyone's: run alone"),
]

COSTS = fb.Costs(1e-4, 1e-4, 1e12, host=fb.Link(5e10, 5e10))
FIELD = 1_000_003  # elements, so that nothing ends with a piece
FEWER = 62_501
CODECS = [{}, {"codec": "bounded:1e-3"}, {"codec": "bounded:1e-3", "record": (0,)}]
LARGE = [(FIELD, budget) for budget in (6 * 8_000_512, 9 * 8_000_512 + 12_345, 90_000_000)]
SMALL = [(FEWER, 2**20 * mebibytes) for mebibytes in (8, 9, 12, 15, 20, 33)]
"""From where no budget is too small for what the driver takes, without a codec."""


@pytest.mark.parametrize(
    ("field", "budget", "how"),
    [(*case, how) for case in LARGE for how in CODECS]
    + [(*case, {}) for case in SMALL]
    + [(*case, how) for case in SMALL if case[1] >= 2**20 * 15 for how in CODECS[1:]],
)
def test_the_device_takes_no_more_than_the_budget_and_the_working_state(field, budget, how):
    cupy = pytest.importorskip("cupy")
    state = tuple(cupy.full(field, value, "float32") for value in (1.0, 2.0))
    nbytes, least = sum(array.nbytes for array in state), []
    advance = cupy.ElementwiseKernel("", "float32 p, float32 q", "p = p * 0.99f + q; q = p;", "advance")

    def forward(state, start, stop):
        for _ in range(start, stop):
            advance(*state)
        return state

    def backward(state, step):
        least.append(cupy.cuda.runtime.memGetInfo()[0])

    forward(tuple(array.copy() for array in state), 0, 1)  # the kernel is there
    cupy.cuda.get_current_stream().synchronize()
    cupy.get_default_memory_pool().free_all_blocks()
    before = cupy.cuda.runtime.memGetInfo()[0]
    fb.reverse(forward, backward, state, 30, budget=fb.Budget(budget, "1GB"), costs=COSTS, **how)
    assert before - min(least) <= budget + nbytes
