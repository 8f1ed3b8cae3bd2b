"""`offload` where everything fits, or seems to: all of it is counted, and nobody else's hooks are disturbed."""

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

from forebay import Budget
from forebay.torch import offload, release

SIZE = 1000
BYTES = 4 * SIZE
DEPTH = 20
AMPLE = Budget(device=2 * DEPTH * BYTES, host="100MB")
"""twice what a chain saves"""


def top():
    return torch._C._autograd._top_saved_tensors_default_hooks(True)


def grown(x, depth=DEPTH):
    for _ in range(depth):
        x = torch.tanh(x)
    return x


def chain(depth=DEPTH, size=SIZE):
    """Save the outputs of `depth` operations, each of `4 * size` bytes, and give their gradient."""
    x = torch.full((size,), 0.5, requires_grad=True)
    grown(x, depth).sum().backward()
    return x.grad


@pytest.fixture(autouse=True)
def forgotten():
    assert top() is None
    yield
    assert top() is None
    release()


@pytest.mark.parametrize("min_bytes", [0, "1MB"])
def test_growth_behind_iterations_that_fit_stays_within_the_budget(min_bytes):
    """They begin alike, and nothing but the tensors themselves tells how they go on."""
    saved, expected = offload(AMPLE, min_bytes=min_bytes), chain(6 * DEPTH)
    for _ in range(9):
        with saved:
            chain()
    assert saved.metrics.peak["device"] == DEPTH * BYTES and not saved.metrics.moved
    for _ in range(3):
        with saved:
            assert torch.equal(chain(6 * DEPTH), expected)
    assert saved.metrics.moved["down 1"] >= 4 * DEPTH * BYTES
    assert AMPLE.device - BYTES <= saved.metrics.peak["device"] <= AMPLE.device + BYTES


def test_small_tensors_move_where_larger_ones_are_not_enough():
    budget, expected = Budget(device=4 * BYTES, host="100MB"), chain()
    saved = offload(budget)  # all of them are below 1 MB
    for _ in range(3):
        with saved:
            assert torch.equal(chain(), expected)
    assert saved.metrics.moved["down 1"] >= 3 * (DEPTH - 4) * BYTES
    assert saved.metrics.peak["device"] <= budget.device + BYTES


def test_small_tensors_stay_where_larger_ones_can_make_room():
    x = torch.full((SIZE,), 0.5, requires_grad=True)
    y = torch.full((10 * SIZE,), 0.5, requires_grad=True)
    small, large = 4 * BYTES, 10 * BYTES
    saved = offload(Budget(device=small + 2 * large, host="100MB"), min_bytes=large)
    for _ in range(3):
        with saved:
            (grown(x, 2).sum() + grown(y, 4).sum() + grown(x, 2).sum()).backward()
    assert saved.metrics.moved["down 1"] % large == 0 and saved.metrics.moved["down 1"] >= 3 * 2 * large
    assert saved.metrics.peak["device"] <= small + 3 * large


def test_graphs_that_are_still_held_are_counted():
    saved, held = offload(AMPLE, min_bytes=0), []
    for number in range(8):
        with saved:
            y = grown(torch.full((SIZE,), 0.5, requires_grad=True)).sum()
        held += [y] * (number > 1)
    assert saved.metrics.moved["down 1"] >= 6 * DEPTH * BYTES - AMPLE.device
    assert saved.metrics.peak["device"] <= AMPLE.device + BYTES
    for loss in held:
        loss.backward()


def test_what_is_let_through_is_counted_beside_what_others_hold():
    saved = offload(Budget(device=3 * DEPTH * BYTES // 2, host="100MB"), min_bytes=0)
    with saved:
        y = grown(torch.full((SIZE,), 0.5, requires_grad=True))
        y.sum().backward(retain_graph=True)
    assert not saved.metrics.moved
    with saved:
        chain()
    assert saved.metrics.moved["down 1"] >= DEPTH * BYTES // 2 - BYTES
    assert saved.metrics.peak["device"] <= 3 * DEPTH * BYTES // 2 + BYTES
    y.sum().backward()


def test_hooks_of_others_inside_and_around_are_called_in_order():
    saved, packed = offload(AMPLE, min_bytes=0), []

    def others():
        return saved_tensors_hooks(lambda tensor: (packed.append(1), tensor.detach())[1], lambda kept: kept)

    for _ in range(3):
        with others():
            with saved:
                chain()
                with others():
                    chain(1)
                assert packed.pop() and not packed
            chain(1)
            assert packed.pop() and not packed


def test_nested_offloads_keep_to_their_own_and_one_may_be_entered_twice():
    outer, inner = offload(Budget(device=0, host="100MB"), min_bytes=0), offload(AMPLE, min_bytes=0)
    for _ in range(3):
        with outer:
            with inner, inner:
                chain()
            chain(1)
    assert not inner.metrics.moved and outer.metrics.moved["down 1"] == 3 * BYTES


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_on_a_gpu_growth_stays_within_the_budget():
    def run(depth):
        x = torch.ones(2**20, device="cuda", requires_grad=True)
        grown(x, depth).sum().backward()
        return x.grad

    saved, expected = offload(Budget(device=2 * DEPTH * 2**22, host="1GB")), run(4 * DEPTH)
    for _ in range(5):
        with saved:
            run(DEPTH)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    with saved:
        assert torch.equal(run(4 * DEPTH), expected)
    assert saved.metrics.moved["down 1"] >= 2 * DEPTH * 2**22
    assert torch.cuda.max_memory_allocated() - before <= (2 * DEPTH + 6) * 2**22
