"""The same inputs give the same plan, always: movements, predictions, bounds, plans and what is said of them.

`same_plans.json` holds what came of a few problems. `python -m tests.planner.test_same_plans` writes it anew, where a
plan is meant to change: the difference shows what changed for whom.
"""

import json
import re
from dataclasses import asdict, replace
from heapq import heapify
from math import inf, isfinite
from pathlib import Path
from random import Random

import numpy as np
import pytest
from tests.planner.test_blocks import chain_of
from tests.planner.test_effects import drawn
from tests.tables import differs, write
from xxhash import xxh3_64_hexdigest

import forebay as fb
from forebay.planner import blocks, blockwise, choose, make, settings, uneven
from forebay.planner.blocks import Block, BlockChoice, Chain
from forebay.planner.choose import (
    Leader,
    Setting,
    entered,
    extrapolate,
    look_at,
    operations_of,
    predict,
)
from forebay.planner.costs import MACHINES, HostCost
from forebay.planner.residency import StreamedResidency, ways_back
from forebay.planner.search import hierarchies
from forebay.planner.search.bounds import least_misses, least_seconds
from forebay.planner.search.candidates import candidates
from forebay.planner.search.coarse import Coarse, misses
from forebay.planner.search.levels import bounds_of_levels
from forebay.planner.search.stack import reside_stack
from forebay.planner.simulate import Work, simulate
from forebay.schedule import Level, Online, StoreAll, named

KNOWN = Path(__file__).with_name("same_plans.json")
GB = 10**9


def checksum(listed):
    return xxh3_64_hexdigest(repr(listed).encode())


def operations(name, steps, slots, policy):
    listed = list(operations_of(named(name, steps), slots, policy))
    return [len(listed), checksum(listed)]


def online(steps, slots):
    """What follows a sweep whose end was not known, in each way that its snapshots allow."""
    schedule, tiers = Online(steps, sum(slots)), StreamedResidency(slots)
    swept = [operation for action in schedule.sweep() for operation in tiers.follow(action)]
    held = [set(steps) for steps in tiers.held]
    kept = sorted(set().union(*held))
    ways = map(list, ways_back(held, steps, slots, [kept[:1], kept[:3], kept[::2]]))
    return [checksum(swept), sorted(map(sorted, held)), [[len(listed), checksum(listed)] for listed in ways]]


def prediction(seed, settles):
    """Everything that is predicted where all effects are there at once."""
    schedule, slots, work, effects = drawn(seed)
    work, spans = replace(work, **effects, settles=settles), []
    told = asdict(simulate(operations_of(schedule, slots, "min" if seed % 3 else "lru"), slots, work, spans))
    lanes = {lane: [span for span in spans if span.lane == lane] for lane in sorted({span.lane for span in spans})}
    told |= {lane: [len(each), sum(span.start + 2 * span.stop for span in each)] for lane, each in lanes.items()}
    return told


def bounds(seed, slower=1.0):
    schedule, slots, work, effects = drawn(seed)
    up, down = ([slower * seconds for seconds in way] for way in (work.up, work.down))
    work = replace(work, up=tuple(up), down=tuple(down))
    setting, coarse = Setting("states", None, 1, work, slots, 0.5, "min"), Coarse(work, slots[0])
    levels = named(f"hierarchical:{slots[0]},{min(9, schedule.steps)}@3.5", schedule.steps)
    told = [least_seconds(schedule, work, slots), least_seconds(schedule, work, slots, coarse)]
    told += [extrapolate(schedule, setting), extrapolate(levels, setting), least_misses(schedule.steps, 9, slots[0])]
    told += [[*each.moves, each.moving, each.stalled] for each in bounds_of_levels(levels, work, slots)]
    hosted = replace(setting, work=replace(work, **effects))
    return [*told, *(asdict(predict(each, slots, hosted)) for each in (schedule, levels))]


def bounds_of_one(up, down):
    """Bounds on levels where a split leaves a single state behind it, which uses no slot."""
    levels, work = named("hierarchical:1,5@4,2@0.3,5@60", 267), Work(1.0, 1.0, 0.1, 0.1, 0.0, (up,), (down,))
    return [[*each.moves, each.moving, each.stalled] for each in bounds_of_levels(levels, work, (3, 99))]


def envelopes(seed):
    """When stretches use each slot, those that fit and those that stall, and how much they miss and stall."""
    random = Random(seed)
    work, slots = drawn(seed)[2], random.randint(1, 5)
    told = []
    for _ in range(6):
        visits, snapshots = random.randint(2, 90), random.randint(1, 12)
        quick = Coarse(replace(work, up=(random.choice((0.5, 9.0)) * work.forward,)), slots)
        told += [[quick.envelope(visits, snapshots, stored) for stored in (False, True)]]
        told += [quick.least_stall(visits, snapshots), misses(visits, snapshots, slots)]
    return told


LINKS = {"host": fb.Link(4 * GB, 3 * GB, both=0.8, beside=1.2), "disk": fb.Link(GB, GB / 2)}
CODECS = {"bounded:1e-4": fb.CodecCost(8, 5e10, 9e10, scratch=0.1), "zfp:8": fb.CodecCost(4, 2e11, 2e11)}
COSTS = fb.Costs(1.0, 1.5, 20 * GB, **LINKS, pin=1e-10, codecs=CODECS)
AHEAD = replace(COSTS, operations=HostCost(call=0.2, forward=0.1, save=0.3, move=0.1, drop=0.05, take=0.2, ahead=True))


def plan(steps, budget, **options):
    """What is decided and said of a loop, or why nothing can be."""
    budget = fb.Budget(**{tier: int(amount * GB) for tier, amount in budget.items()})
    if isinstance(options.get("step_costs"), int):
        random = Random(options["step_costs"])
        options["step_costs"] = [random.lognormvariate(0, 1) for _ in range(steps)]
    try:
        made = fb.plan(**{"steps": steps, "state_bytes": GB, "budget": budget, **options})
    except fb.ForebayError as error:
        return [type(error).__name__, *numbers_in(str(error))]
    data = json.loads(made.to_json())
    told = {"explained": numbers_in(made.explain()), "repr": numbers_in(repr(made)), "bytes": made.peak_bytes}
    return {**data, **told, "costs": None}


def numbers_in(text):
    """List the numbers that something says, in whatever words."""
    return re.findall(r"\d+\.?\d*", text)


def candidates_of(steps):
    """All schedules that are tried of each family, and of one whose first number is given."""
    families = ("auto", "uniform", "zcut", "revolve", "twolevel", "storeall")
    told = {family: checksum([str(each) for each in candidates(steps, family)]) for family in families}
    return {**told, "twolevel:3": checksum([str(each) for each in candidates(steps, "twolevel", 3)])}


def recipes_of(steps, links, slower=1.0, below=inf, slots=(4, 30, 200)):
    """The schedules of levels that are looked at, what is guessed of them, and what they take at least."""
    up, down = ([slower * seconds for seconds in way[:links]] for way in ((3.0, 20.0), (4.0, 25.0)))
    work = Work(1.0, 1.5, 0.1, 0.2, 0.0, tuple(up), tuple(down))
    slots = slots[: links + 1]
    found = hierarchies.recipes(steps, work, slots[0], sum(slots), below)
    some = found[:: max(1, len(found) // 8)]
    told = [[each.guess(steps, work), each.least(steps, work, slots, 0.01), *each[:4]] for each in some]
    told += [each.least(steps, work, (1, *slots[1:]), 0.01) for each in some]
    made = [str(each.make(steps, work)) for each in some[:3]]
    return [len(found), checksum([str(each) for each in found]), told, made, hierarchies.prices(steps, work, 2)]


def searched(steps, slots, pin=0.0, levels=True, below=inf, effort=inf):
    """What a search looks at before it ends: how much it simulates, and what it leaves, with which bounds."""
    work = Work(1.0, 1.5, 0.1, 0.2, 0.0, (3.0, 20.0)[: len(slots) - 1], (4.0, 25.0)[: len(slots) - 1])
    ways = [Setting("states", None, 1, work, slots, pin, "min")]
    ways += [Setting("records", "zfp:8", 1, replace(work, forward=1.25), slots, pin, "min")]
    schedules, leader = {"states": list(candidates(steps)), "records": [StoreAll(steps)]}, Leader(below, effort)
    entries = list(entered(ways, schedules, leader, levels=levels))
    first = [len(entries), leader.spent, sum(entry.bound for entry in entries)]
    heapify(entries)
    look_at(entries, leader, schedules)
    left = [len(entries), leader.spent, sum(entry.bound for entry in entries), sum(entry.stage for entry in entries)]
    best = [leader.best.seconds, str(leader.best.schedule)] if leader.best else None
    return [first, left, best, leader.limit, sorted(map(list, leader.alternatives.values()))]


def leasts():
    """What schedules on levels take at least, and may take, whether they are known or estimated."""
    told, levels = [], (Level(2), Level(6, 3.0))
    for up, down, save in ((50.0, 1.0, 2.0), (1.0, 50.0, 2.0), (3.0, 3.0, 0.1), (0.1, 0.1, 5.0)):
        work = Work(0.7, 0.1, save, 0.1, 0.2, (up,), (down,))
        for exact in (True, False):
            recipe = hierarchies.Recipe(170.0, 20.0, 4.0, 8.0, levels, exact)
            told += [recipe.least(61, work, slots, 0.3) for slots in ((2, 30), (7, 1))] + [recipe.guess(61, work)]
    return told


def estimates(visits, fractions, most_worth):
    """What schedules of two levels are estimated to do, where that is asked for and within reach."""
    variants = [(first, price) for first in (1, 2, 6) for price in (0.5, 13.0)]
    wanted = np.arange(15 * len(variants)).reshape(15, -1) % 3 > 0
    figures = hierarchies.estimate(visits, variants, wanted, fractions, most_worth)
    known = [[value for value in figure.ravel().tolist() if isfinite(value)] for figure in figures]
    return [[len(each), sum(each), max(each)] for each in known]


def treated(budget, link, seed):
    """What is done with the blocks of a training step."""
    chain = chain_of([Random(seed * number).randint(20, 200) for number in range(1, 9)], link=link)
    picks, forecast = blockwise.choose(chain, budget)
    moved = [blocks.simulate(chain, [block.choices[kind] for block in chain.blocks], budget) for kind in (2, 4)]
    return [[pick.name for pick in picks], *(json.loads(json.dumps(asdict(each))) for each in (forecast, *moved))]


def tried(count, budget, link, host=inf, size=1):
    """How much a search for what is done with blocks tries, and what it finds."""
    saved = [size * Random(number).randint(20, 200) for number in range(count)]
    chain = chain_of(saved, link=size * link, work=10 * size, boundary=20 * size)
    budget *= size
    search = blockwise._Search(replace(chain, host=host), budget)
    begun = sorted({*blockwise._divided(chain), *blockwise._priced(chain)})
    seeds = search.best(((search.sums(picks), picks) for picks in begun), blockwise.STARTS)
    bounds = [search.least(search.sums(picks)) for picks in begun]
    ways = [*map(list, zip(*bounds, strict=True)), sum(map(search.fits, begun))]
    found = sorted(search.improved(rank, picks) for rank, picks in seeds)
    return json.loads(json.dumps([len(begun), checksum(ways), seeds, found, search._left, len(search._ranks)]))


def priced(seed):
    """The best choice of each block at each price of a byte and of the link, and each pair of choices divided."""
    random = Random(seed)
    sizes = [10 ** random.randint(6, 9) for _ in range(9)]
    chain = chain_of([random.randint(1, 9) * size for size in sizes], link=10.0 ** random.randint(7, 10))
    return ["".join(map(str, picks)) for picks in blockwise._priced(chain)], checksum(list(blockwise._divided(chain)))


def forecasts(seed):
    """What is predicted of steps whose blocks are treated in any way."""
    random = Random(seed)
    some = [
        BlockChoice(
            str(number),
            kept=random.choice((0, random.randint(1, 90))),
            moved=random.choice((0, random.randint(20, 200))),
            freed=random.choice((0, 15)),
            forward=random.random(),
            backward=random.random(),
            gradual=random.random() < 0.5,
            room=random.choice((0, 50)),
            keeps_output=random.random() < 0.3,
        )
        for number in range(6)
    ]
    peaks = [[random.randint(20, 150) for _ in range(3)] for _ in range(9)]
    chain = Chain(
        tuple(Block(str(n), random.random(), 2 * random.random(), *peak, tuple(some)) for n, peak in enumerate(peaks)),
        *(random.random(), random.randint(30, 300), random.randint(30, 300), random.choice((inf, 200))),
    )
    picks = [random.choice(some) for _ in peaks]
    return [[asdict(told), told.rank] for told in (blocks.simulate(chain, picks, most) for most in range(100, 900, 80))]


def stacked(seed):
    """Which operations are left of a schedule where those that move nothing are put together, and what moves."""
    schedule, slots, work, _ = drawn(seed)
    levels = named(f"hierarchical:{slots[0]},{min(9, schedule.steps)}@{0.5 + seed}", schedule.steps)
    listed = [list(Coarse(work, slots[0] + more).operations(each)) for each in (schedule, levels) for more in (0, 2)]
    moved = [list(reside_stack(operations, slots[0])) for operations in listed[::2]]
    return [[len(each), checksum([str(type(operation)) for operation in each])] for each in (*listed, *moved)]


def works():
    """What bytes and bytes a second become: seconds of everything, and slots."""
    told = []
    tiers = {"device": 5 * GB, "host": 30 * GB, "disk": 90 * GB}
    for costs in (COSTS, AHEAD, replace(AHEAD, steps=tuple(range(1, 62)))):
        for every in (1, 4):
            problem = settings.Problem(61, every, GB, GB // 3, fb.Budget(**tiers), costs, "min", None, 2, 9)
            told += [repr(setting) for setting in problem.settings(list(CODECS))]
            told += [repr(problem.reach())]
    return checksum(told), len(told), told[0], told[-2]


def numbers_of_uneven():
    """How many snapshots are tried where steps differ, and what they take at least."""
    told, costs = [], [1.0 + step % 7 for step in range(90)]
    reach = tuple(np.cumsum([0.0, *costs]).tolist())
    work = Work(1.0, 1.5, 0.1, 0.2, 0.0, (3.0,), (4.0,), reach=reach)
    for slots in ((4,), (40,), (3, 20), (30, 100), (99, 5)):
        setting = Setting("states", None, 1, work, slots, 0.5, "min")
        told += [uneven._numbers(90, setting)]
        schedules = [named(f"weighted:{number}", 90, costs) for number in (2, 9, 33)]
        told += [[uneven._least_seconds(each, setting, costs) for each in (*schedules, StoreAll(90))]]
    return told


def presets():
    """What is taken for granted of machines, links, hosts and codecs of which nothing else is said, to the digit."""
    told = {name: [repr(machine), repr(machine.costs(10**9))] for name, machine in MACHINES.items()}
    return told | {
        "block": repr(BlockChoice("x")),
        "codec": repr(fb.CodecCost(2, 3, 4)),
        "link": repr(fb.Link(1, 2)),
        "host": repr(HostCost()),
    }


NUMBERS = {
    choose: ("EFFORT", "LISTED", "LISTING", "LONG_LISTING", "MAKING", "TIGHTENING", "FIRST_LOOKS"),
    hierarchies: (
        *(
            "SHORT_LOOP",
            "SHARES",
            "MORE_SHARES",
            "FEW_FIRST",
            "MORE_TIMES",
            "LARGEST_FIRST",
            "MOST_SAVES",
            "CHEAP_TRIP",
        ),
        *("MOST_SPLITS", "ALL", "SOME", "FEW", "ALIVE", "MOST_WORTH"),
    ),
    settings: ("HOST_SLOTS", "SMALL_BUDGET"),
    uneven: ("GROWTH",),
    blockwise: ("STARTS", "DIVISIONS", "PAIRS", "MOST"),
    make: ("MOST_LRU_STEPS", "MOST_STEPS", "WAITING", "LOOKING", "LEAST_EFFORT"),
}
"""How thoroughly plans are looked for: each of these decides which plan is found for some loop."""


def thoroughness():
    """Tell these numbers, and what a little of each module makes."""
    told = {f"{module.__name__} {name}": repr(getattr(module, name)) for module in NUMBERS for name in NUMBERS[module]}
    setting = Setting("states", None, 1, Work(1, 1, 0, 0, 0, (), ()), (3,), 0.0, "min")
    made = [choose.family(StoreAll(3)), hierarchies.spread(9, 2.0, 3), settings.fillable(9, 1)]
    made += [uneven._numbers(9, setting), blockwise._cheapest([2.0, 1.0]), make.check_step_costs([1.0], 1)]
    return told | {"made": made}


def cases():
    """Yield the name of each case, and what makes it anew."""
    for name, steps in (("storeall", 40), ("zcut:20", 60), ("revolve:6", 90), ("twolevel:12,4", 70), ("uniform:9", 50)):
        for slots in ((1, 99), (3, 99), (2, 3, 99), (4, 1, 99)):
            for policy in ("min", "lru"):
                yield f"operations {name} {slots} {policy}", lambda a=(name, steps, slots, policy): operations(*a)
    for steps, slots in ((40, (3, 5)), (90, (2, 3, 4)), (25, (4,)), (60, (1, 9)), (70, (1, 1, 1)), (99, (3, 2, 2))):
        yield f"online {steps} {slots}", lambda a=(steps, slots): online(*a)
    for seed in range(14):
        yield f"prediction {seed}", lambda seed=seed: prediction(seed, bool(seed % 2))
    for steps in (3, 60, 500, 5000):
        yield f"candidates {steps}", lambda steps=steps: candidates_of(steps)
    for steps, links in ((50, 1), (40, 2), (700, 1), (700, 2)):
        yield f"recipes {steps} {links}", lambda a=(steps, links): recipes_of(*a)
    limits = ((400, 1, 0.4, 1500.0), (401, 1, 0.4, 1500.0), (400, 2, 1.0, 2000.0), (401, 2, 1.0, 2000.0))
    for steps, links, slower, below in (*limits, (60, 1, 30.0, 260.0), (60, 2, 30.0, 400.0), (900, 1, 9.0, 5000.0)):
        yield f"recipes {steps} {links} {below}", lambda a=(steps, links, slower, below): recipes_of(*a)
    for steps in (70, 399, 400):
        yield f"recipes {steps} on many slots", lambda steps=steps: recipes_of(steps, 1, 1.0, inf, (2, 90))
    for links in (1, 2):
        yield f"recipes on many fast slots {links}", lambda links=links: recipes_of(90, links, 1.0, inf, (60, 20, 9))
    for up, down in ((2.0, 25.0), (25.0, 25.0), (25.0, 2.0)):
        yield f"bounds of one {up} {down}", lambda a=(up, down): bounds_of_one(*a)
    for seed in range(6):
        yield f"envelopes {seed}", lambda seed=seed: envelopes(seed)
    searches = (
        (40, (3, 12), {}),
        (60, (2, 9), {"pin": 0.3}),
        (50, (4, 20), {"levels": False}),
        (30, (2, 3, 20), {"pin": 0.1}),
        (60, (2, 9), {"below": 100.0}),
        (700, (9, 40), {"levels": False, "pin": 0.01, "effort": 400_000}),
        (25, (99,), {}),
    )
    for number, (steps, slots, options) in enumerate(searches):
        yield f"searched {number}", lambda a=(steps, slots), o=options: searched(*a, **o)
    for visits, fractions, most_worth in ((100, 8, 400), (2000, 3, 30), (31, 1, 6)):
        yield f"estimates {visits}", lambda a=(visits, fractions, most_worth): estimates(*a)
    for seed in range(8):
        yield f"bounds {seed}", lambda seed=seed: bounds(seed)
        yield f"bounds {seed} slower", lambda seed=seed: bounds(seed, 30.0)
    for seed in range(10):
        yield f"stacked {seed}", lambda seed=seed: stacked(seed)
        yield f"forecasts {seed}", lambda seed=seed: forecasts(seed)
    for seed in range(3):
        yield f"priced {seed}", lambda seed=seed: priced(seed)
    yield "leasts", leasts
    yield "works", works
    yield "uneven numbers", numbers_of_uneven
    for budget, link, seed in ((450, 100.0, 1), (300, 200.0, 2), (260, 30.0, 3), (900, 1e9, 4)):
        yield f"treated {budget} {link}", lambda a=(budget, link, seed): treated(*a)
    chains = ((5, 260, 60.0, inf), (9, 400, 150.0, 300), (20, 800, 90.0, inf), (3, 60, 9.0, 40))
    for chain in (*chains, (7, 330, 80.0, inf, 10**6), (16, 600, 50.0, inf, 10**5), (17, 600, 50.0, inf, 10**7)):
        yield f"tried {chain}", lambda a=chain: tried(*a)
    yield "presets", presets
    yield "thoroughness", thoroughness
    two, three = {"device": 4, "host": 12}, {"device": 3, "host": 8, "disk": 40}
    problems = (
        (60, two, {"costs": COSTS}),
        (60, two, {"costs": AHEAD}),
        (61, two, {"costs": COSTS, "every": 4, "record_bytes": GB // 3}),
        (40, two, {"costs": COSTS, "codec": ["bounded:1e-4", "zfp:8"], "reversals": 5, "schedule": "revolve"}),
        (50, two, {"costs": COSTS, "schedule": "revolve", "slots": 2}),
        (50, two, {"costs": COSTS, "schedule": "twolevel:9", "policy": "lru"}),
        (36, three, {"costs": COSTS, "schedule": "zcut"}),
        (30, three, {"costs": COSTS}),
        (80, {"host": 6}, {"step_costs": 1}),
        (40, {"host": 3, "disk": 20}, {"step_costs": 2}),
        (600, {"device": 9, "host": 20}, {"machine": "v100", "schedule": "hierarchical"}),
        (500, {"device": 9}, {"schedule": "uniform"}),
        (100, {"device": 0.5}, {}),
        (100, {"device": 1}, {"schedule": "twolevel:9,7"}),
        (100, {"device": 1, "host": 3}, {"schedule": "storeall", "costs": COSTS}),
        (100, {"device": 3}, {"schedule": "zcut", "codec": "zfp:8", "costs": COSTS}),
        (100, {"device": 3}, {"slots": 4}),
        (100, {"host": 5}, {"below": 1e-9, "schedule": "revolve"}),
        (40, {"device": 2}, {"costs": COSTS, "codec": ["zfp:8"], "schedule": "revolve:7", "slots": 6}),
        (40, {"device": 2}, {"costs": COSTS, "codec": ["zfp:8"], "slots": 9, "overhead": 40 * 2**20}),
        (40, {"device": 0.9}, {"costs": COSTS, "record_bytes": GB // 2, "schedule": "storeall", "overhead": 7}),
        (40, {"device": 4, "host": 0.9, "disk": 0.9}, {"costs": COSTS, "schedule": "storeall"}),
        (40, {"device": 4, "host": 9, "disk": 9}, {"costs": COSTS, "schedule": "storeall", "policy": "lru"}),
        (40, {"host": 2}, {"codec": ["zfp:8"], "costs": COSTS, "record_bytes": GB, "schedule": "storeall"}),
        (40, {"device": 0.01}, {"state_bytes": 3 * 2**20, "schedule": "revolve:30", "overhead": 2**20}),
        (40, {"device": 5, "host": 30}, {"costs": COSTS, "schedule": "online:9", "reversals": 3}),
        (20, {"device": 2, "host": 5}, {"costs": AHEAD, "codec": "bounded:1e-4", "schedule": "uniform"}),
        (20, {"device": 2, "host": 2, "disk": 9}, {"costs": COSTS, "schedule": "twolevel", "every": 3}),
    )
    for number, (steps, budget, options) in enumerate(problems):
        yield f"plan {number} of {steps} steps", lambda a=(steps, budget), o=options: plan(*a, **o)


@pytest.mark.parametrize(("name", "make"), list(cases()), ids=lambda value: value if isinstance(value, str) else "")
def test_the_same_comes_of_the_same(name, make):
    assert not differs(KNOWN, name, make)


if __name__ == "__main__":
    write(KNOWN, cases())
