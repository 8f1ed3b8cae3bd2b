"""JAX loops differentiated inside a budget: as `jax.grad` of a scan differentiates them, whatever the plan."""

import gc
import threading

import numpy as np
import pytest

import penstock as ps
from penstock.errors import StateError

jax = pytest.importorskip("jax")
jnp = jax.numpy
checkpointed = pytest.importorskip("penstock.jax").checkpointed

SNAPSHOT = 4096
STEPS = 23
QUICK = ps.Costs(1e-3, 1e-3, 1e9, disk=ps.Link(1e9, 1e9))


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path):
    before = set(threading.enumerate())
    yield
    if list(tmp_path.glob("penstock-*")) or not set(threading.enumerate()) <= before:
        gc.collect()  # which takes long, and is needed only where an exception holds on to something
    assert not list(tmp_path.glob("penstock-*"))
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


@pytest.mark.parametrize(
    ("schedule", "chunk", "host", "disk"),
    [
        ("storeall", 5, 40, 0),
        ("storeall", 1, 3, 40),
        ("revolve:4", 1, 40, 0),
        ("revolve:2", 4, 3, 40),
        ("twolevel:5,2", 1, 3, 40),
        ("auto", None, 40, 0),
        ("auto", 8, 3, 40),
    ],
)
def test_as_a_scan_that_keeps_everything(schedule, chunk, host, disk, tmp_path):
    state, inputs, params = problem()
    results = []

    def loss(now, inputs, params):
        final, outputs = checkpointed(
            wave,
            state | {"now": now},
            STEPS,
            inputs=inputs,
            params=params,
            outputs=True,
            budget=ps.Budget(host=host * SNAPSHOT, disk=disk * SNAPSHOT if disk else None),
            schedule=schedule,
            chunk=chunk,
            costs=QUICK,
            directory=tmp_path,
            report=results.append,
        )
        return loss_of(final, outputs), (final, outputs)

    differentiated = jax.value_and_grad(loss, argnums=(0, 1, 2), has_aux=True)
    wanted = jax.value_and_grad(scanned, argnums=(0, 1, 2), has_aux=True)(state["now"], inputs, params, state)
    first = differentiated(state["now"], inputs, params)
    assert_close(first, wanted)
    again = differentiated(state["now"], inputs, params)
    assert all(
        np.array_equal(one, other) for one, other in zip(jax.tree.leaves(first), jax.tree.leaves(again), strict=True)
    )
    if schedule != "auto":
        assert len(results) == 2 and results[0].plan == results[1].plan
        assert results[0].metrics.peak["host"] <= host * SNAPSHOT


def decay(y, t, weight):
    return jnp.sin(y * weight)


def run(weight, **more):
    call = {"budget": "64kB", "schedule": "revolve:3", "costs": QUICK} | more
    return checkpointed(decay, jnp.ones(5), 12, params=weight, **call)


WEIGHT = jnp.linspace(0.5, 1.5, 5)


def test_several_backward_passes_and_several_loops_at_once():
    _, pull_one = jax.vjp(run, WEIGHT)
    _, pull_other = jax.vjp(lambda weight: run(0.5 * weight), WEIGHT)
    (first,) = pull_one(jnp.ones(5))
    (between,) = pull_other(jnp.ones(5))
    (second,) = pull_one(jnp.ones(5))
    assert np.array_equal(first, second) and not np.array_equal(first, between)


def test_what_is_dropped_leaves_nothing(tmp_path):
    disk = {"budget": ps.Budget(host="9kB", disk="1MB"), "schedule": "storeall", "chunk": 1, "directory": tmp_path}
    _, pull = jax.vjp(lambda weight: run(weight, **disk), WEIGHT)
    assert list(tmp_path.glob("penstock-*"))
    del pull
    assert not list(tmp_path.glob("penstock-*"))


def test_not_differentiated_it_is_a_scan_that_jit_takes():
    assert np.array_equal(run(WEIGHT), jax.jit(run)(WEIGHT))


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


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"steps": 0}, ps.ScheduleError, "at least one step"),
        ({"chunk": 0}, ps.PlanError, "at least 1"),
        ({"state": ()}, StateError, "no arrays"),
        ({"state": object()}, StateError, "no array"),
        ({"state": jax.random.key(0)}, StateError, "key_data"),
        ({"inputs": jnp.ones((4, 3))}, StateError, "10 entries"),
        ({"budget": "1kB"}, ps.BudgetError, "needs 4.1kB"),
        ({"budget": "8kB", "schedule": "storeall"}, ps.BudgetError, "budget"),
        ({"codec": "nothing"}, ps.PenstockError, "no codec is called"),
        ({"step": lambda y, t, w: (y * w)[:2]}, StateError, "the step returned"),
        ({"step": lambda y, t, w: y * w, "outputs": True}, StateError, r"\(state, output\)"),
    ],
)
def test_bad_input_is_refused(arguments, error, says):
    call = {"step": lambda y, t, w: y * w, "state": jnp.ones(3), "steps": 10, "budget": "64kB"} | arguments
    with pytest.raises(error, match=says):
        jax.vjp(lambda weight: checkpointed(params=weight, **call), jnp.ones(3))
