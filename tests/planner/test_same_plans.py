"""The same inputs give the same plan, always: movements, predictions, bounds, plans and what is said of them.

`same_plans.json` holds what came of a few problems. `python -m tests.planner.test_same_plans` writes it anew, where a
plan is meant to change: the difference shows what changed for whom.
"""

import json
import re
from dataclasses import asdict, replace
from pathlib import Path
from random import Random

import pytest
from tests.planner.test_blocks import chain_of
from tests.planner.test_effects import drawn
from xxhash import xxh3_64_hexdigest

import forebay as fb
from forebay.planner import blocks, blockwise
from forebay.planner.choose import Setting, candidates, extrapolate, operations_of, predict
from forebay.planner.costs import HostCost
from forebay.planner.residency import StreamedResidency, ways_back
from forebay.planner.search.bounds import least_misses, least_seconds
from forebay.planner.search.coarse import Coarse
from forebay.planner.search.hierarchies import prices, recipes
from forebay.planner.search.levels import bounds_of_levels
from forebay.planner.simulate import Work, simulate
from forebay.schedule import Online, named

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


def bounds(seed):
    schedule, slots, work, effects = drawn(seed)
    setting, coarse = Setting("states", None, 1, work, slots, 0.5, "min"), Coarse(work, slots[0])
    levels = named(f"hierarchical:{slots[0]},{min(9, schedule.steps)}@3.5", schedule.steps)
    told = [least_seconds(schedule, work, slots), least_seconds(schedule, work, slots, coarse)]
    told += [extrapolate(schedule, setting), extrapolate(levels, setting), least_misses(schedule.steps, 9, slots[0])]
    told += [[each.misses, each.moving, each.stalled] for each in bounds_of_levels(levels, work, slots)]
    hosted = replace(setting, work=replace(work, **effects))
    return [*told, *(asdict(predict(each, slots, hosted)) for each in (schedule, levels))]


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
        made = fb.plan(steps, GB, budget, **options)
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


def recipes_of(steps, links):
    """The schedules of levels that are looked at, what is guessed of them, and what they take at least."""
    work = Work(1.0, 1.5, 0.1, 0.2, 0.0, (3.0, 20.0)[:links], (4.0, 25.0)[:links])
    slots = (4, 30, 200)[: links + 1]
    found = recipes(steps, work, slots[0], sum(slots), float("inf"))
    some = found[:: max(1, len(found) // 8)]
    told = [[each.guess(steps, work), each.least(steps, work, slots, 0.01), *each[:4]] for each in some]
    made = [str(each.make(steps, work)) for each in some[:3]]
    return [len(found), checksum([str(each) for each in found]), told, made, prices(steps, work, 2)]


def treated(budget, link, seed):
    """What is done with the blocks of a training step."""
    chain = chain_of([Random(seed * number).randint(20, 200) for number in range(1, 9)], link=link)
    picks, forecast = blockwise.choose(chain, budget)
    moved = [blocks.simulate(chain, [block.choices[kind] for block in chain.blocks], budget) for kind in (2, 4)]
    return [[pick.name for pick in picks], *(json.loads(json.dumps(asdict(each))) for each in (forecast, *moved))]


def cases():
    """Yield the name of each case, and what makes it anew."""
    for name, steps in (("storeall", 40), ("zcut:20", 60), ("revolve:6", 90), ("twolevel:12,4", 70), ("uniform:9", 50)):
        for slots in ((1, 99), (3, 99), (2, 3, 99), (4, 1, 99)):
            for policy in ("min", "lru"):
                yield f"operations {name} {slots} {policy}", lambda a=(name, steps, slots, policy): operations(*a)
    for steps, slots in ((40, (3, 5)), (90, (2, 3, 4)), (25, (4,)), (60, (1, 9))):
        yield f"online {steps} {slots}", lambda a=(steps, slots): online(*a)
    for seed in range(14):
        yield f"prediction {seed}", lambda seed=seed: prediction(seed, bool(seed % 2))
    for steps in (3, 60, 500, 5000):
        yield f"candidates {steps}", lambda steps=steps: candidates_of(steps)
    for steps, links in ((50, 1), (40, 2), (700, 1), (700, 2)):
        yield f"recipes {steps} {links}", lambda a=(steps, links): recipes_of(*a)
    for seed in range(8):
        yield f"bounds {seed}", lambda seed=seed: bounds(seed)
    for budget, link, seed in ((450, 100.0, 1), (300, 200.0, 2), (260, 30.0, 3), (900, 1e9, 4)):
        yield f"treated {budget} {link}", lambda a=(budget, link, seed): treated(*a)
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
    )
    for number, (steps, budget, options) in enumerate(problems):
        yield f"plan {number} of {steps} steps", lambda a=(steps, budget), o=options: plan(*a, **o)


def same(told, known):
    """Compare what JSON holds, numbers but for their last digits."""
    if isinstance(told, dict) and isinstance(known, dict):
        return told.keys() == known.keys() and all(same(told[key], known[key]) for key in told)
    if isinstance(told, list) and isinstance(known, list):
        return len(told) == len(known) and all(map(same, told, known))
    if isinstance(told, float) and isinstance(known, int | float):
        return told == pytest.approx(known, rel=1e-9, abs=1e-9)
    return told == known


@pytest.mark.parametrize(("name", "make"), list(cases()), ids=lambda value: value if isinstance(value, str) else "")
def test_the_same_comes_of_the_same(name, make):
    known = json.loads(KNOWN.read_text())[name]
    told = json.loads(json.dumps(make()))
    assert same(told, known), (told, known)


if __name__ == "__main__":
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(make())}" for name, make in cases())
    KNOWN.write_text(f"{{\n{lines}\n}}\n")
