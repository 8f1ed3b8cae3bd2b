"""When sizes were a guess: all of the budget is used, nothing goes while there is room, and few steps are run again."""

import pytest

import forebay as fb
from forebay.codec import register, registry
from forebay.engine.spilling import SpillingExecutor
from tests.engine.thinning import Thin, ThinLoop

STEPS = 120
SIZE = 135168
"""Bytes of a state, and of one that does not shrink."""
FULL, TWENTIETH = 1.0, 0.046
"""How much of the fields is filled, where states shrink by 1 and by 20."""
FILLINGS = {
    "never small": lambda step: FULL,
    "always small": lambda step: TWENTIETH,
    "small at first": lambda step: TWENTIETH if step < STEPS / 3 else FULL,
    "small at last": lambda step: FULL if step < STEPS / 3 else TWENTIETH,
    "growing": lambda step: TWENTIETH + (FULL - TWENTIETH) * min(1, 2 * step / STEPS),
}


@pytest.fixture(autouse=True)
def _thin():
    register("thin", Thin)
    yield
    del registry._registered["thin"]


def reverse(loop, ratio, budget, **options):
    codec = fb.CodecCost(ratio=ratio, encode=1e12, decode=1e12)
    costs = fb.Costs(1.0, 1.0, 1e12, disk=fb.Link(1e12, 1e12), codecs={"thin": codec})
    return fb.reverse(
        loop.forward, loop.backward, loop.state, STEPS, budget=budget, codec="thin", costs=costs, **options
    )


@pytest.fixture
def full(monkeypatch):
    """Refuse that anything goes while there is room for a snapshot."""
    give_up = SpillingExecutor._give_up

    def give_up_when_full(executor, fresh):
        if fresh is not None:
            kind = (
                executor._states if executor._states is not None and fresh >= executor._states.shift else executor.kind
            )
            wanted = kind.sizes.typical(fresh - kind.shift, fresh - kind.shift)
            assert executor.free_bytes() < wanted
        return give_up(executor, fresh)

    monkeypatch.setattr(SpillingExecutor, "_give_up", give_up_when_full)


def compare(filling, assumed, budget, record=None):
    """Reverse with a ratio that was assumed, and again with the one that was found; return the steps of both."""
    loop, found = ThinLoop(filling), ThinLoop(filling)
    result = reverse(loop, assumed, budget, record=record)
    assert loop.seen == loop.expect(STEPS, (lambda state: state[:2]) if record else (lambda state: state))
    assert (result.plan.codec, result.plan.keep) == ("thin", "records" if record else "states")
    assert result.metrics.peak["host"] <= budget
    knowing = reverse(found, max(1.01, result.metrics.mean_ratio), budget, record=record)
    assert 0.5 < result.costs.codecs["thin"].ratio / result.metrics.mean_ratio < 2
    return result, knowing


@pytest.mark.usefixtures("full")
@pytest.mark.parametrize("filling", FILLINGS)
@pytest.mark.parametrize("keep", ["states", "records"])
@pytest.mark.parametrize("slots", [12, pytest.param(40, marks=pytest.mark.slow)])
def test_a_ratio_twenty_times_too_good_costs_little(filling, keep, slots):
    record = (0, 1) if keep == "records" else None
    result, knowing = compare(FILLINGS[filling], 20.0, (slots + 3) * SIZE, record)
    assert result.metrics.advanced <= 1.3 * knowing.metrics.advanced
    assert result.metrics.replanned == (filling != "always small")


@pytest.mark.usefixtures("full")
@pytest.mark.parametrize("slots", [8, 14])
def test_a_ratio_twenty_times_too_bad_costs_little(slots):
    result, knowing = compare(lambda step: TWENTIETH / 2, 2.0, (slots + 2) * SIZE)
    assert result.metrics.advanced <= 1.3 * knowing.metrics.advanced < 0.8 * result.plan.schedule.forward_steps
    assert result.metrics.lost == 0 and "the plan was left" in result.explain()


@pytest.mark.slow
@pytest.mark.parametrize("disk", [pytest.param(4, marks=pytest.mark.slow), 30])
def test_what_has_no_room_on_the_host_goes_to_the_disk(disk, tmp_path):
    loop = ThinLoop(FILLINGS["growing"])
    budget = fb.Budget(host=6 * SIZE, disk=disk * SIZE)
    result = reverse(loop, 20.0, budget, directory=tmp_path)
    assert loop.seen == loop.expect(STEPS)
    assert result.metrics.peak["host"] <= 6 * SIZE and disk - 2 <= result.metrics.peak["disk"] / SIZE <= disk
