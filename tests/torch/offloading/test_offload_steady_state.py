"""`offload` where everything fits: hooks are taken off, growth is noticed, and nobody else's hooks are disturbed."""

import gc
import threading

import pytest

torch = pytest.importorskip("torch")

from torch.autograd.graph import saved_tensors_hooks  # noqa: E402

from forebay import Budget  # noqa: E402
from forebay.torch import offload, release  # noqa: E402
from forebay.torch.offloading import steady_state  # noqa: E402
from forebay.torch.offloading.steady_state import ALIKE, FIRST, LEARNED, LOOK_EVERY, MOST_ROUNDS, Visit  # noqa: E402

SIZE = 1000
BYTES = 4 * SIZE
DEPTH = 20
AMPLE = Budget(device=2 * DEPTH * BYTES, host="100MB")
"""twice what a chain saves"""


def top():
    return torch._C._autograd._top_saved_tensors_default_hooks(True)


def chain(depth=DEPTH, size=SIZE):
    """Save the outputs of `depth` operations, each of `4 * size` bytes, and give their gradient."""
    x = torch.full((size,), 0.5, requires_grad=True)
    y = x
    for _ in range(depth):
        y = torch.tanh(y)
    y.sum().backward()
    return x.grad


@pytest.fixture(autouse=True)
def forgotten():
    assert top() is None
    yield
    assert top() is None
    release()


@pytest.fixture
def looks(monkeypatch):
    """Count the tensors that hooks look at."""
    counted = []
    call = Visit.__call__
    monkeypatch.setattr(Visit, "__call__", lambda self, tensor: (counted.append(tensor.shape), call(self, tensor))[1])
    return counted


def learn(saved, run=chain):
    for _ in range(LEARNED):
        with saved:
            run()
    assert saved.unseen == 0


def test_hooks_are_taken_off_when_iterations_were_alike(looks):
    expected, saved = chain(), offload(AMPLE, min_bytes=0)
    seen = []
    for _ in range(LEARNED + 3):
        before = len(looks)
        with saved:
            assert torch.equal(chain(), expected)
        seen.append(len(looks) - before)
    assert seen == [DEPTH] * LEARNED + [FIRST] * 3
    assert saved.unseen == 3 and not saved.metrics.moved


def test_nothing_is_on_after_the_first_tensors():
    saved = offload(AMPLE, min_bytes=0)
    learn(saved)
    with saved:
        y = torch.ones(SIZE, requires_grad=True)
        on = []
        for _ in range(DEPTH):
            y = torch.tanh(y)
            on.append(top() is not None)
    assert on == [True] * (FIRST - 1) + [False] * (DEPTH - FIRST + 1)


def test_a_with_statement_in_a_loop_comes_to_it_too(looks):
    for _ in range(LEARNED + 1):
        before = len(looks)
        with offload(AMPLE, min_bytes=0) as saved:
            chain()
    assert saved.unseen == 1 and len(looks) - before == FIRST


def test_tensors_that_are_too_small_to_move_are_not_looked_at_either():
    saved = offload(AMPLE)  # those below 1 MB stay
    for _ in range(ALIKE + 1):  # there is no order to learn
        with saved:
            chain()
    assert saved.unseen == 1


@pytest.mark.parametrize(("budget", "unseen"), [(8 * DEPTH * BYTES // 7 + 1, 1), (8 * DEPTH * BYTES // 7 - 1, 0)])
def test_an_eighth_of_the_budget_has_to_be_left(budget, unseen):
    saved = offload(Budget(device=budget, host="100MB"), min_bytes=0)
    for _ in range(LEARNED + 1):
        with saved:
            chain()
    assert saved.unseen == unseen and not saved.metrics.moved


def test_one_of_so_many_is_looked_at(looks):
    saved = offload(AMPLE, min_bytes=0)
    learn(saved)
    seen = []
    for _ in range(2 * LOOK_EVERY):
        before = len(looks)
        with saved:
            chain()
        seen.append(len(looks) - before)
    assert seen == 2 * ([FIRST] * (LOOK_EVERY - 1) + [DEPTH])


def test_growth_that_the_first_tensors_show_is_noticed_at_once():
    saved = offload(AMPLE, min_bytes=0)
    learn(saved)
    for times in range(1, 4):
        with saved:
            found = chain(size=4 * SIZE)
        assert torch.equal(found, chain(size=4 * SIZE))
        assert saved.unseen == 0
        excess = DEPTH * 4 * BYTES - AMPLE.device
        assert saved.metrics.moved["down 1"] >= times * excess
    assert saved.metrics.peak["device"] <= AMPLE.device + 4 * BYTES  # one has just been saved when others make room
    with saved:
        chain()  # as before: that is known
    assert saved.unseen == 1


def test_growth_that_comes_later_is_noticed_at_the_next_look():
    saved = offload(AMPLE, min_bytes=0)
    learn(saved)
    moved = []
    for _ in range(LOOK_EVERY + 4):
        with saved:
            chain(depth=3 * DEPTH)
        moved.append(bool(saved.metrics.moved["down 1"]))
    assert moved == [False] * (LOOK_EVERY - 1) + [True] * 5
    assert saved.unseen == LOOK_EVERY - 1
    before = saved.metrics.moved["down 1"]
    with saved:
        chain(depth=3 * DEPTH)
    assert saved.metrics.moved["down 1"] - before == (3 * DEPTH) * BYTES - AMPLE.device  # no more than has to
    assert saved.metrics.peak["device"] <= AMPLE.device + BYTES


def test_what_a_gpu_allocates_tells_of_growth_after_one_iteration(monkeypatch):
    allocated = [0]
    monkeypatch.setattr(steady_state, "bytes_ever_allocated", lambda device: allocated[0])

    def run(depth):
        allocated[0] += depth * BYTES
        chain(depth)

    saved = offload(AMPLE, min_bytes=0)
    learn(saved, lambda: run(DEPTH))
    for depth in (DEPTH, 2 * DEPTH, 2 * DEPTH):  # all within the budget
        with saved:
            run(depth)
    assert saved.unseen == 3
    with saved:
        run(2 * DEPTH + 1)  # too much, which nobody saw
    assert saved.unseen == 4 and not saved.metrics.moved
    with saved:
        run(2 * DEPTH + 1)
    assert saved.unseen == 4 and saved.metrics.moved["down 1"] == BYTES


def test_who_was_wrong_looks_longer():
    saved = offload(AMPLE, min_bytes=0)
    learn(saved)
    for _ in range(LOOK_EVERY):  # to the next look, which finds something else
        with saved:
            chain(DEPTH + 1)
    for _ in range(2 * ALIKE):
        assert saved.unseen == LOOK_EVERY - 1
        with saved:
            chain(DEPTH + 1)
    with saved:
        chain(DEPTH + 1)
    assert saved.unseen == LOOK_EVERY


def test_several_kinds_of_iterations_are_known_at_once():
    saved = offload(AMPLE, min_bytes=0)
    for _ in range(LEARNED):
        for size in (SIZE, SIZE // 2):
            with saved:
                chain(size=size)
    unseen = saved.unseen
    for size in (SIZE, SIZE // 2, SIZE, SIZE // 2):
        with saved:
            chain(size=size)
    assert saved.unseen == unseen + 4


def test_iterations_that_are_not_alike_are_looked_at():
    saved = offload(AMPLE, min_bytes=0)
    for number in range(20):
        with saved:
            chain(DEPTH + number % 3)
    assert saved.unseen == 0


def test_a_loop_inside_of_one_with_statement_is_looked_at(looks):
    saved = offload(AMPLE, min_bytes=0)
    for _ in range(LEARNED + 2):
        with saved:
            for _ in range(MOST_ROUNDS + 1):
                chain()
    assert saved.unseen == 0 and len(looks) == (LEARNED + 2) * (MOST_ROUNDS + 1) * DEPTH


def test_several_backward_passes_in_one_with_statement_need_not_be():
    saved = offload(AMPLE, min_bytes=0)

    def accumulate():
        for _ in range(4):
            chain()

    learn(saved, accumulate)
    with saved:
        accumulate()
    assert saved.unseen == 1


def test_graphs_that_are_still_held_are_counted():
    saved, held = offload(AMPLE, min_bytes=0), []

    def keep():
        y = torch.full((SIZE,), 0.5, requires_grad=True)
        for _ in range(DEPTH):
            y = torch.tanh(y)
        held.append(y.sum())

    learn(saved)
    for _ in range(4):
        with saved:
            keep()
    assert saved.unseen == 1  # after it one graph was held, of which the first tensors alone were counted
    assert saved.metrics.moved["down 1"] >= (3 * DEPTH + FIRST) * BYTES - AMPLE.device
    for loss in held:
        loss.backward()


@pytest.mark.parametrize("between", ["another iteration", "nothing that is saved"])
def test_graphs_that_are_held_for_long_are_counted(between):
    saved, held = offload(AMPLE, min_bytes=0), []
    learn(saved)
    for _ in range(6):
        with saved:
            y = torch.full((SIZE,), 0.5, requires_grad=True)
            for _ in range(DEPTH):
                y = torch.tanh(y)
            held.append(y.sum())
        with saved, torch.set_grad_enabled(between == "another iteration"):
            y = torch.tanh(torch.full((SIZE,), 0.5, requires_grad=True))
    assert saved.metrics.moved["down 1"] >= 5 * DEPTH * BYTES - AMPLE.device
    for loss in held:
        loss.backward()


def test_what_was_skipped_and_failed_teaches_nothing():
    half = Budget(device=DEPTH * BYTES, host="100MB")
    saved, moved = offload(half, min_bytes=0), []
    learn(saved, lambda: chain(size=SIZE // 2))
    for fails in (False, False, False, True, False):
        before = saved.metrics.moved["down 1"]
        try:
            with saved:
                chain(size=SIZE // 2 if fails else 2 * SIZE)
                assert not fails, "it stops here"
        except AssertionError:
            assert saved.unseen == 1
        else:
            moved.append(saved.metrics.moved["down 1"] - before)
    assert moved[-1] == moved[-2] > 0  # by the same plan


def test_a_loop_inside_is_looked_at_though_all_of_it_is_small():
    saved = offload(Budget(device="1MB", host="100MB"), min_bytes="100kB")
    for large in (False, False, False, True):
        with saved:
            for number in range(2 * MOST_ROUNDS):
                chain(size=50_000 if large and number > MOST_ROUNDS else SIZE)
    assert saved.unseen == 0 and saved.metrics.moved["down 1"] > 0


def test_hooks_of_others_inside_work_and_are_popped_in_order():
    saved, packed = offload(AMPLE, min_bytes=0), []

    def run():
        x = torch.full((SIZE,), 0.5, requires_grad=True)
        y = x
        for number in range(DEPTH):
            if number in (FIRST - 2, FIRST + 4):
                with saved_tensors_hooks(lambda tensor: (packed.append(1), tensor.detach())[1], lambda kept: kept):
                    y = torch.tanh(y)
            else:
                y = torch.tanh(y)
        y.sum().backward()
        return x.grad

    expected = run()
    for number in range(LEARNED + 3):
        packed.clear()
        with saved:
            assert torch.equal(run(), expected)
        assert len(packed) == 2 and top() is None
        assert saved.unseen == max(0, number + 1 - LEARNED)


def test_hooks_of_others_around_are_not_called_inside():
    packed = []
    saved = offload(AMPLE, min_bytes=0)
    learn(saved)
    with saved_tensors_hooks(lambda tensor: (packed.append(1), tensor.detach())[1], lambda kept: kept):
        with saved:
            chain()
        assert not packed and saved.unseen == 0
        chain(1)
        assert len(packed) == 1
    with saved:
        chain()
    assert saved.unseen == 1


def test_nested_offloads_keep_to_their_own():
    outer, inner = offload(Budget(device=0, host="100MB"), min_bytes=0), offload(AMPLE, min_bytes=0)
    learn(inner)
    for _ in range(2):
        with outer:
            with inner:
                chain()
            chain(1)
    assert inner.unseen == 0 and not inner.metrics.moved
    assert outer.metrics.moved["down 1"] == 2 * BYTES


def test_an_object_entered_twice_at_once():
    saved = offload(AMPLE, min_bytes=0)
    learn(saved)
    for _ in range(3):
        with saved:
            chain()
            with saved:
                chain()
            chain()
    assert top() is None and not saved.metrics.moved


def fail_after(depth):
    chain(depth)
    raise ZeroDivisionError


def test_an_error_leaves_nothing_on_and_tells_nothing():
    saved = offload(AMPLE, min_bytes=0)
    learn(saved)
    for depth in (FIRST - 2, FIRST + 2):
        with pytest.raises(ZeroDivisionError), saved:
            fail_after(depth)
        assert top() is None
    with saved:
        chain()
    assert saved.unseen == 2  # this one, and that of two more than the first


def test_backward_after_the_with_block_and_twice():
    def loss():
        x = torch.full((SIZE,), 0.5, requires_grad=True)
        y = x
        for _ in range(DEPTH):
            y = torch.tanh(y)
        return x, y.sum()

    saved, expected = offload(AMPLE, min_bytes=0), 2 * chain()
    for _ in range(LEARNED + 2):
        with saved:
            x, total = loss()
        total.backward(retain_graph=True)
        total.backward()
        assert torch.equal(x.grad, expected)
    assert saved.unseen == 2


def test_double_backward():
    def second():
        x = torch.linspace(0, 1, SIZE, requires_grad=True)
        y = x
        for _ in range(DEPTH):
            y = torch.sin(y)
        (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        (g.tanh() * g).sum().backward()
        return x.grad

    saved, expected = offload(Budget(device="1MB", host="1MB"), min_bytes=0), second()
    for _ in range(LEARNED + 2):
        with saved:
            assert torch.equal(second(), expected)
        gc.collect()
    assert saved.unseen == 2


def test_hooks_are_not_taken_off_by_what_a_backward_pass_saves():
    class Differentiating(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1.0

        @staticmethod
        def backward(ctx, gradient):
            with torch.enable_grad():
                y = gradient.detach().requires_grad_()
                for _ in range(DEPTH):
                    y = torch.tanh(y)
                y.sum().backward()
            return gradient

    saved = offload(AMPLE, min_bytes=0)
    for _ in range(LEARNED + 2):
        with saved:
            x = torch.ones(SIZE, requires_grad=True)
            torch.tanh(Differentiating.apply(x)).sum().backward()
            assert top() is not None
    assert saved.unseen == 0 and not saved.metrics.moved


def test_a_change_in_place_of_what_was_saved_raises_as_in_autograd():
    saved = offload(AMPLE, min_bytes=0)
    learn(saved)
    for changed in (1, FIRST + 2):
        with saved:
            outputs = [torch.ones(SIZE, requires_grad=True)]
            for _ in range(DEPTH):
                outputs.append(torch.tanh(outputs[-1]))
            with torch.no_grad():
                outputs[changed].add_(1)
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                outputs[-1].sum().backward()
        del outputs
    assert saved.unseen == 2


def test_a_lossy_codec_changes_nothing_where_everything_fits():
    saved, expected = offload(AMPLE, codec="cast:float16", min_bytes=0), chain()
    for _ in range(LEARNED + 2):
        with saved:
            assert torch.equal(chain(), expected)
    assert saved.unseen == 2 and not saved.metrics.ratios


def test_metrics_tell_what_was_let_through_where_it_was_looked_at():
    saved = offload(AMPLE, min_bytes=0)
    learn(saved)
    assert saved.metrics.peak["device"] == DEPTH * BYTES
    with saved:
        chain(size=SIZE + SIZE // 2)
    assert saved.unseen == 0 and saved.metrics.peak["device"] == DEPTH * BYTES * 3 // 2


def test_iterations_without_gradients_in_between_change_nothing():
    saved = offload(AMPLE, min_bytes=0)
    for number in range(LEARNED + 2):
        with saved:
            chain()
        with torch.no_grad(), saved:
            torch.tanh(torch.ones(SIZE))
        assert saved.unseen == max(0, number + 1 - LEARNED)


def test_each_thread_learns_for_itself():
    saved, found, together = offload(AMPLE, min_bytes=0), [], threading.Barrier(3)
    expected = chain()

    def work():
        together.wait()
        for _ in range(LEARNED + 2):
            with saved:
                found.append(torch.equal(chain(), expected))
        found.append(top() is None)
        together.wait()
        found.append(saved.unseen == 3 * 2)
        together.wait()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 3 * (LEARNED + 4)


def test_an_error_in_one_that_is_looked_at_is_no_surprise():
    saved = offload(AMPLE, min_bytes=0)
    learn(saved)
    for _ in range(LOOK_EVERY - 1):
        with saved:
            chain()
    with pytest.raises(ZeroDivisionError), saved:
        fail_after(FIRST + 2)
    for _ in range(2):  # one that is looked at, and one that is not
        with saved:
            chain()
    assert saved.unseen == LOOK_EVERY


def test_a_plan_is_made_of_whole_iterations():
    saved = offload(AMPLE, min_bytes=0)
    learn(saved)
    for _ in range(3):  # a part is let through; all are noted; it goes by the plan
        with saved:
            chain(size=3 * SIZE)
    (keeper,) = saved._keepers.values()
    assert keeper._moved == frozenset(range(7))  # 20 of 60 thousand numbers, three thousand each


def test_a_plan_outlives_iterations_that_are_not_looked_at():
    saved = offload(Budget(device=DEPTH * BYTES, host="100MB"), min_bytes=0)
    learn(saved, lambda: chain(size=SIZE // 2))
    for number in range(3):
        with saved:
            chain(size=2 * SIZE)
        with saved:
            chain(size=SIZE // 2)
        assert saved.unseen == number + 1
    with saved:
        chain(size=2 * SIZE)
    (keeper,) = saved._keepers.values()
    assert keeper._learned == [2 * BYTES] * DEPTH
    assert saved.metrics.peak["device"] <= (DEPTH + 2) * BYTES


def test_kinds_that_were_met_longest_ago_are_forgotten(monkeypatch):
    monkeypatch.setattr(steady_state, "MOST_KINDS", 1)
    saved = offload(AMPLE, min_bytes=0)
    learn(saved)
    for size in (SIZE // 2, SIZE):
        with saved:
            chain(size=size)
        with saved:
            chain(size=SIZE // 2)
    assert saved.unseen == 0


def test_who_is_entered_again_inside_learns_nothing_of_both():
    saved = offload(AMPLE, min_bytes=0)
    for _ in range(LEARNED + 3):
        with saved:
            chain()
            with saved:
                chain()
    assert saved.unseen == 0


def test_hooks_that_are_on_again_at_the_end_are_taken_off():
    saved = offload(AMPLE, min_bytes=0)
    learn(saved)
    with saved:
        hooks = top()
        chain()
        assert top() is None
        torch._C._autograd._push_saved_tensors_default_hooks(*hooks)  # as when the state of a thread is restored
    assert top() is None and saved.unseen == 1


def test_what_is_let_through_is_counted_beside_what_others_hold():
    saved = offload(Budget(device=3 * DEPTH * BYTES // 2, host="100MB"), min_bytes=0)
    with saved:
        y = torch.full((SIZE,), 0.5, requires_grad=True)
        for _ in range(DEPTH):
            y = torch.tanh(y)
        y.sum().backward(retain_graph=True)
    assert not saved.metrics.moved
    with saved:
        chain()
    assert saved.metrics.moved["down 1"] >= DEPTH * BYTES // 2 - BYTES
    assert saved.metrics.peak["device"] <= 3 * DEPTH * BYTES // 2 + BYTES
    y.sum().backward()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_on_a_gpu_growth_is_noticed_after_one_iteration():
    def run(depth):
        x = torch.ones(2**20, device="cuda", requires_grad=True)
        y = x
        for _ in range(depth):
            y = torch.tanh(y)
        y.sum().backward()
        return x.grad

    saved = offload(Budget(device=2 * DEPTH * 2**22, host="1GB"))
    learn(saved, lambda: run(DEPTH))
    with saved:
        run(DEPTH)
    with saved:
        run(4 * DEPTH)
    assert saved.unseen == 2 and not saved.metrics.moved
    expected = run(4 * DEPTH)
    with saved:
        assert torch.equal(run(4 * DEPTH), expected)
    assert saved.unseen == 2 and saved.metrics.moved["down 1"] >= 2 * DEPTH * 2**22
