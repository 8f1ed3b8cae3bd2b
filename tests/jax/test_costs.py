"""What a JAX loop costs: tracing and moves no more often than needed, memory no longer, and of the right kind."""

import gc
from dataclasses import dataclass, field

import numpy as np
import pytest

import forebay as fb
from forebay.engine.recorded import Recording, Request, plan_recorded
from forebay.engine.reversal import Reversal

jax = pytest.importorskip("jax")
jnp = jax.numpy
checkpointed = pytest.importorskip("forebay.jax").checkpointed
from forebay.jax import compiled_step, decision, node, planning  # noqa: E402
from forebay.jax.devices import Places  # noqa: E402

QUICK = fb.Costs(1e-3, 1e-3, 1e9)


def held():
    gc.collect()
    return sum(array.nbytes for array in jax.live_arrays())


def heavy(y, t, weight):
    """A step whose graph is large beside its state."""
    return jax.lax.scan(lambda y, _: (jnp.sin(y * weight) * jnp.cos(y), None), y, None, length=100)[0]


@pytest.mark.slow
@pytest.mark.parametrize("steps", [3, *(pytest.param(steps, marks=pytest.mark.slow) for steps in (2, 5))])
def test_at_the_turn_no_more_is_held_than_the_budget(steps):
    start, before = jnp.ones(5000), held()
    _, pull = jax.vjp(lambda w: checkpointed(heavy, start, steps, params=w, budget="200kB", costs=QUICK), 0.9)
    assert held() - before <= 200_000
    (gradient,) = pull(start)
    assert np.isfinite(gradient)


@pytest.mark.parametrize(("schedule", "saves"), [("storeall", 40), ("revolve:4", None)])
def test_states_move_only_where_they_are_kept_or_restored(schedule, saves, monkeypatch):
    puts, brought, results = [], [], []
    put, to_host = Places.put, node.to_host
    monkeypatch.setattr(Places, "put", lambda self, arrays: puts.append(1) or put(self, arrays))
    monkeypatch.setattr(node, "to_host", lambda leaves: brought.append(1) or to_host(leaves))
    jax.grad(
        lambda w: checkpointed(
            lambda y, t, w: jnp.sin(y * w),
            jnp.ones(5),
            40,
            params=w,
            budget="1MB",
            schedule=schedule,
            chunk=1,
            costs=QUICK,
            report=results.append,
        ).sum()
    )(0.9)
    plan = results[0].plan
    assert saves in (None, plan.schedule.saves)
    assert len(brought) <= plan.schedule.saves  # the first of them is the initial state
    restores = sum(type(action).__name__ == "Restore" for action in plan.schedule)
    assert len(puts) <= restores


def count_compiled(monkeypatch):
    made, make = [], compiled_step.CompiledStep
    monkeypatch.setattr(compiled_step, "CompiledStep", lambda *given: made.append(make(*given)) or made[-1])
    return made


def count_traces():
    traces = []

    def step(y, t, weight):
        traces.append(t)
        return jnp.sin(y * weight)

    return traces, step


def test_a_step_is_traced_once_a_call_and_compiled_once(monkeypatch):
    traces, step = count_traces()
    made = count_compiled(monkeypatch)

    def gradient():
        return jax.grad(
            lambda w: checkpointed(
                step, jnp.ones(5), 100, params=w, budget="1MB", schedule="revolve:10", costs=QUICK
            ).sum()
        )(jnp.float32(0.9))

    for count in (1, 2, 3):
        gradient()
        assert len(traces) == count
    assert len(made) == 1


class Model:
    """Its method is the step; a method is another object each time."""

    def __init__(self):
        self.traces = 0

    def step(self, y, t, weight):
        self.traces += 1
        return y * weight


def test_a_method_is_compiled_once(monkeypatch):
    model, made = Model(), count_compiled(monkeypatch)
    for _ in range(3):
        checkpointed(model.step, jnp.ones(3), 10, params=0.5)
    assert model.traces == 3 and len(made) == 1


@dataclass
class Changing:
    """Has no hash, because it can be changed."""

    factor: float
    more: list = field(default_factory=list)

    def __call__(self, y, t):
        return y * self.factor


def test_a_step_without_a_hash_is_compiled_anew():
    step = Changing(0.5)
    first = checkpointed(step, jnp.ones(3), 2)
    step.factor = 2.0
    assert (first[0], checkpointed(step, jnp.ones(3), 2)[0]) == (0.25, 4.0)


@pytest.mark.slow
def test_what_a_step_captured_goes_with_the_step():
    before, known = held(), len(compiled_step._compiled)
    for number in range(3):
        captured = jnp.full(100_000, float(number))

        def step(y, t, w, captured=captured):
            return jnp.sin(y * w) + captured[:5]

        jax.grad(
            lambda w, step=step: checkpointed(
                step, jnp.ones(5), 12, params=w, budget="64kB", schedule="revolve:3", costs=QUICK
            ).sum()
        )(0.9)
    del captured, step
    assert held() - before < 100_000 and len(compiled_step._compiled) == known


@dataclass(frozen=True)
class Accelerator:
    """A device with so much memory."""

    free: int
    platform: str = "gpu"

    def memory_stats(self):
        return {"bytes_limit": self.free + 1000, "bytes_in_use": 1000}


@pytest.mark.slow
@pytest.mark.parametrize(("free", "whole"), [(50_000_000, True), (1_000_000, False)])
def test_on_an_accelerator_its_own_memory_says_whether_the_whole_graph_fits(free, whole, monkeypatch):
    monkeypatch.setattr(decision, "device_of", lambda leaves: Accelerator(free))
    results = []

    def total(w):  # 100 graphs of some 80 kB, whatever the host has
        return checkpointed(
            lambda y, t, w: jnp.sin(y * w) * jnp.cos(y),
            jnp.ones(10_000),
            100,
            params=w,
            budget="1GB",
            report=results.append,
            costs=QUICK,
        ).sum()

    jax.grad(total)(0.9)
    assert bool(results) != whole
    if not whole:
        assert results[0].plan.every <= free // 2 // 40_000


@pytest.mark.parametrize(
    ("largest", "graph", "says"),
    [
        (4, 0, "chunk=8: the device holds the graphs of 4 steps"),
        (None, 10_000, "the graphs of 7 further steps take 70kB of the host budget of 64kB"),
        (None, 9_000, "needs .*the graphs of 7 further steps take 63kB of the host budget"),
    ],
)
def test_a_chunk_that_does_not_fit_is_refused_with_what_it_takes(largest, graph, says):
    request = Request("64kB", "auto", None, 8, None, None, None)
    with pytest.raises(fb.BudgetError, match=says):
        plan_recorded(
            100, 4096, fb.Budget(host="64kB"), QUICK, Recording(graph, 0, 1e-3), request, codecs=[], largest=largest
        )


def test_what_a_span_takes_beside_its_steps_is_counted_where_states_are_saved_and_restored(monkeypatch):
    assert planning._parted(1, 1.5, 16, 9.0) == (0.5, 1.0)
    assert planning._parted(3, 1.5, 3, 1.5) == (0.5, 0.0)
    times = iter(())
    monkeypatch.setattr(planning, "_seconds", lambda call: next(times))
    loop = planning.TimeLoop(lambda state, start, stop: state, (np.zeros(1024),), 100, 1, None)
    # Spans of one step and of sixteen, and putting a state on the device, which is counted with the recordings.
    for one, many, put, kept in (
        (2e-3, 32e-3, 5e-3, 1e-3),
        (12e-3, 42e-3, 0.0, 11e-3),
        (12e-3, 42e-3, 4e-3, 7e-3),
        (12e-3, 42e-3, 20e-3, 1e-3),
    ):
        times = iter((one, many, put))
        copying = fb.Costs(1.0, 1.0, 8192e3)  # a state in a millisecond
        costs = planning._measured(loop, copying, lambda arrays: arrays)
        assert costs.forward == pytest.approx(2e-3) and costs.copy == pytest.approx(8192 / kept)


def test_recordings_are_timed_with_what_puts_their_states_on_the_device(monkeypatch):
    puts, timed, put = [], [], Places.put

    def count(call):
        before = len(puts)
        call()
        timed.append(len(puts) - before)
        return 1e-3

    monkeypatch.setattr(planning, "_seconds", count)
    monkeypatch.setattr(Places, "put", lambda self, arrays: puts.append(1) or put(self, arrays))
    jax.grad(lambda w: checkpointed(lambda y, t, w: y * w, jnp.ones(5), 12, params=w, schedule="revolve:3").sum())(0.9)
    assert timed == [1] * len(timed) and len(timed) == 4  # spans of one step and of several, a put, and recordings


@pytest.mark.slow
def test_nothing_is_compiled_while_a_reversal_is_timed(monkeypatch, caplog):
    running, compiled_then = [], []

    def watched(method):
        def run(self, *given):
            before = len(caplog.records)
            result = method(self, *given)
            compiled_then.extend(record.getMessage() for record in caplog.records[before:])
            running.append(1)
            return result

        return run

    monkeypatch.setattr(Reversal, "forward", watched(Reversal.forward))
    monkeypatch.setattr(Reversal, "backward", watched(Reversal.backward))
    inputs = jnp.ones((22, 5))
    with jax.log_compiles():
        jax.grad(
            lambda w: checkpointed(
                lambda y, t, x, w: (jnp.sin(y * w) + x, y[0]),
                jnp.ones(5),
                22,
                params=w,
                inputs=inputs,
                outputs=True,
                schedule="revolve:3",
                chunk=4,
            )[1].sum()
        )(0.9)
    assert len(running) == 2 and not compiled_then
