"""JAX loops differentiated inside a budget: as `jax.grad` of a scan differentiates them, whatever the plan."""

import gc
import threading
from typing import NamedTuple

import numpy as np
import pytest
from tests.spills import spills

import forebay as fb
from forebay.errors import BudgetError, StateError

jax = pytest.importorskip("jax")
jnp = jax.numpy
checkpointed = pytest.importorskip("forebay.jax").checkpointed

SNAPSHOT = 4096
STEPS = 23
QUICK = fb.Costs(1e-3, 1e-3, 1e9, disk=fb.Link(1e9, 1e9))


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path):
    before = set(threading.enumerate())
    yield
    if spills(tmp_path) or not set(threading.enumerate()) <= before:
        gc.collect()  # which takes long, and is needed only where an exception holds on to something
    assert not spills(tmp_path)
    assert set(threading.enumerate()) <= before


def wave(state, t, source, speed, damping):
    now, before = state["now"], state["before"]
    laplacian = jnp.roll(now, 1) + jnp.roll(now, -1) - 2 * now
    new = 2 * now - before + speed * laplacian + jnp.sin(speed * now) * damping["rate"]
    new = new * (1 - damping["rate"]) + 0.01 * speed * t + source * (state["count"] % 3)
    return {"now": new, "before": now, "count": state["count"] + 1}, (new[::2], state["count"])


def problem(points=9):
    rng = np.random.default_rng(points)
    state = {
        "now": jnp.asarray(rng.standard_normal(points), jnp.float32),
        "before": jnp.asarray(rng.standard_normal(points), jnp.float32),
        "count": jnp.asarray(0),
    }
    inputs = jnp.asarray(rng.standard_normal((STEPS, points)), jnp.float32)
    return state, inputs, (jnp.asarray(0.3 * rng.random(points), jnp.float32), {"rate": jnp.float32(0.03)})


def loss_of(state, outputs):
    return (state["now"] ** 2).sum() + jnp.sin(state["before"]).sum() + (outputs[0] ** 3).sum()


def scanned(now, inputs, params, state):
    """The same loop as a scan that keeps everything."""

    def body(state, given):
        return wave(state, *given, *params)

    final, outputs = jax.lax.scan(body, state | {"now": now}, (jnp.arange(STEPS), inputs))
    return loss_of(final, outputs), (final, outputs)


def assert_close(got, wanted):
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5 * (1 + np.abs(other).max()))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("schedule", "chunk", "host", "disk", "points"),
    [
        ("storeall", 5, 40, 0, 9),
        ("twolevel:5,2", 1, 3, 40, 9),
        ("auto", None, 40, 0, 9),  # the graph of the whole loop fits
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                ("revolve:4", 1, 40, 0, 9),
                ("auto", 8, 3, 40, 9),
                ("revolve", None, 30, 40, 3000),
                ("storeall", 1, 3, 40, 9),
                ("revolve:2", 4, 3, 40, 9),
                ("auto", None, 60, 0, 3000),
            )
        ),
    ],
)
def test_as_a_scan_that_keeps_everything(schedule, chunk, host, disk, points, tmp_path):
    state, inputs, params = problem(points)
    results = []

    def loss(now, inputs, params):
        final, outputs = checkpointed(
            wave,
            state | {"now": now},
            STEPS,
            inputs=inputs,
            params=params,
            outputs=True,
            budget=fb.Budget(host=host * SNAPSHOT, disk=disk * SNAPSHOT if disk else None),
            schedule=schedule,
            chunk=chunk,
            costs=QUICK,
            directory=tmp_path,
            report=results.append,
        )
        return loss_of(final, outputs), (final, outputs)

    differentiated = jax.value_and_grad(loss, argnums=(0, 1, 2), has_aux=True)
    wanted = jax.jit(jax.value_and_grad(scanned, argnums=(0, 1, 2), has_aux=True))(state["now"], inputs, params, state)
    first = differentiated(state["now"], inputs, params)
    assert_close(first, wanted)
    again = differentiated(state["now"], inputs, params)
    assert all(
        np.array_equal(one, other) for one, other in zip(jax.tree.leaves(first), jax.tree.leaves(again), strict=True)
    )
    if (schedule, points) == ("auto", 9) and chunk is None:
        assert not results
        return
    assert len(results) == 2 and results[0].plan is results[1].plan
    assert results[0].metrics.peak["host"] <= host * SNAPSHOT


@pytest.mark.slow
@pytest.mark.parametrize("there", [24, 1])
def test_a_host_that_has_less_than_the_budget_allows_gets_a_smaller_plan_or_none(there, monkeypatch):
    monkeypatch.setattr("forebay.engine.timing.costing.free_host_bytes", lambda: there * SNAPSHOT)
    state, inputs, params = problem(there)  # each of other shapes: what was decided is kept for them
    results = []

    def loss(now):
        how = {"budget": "1GB", "schedule": "revolve", "costs": QUICK, "report": results.append}
        final, outputs = checkpointed(
            wave, state | {"now": now}, STEPS, inputs=inputs, params=params, outputs=True, chunk=1, **how
        )
        return loss_of(final, outputs)

    if there == 1:
        with pytest.raises(BudgetError, match=r"of which 0B are there: taking those; .* needs"):
            jax.grad(loss)(state["now"])
        return
    wanted = jax.grad(lambda now: scanned(now, inputs, params, state)[0])(state["now"])
    assert_close(jax.grad(loss)(state["now"]), wanted)
    assert results[0].metrics.peak["host"] <= 20 * SNAPSHOT and "taking those" in results[0].note


@pytest.mark.slow
def test_several_steps_are_differentiated_at_once_where_that_saves_some():
    results = []
    slow = fb.Costs(1.0, 1.0, 1e10)  # beside whose seconds those of recordings, which are timed here, are nothing
    call = {"params": WEIGHTS, "costs": slow, "budget": "160kB", "report": results.append}
    for chunk in (1, None):
        jax.grad(lambda y, chunk=chunk: checkpointed(decay, y, 200, chunk=chunk, **call).sum())(jnp.ones(2000))
    single, several = (result.plan for result in results)
    assert single.every == 1 < several.every
    assert several.schedule.forward_steps * several.every < single.schedule.forward_steps


def decay(y, t, weight):
    return jnp.sin(y * weight)


def run(weight, **more):
    call = {"budget": "64kB", "schedule": "revolve:3", "costs": QUICK} | more
    return checkpointed(decay, jnp.ones(5), 12, params=weight, **call)


WEIGHT = jnp.linspace(0.5, 1.5, 5)
WEIGHTS = jnp.linspace(0.5, 1.5, 2000)


class Line(NamedTuple):
    """A tree with names."""

    slope: jax.Array
    offset: jax.Array


def along(y, t, line):
    return jnp.sin(y * line.slope + line.offset)


@pytest.mark.slow
@pytest.mark.parametrize("several", [lambda line: line, lambda line: (line,), lambda line: [line]])
def test_a_named_tuple_is_one_of_the_params(several):
    def total(line):
        params = several(line)
        return checkpointed(along, jnp.ones(5), 12, params=params, budget="64kB", schedule="revolve:3").sum()

    def scanned(line):
        return jax.lax.scan(lambda y, t: (along(y, t, line), None), jnp.ones(5), jnp.arange(12))[0].sum()

    line = Line(WEIGHT, jnp.float32(0.1))
    assert_close(jax.grad(total)(line), jax.grad(scanned)(line))


def test_several_backward_passes_and_several_loops_at_once():
    _, pull_one = jax.vjp(run, WEIGHT)
    _, pull_other = jax.vjp(lambda weight: run(0.5 * weight), WEIGHT)
    (first,) = pull_one(jnp.ones(5))
    (between,) = pull_other(jnp.ones(5))
    (second,) = pull_one(jnp.ones(5))
    assert np.array_equal(first, second) and not np.array_equal(first, between)


def test_what_is_dropped_leaves_nothing(tmp_path):
    disk = {"budget": fb.Budget(host="9kB", disk="1MB"), "schedule": "storeall", "chunk": 1, "directory": tmp_path}
    _, pull = jax.vjp(lambda weight: run(weight, **disk), WEIGHT)
    assert spills(tmp_path)
    del pull
    assert not spills(tmp_path)


def test_not_differentiated_it_is_a_scan_that_jit_takes():
    assert np.array_equal(run(WEIGHT), jax.jit(run)(WEIGHT))


@pytest.mark.slow
def test_where_the_whole_graph_fits_it_works_inside_of_jit_and_elsewhere_it_says_why_not():
    def total(weight):
        return run(weight, schedule="auto", budget="1MB").sum()

    np.testing.assert_allclose(jax.jit(jax.grad(total))(WEIGHT), jax.grad(total)(WEIGHT), rtol=1e-5)
    with pytest.raises(StateError, match="outside"):
        jax.jit(jax.grad(lambda weight: run(weight).sum()))(WEIGHT)
    with pytest.raises(StateError, match="outside"):
        jax.hessian(lambda weight: run(weight).sum())(WEIGHT)


def test_a_plan_can_be_given_again():
    results = []
    jax.grad(lambda weight: run(weight, report=results.append).sum())(WEIGHT)
    plan = results[0].plan
    jax.grad(lambda weight: run(weight, plan=plan, schedule="auto", report=results.append).sum())(WEIGHT)
    assert results[1].plan == plan and "measured against predicted" in results[1].explain()


def test_a_plan_of_fewer_steps_than_its_chunk_can_be_given_again():
    results = []
    more = {"schedule": "auto", "chunk": 100, "report": results.append}
    jax.grad(lambda weight: run(weight, **more).sum())(WEIGHT)
    jax.grad(lambda weight: run(weight, plan=results[0].plan, **more).sum())(WEIGHT)
    assert [result.plan.every for result in results] == [12, 12]
    with pytest.raises(fb.PlanError, match="chunk=3"):
        run(WEIGHT, plan=results[0].plan, chunk=3)


def test_a_budget_that_was_taken_is_told():
    results = []
    for _ in range(2):
        jax.grad(lambda weight: run(weight, budget=None, report=results.append).sum())(WEIGHT)
    assert all("half of what is free" in result.explain() for result in results)


def test_schedules_of_another_library_are_told_apart():
    class Multistage(pytest.importorskip("checkpoint_schedules").MultistageCheckpointSchedule):
        def __repr__(self):
            return "multistage"  # which says as little as an address, which another may have later

    def peak(snapshots):
        results = []
        schedule = Multistage(12, snapshots, 0)
        jax.grad(lambda weight: run(weight, schedule=schedule, report=results.append).sum())(WEIGHT)
        return results[0].metrics.peak["host"]

    assert [peak(snapshots) for snapshots in range(2, 8)] == [snapshots * SNAPSHOT for snapshots in range(2, 8)]


@pytest.mark.slow
def test_a_lossy_codec_keeps_close():
    results = []

    def gradient(codec):
        def total(weight):
            return checkpointed(
                lambda y, t, w: y + 0.01 * jnp.sin(y * w),
                jnp.linspace(0, 1, 2000),
                40,
                params=weight,
                budget="280kB" if codec else "400kB",
                schedule="storeall",
                chunk=1,
                codec=codec,
                costs=QUICK,
                report=results.append,
            ).sum()

        return jax.grad(total)(WEIGHTS)

    exact, rounded = gradient(None), gradient("cast:bfloat16")
    assert results[1].plan.codec == "cast:bfloat16" and "errors" in results[1].explain()
    assert 0 < jnp.abs(exact - rounded).max() <= 1e-2 * jnp.abs(exact).max()


def test_a_codec_that_does_not_pay_is_named():
    slow = {"cast:float16": fb.CodecCost(ratio=2, encode=1e3, decode=1e3)}
    costs = fb.Costs(1e-3, 1e-3, 1e12, codecs=slow)
    results = []
    for _ in range(2):
        more = {"codec": "cast:float16", "costs": costs, "report": results.append}
        jax.grad(lambda weight, more=more: run(weight, schedule="auto", **more).sum())(WEIGHT)
    assert all(result.plan.codec is None for result in results)
    assert all("codec cast:float16 is not used" in result.explain() for result in results)


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"steps": 0}, fb.ScheduleError, "at least one step"),
        ({"chunk": 0}, fb.PlanError, "at least 1"),
        ({"state": ()}, StateError, "no arrays"),
        ({"state": object()}, StateError, "no array"),
        ({"state": jax.random.key(0)}, StateError, "key_data"),
        ({"inputs": jnp.ones((4, 3))}, StateError, "10 entries"),
        ({"budget": "1kB"}, fb.BudgetError, "needs 4.1kB"),
        ({"budget": "8kB", "schedule": "storeall"}, fb.BudgetError, "budget"),
        ({"codec": "nothing"}, fb.ForebayError, "no codec is called"),
        ({"step": lambda y, t, w: (y * w)[:2]}, StateError, "the step returned"),
        ({"step": lambda y, t, w: y * w, "outputs": True}, StateError, r"\(state, output\)"),
    ],
)
def test_bad_input_is_refused(arguments, error, says):
    call = {"step": lambda y, t, w: y * w, "state": jnp.ones(3), "steps": 10, "budget": "64kB"} | arguments
    with pytest.raises(error, match=says):
        jax.vjp(lambda weight: checkpointed(params=weight, **call), jnp.ones(3))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"budget": "nonsense"}, "nonsense"),
        ({"budget": fb.Budget(device="8GB")}, "on the host"),
        ({"schedule": "nonsense"}, "nonsense"),
        ({"codec": "nonsense"}, "nonsense"),
    ],
)
def test_nonsense_is_refused_though_nothing_is_differentiated(arguments, says):
    with pytest.raises(fb.ForebayError, match=says):
        checkpointed(lambda y, t: y, jnp.ones(3), 10, **arguments)
