"""A forward that keeps its input is refused wherever that memory is used again; what does no harm is let be."""

import gc

import numpy as np
import pytest

import forebay as fb
from forebay.cuda.available import gpu_count
from forebay.engine.states import loans
from forebay.errors import StateError

STEPS = 40
KEPT = r"forward kept an array.*x\.copy\(\)"
COSTS = fb.Costs(1.0, 1.0, 1e9)


@pytest.fixture(autouse=True, scope="module")
def little_to_collect():
    """Keep the collector, which reversals ask here again and again, from looking through what other tests left."""
    gc.freeze()


def reverse(forward, backward=None, schedule="revolve:3", library=np, where={}, **more):  # noqa: B006
    """Reverse 40 steps of x -> x / 2 + step, and tell how many states are wrong."""
    wrong, x = [], np.arange(8.0)
    expected = [x]
    for step in range(STEPS):
        expected.append(expected[-1] * 0.5 + step)

    def see(state, step):
        if backward:
            backward(state)
        if not np.array_equal(on_host(state["p"]), expected[step]):
            wrong.append(step)

    state = {"p": library.asarray(np.arange(8.0), **where)}
    fb.reverse(forward, see, state, STEPS, budget="1MB", schedule=schedule, costs=more.pop("costs", COSTS), **more)
    return len(wrong)


def on_host(array):
    return array.cpu().numpy() if hasattr(array, "cpu") else array.get() if hasattr(array, "get") else array


class Buffers:
    """Steps from one buffer into the other, and keeps its input as the next one, or a view of it."""

    def __init__(self, library=np, where={}, kept=lambda array: array):  # noqa: B006
        self.spare, self.multiply = library.empty(8, dtype=library.float64, **where), library.multiply
        self.kept = kept

    def __call__(self, state, start, stop):
        x = state["p"]
        for step in range(start, stop):
            out = self.spare
            self.multiply(x, 0.5, out=out)
            out += step
            self.spare, x = self.kept(x), out
        return {"p": x}


def step_in_place(state, start, stop):
    for step in range(start, stop):
        state["p"] *= 0.5
        state["p"] += step
    return state


@pytest.mark.parametrize("schedule", ["revolve:3", "uniform:4", "twolevel:4"])
def test_two_buffers_are_refused(schedule):
    with pytest.raises(StateError, match=KEPT):
        reverse(Buffers(), schedule=schedule)


def test_two_buffers_of_torch_are_refused():
    torch = pytest.importorskip("torch")
    with pytest.raises(StateError, match=KEPT):
        reverse(Buffers(torch), library=torch)


VIEWS = {
    "view": lambda array: array[:],
    "shape": lambda array: array.reshape(2, 4).reshape(8),
    "own": lambda array: array.view() if isinstance(array, np.ndarray) else array.detach(),
}


@pytest.mark.parametrize("kept", VIEWS)
@pytest.mark.parametrize("name", ["numpy", "torch"])
def test_buffers_that_are_views_are_refused(name, kept):
    library = pytest.importorskip(name)
    with pytest.raises(StateError, match=KEPT):
        reverse(Buffers(library, kept=VIEWS[kept]), library=library)


def test_two_buffers_are_refused_where_snapshots_are_encoded():
    costs = fb.Costs(1.0, 1.0, 1e9, codecs={"lossless": fb.CodecCost(2, 1e15, 1e15, worst=1.1)})
    with pytest.raises(StateError, match=KEPT):
        reverse(Buffers(), codec="lossless", costs=costs)


def test_two_buffers_are_let_be_where_nothing_is_used_again():
    assert reverse(Buffers(), schedule="storeall") == 0


class Solver:
    """Refers to what it was given last."""

    def __call__(self, state, start, stop):
        self.state, self.p, self.inside = state, state["p"], state["p"][1:-1]
        self.itself = self  # a circle
        return step_in_place({"p": self.p}, start, stop)

    def back(self, state):
        self.adjoint, self.part = state, state["p"][2:]


@pytest.mark.parametrize("codec", [None, "lossless"])
@pytest.mark.parametrize("name", ["numpy", "torch"])
def test_what_a_solver_refers_to_until_its_next_call_is_let_be(name, codec):
    solver, library = Solver(), pytest.importorskip(name)
    costs = fb.Costs(1.0, 1.0, 1e9, codecs={"lossless": fb.CodecCost(2, 1e15, 1e15, worst=1.1)})
    assert reverse(solver, solver.back, codec=codec, costs=costs, library=library) == 0


def test_garbage_in_circles_is_let_be():
    def forward(state, start, stop):
        circle = [state["p"]]
        circle.append(circle)
        try:
            raise ValueError(circle)
        except ValueError:
            return step_in_place(state, start, stop)

    assert reverse(forward) == 0


def test_a_final_state_that_is_still_referred_to_is_let_be():
    kept = []
    assert reverse(step_in_place, turn=kept.append) == 0
    with fb.prepare(step_in_place, {"p": np.arange(8.0)}, STEPS, budget="1MB", schedule="revolve:3") as reversal:
        kept.append(reversal.forward())
        reversal.backward(lambda state, step: None, retain=True)
        reversal.backward(lambda state, step: None)


def test_states_of_torch_that_backward_refers_to_until_its_next_call_are_let_be():
    torch = pytest.importorskip("torch")
    latest = {}
    weight = torch.full((1,), 0.5, dtype=torch.float64, requires_grad=True)

    def recorded(state, start, stop):  # with a graph that refers to its input
        for step in range(start, stop):
            state = {"p": state["p"] * weight + step}
        return {"p": state["p"].detach()}

    assert reverse(recorded, latest.update, library=torch) == 0
    assert reverse(step_in_place, latest.update, library=torch) == 0


def test_garbage_is_collected_ever_more_seldom(monkeypatch):
    calls = []
    collect = loans.gc.collect
    monkeypatch.setattr(loans.gc, "collect", lambda: calls.append(collect()))

    def forward(state, start, stop):
        circle = [state["p"]]
        circle.append(circle)
        return step_in_place(state, start, stop)

    loans.gc.disable()
    try:
        assert reverse(forward) == 0
    finally:
        loans.gc.enable()
    assert 1 <= len(calls) <= 6


class Circled:
    """Something lent that awaits the garbage collector, and is asked whether it is kept before and after it came."""

    def __init__(self, collected):
        self.collected, self.asked = collected, 0

    def renew(self):
        pass

    def is_kept(self):
        self.asked += 1
        return len(self.collected) == self.before


def test_after_each_time_that_it_was_garbage_twice_as_many_calls_go_by(monkeypatch):
    collected, at = [], []
    monkeypatch.setattr(loans.gc, "collect", lambda: collected.append(None))
    lent = loans.Loans()
    for turned in (False, True):
        for call in range(40):
            circled = Circled(collected)
            for each in (circled, Circled(collected)):
                each.before = len(collected)
                lent.lend(each)
                lent.give()
            lent.check()
            if len(collected) > circled.before:
                at.append(call)
            lent._given.clear()
        assert at == ([0, 2, 6, 14, 30] if turned else [])
        lent.turn([])
    before = len(collected)
    lent._given[:] = [circled, circled]
    circled.before = before
    lent.check(is_end=True)  # at the end nothing is put off
    assert len(collected) == before + 1


def test_arrays_that_had_been_let_go_are_lent_anew():
    lent, first, second = loans.Loans(), Circled([]), Circled([])
    assert lent.count_references() is None
    lent.give()
    for each in (first, second, first):
        lent.lend(each)
        lent.give()
    assert lent._given == [second, first]


@pytest.mark.gpu
@pytest.mark.skipif(gpu_count() == 0, reason="no GPU")
@pytest.mark.parametrize("name", ["cupy", "torch"])
class TestOnAGpu:
    def test_buffers_are_refused(self, name):
        library, where = pytest.importorskip(name), {"device": "cuda"} if name == "torch" else {}
        own = (lambda array: array.detach()) if name == "torch" else (lambda array: array.view())
        for kept in (lambda array: array, VIEWS["view"], VIEWS["shape"], own):
            for schedule in ("revolve:3", "twolevel:4"):
                with pytest.raises(StateError, match=KEPT):
                    reverse(Buffers(library, where, kept), library=library, where=where, schedule=schedule)

    def test_what_is_referred_to_until_the_next_call_is_let_be(self, name):
        library, where = pytest.importorskip(name), {"device": "cuda"} if name == "torch" else {}
        solver, kept = Solver(), []
        for schedule in ("revolve:3", "uniform:4", "storeall"):
            more = {"library": library, "where": where, "schedule": schedule, "turn": kept.append}
            assert reverse(solver, solver.back, **more) == 0
