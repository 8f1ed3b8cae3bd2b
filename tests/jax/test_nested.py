"""JAX loops nested on the device: as a scan differentiates them, in the memory that was allowed, inside of jit too."""

import gc
import logging
import re
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest

import forebay as fb
from forebay.errors import StateError

jax = pytest.importorskip("jax")
jnp = jax.numpy
checkpointed = pytest.importorskip("forebay.jax").checkpointed
from forebay.jax import compiled_step, decision  # noqa: E402

POINTS = 1000
STATE = 2 * 4 * POINTS + 4


def wave(state, t, source, speed, damping):
    now, before = state["now"], state["before"]
    laplacian = jnp.roll(now, 1) + jnp.roll(now, -1) - 2 * now
    new = 2 * now - before + speed * laplacian + jnp.sin(speed * now) * damping["rate"]
    new = new * (1 - damping["rate"]) + 0.01 * speed * t + source["by"] * (state["count"] % 3) * source["on"]
    return {"now": new, "before": now, "count": state["count"] + 1}, (new[::100], state["count"])


def problem(steps):
    rng = np.random.default_rng(steps)
    fields = rng.standard_normal((2, POINTS)).astype(np.float32)
    state = {"now": jnp.asarray(fields[0]), "before": jnp.asarray(fields[1]), "count": jnp.asarray(0)}
    inputs = {"by": jnp.asarray(rng.standard_normal((steps, 1)), jnp.float32), "on": jnp.arange(steps) % 2}
    return state, inputs, (jnp.asarray(0.3 * rng.random(POINTS), jnp.float32), {"rate": jnp.float32(0.03)})


def scanned(step, state, steps, *, inputs, params, **_):
    return jax.lax.scan(lambda state, now: step(state, *now, *params), state, (jnp.arange(steps), inputs))


def loss_by(loop, steps, **more):
    state, inputs, params = problem(steps)

    def loss(now, by, params):
        given = state | {"now": now}, steps
        final, outputs = loop(wave, *given, inputs=inputs | {"by": by}, params=params, outputs=True, **more)
        return (final["now"] ** 2).sum() + jnp.sin(final["before"]).sum() + (outputs[0] ** 3).sum(), (final, outputs)

    return loss, (state["now"], inputs["by"], params)


def differentiated(loss, given, around=lambda function: function):
    return around(jax.value_and_grad(loss, (0, 1, 2), has_aux=True))(*given)


@cache
def as_a_scan(steps):
    """Give loss, results and gradients of a scan that keeps everything."""
    return differentiated(*loss_by(scanned, steps), jax.jit)


def assert_close(got, wanted):
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5 * (1 + np.abs(other).max()))


@pytest.fixture(autouse=True)
def nothing_is_known_from_other_tests():
    compiled_step._compiled.clear()


@pytest.fixture
def said(caplog):
    caplog.set_level(logging.INFO, "forebay.jax")
    return lambda: [record.getMessage() for record in caplog.records if record.name == "forebay.jax"]


def slow(*cases):
    """Give cases that take the compiler long and show what others show too."""
    return [pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow) for case in cases]


# What two levels, or three, of so many steps fit into; one level less does not.
NESTS = [(53, 30, 2), (211, 35, 3), (211, 30, 4)]
MORE = [(50, 30, 2), (199, 60, 2), (200, 35, 3)]


def alone(function):
    return function


@pytest.mark.slow
@pytest.mark.parametrize(
    ("steps", "states", "forward", "around"),
    [
        (*NESTS[0], jax.jit),
        *slow(
            *((*nest, alone) for nest in (*NESTS, *MORE)),
            *((*nest, jax.jit) for nest in (*NESTS[1:], *MORE)),
        ),
    ],
)
def test_as_a_scan_that_keeps_everything(steps, states, forward, around, said):
    results = []
    costs = fb.Costs(1e-6, 1e-6, 1e3)  # whose links are so slow that nothing is moved
    more = {"budget": states * STATE, "costs": costs, "report": results.append}
    loss, given = loss_by(checkpointed, steps, **more)
    gradient = around(jax.value_and_grad(loss, (0, 1, 2), has_aux=True))
    first, again = (gradient(*given) for _ in range(2))
    assert_close(first, as_a_scan(steps))
    for one, other in zip(jax.tree.leaves(first), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(one, other)
    assert not results and f"each run forward {forward} times" in said()[0]


def taken(loss, given):
    """What the compiler takes for the gradient beside its arguments and results."""
    return jax.jit(jax.grad(loss, (0, 1, 2), has_aux=True)).lower(*given).compile().memory_analysis().temp_size_in_bytes


@pytest.mark.parametrize("states", slow(28, 30, 40, 60, 90))
def test_the_compiled_gradient_takes_no_more_than_the_budget(states):
    steps = 211
    loss, given = loss_by(checkpointed, steps, budget=states * STATE)
    assert taken(loss, given) <= states * STATE < taken(loss_by(scanned, steps)[0], given)


def held():
    gc.collect()
    return sum(array.nbytes for array in jax.live_arrays())


@pytest.mark.slow
def test_at_the_turn_only_the_outermost_states_are_held(said):
    loss, given = loss_by(checkpointed, 200, budget=40 * STATE)
    before = held()
    value, pull = jax.vjp(lambda *given: loss(*given)[0], *given)
    assert "200 steps stay on the device, as 10 x 10 x 2 steps, each run forward 3 times" in said()[0]
    assert held() - before <= 15 * STATE  # those of ten segments, and results
    first, second = pull(value), pull(value)
    assert all(map(np.array_equal, jax.tree.leaves(first), jax.tree.leaves(second)))


@pytest.mark.slow
def test_vmap_nests_for_all_of_its_loops(said):
    loss, (now, by, params) = loss_by(checkpointed, 50, budget=400 * STATE)
    several = jnp.stack([now, 2 * now, -now, 0.5 * now, now + 1, now - 1])

    def gradient(now):
        return jax.grad(lambda now: loss(now, by, params)[0])(now)

    wanted = [gradient(now) for now in several]
    assert "recorded as a whole" in said()[-1]
    found = jax.vmap(gradient)(several)
    assert " x " in said()[-1]
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5 * (1 + np.abs(other).max()))
    summed = jax.grad(lambda several: jax.vmap(lambda now: loss(now, by, params)[0])(several).sum())(several)
    np.testing.assert_allclose(summed, found, rtol=0, atol=1e-5 * (1 + np.abs(found).max()))
    with pytest.raises(StateError, match="vmap"):  # which jit does not know of
        jax.vmap(jax.jit(gradient))(several)


@pytest.mark.slow
def test_second_derivatives_go_through_a_nest(said):
    def total(loop):
        def step(y, t, weight):
            return jnp.sin(y * weight)

        def summed(weight):
            return loop(step, jnp.linspace(0.1, 1, 500), weight).sum()

        return summed

    def scan(step, y, weight):
        return jax.lax.scan(lambda y, t: (step(y, t, weight), None), y, jnp.arange(67))[0]

    def nested(step, y, weight):
        return checkpointed(step, y, 67, params=weight, budget="60kB")

    found, wanted = jax.hessian(total(nested))(jnp.float32(0.9)), jax.jit(jax.hessian(total(scan)))(jnp.float32(0.9))
    np.testing.assert_allclose(found, wanted, rtol=1e-4)
    assert " x " in said()[0]


@dataclass(frozen=True)
class Accelerator:
    """A device with much memory."""

    platform: str = "gpu"

    def memory_stats(self):
        return {"bytes_limit": 10**12}


@pytest.mark.parametrize(("steps", "states"), slow((53, 30), (199, 60)))
def test_the_device_budget_is_that_of_an_accelerator_and_nothing_is_compiled_twice(
    steps, states, monkeypatch, said, caplog
):
    monkeypatch.setattr(decision, "device_of", lambda leaves: Accelerator())
    with jax.log_compiles():
        for budget in (fb.Budget(device=states * STATE), fb.Budget(device=states * STATE, host="1GB")):
            loss, given = loss_by(checkpointed, steps, budget=budget)
            assert_close(differentiated(loss, given), as_a_scan(steps))
            assert f"of the {fb.units.to_text(states * STATE)} allowed" in said()[-1]
    messages = [record.getMessage() for record in caplog.records]
    assert sum("XLA compilation of jit(_nested" in message for message in messages) == 2  # forward and back
    loss, given = loss_by(checkpointed, steps, budget=fb.Budget(host="1GB"))
    differentiated(loss, given)
    assert "as a whole" in said()[-1]


@pytest.mark.slow
def test_where_only_the_device_is_allowed_and_too_small_it_is_refused_before_any_step(monkeypatch):
    monkeypatch.setattr(decision, "device_of", lambda leaves: Accelerator())
    ran = []

    def step(y, t, weight):
        jax.debug.callback(ran.append, t)
        return y * weight

    def total(weight):
        return checkpointed(step, jnp.ones(POINTS), 199, params=weight, budget=fb.Budget(device="20kB")).sum()

    for gradient in (jax.grad(total), jax.jit(jax.grad(total))):
        with pytest.raises(fb.BudgetError, match=r"device budget of 20kB: keeping states there takes \d+ bytes, or"):
            gradient(0.9)
    assert not ran


@pytest.mark.slow
def test_where_nothing_fits_inside_of_jit_the_error_says_how_much_would():
    loss, given = loss_by(checkpointed, 199, budget="80kB")
    with pytest.raises(StateError, match=r"outside of them.*takes \d+ bytes"):
        differentiated(loss, given, jax.jit)
    assert_close(differentiated(loss, given), as_a_scan(199))


def named_by(error):
    return int(re.search(r"takes (\d+) bytes", str(error.value))[1])


@pytest.mark.slow
@pytest.mark.parametrize("steps", [3, *slow(199, 50)])
def test_inside_of_jit_the_amount_that_an_error_names_works_and_no_less(steps):
    def gradient(budget):
        loss, given = loss_by(checkpointed, steps, budget=budget)
        return differentiated(loss, given, jax.jit)

    with pytest.raises(StateError) as error:
        gradient("16kB")
    named = named_by(error)
    assert_close(gradient(named), as_a_scan(steps))
    with pytest.raises(StateError):
        gradient(named - 1)


@pytest.mark.parametrize("steps", slow(2, 10, 199, 50))
def test_the_device_budget_that_an_error_names_works(steps, monkeypatch):
    monkeypatch.setattr(decision, "device_of", lambda leaves: Accelerator())

    def gradient(budget):
        loss, given = loss_by(checkpointed, steps, budget=fb.Budget(device=budget))
        return differentiated(loss, given)

    with pytest.raises(fb.BudgetError) as error:
        gradient(1)
    assert_close(gradient(named_by(error)), as_a_scan(steps))


@pytest.mark.slow
def test_with_vmap_the_amount_is_that_of_all_of_its_loops():
    def gradients(budget):
        loss, (now, by, params) = loss_by(checkpointed, 50, budget=budget)
        return jax.vmap(lambda now: jax.grad(lambda now: loss(now, by, params)[0])(now))(jnp.stack([now, -now]))

    with pytest.raises(StateError, match="for 2 loops at once") as error:
        gradients("100kB")
    gradients(named_by(error))
