"""A first sweep that does not know where it ends, held against the fewest steps that knowing it would take."""

import pickle
from bisect import bisect
from itertools import accumulate, pairwise, takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.example_counts import fewer
from tests.schedule.test_schedules import fewest_forward_steps_and_saves

from forebay.errors import ScheduleError
from forebay.schedule import Drop, Forward, Online, Revolve, Save, binomial, check, named
from forebay.schedule.online import back, retainable, unending

MOST = 100_000
AT_MOST, SHORT, AT_MOST_SHORT = 1.15, 50, 1.28
"""Forward steps as a multiple of what Revolve takes, also of loops of few steps; what users are promised is 1.5."""


@pytest.mark.parametrize("steps", range(1, 41))
def test_every_end_is_reversed_step_by_step_in_order(steps):
    for snapshots in (1, 2, 3, 5, 8, 60):
        assert check(Online(steps, snapshots)).peak_snapshots <= snapshots


@fewer(20)
@given(st.integers(41, 3000), st.integers(4, 300))
def test_the_same_holds_for_longer_loops(steps, snapshots):
    check(Online(steps, snapshots))


@pytest.mark.parametrize(("steps", "snapshots"), [(n, s) for n in range(1, 10) for s in range(1, 5)])
def test_from_what_is_kept_no_way_back_is_shorter(steps, snapshots):
    schedule = Online(steps, snapshots)
    best, _ = fewest_forward_steps_and_saves(steps, snapshots, kept_of(schedule))
    assert schedule.forward_steps == steps + best


@pytest.mark.parametrize("retained", [(), (0,), (0, 4), (0, 4, 7)], ids=str)
@pytest.mark.parametrize("kept", [(0, 4, 7), (0, 2, 4, 7)], ids=str)
def test_what_is_retained_is_there_at_the_end_and_its_slots_are_not_used(kept, retained):
    alive, at, steps = set(kept), [], 0
    for action in back(kept, 10, 5, retained):
        if isinstance(action, Save):
            alive.add(action.step)
        elif isinstance(action, Drop):
            alive.remove(action.step)
        at.append(len(alive))
        steps += action.stop - action.start if isinstance(action, Forward) else 0
    assert alive == set(retained) and max(at) <= 5
    assert steps >= sum(action.stop - action.start for action in back(kept, 10, 5) if isinstance(action, Forward))


def kept_of(schedule):
    kept = []
    for action in schedule.sweep():
        if isinstance(action, Save):
            kept.append(action.step)
        elif isinstance(action, Drop):
            kept.remove(action.step)
    return kept


def excesses(snapshots, at):
    """Yield how many times the steps of Revolve each of some ends takes, over what it may, from one sweep."""
    kept = []
    for action, following in pairwise(unending(snapshots)):
        if isinstance(action, Save):
            kept.append(action.step)
        elif isinstance(action, Drop):
            kept.remove(action.step)
        else:
            for end in at[bisect(at, action.start) : bisect(at, action.stop)]:
                makes_room = isinstance(following, Drop) and end == action.stop
                here = [step for step in kept if not (makes_room and step == following.step)]
                lengths = [stop - start for start, stop in zip(here, [*here[1:], end], strict=True)]
                steps = sum(binomial.forward_steps(length, snapshots - n) for n, length in enumerate(lengths))
                ratio = (end + steps) / binomial.forward_steps(end + 1, min(snapshots, end))
                yield ratio / (AT_MOST_SHORT if end <= SHORT else AT_MOST)
            if action.stop >= at[-1]:
                return


def ends(snapshots, growth):
    """List ends that lie ever further apart, and those at which Revolve needs one more pass."""
    spread = takewhile(lambda end: end < MOST, accumulate(range(MOST), lambda end, _: max(end + 1, int(end * growth))))
    passes = range(1, 450 if snapshots == 2 else 80)
    turning = (
        {binomial.beta(snapshots, r) + more for r in passes for more in (-2, -1, 0, 1)} if snapshots > 1 else set()
    )
    return sorted({end for end in {*spread, *turning, MOST} if 1 <= end <= MOST})


@pytest.mark.parametrize("snapshots", [2, 3, 5, 8, 30, 100])
def test_not_knowing_the_end_costs_few_steps_whatever_it_is(snapshots):
    assert max(excesses(snapshots, ends(snapshots, 1.2))) <= 1


@pytest.mark.slow
@pytest.mark.parametrize("snapshots", [*range(1, 60), *range(60, 300, 20), 440, 1000, 5000])
def test_not_knowing_the_end_costs_few_steps_for_many_more(snapshots):
    growth = 1.001 if snapshots < 300 else 1.05
    assert max(excesses(snapshots, ends(snapshots, growth))) <= 1


def test_the_count_is_that_of_the_schedule():
    for end in range(1, 60):
        (excess,) = excesses(4, [end])
        allowed = AT_MOST_SHORT if end <= SHORT else AT_MOST
        assert Online(end, 4).forward_steps == round(excess * allowed * binomial.forward_steps(end + 1, min(4, end)))


def test_what_all_slots_hold_is_not_run_again():
    assert Online(20, 20).forward_steps == Online(20, 99).forward_steps == 20
    assert Online(10, 1).forward_steps == Revolve(10, 1).forward_steps


def test_a_sweep_saves_no_more_than_it_has_to():
    saves = Online(MOST, 8).saves
    assert saves < 1.1 * Revolve(MOST, 8).saves


def test_it_has_a_name_and_travels():
    schedule = named("online:8", 3751)
    assert schedule == Online(3751, 8) and str(schedule) == "online:8"
    assert pickle.loads(pickle.dumps(schedule)).forward_steps == schedule.forward_steps
    for wrong in ("online", "online:0"):
        with pytest.raises(ScheduleError):
            named(wrong, 10)


def test_what_could_be_retained_is_tried_in_numbers_that_grow_by_a_quarter():
    kept = [0, 3, 9, 14, 20, 25, 33, 38, 44, 51, 57, 60]
    choices = retainable(kept, 64, 20)
    assert sorted(map(len, choices)) == [1, 2, 3, 4, 6, 8, 11, 11]
    assert choices[0] == [0, 3, 9, 14, 20, 25, 33, 38, 44, 51, 57] and choices[-1] == [0]
    assert all(choice[0] == 0 and set(choice) <= set(kept) for choice in choices)
