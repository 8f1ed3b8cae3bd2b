"""JAX loops under JAX's transformations, types and devices: each works, or says what to do."""

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import forebay as fb
from forebay.errors import StateError

jax = pytest.importorskip("jax")
jnp = jax.numpy
checkpointed = pytest.importorskip("forebay.jax").checkpointed

QUICK = fb.Costs(1e-3, 1e-3, 1e9)
TIGHT = {"budget": "64kB", "schedule": "revolve:3", "costs": QUICK}
AMPLE = {"budget": "10MB"}


def step(y, t, weight):
    return jnp.sin(y * weight)


def total(weight, state=None, **more):
    return checkpointed(step, jnp.ones(5) if state is None else state, 12, params=weight, **more).sum()


@pytest.fixture
def x64():
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


@pytest.mark.slow
@pytest.mark.parametrize("outputs", [pytest.param(False, marks=pytest.mark.slow), True])
def test_with_x64_steps_are_counted_in_the_same_type_everywhere(x64, outputs):
    def hashed(y, t):  # which overflows in int32, so types show
        new = y * jnp.where((t * 1103515245 + 12345) % 100 < 50, 1.01, 0.99)
        return (new, t) if outputs else new

    def loop(y):
        found = checkpointed(hashed, y, 1000, outputs=outputs, budget="1MB", schedule="revolve:20", costs=QUICK)
        return (found[0].sum(), found[1]) if outputs else (found.sum(), None)

    plain, times = loop(jnp.ones(1))
    (value, again), gradient = jax.value_and_grad(loop, has_aux=True)(jnp.ones(1))
    np.testing.assert_allclose([plain, gradient[0]], value, rtol=1e-12)  # the loop is linear
    assert not outputs or times.dtype == again.dtype == jnp.int32


def test_with_x64_the_time_can_be_kept_in_the_state(x64):
    def timed(state, t):
        return {"y": state["y"] * 0.9, "t": t + 1}

    start = {"y": jnp.ones(3), "t": jnp.int32(0)}
    final, pull = jax.vjp(lambda y: checkpointed(timed, start | {"y": y}, 10, **TIGHT), start["y"])
    assert final["t"] == 10 and final["y"].dtype == jnp.float64
    zero = np.zeros((), jax.dtypes.float0)
    np.testing.assert_allclose(pull({"y": jnp.ones(3), "t": zero})[0], 0.9**10)


def batched(more):
    weights = jnp.linspace(0.5, 1, 16)
    return {
        "vmap of grad": lambda: jax.vmap(jax.grad(lambda w: total(w, **more)))(weights),
        "grad of vmap": lambda: jax.grad(lambda w: jax.vmap(lambda one: total(one, **more))(w).sum())(weights),
        "vmap of jit of grad": lambda: jax.vmap(jax.jit(jax.grad(lambda w: total(w, **more))))(weights),
        "jit of vmap of grad": lambda: jax.jit(jax.vmap(jax.grad(lambda w: total(w, **more))))(weights),
        "vmap of vmap": lambda: jax.vmap(jax.vmap(jax.grad(lambda w: total(w, **more))))(weights.reshape(4, 4)).ravel(),
    }


@pytest.mark.slow
@pytest.mark.parametrize("how", batched({}))
def test_vmap_counts_the_graphs_of_all_loops(how):
    wanted = [jax.grad(lambda w: total(w, **AMPLE))(weight) for weight in jnp.linspace(0.5, 1, 16)]
    np.testing.assert_allclose(batched(AMPLE)[how](), wanted, rtol=1e-5)
    fits_once = {"budget": 4100}
    jax.grad(lambda w: total(w, **fits_once))(0.5)
    with pytest.raises(StateError, match="vmap"):
        batched(fits_once)[how]()


def test_where_nothing_is_differentiated_vmap_and_jit_work():
    assert jax.jit(jax.vmap(lambda w: total(w, **TIGHT)))(jnp.ones(3)).shape == (3,)


@pytest.mark.parametrize(
    "transformed",
    [lambda f: jax.grad(jax.jit(f)), lambda f: jax.jit(jax.grad(f)), jax.jacrev, jax.hessian],
    ids=["grad of jit", "jit of grad", "jacrev", "hessian"],
)
def test_what_cannot_be_done_outside_of_the_whole_graph_is_refused(transformed):
    with pytest.raises(StateError, match="outside"):
        transformed(lambda w: total(w, **TIGHT))(jnp.float32(0.9)).block_until_ready()


@pytest.mark.parametrize("more", [TIGHT, AMPLE])
@pytest.mark.parametrize(
    ("transform", "at"),
    [(jax.grad, 0.9), (lambda f: jax.jit(jax.grad(f)), 0.9), (lambda f: jax.vmap(jax.grad(f)), jnp.ones(2))],
    ids=["grad", "jit of grad", "vmap of grad"],
)
def test_a_step_that_closes_over_what_is_differentiated_is_refused(more, transform, at):
    def closing(weight):
        return checkpointed(lambda y, t: y * weight, jnp.ones(5) * weight, 12, **more).sum()

    with pytest.raises(StateError, match="params="):
        transform(closing)(at)


@pytest.mark.slow
def test_a_step_may_close_over_what_is_not_differentiated():
    def closing(weight, data):
        return checkpointed(lambda y, t, w: jnp.sin(y * w) + data, jnp.ones(5), 12, params=weight, **AMPLE).sum()

    np.testing.assert_allclose(jax.jit(jax.grad(closing))(0.9, 0.1), jax.grad(closing)(0.9, 0.1), rtol=1e-5)


DEVICES = """
    import jax, jax.numpy as jnp, numpy as np
    from jax.sharding import NamedSharding, PartitionSpec
    import forebay as fb
    from forebay.jax import checkpointed

    more = {"budget": "64kB", "schedule": "revolve:3", "costs": fb.Costs(1e-3, 1e-3, 1e9)}

    def loop(y, w):
        return checkpointed(lambda y, t, w: jnp.sin(y * w), y, 12, params=w, **more)

    def check(y, w, sharding):
        wanted = jax.grad(lambda y, w: (loop(y, w) * y).sum(), (0, 1))(np.asarray(y), np.asarray(w))
        final, pull = jax.vjp(loop, y, w)
        found = jax.grad(lambda y, w: (loop(y, w) * y).sum(), (0, 1))(y, w)
        for array in (final, *pull(jnp.ones_like(final)), *found):
            assert array.sharding.is_equivalent_to(sharding, 1), (array.sharding, sharding)
        for one, other in zip(found, wanted):
            np.testing.assert_allclose(one, other, rtol=1e-5)

    y, w = jnp.linspace(0.1, 1, 8), jnp.full(8, 0.9)
    for device in jax.devices():
        put = jax.device_put((y, w), device)
        check(*put, put[0].sharding)
    third = jax.device_put(w, jax.devices()[2])
    check(y, third, third.sharding)
    mesh = jax.make_mesh((4,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    spread = NamedSharding(mesh, PartitionSpec("x"))
    check(*jax.device_put((y, w), spread), spread)
    print("done")
"""


@pytest.mark.slow
def test_gradients_are_where_the_arrays_are():
    """On other devices than the first, and spread over several."""
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    run = [sys.executable, "-c", textwrap.dedent(DEVICES)]
    done = subprocess.run(run, env=os.environ | flags, capture_output=True, text=True, timeout=120)
    assert done.stdout == "done\n", done.stderr
