"""JAX loops on a GPU: as a scan differentiates them there, whatever is kept on the host."""

import numpy as np
import pytest

import forebay as fb
from forebay.cuda.available import gpu_count

jax = pytest.importorskip("jax")
jnp = jax.numpy
checkpointed = pytest.importorskip("forebay.jax").checkpointed

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not gpu_count(), reason="no GPU")]
STEPS = 60


def wave(state, t, source, speed):
    now, before = state
    laplacian = jnp.roll(now, 1) + jnp.roll(now, -1) - 2 * now
    new = 1.8 * now - 0.85 * before + speed * laplacian + 0.01 * jnp.sin(now + t) + source
    return (new, now), new[::2]


def loss_of(final, outputs):
    return (final[0] ** 2).sum() + jnp.sin(final[1]).sum() + (outputs**2).sum()


def scanned(start, inputs, speed):
    def body(state, given):
        return wave(state, *given, speed)

    return loss_of(*jax.lax.scan(body, (start, start), (jnp.arange(STEPS, dtype=jnp.int32), inputs)))


@pytest.mark.parametrize("points", [1000, 1_000_000])
@pytest.mark.parametrize(
    ("schedule", "chunk", "host", "disk"),
    [
        ("storeall", 1, 80, 0),
        ("storeall", 4, 20, 0),
        ("revolve:5", 1, 8, 0),
        ("storeall", 1, 6, 80),
        ("auto", 8, 20, 0),
    ],
)
def test_as_a_scan_that_keeps_everything(points, schedule, chunk, host, disk, tmp_path):
    if jax.default_backend() == "cpu":
        pytest.skip("this JAX computes on the host alone")
    keys = jax.random.split(jax.random.PRNGKey(points), 3)
    start, speed = jax.random.normal(keys[0], (points,)), 0.3 * jax.random.uniform(keys[1], (points,))
    inputs = 0.1 * jax.random.normal(keys[2], (STEPS, points))
    snapshot = (-(-points * 4 // 4096) + 1) * 4096 * 2
    results = []

    def loss(start, inputs, speed):
        return loss_of(
            *checkpointed(
                wave,
                (start, start),
                STEPS,
                inputs=inputs,
                params=speed,
                outputs=True,
                budget=fb.Budget(host=host * snapshot, disk=disk * snapshot or None),
                schedule=schedule,
                chunk=chunk,
                directory=tmp_path,
                report=results.append,
            )
        )

    wanted = jax.value_and_grad(scanned, (0, 1, 2))(start, inputs, speed)
    rounds = [jax.value_and_grad(loss, (0, 1, 2))(start, inputs, speed) for _ in range(2)]
    for found in rounds:
        for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
            assert all(device.platform != "cpu" for device in one.devices())
            np.testing.assert_allclose(one, other, rtol=0, atol=2e-5 * (1 + np.abs(other).max()))
    same = zip(jax.tree.leaves(rounds[0]), jax.tree.leaves(rounds[1]), strict=True)
    assert all(np.array_equal(one, other) for one, other in same)
    assert len(results) == 2 and results[0].metrics.peak["host"] <= host * snapshot


def test_where_the_whole_graph_fits_the_device_nothing_is_kept_on_the_host():
    if jax.default_backend() == "cpu":
        pytest.skip("this JAX computes on the host alone")
    results = []

    def loss(speed):
        start = jnp.linspace(0, 1, 100_000)
        final = checkpointed(
            lambda y, t, w: jnp.sin(y * w), start, STEPS, params=speed, budget="1MB", report=results.append
        )
        return (final**2).sum()

    assert jnp.isfinite(jax.jit(jax.grad(loss))(jnp.float32(0.9))) and not results


@pytest.mark.parametrize(("steps", "states"), [(1000, 110), (1000, 55), (997, 55), (997, 45)])
def test_nested_on_the_device_no_more_is_taken_than_its_budget(steps, states):
    if jax.default_backend() == "cpu":
        pytest.skip("this JAX computes on the host alone")
    points = 1_000_000
    keys = jax.random.split(jax.random.PRNGKey(steps), 2)
    start, speed = jax.random.normal(keys[0], (points,)), 0.3 * jax.random.uniform(keys[1], (points,))

    def step(state, t, speed):
        return wave(state, t, 0.0, speed)[0]

    def nested(start, speed):
        budget = fb.Budget(device=states * 2 * start.nbytes)
        return checkpointed(step, (start, start), steps, params=speed, budget=budget)

    def scan(start, speed):
        return jax.lax.scan(lambda state, t: (step(state, t, speed), None), (start, start), jnp.arange(steps))[0]

    def gradient(loop):
        return jax.grad(lambda start, speed: (loop(start, speed)[0] ** 2).sum(), (0, 1))

    wanted = jax.jit(gradient(scan))(start, speed)
    for found in (gradient(nested)(start, speed), jax.jit(gradient(nested))(start, speed)):
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=0, atol=2e-5 * (1 + np.abs(other).max()))
    within, everything = (
        jax.jit(gradient(loop)).lower(start, speed).compile().memory_analysis().temp_size_in_bytes
        for loop in (nested, scan)
    )
    assert within <= 1.1 * states * 2 * start.nbytes < everything  # inside of jit the compiler is not asked beforehand
