"""The planner of blocks: never above the budget, and as fast as the best of all combinations."""

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.planner import blockwise
from forebay.planner.blocks import Block, BlockChoice, Chain, simulate
from forebay.planner.blockwise import choose


def chain_of(saved, forward=1.0, backward=2.0, link=100.0, work=10, boundary=20):
    """A chain like a network's: block n finds the inputs of those before it, and recomputes what it saves."""
    blocks = []
    for number, nbytes in enumerate(saved):
        base = boundary * (number + 1)
        choices = (
            BlockChoice("keep", kept=nbytes),
            BlockChoice("inner", kept=nbytes // 2, backward=0.2 * forward),
            BlockChoice("offload", moved=nbytes, gradual=True),
            BlockChoice("recompute", backward=forward),
            BlockChoice("recompute, inputs away", moved=boundary, freed=boundary, backward=forward),
        )
        blocks.append(Block(f"{number}", forward, backward, base + work, base + work, base + nbytes + work, choices))
    return Chain(tuple(blocks), outside=0.5, down=link, up=link)


def everything(chain, budget):
    return min(simulate(chain, picks, budget).rank for picks in product(*(block.choices for block in chain.blocks)))


def test_with_memory_for_all_everything_is_kept():
    chain = chain_of([100] * 6)
    picks, forecast = choose(chain, 10_000)
    assert {pick.name for pick in picks} == {"keep"}
    assert forecast.seconds == pytest.approx(6 * 3 + 0.5)
    assert forecast.peak == 6 * 20 + 10 + 6 * 100
    assert forecast.stall == 0 and forecast.excess == 0


def test_peak_is_reached_at_the_last_block():
    chain = chain_of([100] * 4)
    keep = [block.choices[0] for block in chain.blocks]
    assert simulate(chain, keep, 489).excess == 1
    assert simulate(chain, keep, 490).excess == 0


def test_a_fast_link_makes_moving_free():
    chain = chain_of([100] * 8, link=1e9)
    _picks, forecast = choose(chain, 450)
    assert forecast.excess == 0
    assert forecast.seconds == pytest.approx(8 * 3 + 0.5, rel=1e-3)


def test_without_a_link_worth_its_name_blocks_are_recomputed():
    chain = chain_of([100] * 8, link=1e-3)
    _picks, forecast = choose(chain, 450)
    assert forecast.moved == 0 and forecast.excess == 0


def test_the_computation_waits_for_what_moves_too_slowly():
    chain = chain_of([100] * 4, link=50.0)
    offload = [block.choices[2] for block in chain.blocks]
    tight = simulate(chain, offload, 230)
    assert tight.excess == 0 and tight.peak <= 230
    assert tight.stall > 0
    assert tight.settle[-1] >= 2
    ample = simulate(chain, offload, 1000)
    assert ample.stall == 0 and ample.settle[-1] == 0, "what never had to leave is still there"


def test_what_is_gone_comes_back_once_and_before_its_backward():
    chain = chain_of([100] * 6, link=200.0)
    forecast = simulate(chain, [block.choices[2] for block in chain.blocks], 300)
    gone = set(range(forecast.settle[-1]))
    fetched = [ahead for now in forecast.fetch for ahead in now]
    assert sorted(fetched) == sorted(set(fetched))
    assert gone <= set(fetched)
    assert all(ahead <= now for now, several in enumerate(forecast.fetch) for ahead in several)


def test_inputs_that_the_block_before_keeps_are_not_freed():
    chain = chain_of([100, 100])
    away = chain.blocks[1].choices[4]
    kept = BlockChoice("keep", kept=100, keeps_output=True)
    not_kept = BlockChoice("keep", kept=100)
    assert simulate(chain, [not_kept, away], 10_000).peak == simulate(chain, [kept, away], 10_000).peak
    base = chain_of([100, 100, 100])
    tight = [chain.blocks[0].choices[3], away, base.blocks[2].choices[3]]
    shared = [kept, away, base.blocks[2].choices[3]]
    assert simulate(base, tight, 1).excess + 100 + 20 >= simulate(base, shared, 1).excess
    assert simulate(base, shared, 1).excess > simulate(base, [not_kept, away, base.blocks[2].choices[3]], 1).excess


def test_what_cannot_be_done_says_by_how_much():
    chain = chain_of([100] * 4)
    _picks, forecast = choose(chain, 50)
    assert forecast.excess > 0
    assert choose(chain, 50 + forecast.excess)[1].excess == 0


@pytest.mark.parametrize("count", [6, 24, 100])
@pytest.mark.parametrize("host", [0, 50, 500])
def test_what_every_block_can_do_is_found_where_blocks_have_different_choices(count, host):
    """Half of the blocks have fewer choices, so the same choice is at another place among them."""
    alike = chain_of([100] * count)
    blocks = [
        replace(block, choices=block.choices[2:]) if number % 2 else replace(block, choices=block.choices[:4])
        for number, block in enumerate(alike.blocks)
    ]
    chain = replace(alike, blocks=tuple(blocks), host=host)
    again = [next(one for one in block.choices if one.name == "recompute") for block in chain.blocks]
    least = max(max(block.peak_forward, block.peak_backward) for block in chain.blocks)
    forecast = choose(chain, least)[1]
    assert forecast.excess == simulate(chain, again, least).excess == 0
    assert forecast.seconds <= simulate(chain, again, least).seconds + 1e-6


def test_the_same_question_has_the_same_answer():
    chain = chain_of([100, 80, 120, 100, 60, 100, 90, 100], link=70.0)
    assert choose(chain, 420) == choose(chain, 420)


def test_the_room_of_an_encoder_is_part_of_its_forward():
    chain = chain_of([100] * 3)
    small = BlockChoice("compress", kept=30)
    picks = [small] * 3
    peak = simulate(chain, picks, 10_000).peak
    roomy = [BlockChoice("compress", kept=30, room=1000)] * 3
    assert simulate(chain, roomy, 10_000).peak == chain.blocks[2].peak_forward + 3 * 30 + 1000
    assert simulate(chain, roomy, peak).excess > simulate(chain, picks, peak).excess == 0


@pytest.mark.slow
@pytest.mark.parametrize(("count", "most"), [(8, 400), (16, 400), (100, blockwise.MOST // 100 + 100)])
def test_few_combinations_are_simulated(count, most, monkeypatch):
    calls = 0

    def counting(*arguments):
        nonlocal calls
        calls += 1
        return simulate(*arguments)

    monkeypatch.setattr(blockwise, "simulate", counting)
    chain = chain_of([80 + 7 * number % 40 for number in range(count)], link=60.0)
    _picks, forecast = choose(chain, 20 * count + 40 * count)
    assert forecast.excess == 0
    assert calls < most


sizes = st.lists(st.integers(20, 200), min_size=2, max_size=4)


@settings(max_examples=60)
@given(sizes, st.floats(10, 1000), st.integers(80, 700))
def test_the_search_is_as_good_as_trying_everything(saved, link, budget):
    chain = chain_of(saved, link=link)
    best = everything(chain, budget)
    picks, forecast = choose(chain, budget)
    assert forecast == simulate(chain, picks, budget)
    assert forecast.excess == best[0]
    if not best[0]:
        assert forecast.seconds <= best[1] * 1.02
        assert forecast.peak <= budget


@settings(max_examples=30)
@given(sizes, st.floats(10, 1000), st.integers(80, 700))
def test_more_memory_is_never_slower(saved, link, budget):
    chain = chain_of(saved, link=link)
    less, more = choose(chain, budget)[1], choose(chain, budget + 100)[1]
    assert more.excess <= less.excess
    if not less.excess:
        assert more.seconds <= less.seconds * 1.02
