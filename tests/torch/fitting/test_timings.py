"""Seconds of a step's parts from those of whole iterations: no tensors, no clock."""

from dataclasses import replace

import pytest

pytest.importorskip("torch")

from forebay.torch.fitting.choices import BlockTiming
from forebay.torch.fitting.timings import StepTiming, TreatedTiming, Trial, combine

GUESS = BlockTiming(
    2.0,
    4.0,
    {
        "keep": (0.0, 0.0),
        "keep costly, recompute the rest": (0.0, 0.5),
        "offload": (0.0, 0.0),
        "offload costly, recompute the rest": (0.0, 0.5),
        "recompute": (0.0, 2.0),
        "compress": (0.25, 0.125),
    },
)


def taken(run, names):
    """The seconds of an iteration in which blocks are treated so."""
    rows = zip(run.blocks, names, strict=True)
    return run.outside + sum(block.forward + block.backward + sum(block.extra_seconds[name]) for block, name in rows)


def near(seconds):
    return pytest.approx(seconds, abs=1e-12)


def test_without_a_plan_the_first_iteration_is_all_there_is():
    first = StepTiming((GUESS, GUESS), 1.0)
    assert combine(first, ["like", "like"], []) is first


def test_what_a_treatment_costs_the_host_is_learned_from_the_blocks_that_had_it_and_holds_for_their_like():
    first = StepTiming((GUESS,) * 3, 1.0)
    trial = Trial(
        (TreatedTiming("keep", 1.0, 2.0), TreatedTiming("offload", 1.5, 2.75), TreatedTiming("keep", 1.0, 2.0)), 0.5
    )
    found = combine(first, ["like"] * 3, [trial] * 3)
    for block in found.blocks:
        assert (block.forward, block.backward) == near((1.0, 2.0))
        assert block.extra_seconds["keep"] == near((0.0, 0.0))
        assert block.extra_seconds["offload"] == near((0.5, 0.75))
    assert found.outside == near(0.5)


def test_second_runs_are_told_apart_from_what_a_treatment_costs():
    first = StepTiming((GUESS,) * 4, 0.0)
    seen = [
        TreatedTiming("keep", 1.0, 2.0),
        TreatedTiming("recompute", 1.25, 2.0, replay=0.75),
        TreatedTiming("keep costly, recompute the rest", 1.0, 2.5, replay=0.25),
        TreatedTiming("keep", 1.0, 2.0),
    ]
    found = combine(first, ["like"] * 4, [Trial(tuple(seen), 0.0)])
    for block in found.blocks:
        assert block.extra_seconds["recompute"] == near((0.25, 0.75))
        assert block.extra_seconds["keep costly, recompute the rest"] == near((0.0, 0.75))
        # No block had it: its second run is as long as that of the other that keeps what is costly.
        assert block.extra_seconds["offload costly, recompute the rest"] == near((0.0, 0.25))


def test_a_part_of_costly_outputs_that_no_block_kept_costs_what_other_parts_do():
    half = "keep 1/2 of costly, recompute the rest"
    guess = replace(GUESS, extra_seconds={**GUESS.extra_seconds, half: (0.0, 1.0)})
    seen = TreatedTiming("keep", 1.0, 2.0), TreatedTiming("keep costly, recompute the rest", 1.125, 2.25, replay=0.25)
    found = combine(StepTiming((guess, guess), 0.0), ["like", "like"], [Trial(seen, 0.0)])
    # Its second run was guessed to be twice as long as that of the other part.
    assert [block.extra_seconds[half] for block in found.blocks] == [near((0.125, 0.25 + 0.5))] * 2


def test_kinds_have_second_runs_of_their_own():
    first = StepTiming((GUESS, GUESS), 0.0)
    seen = TreatedTiming("recompute", 1.0, 2.0, replay=0.5), TreatedTiming("recompute", 1.0, 2.0, replay=3.0)
    found = combine(first, ["one", "two"], [Trial(seen, 0.0)])
    assert [block.extra_seconds["recompute"] for block in found.blocks] == [near((0.0, 0.5)), near((0.0, 3.0))]


def test_the_median_of_several_iterations_counts():
    first = StepTiming((GUESS, GUESS), 0.0)
    trials = [
        Trial((TreatedTiming("keep", 1.0, 2.0), TreatedTiming("offload", 1.0 + ahead, 2.0)), outside)
        for ahead, outside in ((0.5, 1.0), (0.5, 7.0), (50.0, 3.0))
    ]
    found = combine(first, ["like", "like"], trials)
    assert found.blocks[0].extra_seconds["offload"] == near((0.5, 0.0)) and found.outside == near(3.0)


def test_a_kind_that_has_not_had_a_treatment_takes_the_average_of_those_that_have():
    first = StepTiming((GUESS,) * 6, 0.0)
    kinds = ["one", "one", "two", "two", "three", "three"]
    seen = [
        TreatedTiming("keep", 1.0, 2.0),
        TreatedTiming("offload", 1.5, 2.0),
        TreatedTiming("keep", 3.0, 6.0),
        TreatedTiming("offload", 4.0, 6.5),
        TreatedTiming("keep", 5.0, 7.0),
        TreatedTiming("keep", 5.0, 7.0),
    ]
    found = combine(first, kinds, [Trial(tuple(seen), 0.0)])
    offload = [block.extra_seconds["offload"] for block in found.blocks]
    assert offload[0] == near((0.5, 0.0)) and offload[2] == near((1.0, 0.5))
    assert offload[4] == offload[5] == near((0.75, 0.25))
    # A treatment that nobody has had costs what was guessed of an encoder, and nothing else.
    assert found.blocks[0].extra_seconds["compress"] == near((0.25, 0.125))


def test_a_kind_that_has_not_been_seen_takes_what_was_guessed_at_the_pace_of_the_others():
    slower = GUESS.times(2.0)
    first = StepTiming((GUESS, slower), 0.0)
    trial = Trial((TreatedTiming("recompute", 1.0, 3.0, replay=1.5), None), 0.0)  # the loss did not need the other
    found = combine(first, ["one", "two"], [trial])
    assert (found.blocks[1].forward, found.blocks[1].backward) == near((2.0, 4.0))  # half of what was guessed
    assert found.blocks[1].extra_seconds["recompute"] == near((0.0, 3.0))  # three quarters of it
    assert found.blocks[0].extra_seconds["recompute"] == near((0.0, 1.5))


def test_a_block_without_backward_stays_without():
    first = StepTiming((GUESS, BlockTiming(1.0, 0.0)), 0.0)
    trial = Trial((TreatedTiming("keep", 1.0, 2.0), TreatedTiming("recompute", 0.5)), 0.0)
    for kinds in (["one", "two"], ["like", "like"]):
        found = combine(first, kinds, [trial])
        assert found.blocks[0].backward > 0.0 == found.blocks[1].backward and found.blocks[1].extra_seconds == {}


def test_the_parts_add_up_to_whole_iterations():
    """Blocks of a kind that differ all the same, and an iteration that is slower as a whole."""
    first = StepTiming((GUESS,) * 4, 0.0)
    names = ("keep", "offload", "recompute", "recompute")
    seen = (
        TreatedTiming("keep", 1.0, 2.0),
        TreatedTiming("offload", 2.0, 2.0),
        TreatedTiming("recompute", 1.0, 3.0, replay=1.0),
        TreatedTiming("recompute", 1.5, 4.5, replay=1.5),
    )
    whole = sum(one.forward + one.backward + one.replay for one in seen)
    found = combine(first, ["like"] * 4, [Trial(seen, 0.25)])
    assert taken(found, names) == near(whole + 0.25)
    trials = [
        Trial(tuple(TreatedTiming(n, pace * f, pace * b, pace * a) for n, f, b, a in seen), 0.25) for pace in (1, 2, 2)
    ]
    assert taken(combine(first, ["like"] * 4, trials), names) == near(2 * whole + 0.25)


def test_an_iteration_in_which_all_blocks_are_slower_than_medians_of_each_is_met_on_average():
    first = StepTiming((GUESS, GUESS), 0.0)
    one = Trial((TreatedTiming("keep", 1.0, 2.0), TreatedTiming("offload", 3.0, 4.0)), 0.0)
    other = Trial((TreatedTiming("offload", 1.0, 2.0), TreatedTiming("keep", 3.0, 4.0)), 0.0)
    found = combine(first, ["like", "like"], [one, other])
    for names in (("keep", "offload"), ("offload", "keep")):
        assert taken(found, names) == near(10.0)


@pytest.mark.parametrize("turns", ["usual slow usual", "usual usual slow slow", "slow slow usual usual"])
def test_an_iteration_that_was_slow_as_a_whole_makes_no_treatment_costlier(turns):
    first = StepTiming((GUESS,) * 3, 0.0)
    keep, offload = TreatedTiming("keep", 1.0, 2.0), TreatedTiming("offload", 1.5, 2.5)
    recompute = TreatedTiming("recompute", 1.0, 2.0, replay=1.0)

    def slower(pace, *blocks):
        return Trial(tuple(TreatedTiming(one.name, *(pace * seconds for seconds in one[1:])) for one in blocks), 0.0)

    trials = {"usual": slower(1.0, keep, keep, recompute), "slow": slower(1.4, keep, offload, offload)}
    found = combine(first, ["like"] * 3, [trials[turn] for turn in turns.split()])
    scale = found.blocks[0].forward  # the pace that is taken for the usual one
    for block in found.blocks:
        assert block.extra_seconds["offload"] == near((0.5 * scale, 0.5 * scale))
        assert block.extra_seconds["recompute"] == near((0.0, 1.0 * scale))
