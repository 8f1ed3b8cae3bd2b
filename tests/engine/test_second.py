"""Second derivatives, and reversals inside reversals: exact, and bit-equal to keeping everything."""

import numpy as np
import pytest

import forebay as fb
from tests.engine.loops import COSTS, Loop

POINTS, STEPS = 8, 60
RNG = np.random.default_rng(3)
PARAMETERS, START, V, W = RNG.uniform(0.5, 1, (4, POINTS))
OUTER = 16
PLANS = [("revolve:3", 9, 0), ("twolevel:8,2", 3, 60), ("storeall", 1, 99)]


def spread(x, to):
    return 0.1 * (np.roll(x, to) - x)


def gradient_kept(m):
    """Keep every state; complex parameters carry a derivative along their imaginary part, without cancellation."""
    states, x = [], START.astype(m.dtype)
    for _ in range(STEPS):
        states.append(x)
        x = x + 0.1 * m * np.sin(x) + spread(x, 1)
    adjoint, gradient = x, np.zeros_like(m)
    for x in reversed(states):
        gradient = gradient + 0.1 * np.sin(x) * adjoint
        adjoint = adjoint + 0.1 * m * np.cos(x) * adjoint + spread(adjoint, -1)
    return gradient


def product(v, **options):
    m, adjoint, along = PARAMETERS, [], np.zeros(POINTS)

    def forward(state, start, stop):
        x, dx = state
        for _ in range(start, stop):
            dx = dx + 0.1 * (v * np.sin(x) + m * np.cos(x) * dx) + spread(dx, 1)
            x = x + 0.1 * m * np.sin(x) + spread(x, 1)
        return x, dx

    def backward(state, step):
        (x, dx), (a, da) = state, adjoint
        along[:] += 0.1 * (np.cos(x) * dx * a + np.sin(x) * da)
        adjoint[0] = a + 0.1 * m * np.cos(x) * a + spread(a, -1)
        adjoint[1] = da + 0.1 * (np.cos(x) * (v * a + m * da) - m * np.sin(x) * dx * a) + spread(da, -1)

    state = START, np.zeros(POINTS)
    turn = lambda final: adjoint.extend(array.copy() for array in final)  # noqa: E731
    fb.reverse(forward, backward, state, STEPS, turn=turn, costs=COSTS, **options)
    return along


@pytest.mark.parametrize(("schedule", "host", "disk"), PLANS)
def test_a_hessian_times_a_vector_is_exact_and_the_same_for_every_plan(schedule, host, disk, tmp_path):
    budget = fb.Budget(host=host * 4096, **({"disk": disk * 4096} if disk else {}))
    options = {"budget": budget, "schedule": schedule, "directory": tmp_path}
    along_v, along_w = product(V, **options), product(W, **options)
    assert (along_v == product(V, budget="1MB", schedule="storeall")).all()
    exact = gradient_kept(PARAMETERS + 1e-30j * V).imag / 1e-30
    assert np.allclose(along_v, exact, rtol=1e-11, atol=0)
    assert W @ along_v == pytest.approx(V @ along_w, rel=1e-11)


@pytest.mark.parametrize(("schedule", "host", "disk"), PLANS)
def test_a_reversal_inside_the_backward_of_another_gives_the_bits_of_one(schedule, host, disk, tmp_path):
    loop, inner = Loop(), 5
    budget = fb.Budget(host=host * 4096, **({"disk": disk * 4096} if disk else {}))

    def backward(state, step):
        def forward(state, start, stop):
            return loop.forward(state, step * inner + start, step * inner + stop, True)

        def visit(state, within):
            loop.backward(state, step * inner + within)

        fb.reverse(forward, visit, state, inner, budget=budget, costs=COSTS, directory=tmp_path)

    fb.reverse(
        lambda state, start, stop: loop.forward(state, inner * start, inner * stop, True),
        backward,
        loop.state,
        OUTER,
        budget=budget,
        schedule=schedule,
        costs=COSTS,
        directory=tmp_path,
    )
    assert loop.seen == loop.expect(inner * OUTER)[0]
    assert not list(tmp_path.iterdir())
