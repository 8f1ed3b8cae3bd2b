"""States of JAX, on the host and on a GPU: kept on the host, put back where they were, bit-equal whatever the plan."""

from types import SimpleNamespace

import numpy as np
import pytest

import forebay as fb
from forebay.cuda.available import gpu_count
from forebay.errors import StateError
from forebay.machine.spec import ArraySpec, JaxKind

jax = pytest.importorskip("jax")
jnp = jax.numpy

STEPS, POINTS = 23, 3000
COSTS = fb.Costs(1e-4, 1e-4, 1e10, disk=fb.Link(2e9, 2e9))
SNAPSHOT = 3 * 4096 * 2


@pytest.fixture(scope="module", params=["cpu", pytest.param("gpu", marks=pytest.mark.gpu)])
def device(request):
    if request.param == "gpu" and (gpu_count() == 0 or jax.default_backend() != "gpu"):
        pytest.skip("JAX sees no GPU")
    return jax.devices(request.param)[0]


def start(device, shape):
    values = np.random.default_rng(0).standard_normal((2, POINTS)).astype(np.float32)
    now, before = (jax.device_put(each, device) for each in values)
    return shape(now, before, jax.device_put(jnp.zeros((), jnp.int32), device))


def as_dict(now, before, n):
    return {"now": now, "n": n, "before": before}


def as_tuple(now, before, n):
    return (now, [before, n])


def parts(state):
    return (state["now"], state["before"], state["n"]) if isinstance(state, dict) else (state[0], *state[1])


def advance(state, shape):
    now, before, n = parts(state)
    new = 1.8 * now - 0.85 * before + 0.2 * (jnp.roll(now, 1) + jnp.roll(now, -1) - 2 * now) + jnp.sin(now + n)
    return shape(new, now * 1, n + 1)


def bits(state):
    return [np.asarray(part).tobytes() for part in parts(state)]


@pytest.mark.parametrize("donated", [False, True], ids=["kept", "donated"])
@pytest.mark.parametrize("shape", [as_dict, as_tuple])
@pytest.mark.parametrize("codec", [None, "raw"])
@pytest.mark.parametrize(("host", "disk"), [(40, 0), (4, 0), (3, 40)])
@pytest.mark.parametrize("schedule", ["storeall", "uniform:4", "revolve:2", "auto"])
def test_as_if_all_were_kept(device, schedule, host, disk, codec, shape, donated, tmp_path):
    if schedule == "storeall" and host + disk < STEPS:
        pytest.skip("no room for all")
    step = jax.jit(advance, static_argnums=1, donate_argnums=0 if donated else ())
    kept = [start(device, shape)]
    for _ in range(STEPS - 1):
        kept.append(step(jax.tree.map(jnp.copy, kept[-1]), shape))
    seen = {}

    def forward(state, begin, end):
        for _ in range(begin, end):
            state = step(state, shape)
        return state

    def backward(state, number):
        assert {part.device for part in parts(state)} == {device}
        seen[number] = state, bits(state)

    initial = start(device, shape)
    result = fb.reverse(
        forward,
        backward,
        initial,
        STEPS,
        budget=fb.Budget(host=host * SNAPSHOT, disk=disk * SNAPSHOT or None),
        schedule=schedule,
        codec=codec,
        costs=COSTS,
        directory=tmp_path,
    )
    assert list(seen) == list(range(STEPS - 1, -1, -1))
    for number, (state, was) in seen.items():
        assert was == bits(kept[number])
        assert bits(state) == was  # nobody writes into it later
    assert bits(initial) == bits(kept[0])
    assert result.metrics.peak["host"] <= host * SNAPSHOT


def test_a_reversal_of_them_goes_on_where_it_was_stopped(device, tmp_path):
    step, stop = jax.jit(advance, static_argnums=1), [15]
    sums = {"total": np.zeros(1)}

    def forward(state, begin, end):
        for _ in range(begin, end):
            state = step(state, as_dict)
        return state

    def backward(state, number):
        if number == stop[0]:
            raise KeyboardInterrupt
        sums["total"] = sums["total"] * 0.9 + float(state["now"].sum())

    call = {"budget": fb.Budget(host=8 * SNAPSHOT), "costs": COSTS, "adjoint": sums}
    with pytest.raises(KeyboardInterrupt):
        fb.reverse(forward, backward, start(device, as_dict), STEPS, resume=tmp_path / "one", **call)
    stop[0] = None
    fb.reverse(forward, backward, start(device, as_dict), STEPS, resume=tmp_path / "one", **call)
    resumed = sums["total"].copy()
    sums["total"] = np.zeros(1)
    fb.reverse(forward, backward, start(device, as_dict), STEPS, **{**call, "adjoint": None})
    assert sums["total"] == resumed


@pytest.mark.gpu
def test_a_state_that_comes_back_elsewhere_is_refused(device):
    if device.platform == "cpu":
        pytest.skip("there is only one device")

    def forward(state, begin, end):
        return jax.device_put(state, jax.devices("cpu")[0])

    with pytest.raises(StateError, match=r"float32\[3000\] on .*cpu.*but the state has float32\[3000\] on .*cuda"):
        fb.reverse(forward, lambda *_: None, start(device, as_dict), STEPS, budget="1MB", costs=COSTS)


def test_arrays_on_one_device_are_described_with_it_and_those_on_several_are_refused():
    from forebay.machine.arrays.jax_arrays import JaxArrays

    about = {"dtype": np.dtype("f4"), "shape": (3,), "weak_type": False, "is_deleted": lambda: False}
    gpu, other = (SimpleNamespace(platform="gpu", id=number) for number in range(2))
    whole = SimpleNamespace(**about, devices=lambda: [gpu], is_fully_addressable=True)
    assert JaxArrays().leaf_spec(whole) == ArraySpec((3,), np.dtype("f4"), JaxKind(gpu))
    for devices, here in (([gpu, other], True), ([gpu], False)):
        spread = SimpleNamespace(**about, devices=lambda devices=devices: devices, is_fully_addressable=here)
        with pytest.raises(StateError, match=r"forebay\.jax\.checkpointed"):
            JaxArrays().leaf_spec(spread)
    assert str(ArraySpec((3,), np.dtype("f4"), JaxKind("cuda:0"))) == "float32[3] on cuda:0"
