"""More budget never predicts more time: random pairs of budgets, and the bounds that a search goes by."""

from dataclasses import replace
from random import Random

import pytest

import forebay as fb
from forebay.errors import BudgetError
from forebay.planner import HostCost
from forebay.planner.choose import Setting, count_misses, evaluate, extrapolate
from forebay.planner.search.hierarchies import recipes
from forebay.planner.simulate import Work

STATE = 10**9
TIERS = ("device", "host", "disk")
LITTLE = 1e-9
"""Of rounding, by which more budget may be slower."""


def problem(random, most_steps):
    """Draw a loop, what everything costs, and what of it may be kept."""
    seconds = {"forward": 1.0, "backward": random.choice((1.0, 2.0)), "copy": STATE / random.choice((0.01, 0.3, 0.7))}
    links = [STATE / random.choice((0.1, 0.5, 1, 2, 3.7, 10, 25, 100)) for _ in range(4)]
    both, beside = random.choice(((1.0, 1.0), (0.8, 1.0), (0.8, 1.2))) if random.random() < 0.2 else (1.0, 1.0)
    host, disk = (fb.Link(*way, both=both, beside=beside) for way in (links[:2], links[2:]))
    if random.random() < 0.5:
        disk = host
    ratio, speed = random.choice((1.5, 4, 20)), STATE / random.choice((0.1, 1.0))
    pin = random.choice((0.0, 0.0, 1e-9))
    codecs = {"small": fb.CodecCost(ratio, speed, speed, spread=random.choice((1.0, 1.3)))}
    calls = HostCost(call=0.1, save=0.3, restore=0.2, move=0.2, ahead=random.random() < 0.5)
    operations = calls if random.random() < 0.2 else HostCost()
    costs = fb.Costs(**seconds, host=host, disk=disk, pin=pin, codecs=codecs, operations=operations)
    options = {"costs": costs}
    if random.random() < 0.4:
        options["record_bytes"] = STATE // random.choice((2, 5))
    if random.random() < 0.3:
        options["codec"] = "small"
    if random.random() < 0.2:
        options["every"] = random.choice((2, 3, 8))
    steps = round(10 ** random.uniform(0.5, most_steps))
    return steps, options


def budgets(random, steps):
    """Draw a budget of one to three tiers, and one that has more of some."""
    tiers = random.choice((TIERS, TIERS, TIERS[:2], TIERS[:2], TIERS[1:], TIERS[:1]))
    most = [random.choice((4, 25)), random.choice((10, 60)), random.choice((10, steps + 9))]
    smaller = {tier: random.randint(1, most[number]) * STATE for number, tier in enumerate(tiers)}
    larger = dict(smaller)
    for tier in random.sample(tiers, random.choice((1, 1, 1, len(tiers)))):
        larger[tier] += random.choice((1, 1, 2, random.randint(1, 20))) * STATE // random.choice((1, 1, 3))
    if tiers[-1] != "disk" and random.random() < 0.1:
        larger[TIERS[TIERS.index(tiers[-1]) + 1]] = random.randint(1, 40) * STATE
    return fb.Budget(**smaller), fb.Budget(**larger)


def predicted(steps, budget, options):
    """Return the seconds of the plan; without one, infinity."""
    try:
        return fb.plan(steps, STATE, budget, **options).seconds
    except BudgetError:
        return float("inf")


def check_pair(seed, most_steps):
    random = Random(seed)
    steps, options = problem(random, most_steps)
    smaller, larger = budgets(random, steps)
    fewer, more = (predicted(steps, budget, options) for budget in (smaller, larger))
    assert more <= fewer * (1 + LITTLE), (steps, smaller, larger, options)


SLOW = pytest.mark.slow


def test_a_larger_device_of_three_tiers_is_no_slower_where_much_goes_down_during_the_sweep():
    costs = fb.Costs(1.0, 1.0, 2e9, host=fb.Link(5e8, 5e8), disk=fb.Link(5e8, 5e8))
    seconds = [fb.plan(78, STATE, fb.Budget(f"{gb}GB", "35GB", "6GB"), costs=costs).seconds for gb in (19, 20)]
    assert seconds == [213.0, 212.0]


@pytest.mark.parametrize("steps", [43, 1000, 100_000])
@pytest.mark.parametrize("disk", [1, 3])
def test_a_disk_beside_device_and_host_is_no_slower(steps, disk):
    """On three tiers fewer schedules are tried than on two, and the best of two was not among them."""
    link = fb.Link(up=STATE / 25, down=STATE / 25)
    options = {"costs": fb.Costs(1.0, 1.0, STATE / 0.5, host=link, disk=link)}
    pair = fb.Budget(device=STATE, host=2 * STATE)
    without, beside = (predicted(steps, budget, options) for budget in (pair, pair.with_tier("disk", disk * STATE)))
    assert beside <= without


@pytest.mark.parametrize("seed", range(8))
def test_more_budget_never_predicts_more_time(seed):
    check_pair(seed, most_steps=1.9)


@SLOW
@pytest.mark.parametrize("first", range(0, 3000, 100))
def test_more_budget_never_predicts_more_time_in_short_loops(first):
    for seed in range(first, first + 100):
        check_pair(seed, most_steps=2.4)


@SLOW
@pytest.mark.parametrize("first", range(3000, 3200, 10))
def test_more_budget_never_predicts_more_time_in_loops_of_thousands_of_steps(first):
    for seed in range(first, first + 10):
        check_pair(seed, most_steps=3.7)


@pytest.mark.parametrize("seed", [*range(5), *(pytest.param(seed, marks=SLOW) for seed in range(5, 150))])
def test_no_bound_of_a_schedule_on_levels_is_above_what_it_takes(seed):
    """Otherwise it is passed over, in one budget and not in another."""
    random = Random(seed)
    steps, links = random.choice((random.randint(5, 90), random.randint(401, 700))), random.choice((1, 2))
    up, down = (tuple(10 ** random.uniform(-1, 1.5) for _ in range(links)) for _ in range(2))
    save, decode = random.choice((0.01, 0.3, 0.7, 2.0)), random.choice((0.0, 0.1))
    work = Work(1.0, random.choice((1.0, 2.0)), save, decode or save, decode, up, down)
    device, most = random.randint(1, 20), random.choice((20, steps))
    slots = (device, *(random.randint(1, max(1, most // links)) for _ in range(links)))
    if random.random() < 0.5:
        prices = {
            name: random.choice((0.0, 2 * random.random())) for name in ("call", "save", "restore", "drop", "move")
        }
        work = replace(work, host=HostCost(**prices, start=3.0, ahead=random.random() < 0.5))
    if random.random() < 0.5:
        work = replace(work, beside=tuple(random.choice((1.0, 1.1, 1.5)) for _ in range(links)))
        if random.random() < 0.5:
            work = replace(work, both=(0.25,) * links)
    setting = Setting("states", None, 1, work, slots, random.choice((0.0, 0.5)), "min")
    found = recipes(steps, work, device, sum(slots), float("inf"))
    for recipe in random.sample(found, min(len(found), 8)):
        schedule = recipe.make(steps, work)
        if schedule is not None and schedule.peak_snapshots > device:
            seconds = evaluate(schedule, slots, setting).seconds * (1 + LITTLE)
            assert recipe.least(steps, work, slots, setting.pin) <= seconds
            assert max(count_misses(schedule, setting), extrapolate(schedule, setting)) <= seconds
