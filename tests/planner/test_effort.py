"""How much is looked at before a plan is taken: little where bounds tell enough, and no more than a run waits for."""

from dataclasses import replace
from math import inf
from random import Random

import pytest

import forebay as fb
from forebay.planner.choose import LONG_LISTING, MAKING, Leader, Setting, look_through, predict
from forebay.planner.costs import Costs, HostCost, Link
from forebay.planner.search.candidates import candidates
from forebay.planner.search.coarse import Coarse
from forebay.planner.search.hierarchies import known, recipe_of, recipes
from forebay.planner.search.levels import LevelBounds
from forebay.planner.settings import Problem
from forebay.planner.simulate import Work
from forebay.schedule import Hierarchical, Level

MB = 10**6
HOST = HostCost(forward=2e-5, backward=2e-5, call=2e-5, save=6e-5, restore=6e-5, take=4e-5, drop=2e-5, move=4e-5)


def looked_through(steps, slots, step, effort=inf, host=HOST):
    """Return a search over schedules of a loop that is run on a device."""
    link = Link(55e9, 55e9, both=0.84, beside=1.05)
    costs = Costs(step, step, 2e12, host=link, operations=replace(host, ahead=True))
    budget = fb.Budget(device=slots[0] * MB, host=slots[1] * MB)
    settings = list(Problem(steps, 1, MB, None, budget, costs, "min", None, 1).settings(()))
    search = Leader(inf, effort)
    look_through(settings, {"states": list(candidates(steps)), "records": []}, search, levels=True)
    return search


def test_little_is_made_and_simulated_where_a_device_waits_for_its_host():
    search = looked_through(500, (3, 14), 2e-5)
    assert search.best.prediction.host > search.best.seconds / 2
    listed = recipes(500, search.best.setting.work, 3, 17, inf)
    assert len(search.made) < 0.25 * len(listed)
    simulated = search.spent - LONG_LISTING - MAKING * len(search.made)
    assert simulated < 20 * 3 * 500


@pytest.mark.parametrize(("slots", "made"), [((161, 100), 0), ((150, 100), 1)])
def test_nothing_on_levels_is_made_where_all_that_is_kept_stays_on_the_device(slots, made):
    search = looked_through(161, slots, 5e-3)
    assert min(len(search.made), 1) == made
    if not made:
        assert search.best.schedule.forward_steps == 161 and search.spent == 0


@pytest.mark.parametrize("steps", [90, 300])
def test_figures_of_short_loops_are_those_of_their_schedules(steps):
    work = Work(1.0, 1.0, 0.1, 0.1, 0.0, (3.0,), (3.0,))
    figures = list(known(steps, work, recipes(steps, work, 5, 30, inf)))
    for recipe in figures[::40]:
        assert recipe.exact and recipe == recipe_of(Hierarchical(steps, recipe.levels))
    assert len(figures) > 400


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_a_search_ends_when_its_effort_is_spent(seed):
    random = Random(seed)
    steps, slots = random.randint(30, 900), (random.randint(2, 12), random.randint(9, 50))
    step, effort = 10 ** random.uniform(-5, -3), random.choice((0, 50_000, 250_000))
    search = looked_through(steps, slots, step, effort)
    last = max(len(search.best.schedule), MAKING, 5 * steps)
    assert search.best is not None
    assert search.spent <= effort + last
    assert search.best.seconds >= looked_through(steps, slots, step).best.seconds * (1 - 1e-9)


@pytest.mark.parametrize("host", [HostCost(), HostCost(call=0.2, save=1.0, restore=1.0, take=0.5)])
@pytest.mark.parametrize("first", [6, 8])
def test_a_bound_tells_what_a_busy_link_delays_without_a_simulation(first, host):
    """Otherwise all schedules whose snapshots come too fast for the link were simulated: a plan took half a minute."""
    schedule = Hierarchical(5000, (Level(first), Level(30, 5.0)))
    work = Work(1.0, 1.0, 0.3, 0.3, 0.0, (25.0,), (25.0,), host=host)
    predicted = predict(schedule, (12, 100), Setting("states", None, 1, work, (12, 100), 0.0, "min"))
    bound = LevelBounds(schedule, Coarse(work, slots=12)).moving
    assert predicted.stall > 0.03 * predicted.seconds
    assert 0.95 * predicted.seconds < bound <= predicted.seconds


@pytest.mark.parametrize("host", [HostCost(), HostCost(call=0.1, ahead=True)])
def test_a_bound_tells_how_movements_slow_the_computation(host):
    """Otherwise all schedules within that of the best were simulated: a plan of 100,000 steps took three minutes."""
    schedule = Hierarchical(5000, (Level(6), Level(30, 5.0)))
    work = Work(1.0, 1.0, 0.3, 0.3, 0.0, (0.7,), (0.7,), beside=(1.5,), host=host)
    predicted = predict(schedule, (6, 100), Setting("states", None, 1, work, (6, 100), 0.0, "min"))
    bound = LevelBounds(schedule, Coarse(work, slots=6)).moving
    assert predicted.slowed > 0.005 * predicted.seconds
    assert predicted.seconds - predicted.slowed / 2 < bound <= predicted.seconds * (1 + 1e-9)


def test_a_disk_that_nothing_needs_adds_no_simulations_of_segments():
    link = Link(MB / 3, MB / 3)
    costs = Costs(1.0, 1.0, 1e9, host=link, disk=link)
    spent = []
    for budget in (fb.Budget(5 * MB, 900 * MB), fb.Budget(5 * MB, 900 * MB, 900 * MB)):
        settings = list(Problem(600, 1, MB, None, budget, costs, "min", None, 1).settings(()))
        search = Leader(inf)
        look_through(settings, {"states": list(candidates(600)), "records": []}, search, levels=False)
        spent.append(search.spent)
    assert spent[0] == spent[1] > 0


def test_a_longer_loop_is_given_more_effort():
    """All of its plan's seconds are longer by the same, so that only the effort tells."""
    costs = Costs(1.0, 1.0, 1e9, host=Link(MB / 3, MB / 3))
    about = {"steps": 500, "state_bytes": MB, "budget": fb.Budget(3 * MB, 15 * MB), "hurry": True}
    found = []
    for slower in (1e-5, 1e-1):
        link = Link(MB / 3 / slower, MB / 3 / slower)
        scaled = replace(costs, forward=slower, backward=slower, copy=1e9 / slower, host=link)
        found.append(fb.plan(**about, costs=scaled).seconds / slower)
    assert found[1] < found[0]
