"""Plans of loops that are recorded: of all numbers of steps that may be recorded at once, the fastest."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import forebay as fb
from forebay.engine.recorded import Recording, Request, plan_recorded
from forebay.tier.capacity import PIECE
from tests.example_counts import fewer

STATE = 10**6


def fastest(steps, budget, costs, recording, request):
    """Plan for every size by itself."""
    found = []
    for size in request.sizes(steps):
        graphs = (size - 1) * recording.graph_bytes
        if graphs >= budget["device"]:
            break
        known = replace(costs, backward=recording.step + recording.overhead / size)
        left = budget.with_tier("device", budget["device"] - graphs)
        try:
            more = {"schedule": request.schedule, "every": size, "overhead": 2 * PIECE}
            found.append(fb.plan(steps, STATE, left, costs=known, **more))
        except fb.BudgetError:
            continue
    return min((plan.seconds for plan in found), default=None)


@pytest.mark.slow
@fewer(8, of=20)
@given(
    st.integers(1, 60),
    st.sampled_from([2, 3, 5, 9, 20, 60]),
    st.sampled_from([None, 5, 30, 200]),
    st.sampled_from([0.5, 2, 10]),
    st.sampled_from([0, STATE // 10, STATE, 3 * STATE]),
    st.sampled_from([0.0, 0.5, 5.0]),
    st.sampled_from(["auto", "revolve", "uniform"]),
)
def test_no_other_number_of_steps_is_faster(steps, device, host, link, graph, overhead, schedule):
    budget = fb.Budget(device=device * STATE, host=host and host * STATE)
    costs = fb.Costs(1.0, 1.0, 10.0 * STATE, host=fb.Link(STATE / link, STATE / link), pin=1e-8)
    recording, request = Recording(graph, overhead, 2.0), Request(budget, schedule, None, None, None, None, None)
    wanted = fastest(steps, budget, costs, recording, request)
    try:
        found = plan_recorded(steps, STATE, budget, costs, recording, request, codecs=[]).seconds
    except fb.BudgetError:
        found = None
    assert found == wanted


def test_what_the_driver_takes_is_left_free():
    budget = fb.Budget(device=60 * STATE)
    request = Request(budget, "revolve", None, None, None, None, None)
    for codecs, slots in (([], 55), (["cast:float16"], 51)):
        costs = fb.Costs(1.0, 1.0, 1e9, codecs={"cast:float16": fb.CodecCost(1.0, 1e9, 1e9, 1.0, 1.0)})
        plan = plan_recorded(90, STATE, budget, costs, Recording(10**9, 0.0, 2.0), request, codecs=codecs)
        assert plan.slots == (slots,)


def test_a_loop_in_pytorch_names_a_codec_that_does_not_pay():
    torch = pytest.importorskip("torch")
    checkpointed = pytest.importorskip("forebay.torch").checkpointed
    slow = {"cast:float16": fb.CodecCost(ratio=2, encode=1e3, decode=1e3)}
    results = []
    weight = torch.full((5,), 0.9, requires_grad=True)
    for _ in range(2):
        final = checkpointed(
            lambda y, t, weight: torch.sin(y * weight),
            torch.ones(5),
            12,
            params=weight,
            budget="64kB",
            codec="cast:float16",
            costs=fb.Costs(1e-3, 1e-3, 1e12, codecs=slow),
            report=results.append,
        )
        final.sum().backward()
    assert all(result.plan.codec is None for result in results)
    assert all("codec cast:float16 is not used" in result.explain() for result in results)
