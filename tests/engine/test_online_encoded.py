"""Loops of unknown end whose snapshots are encoded: exact codecs give every bit back, lossy ones keep their bound."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import forebay as fb
from forebay.codec import Codec
from tests.engine.loops import COSTS
from tests.engine.thinning import Thin, ThinLoop

FILLINGS = {
    "thin": lambda step: 0.05,
    "full": lambda step: 1.0,
    "filling": lambda step: min(1.0, step / 40),
    "emptying": lambda step: max(0.02, 1 - step / 40),
}
WHOLE = 135168
"""Bytes of a state of the loop, and of one that does not shrink."""


class EndingThinLoop(ThinLoop):
    """One that ends after so many steps."""

    def __init__(self, filling, end):
        super().__init__(filling)
        self.end = end

    def forward(self, state, start, stop):
        state = super().forward(state, start, min(stop, self.end))
        return fb.Ended(state, self.end) if stop >= self.end else state


class Expected:
    """What backward sees where every state is kept."""

    def __init__(self):
        self.seen = {}

    def __call__(self, filling, end):
        if (filling, end) not in self.seen:
            self.seen[filling, end] = ThinLoop(FILLINGS[filling]).expect(end)
        return self.seen[filling, end]


EXPECTED = Expected()


@cache
def final_of(filling, end):
    """Run such a loop to its end without the engine."""
    loop = ThinLoop(FILLINGS[filling])
    return loop.forward(loop.state, 0, end)[0]


def reverse(filling, end, tiers, assumed, **more):
    """Run such a loop back, its states assumed to shrink by so many times."""
    loop = EndingThinLoop(FILLINGS[filling], end)
    budget = fb.Budget(**{tier: count * WHOLE for tier, count in zip(("host", "disk"), tiers, strict=False)})
    known = fb.CodecCost(ratio=assumed, encode=1e12, decode=1e12)
    costs = fb.Costs(COSTS.forward, COSTS.backward, COSTS.copy, disk=COSTS.disk, codecs={"thin": known})
    options = {"budget": budget, "codec": Thin(), "costs": costs, "turn": lambda state: final.append(state[0].copy())}
    final = []
    result = fb.reverse(loop.forward, loop.backward, loop.state, None, **options, **more)
    assert np.array_equal(final, [final_of(filling, end)])
    assert loop.seen == EXPECTED(filling, end)
    assert (result.plan.steps, result.plan.codec) == (end, "thin")
    assert all(result.metrics.peak[tier] <= budget[tier] for tier in budget.tiers)
    return result


@pytest.mark.parametrize("tiers", [(5,), (12,), (4, 5)], ids=str)
@pytest.mark.parametrize("filling", FILLINGS)
def test_every_bit_comes_back_inside_the_budget_whatever_the_sizes(filling, tiers, tmp_path):
    for end, assumed in ((1, 3.0), (2, 8.0), (7, 50.0), (60, 8.0)):
        reverse(filling, end, tiers, assumed, directory=tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_room_that_sizes_leave_is_used():
    thin, full = (reverse(filling, 200, (8,), 4.0).metrics for filling in ("thin", "full"))
    assert thin.advanced <= 1.15 * fb.Revolve(200, 80).forward_steps
    assert full.advanced <= 1.15 * fb.Revolve(200, 7).forward_steps
    assert reverse("thin", 60, (8,), 4.0, schedule="online:3").metrics.peak["host"] <= 3 * WHOLE


def test_its_plan_can_be_given_again_once_the_end_is_known():
    plan = fb.Plan.from_json(reverse("filling", 60, (12,), 4.0).plan.to_json())
    loop = ThinLoop(FILLINGS["filling"])
    fb.reverse(loop.forward, loop.backward, loop.state, 60, plan=plan, codec=Thin())
    assert loop.seen == EXPECTED("filling", 60)


def test_several_adjoints_may_follow():
    loop = EndingThinLoop(FILLINGS["filling"], 30)
    with fb.prepare(loop.forward, loop.state, None, budget=8 * WHOLE, codec=Thin(), costs=COSTS) as reversal:
        reversal.forward()
        reversal.backward(loop.backward, retain=True)
        reversal.backward(loop.backward)
    assert loop.seen == 2 * EXPECTED("filling", 30)


@pytest.mark.parametrize("codec", ["bounded:1e-4", "cast:float16"])
def test_a_lossy_codec_keeps_its_bound(codec):
    first = (np.sin(np.linspace(0, 9, 4096)).astype(np.float32),)
    exact, worst = [first[0]], []

    def forward(state, start, stop):
        for step in range(start, stop):
            if step == 90:
                return fb.Ended(state, step)
            state = (np.roll(state[0], 1),)  # which hands errors on as they are
        return state

    for _ in range(90):
        exact.append(np.roll(exact[-1], 1))
    result = fb.reverse(
        forward,
        lambda state, step: worst.append(float(abs(state[0] - exact[step]).max())),
        first,
        None,
        budget=12 * first[0].nbytes,
        codec=codec,
    )
    assert fb.codec.get(codec).name == result.plan.codec and len(worst) == 90
    # A state that was restored is saved again on the way back, once or twice, each time within the bound.
    assert 0 < max(worst) <= (3 * 2e-4 if codec.startswith("bounded") else 2**-11)
    assert result.metrics.peak["host"] <= 12 * first[0].nbytes


def test_a_codec_that_gains_nothing_is_not_used():
    loop = EndingThinLoop(FILLINGS["full"], 9)
    known = fb.CodecCost(ratio=1.0, encode=1e12, decode=1e12)
    costs = fb.Costs(1e-3, 1e-3, 1e9, codecs={"thin": known})
    result = fb.reverse(loop.forward, loop.backward, loop.state, None, budget=9 * WHOLE, codec=Thin(), costs=costs)
    assert result.plan.codec is None and "codec thin is not used" in result.note
    assert loop.seen == EXPECTED("full", 9)


class Drifting(Codec):
    """Adds its bound, 1, to every number."""

    name, lossy = "drifting", True

    def handles(self, dtype):
        return dtype == np.float64

    def max_bytes(self, shape, dtype):
        return 8 * int(np.prod(shape))

    def encode_host(self, array, out):
        out[: array.nbytes].view(np.float64)[:] = array.reshape(-1) + 1
        return array.nbytes

    def decode_host(self, payload, out):
        out.reshape(-1)[:] = payload.view(np.float64)


@pytest.mark.parametrize("steps", [60, None], ids=["known", "unknown"])
@pytest.mark.parametrize("snapshots", [2, 4, 80])
def test_how_many_lossy_encodings_follow_one_another_is_told(steps, snapshots):
    """Each adds its error to that of the state it was given: the bound of one is not that of what backward sees."""

    def forward(state, start, stop):
        return fb.Ended(state, 60) if steps is None and stop >= 60 else state

    errors = []
    costs = replace(COSTS, codecs={"drifting": fb.CodecCost(ratio=2, encode=1e12, decode=1e12)})
    options = {"budget": f"{40 * (snapshots + 2)}kB", "costs": costs, "codec": Drifting(), "encode_states": True}
    options |= {"schedule": f"revolve:{snapshots}" if snapshots < 60 else "storeall"} if steps else {}
    result = fb.reverse(forward, lambda state, step: errors.append(state[0][0]), (np.zeros(4096),), steps, **options)
    assert result.plan.codec == "drifting" and len(errors) == 60
    assert result.metrics.generations == max(errors) and (snapshots == 80 or max(errors) > 1)
    told = f"up to {max(errors):.0f} of them in a row" if max(errors) > 1 else "holds at each save; what"
    assert told in result.explain()
