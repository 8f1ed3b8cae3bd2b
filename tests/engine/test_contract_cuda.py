"""The contract of a state on a GPU: order in memory, structure and place are kept, or refused in words."""

import numpy as np
import pytest

import forebay as fb
from forebay.cuda.available import gpu_count
from forebay.errors import StateError

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(gpu_count() == 0, reason="no GPU")]

COSTS = fb.Costs(1e-3, 1e-3, 1e12, host=fb.Link(5e10, 5e10), disk=fb.Link(2e9, 2e9))
PLANS = ("storeall", "revolve:1", "revolve:3", "uniform:3", "auto")
BUDGETS = (fb.Budget(device="4MB"), fb.Budget(device="600kB", host="4MB"))


def forward(state, begin, end):
    """Advance by what depends on the order in memory: sums go along it."""
    x = state["x"]
    x = x.clone() if hasattr(x, "clone") else x.copy(order="K")  # CuPy's operators return C order
    for step in range(begin, end):
        total = x.sum()
        x *= 0.5
        x += total * 1e-3 + step
    return {"n": state["n"] + (end - begin), "x": x}  # in another order of the keys


def make(library, order):
    values = np.random.default_rng(0).standard_normal((2, 24, 30, 31)).astype(np.float32)
    if library == "cupy":
        cupy = pytest.importorskip("cupy")
        turned = {
            "fortran": cupy.asfortranarray,
            "moved": lambda x: cupy.ascontiguousarray(x.transpose(2, 0, 3, 1)).transpose(1, 3, 0, 2),
        }
        return turned[order](cupy.asarray(values)), cupy.zeros(3, np.int64)
    torch = pytest.importorskip("torch")
    tensor = torch.as_tensor(values).cuda()
    if order == "fortran":
        return tensor.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0), torch.zeros(3, device="cuda")
    return tensor.contiguous(memory_format=torch.channels_last), torch.zeros(3, device="cuda")


def strides(array):
    return array.stride() if hasattr(array, "stride") else array.strides


def host(array):
    return array.cpu().numpy() if hasattr(array, "cpu") else array.get()


@pytest.mark.parametrize("codec", [None, "raw", "cast:float16"])
@pytest.mark.parametrize("order", ["fortran", "moved"])
@pytest.mark.parametrize("library", ["cupy", "torch"])
def test_order_and_keys_are_kept_whatever_the_plan(library, order, codec):
    x, n = make(library, order)
    kept = [{"x": x, "n": n}]
    for step in range(9):
        kept.append(forward(kept[-1], step, step + 1))
    expected = {step: (host(s["x"]).tobytes(), float(s["x"].sum()), float(s["n"][0])) for step, s in enumerate(kept)}
    costs = fb.Costs(
        1.0, 1e-3, 1e12, host=COSTS.host, codecs={codec: fb.CodecCost(2, 1e15, 1e15, worst=1.1)} if codec else {}
    )
    for schedule in PLANS:
        for budget in BUDGETS:
            seen = {}

            def backward(state, step, seen=seen):
                assert list(state) == ["x", "n"] and strides(state["x"]) == strides(x)
                seen[step] = host(state["x"]).tobytes(), float(state["x"].sum()), float(state["n"][0])

            try:
                fb.reverse(
                    forward, backward, {"x": x, "n": n}, 10, budget=budget, schedule=schedule, costs=costs, codec=codec
                )
            except fb.BudgetError:
                continue
            if codec != "cast:float16":
                assert seen == expected
            else:
                for step, (data, _, count) in seen.items():
                    assert count == expected[step][2]
                    exact = np.frombuffer(expected[step][0], np.float32)
                    np.testing.assert_allclose(np.frombuffer(data, np.float32), exact, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("library", ["cupy", "torch"])
def test_what_is_not_the_state_is_refused(library):
    x, n = make(library, "moved")
    for change, says in (
        (lambda s: {"x": s["x"], "m": s["n"]}, "n is missing"),
        (lambda s: {"x": s["x"].swapaxes(0, 1), "n": s["n"]}, r"state\['x'\]"),
        (lambda s: {"x": s["x"], "n": s["n"][::2]}, r"state\['n'\]"),
        (lambda s: {"x": host(s["x"]), "n": s["n"]}, r"state\['x'\].*(NumPy|host)"),
        (
            lambda s: {
                "x": s["x"],
                "n": s["x"].reshape(-1)[:3] if library == "cupy" else s["x"].permute(0, 2, 3, 1).reshape(-1)[:3],
            },
            "share memory|as float32",
        ),
        (lambda s: None, "None"),
    ):
        with pytest.raises(StateError, match=says):
            fb.reverse(
                lambda s, a, b, change=change: change(s),
                lambda *_: None,
                {"x": x, "n": n},
                5,
                budget="4MB",
                costs=COSTS,
                schedule="revolve:1",
            )


def test_arrays_with_gaps_or_shared_memory_are_refused_before_the_first_step():
    cupy = pytest.importorskip("cupy")
    x = cupy.arange(12.0)
    for state, says in (((x[::2],), "contiguous"), ((x, x[4:8]), "share memory"), ((x, x), "share memory")):
        with pytest.raises(StateError, match=says):
            fb.reverse(lambda *_: pytest.fail("a step"), lambda *_: None, state, 5, budget="1MB")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["float8_e4m3fn", "bfloat16", "uint16", "complex64"])
def test_types_of_torch_come_back_exactly(name):
    torch = pytest.importorskip("torch")
    dtype = getattr(torch, name)
    raw = (torch.arange(96, dtype=torch.uint8) % 2).cuda()
    initial = raw.view(dtype).reshape(2, -1).T
    seen = []

    def backward(state, step):
        seen.append((state[0].dtype, state[0].stride(), state[0].T.contiguous().view(torch.uint8).tolist()))

    fb.reverse(
        lambda s, a, b: (s[0].clone(), s[1] + 1),
        backward,
        (initial, torch.zeros(3, device="cuda")),
        7,
        budget="1MB",
        costs=COSTS,
        schedule="revolve:2",
    )
    assert seen == [(dtype, initial.stride(), initial.T.contiguous().view(torch.uint8).tolist())] * 7
