from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.planner.choose import Setting, extrapolate, operations_of, predict
from forebay.planner.costs import HostCost
from forebay.planner.search.bounds import least_of_all, least_seconds, unmoved
from forebay.planner.search.coarse import Coarse
from forebay.planner.search.hierarchies import Recipe
from forebay.planner.search.levels import bounds_of_levels
from forebay.planner.simulate import Work, simulate
from forebay.schedule import Hierarchical, Level, Revolve, StoreAll, TwoLevel

seconds = st.floats(0.01, 10)


@st.composite
def problems(draw):
    """A schedule, the slots of two or three tiers, and what everything costs."""
    steps = draw(st.integers(1, 120))
    interval = draw(st.integers(1, steps))
    schedule = TwoLevel(steps, interval, draw(st.integers(0, interval - 1)))
    upper = draw(st.lists(st.integers(1, 12), min_size=1, max_size=2))
    links = len(upper)
    work = Work(
        forward=draw(seconds),
        backward=draw(seconds),
        save=draw(seconds),
        restore=draw(seconds),
        take=draw(st.just(0.0) | seconds),
        up=tuple(draw(seconds) for _ in range(links)),
        down=tuple(draw(seconds) for _ in range(links)),
    )
    return schedule, (*upper, steps), work


def in_full(schedule, slots, work, timeline=None):
    return simulate(operations_of(schedule, slots, "min"), slots, work, timeline)


def in_short(schedule, slots, work):
    return predict(schedule, slots, Setting("states", None, 1, work, slots, 0.0, "min"))


@pytest.mark.slow
@given(problems())
def test_the_coarse_prediction_is_the_whole_simulation(problem):
    whole, coarse = in_full(*problem), in_short(*problem)
    assert coarse.seconds == pytest.approx(whole.seconds, rel=1e-9)
    assert coarse.stall == pytest.approx(whole.stall, rel=1e-6, abs=1e-9)
    assert (coarse.fetched, coarse.stored, coarse.peak) == (whole.fetched, whole.stored, whole.peak)
    for part in ("forward", "backward", "save", "restore"):
        assert getattr(coarse, part) == pytest.approx(getattr(whole, part), rel=1e-9)


@pytest.mark.slow
@given(problems(), st.integers(1, 6), st.integers(1, 20), st.floats(0.1, 100))
def test_levels_are_predicted_in_short_and_bounded_from_below(problem, first, saves, price):
    steps, (_, slots, work) = problem[0].steps, problem
    schedule = Hierarchical(steps, (Level(min(first, steps)), Level(min(saves, steps), price)))
    whole, coarse = in_full(schedule, slots, work), in_short(schedule, slots, work)
    assert coarse.seconds == pytest.approx(whole.seconds, rel=1e-9)
    assert (coarse.fetched, coarse.stored, coarse.peak) == (whole.fetched, whole.stored, whole.peak)
    if schedule.peak_snapshots > slots[0]:
        for bounds in bounds_of_levels(schedule, work, slots):
            assert max(bounds.moving, bounds.stalled) <= whole.seconds * (1 + 1e-9)


@pytest.mark.slow
@given(problems())
def test_time_is_never_below_the_bounds(problem):
    schedule, slots, work = problem
    predicted = in_full(*problem).seconds * (1 + 1e-9)
    compute = schedule.forward_steps * work.forward + schedule.steps * work.backward
    assert compute <= predicted
    assert least_of_all(work, schedule.steps) <= predicted
    assert unmoved(schedule, work, len(slots)).seconds <= predicted
    assert least_seconds(schedule, work, slots) <= predicted
    assert least_seconds(schedule, work, slots, Coarse(work, slots[0])) <= predicted
    assert extrapolate(schedule, Setting("states", None, 1, work, slots, 0.0, "min")) <= predicted


@st.composite
def hosts(draw):
    """What operations take the host, from nothing to more than a step."""
    price = st.just(0.0) | st.floats(0.01, 5)
    kinds = ("forward", "backward", "call", "save", "restore", "take", "drop", "move", "start")
    return HostCost(**{kind: draw(price) for kind in kinds}, ahead=draw(st.booleans()))


@pytest.mark.slow
@given(problems(), hosts(), st.integers(1, 6), st.integers(1, 20), st.floats(0.1, 100))
def test_time_is_never_below_the_bounds_that_know_the_host(problem, host, first, saves, price):
    schedule, slots, work = problem
    work = replace(work, host=host)
    predicted = in_full(schedule, slots, work).seconds * (1 + 1e-9)
    steps, least = schedule.steps, least_of_all(work, schedule.steps)
    assert least <= predicted
    assert unmoved(schedule, work, len(slots)).seconds <= predicted
    assert least_seconds(schedule, work, slots) <= predicted
    assert least_seconds(schedule, work, slots, Coarse(work, slots[0])) <= predicted
    levels = Hierarchical(steps, (Level(min(first, steps)), Level(min(saves, steps), price)))
    whole, coarse = (in_way(levels, slots, work).seconds * (1 + 1e-9) for in_way in (in_full, in_short))
    assert least <= min(whole, coarse)
    for bounds in bounds_of_levels(levels, work, slots) if levels.peak_snapshots > slots[0] else ():
        assert max(bounds.moving, bounds.stalled) <= min(whole, coarse)


@pytest.mark.slow
@given(problems(), hosts())
def test_where_nothing_moves_the_bound_is_what_a_host_that_computes_takes(problem, host):
    schedule, slots, work = problem
    work, roomy = replace(work, host=replace(host, ahead=False)), (schedule.steps, *slots[1:])
    assert unmoved(schedule, work, len(slots)).seconds == pytest.approx(in_full(schedule, roomy, work).seconds)


def test_a_bound_counts_what_a_host_that_runs_ahead_asks_for():
    host = HostCost(forward=20, backward=1, call=3, save=2, restore=5, take=4, drop=0.5, move=7, start=100, ahead=True)
    work = replace(Work(1, 1, 0.1, 0.1, 0.0, (0.1,), (0.1,)), host=host)
    schedule = Hierarchical(60, (Level(2), Level(6, 3.0)))
    (bounds,) = bounds_of_levels(schedule, work, (3, 60))
    misses, stores = bounds.moves
    moved = misses * (7 + 0.5) + stores * 7
    counts = schedule.forward_steps * 20 + 60 * (1 + 2 * 3) + schedule.saves * 6.5 + (60 - schedule.saves) * 5
    assert misses >= stores > 0
    assert bounds.moving == pytest.approx(100 + counts + moved)
    assert Recipe(schedule.forward_steps, schedule.saves, 4.0, 3.0, schedule.levels, exact=True).least(
        60, work, (3, 60), 0.0
    ) == pytest.approx(100 + counts)


@pytest.mark.slow
@given(problems())
def test_time_is_compute_and_stall(problem):
    whole = in_full(*problem)
    parts = whole.forward + whole.backward + whole.save + whole.restore + whole.stall
    assert whole.seconds == pytest.approx(parts)


@pytest.mark.slow
@given(problems(), st.integers(0, 1), st.integers(1, 4))
def test_more_slots_never_take_longer(problem, tier, more):
    schedule, slots, work = problem
    tier = min(tier, len(slots) - 2)
    larger = (*slots[:tier], slots[tier] + more, *slots[tier + 1 :])
    assert in_short(schedule, larger, work).seconds <= in_short(*problem).seconds * (1 + 1e-9)


@given(problems())
def test_lanes_do_one_thing_at_a_time_in_order(problem):
    spans = []
    whole = in_full(*problem, spans)
    for lane in {span.lane for span in spans}:
        stops = [0.0]
        for span in (span for span in spans if span.lane == lane):
            assert span.start >= stops[-1] - 1e-9
            stops.append(span.stop)
        assert lane != "compute" or stops[-1] == pytest.approx(whole.seconds)


def test_a_transfer_that_fits_beside_the_steps_costs_nothing():
    work = Work(forward=1, backward=1, save=0, restore=0, take=0, up=(1.5,), down=(0.9,))
    # 95 fetches one after the other from the turn on, and one backward step after the last: 100 + 95 * 1.5 + 1 seconds.
    assert in_full(StoreAll(100), (5, 100), work).seconds == 243.5
    work = Work(forward=1, backward=1, save=0, restore=0, take=0, up=(0.9,), down=(0.9,))
    assert in_full(StoreAll(100), (5, 100), work).seconds == 200


def test_without_movement_the_time_is_the_closed_form():
    work = Work(forward=1, backward=2, save=0.5, restore=0.25, take=0, up=(1,), down=(1,))
    schedule = Revolve(100, 7)
    expected = schedule.forward_steps + 200 + schedule.saves * 0.5 + (100 - schedule.saves) * 0.25
    assert in_full(schedule, (7, 100), work).seconds == pytest.approx(expected)
    assert in_short(schedule, (7, 100), work).seconds == pytest.approx(expected)
