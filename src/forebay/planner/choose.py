"""The search for the plan with the smallest predicted time, over schedules, snapshots kept, and codecs.

Most of our schedules are an interval and a number of inner snapshots; the others are levels with prices. The search is
over all of a fixed set of those, which is sparser for a longer loop. It goes by lower bounds, smallest first: one is
simulated only while its bound is below the best time so far, so the result is the best of the set. The set does
not depend on the budget, which only says which of it fit: more budget never makes the result worse.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from typing import NamedTuple

from forebay.planner.operations import Operation
from forebay.planner.residency import reside_lru, reside_min, reside_online
from forebay.planner.search.bounds import least_of_all, least_seconds, unmoved
from forebay.planner.search.candidates import Alternative, family
from forebay.planner.search.coarse import DEEPEST, Coarse
from forebay.planner.search.hierarchies import SHORT_LOOP, Recipe, known, recipe_of, recipes
from forebay.planner.search.levels import bounds_of_levels
from forebay.planner.search.stack import reside_stack
from forebay.planner.simulate import BOUNDLESS, Prediction, Work, host_pace, simulate
from forebay.schedule import Hierarchical, Online, Schedule, TwoLevel
from forebay.schedule.hierarchical import Counts
from forebay.schedule.segmented import Segmented

EFFORT = 3_000_000
"""Actions simulated at most where a run waits for its plan, or where a family is named and the loop is long."""
LISTING, LONG_LISTING, MAKING, TIGHTENING = 20_000, 60_000, 3_000, 0.25
"""Simulated actions that take as long as to list schedules on levels, in the shortest loop and in long ones, and to
make one of them; and the share of a schedule's actions that a tighter bound takes as long as."""
LISTED = 3
"""How many times the effort to list schedules on levels must be left, to look at some of them and at others too."""
ROUNDING = 1e-11
"""The share of the best seconds by which another schedule is to be better, which takes a simulation to tell."""
FIRST_LOOKS = 3
"""Schedules on levels that are looked at first, by a guess of what they take."""

POLICIES = {"min": reside_min, "lru": reside_lru}


@dataclass(frozen=True)
class Setting:
    """One way to keep snapshots: what of, how small, what it costs and how many fit."""

    keep: str
    """states or records"""
    codec: str | None
    snapshot_bytes: int
    work: Work
    slots: tuple[int, ...]
    """how many snapshots fit each tier"""
    pin: float
    """seconds of pinning that a slot of the host costs one reversal"""
    policy: str


class Choice(NamedTuple):
    """A schedule in a setting, and what the simulation says of it."""

    seconds: float
    """predicted, pinning counted in"""
    setting: Setting
    schedule: Schedule
    slots: tuple[int, ...]
    prediction: Prediction

    @property
    def fits(self) -> bool:
        """Whether the last tier, which the simulation takes as boundless, holds what came down to it."""
        return self.prediction.peak[-1] <= self.setting.slots[-1]


def operations_of(schedule: Iterable[Operation], slots: Sequence[int], policy: str) -> Iterable[Operation]:
    """Merge a schedule's actions with every movement between tiers of so many slots, the last one boundless.

    They are not listed: whoever iterates over them has the schedule make its actions once more.
    """
    if isinstance(schedule, Online) and policy == "min":
        return reside_online(schedule, slots)
    operations = schedule
    for tier in range(len(slots) - 1):
        reside = POLICIES[policy if tier == 0 else "min"]
        operations = reside(operations, tier, slots[tier])
    return operations


def predict(schedule: Schedule, slots: tuple[int, ...], setting: Setting) -> Prediction:
    """Simulate a schedule on tiers of so many slots, the last one boundless."""
    if not isinstance(schedule, Segmented | Hierarchical) or setting.policy != "min" or setting.work.reach:
        return simulate(operations_of(schedule, slots, setting.policy), (*slots[:-1], BOUNDLESS), setting.work)
    still = unmoved(schedule, setting.work, len(slots))
    if len(slots) == 1 or schedule.peak_snapshots <= slots[0]:
        return still
    inner = schedule.inner if isinstance(schedule, Segmented) else schedule.levels[0].snapshots
    shallow = min(inner, slots[0]) < DEEPEST
    pace = 0.0
    if not shallow:
        operations = operations_of(schedule, slots, "min")
    else:
        actions = Coarse(setting.work, slots[0]).operations(schedule)
        operations = reside_stack(actions, slots[0])
        for tier in range(1, len(slots) - 1):
            operations = reside_min(operations, tier, slots[tier])
        asked = setting.work.host.seconds(schedule.steps, schedule.forward_steps, schedule.saves)
        pace = host_pace(actions, setting.work, asked)
    moving = simulate(operations, (*slots[:-1], BOUNDLESS), setting.work, pace=pace)
    return replace(moving, forward=still.forward, backward=still.backward, save=still.save, restore=still.restore)


def evaluate(schedule: Schedule, slots: tuple[int, ...], setting: Setting) -> Choice:
    """Predict what a schedule takes in a setting, with the pinning of the host slots that it uses."""
    return priced(predict(schedule, slots, setting), schedule, slots, setting)


def priced(prediction: Prediction, schedule: Schedule, slots: tuple[int, ...], setting: Setting) -> Choice:
    """Add the pinning of the host slots that a prediction uses."""
    pinning = setting.pin * prediction.peak[1] if len(slots) > 1 else 0.0
    return Choice(prediction.seconds + pinning, setting, schedule, slots, prediction)


def count_misses(schedule: Segmented | Hierarchical, setting: Setting) -> float:
    """Bound the seconds of a schedule by counting the fetches inside its segments, without a simulation."""
    if isinstance(schedule, Hierarchical):
        return max(bounds.moving for bounds in bounds_of_levels(schedule, setting.work, setting.slots))
    return least_seconds(schedule, setting.work, setting.slots, Coarse(setting.work, setting.slots[0]))


def extrapolate(schedule: Segmented | Hierarchical, setting: Setting) -> float:
    """Bound the seconds of a schedule of many segments from those of two and of three, or of levels by their stalls.

    Each further segment takes at least as long as the first ones: the tiers are emptier and the links freer at first.
    """
    if isinstance(schedule, Hierarchical):
        return max(bounds.stalled for bounds in bounds_of_levels(schedule, setting.work, setting.slots))
    few, more = 2, 3  # one more
    if schedule.majors <= 2 * more or schedule.interval == 1 or setting.policy != "min":
        return 0.0
    without = [(schedule.majors - majors) * schedule.interval for majors in (few, more)]
    short, long = (
        predict(TwoLevel(schedule.steps - less, schedule.interval, schedule.inner), setting.slots, setting).seconds
        for less in without
    )
    return long + (schedule.majors - more) * (long - short)


def least_pinning(schedule: Segmented | Hierarchical, setting: Setting) -> float:
    """Bound the seconds of pinning: what is alive at the turn and not in the first tier is in the second, or below."""
    if not setting.pin:
        return 0.0
    return setting.pin * min(max(0, schedule.alive_at_turn - setting.slots[0]), setting.slots[1])


TIGHTER = (count_misses, extrapolate)
"""Bounds that cost more than the first one and tell more, in this order."""


class Leader:
    """The best choice so far, and the best of each kind; found with an effort that is counted in simulated actions."""

    def __init__(self, below: float, effort: float = inf) -> None:
        self.below, self.effort = below, effort
        self.best: Choice | None = None
        self.alternatives: dict[str, Alternative] = {}
        self.made: dict[tuple[Recipe, Work], Hierarchical | None] = {}  # settings share them
        self.new = dict[tuple[Setting, Counts], list[Hierarchical]]()  # of each setting, those that differ
        self.looked_at = set[tuple[str, str | None, str, tuple[int, ...]]]()
        """what was kept how in how many slots, in all settings that were looked at"""
        self.spent = 0.0

    @property
    def exhausted(self) -> bool:
        """Whether the effort is spent, and something found."""
        return self.best is not None and self.spent >= self.effort

    @property
    def limit(self) -> float:
        """Seconds that a choice must be below to be of interest."""
        return self.below if self.best is None else min(self.below, self.best.seconds * (1 - ROUNDING))

    def take(self, choice: Choice) -> None:
        """Compare a choice with the best so far."""
        if choice.schedule.peak_snapshots > choice.slots[0]:
            self.spent += len(choice.schedule)
        if choice.fits:
            kind = kind_of(choice.schedule, choice.setting)
            if kind not in self.alternatives or choice.seconds < self.alternatives[kind].seconds:
                name = describe(choice.schedule, choice.setting)
                self.alternatives[kind] = Alternative(name, choice.seconds, exact=True)
            if self.best is None or choice.seconds < self.best.seconds:
                self.best = choice

    def make(self, recipe: Recipe, steps: int, work: Work) -> Hierarchical | None:
        """Make a schedule, once; None where it is not as estimated."""
        if (recipe, work) not in self.made:
            self.made[recipe, work] = recipe.make(steps, work)
            self.spent += MAKING
        return self.made[recipe, work]

    def is_new(self, schedule: Hierarchical, setting: Setting) -> bool:
        """Tell whether no schedule that does the same was looked at in a setting."""
        alike = self.new.setdefault((setting, schedule.counts), [])
        alike.append(schedule)
        return not any(other.same(schedule) for other in alike[:-1])


class Entry(NamedTuple):
    """A schedule, made or not, that may be the best."""

    bound: float
    order: int
    stage: int
    setting: Setting
    schedule: Segmented | Hierarchical | Recipe


def choose(
    settings: Sequence[Setting],
    schedules: dict[str, list[Segmented]],
    below: float = inf,
    *,
    levels: bool = False,
    effort: float = inf,
) -> tuple[Choice | None, list[Alternative]]:
    """Find the choice of smallest predicted time, and what the best of each other kind takes, or takes at least.

    Where nothing takes less than `below` seconds there may be no choice at all, which is found much sooner. With
    `levels`, schedules on levels with prices belong to the set beside the `schedules` for states and for records. After
    an `effort` the best found so far is taken; where there are none, that of long loops is limited.
    """
    if not levels and any(schedule.steps > SHORT_LOOP for listed in schedules.values() for schedule in listed):
        effort = min(effort, EFFORT)
    search = Leader(below, effort)
    look_through(settings, schedules, search, levels=levels)
    best, alternatives = search.best, search.alternatives
    if best is not None:
        del alternatives[kind_of(best.schedule, best.setting)]
    return best, sorted(alternatives.values(), key=lambda alternative: alternative.seconds)


def look_through(
    settings: Sequence[Setting], schedules: dict[str, list[Segmented]], search: Leader, *, levels: bool
) -> None:
    """Look for the best in all settings, those of fewer tiers first."""
    still = [
        (setting, schedule)
        for setting in sorted(settings, key=lambda setting: len(setting.slots))
        for schedule in schedules[setting.keep]
        if levels and schedule.peak_snapshots <= setting.slots[0]
    ]
    for setting, schedule in still:  # it takes no simulation, and the others then need to be better
        search.take(evaluate(schedule, setting.slots, setting))
    for tiers in sorted({len(setting.slots) for setting in settings}):
        alike = [setting for setting in settings if len(setting.slots) == tiers]
        entries = list(entered(alike, schedules, search, levels=levels))
        heapify(entries)
        look_at(entries, search, schedules)
        for entry in sorted(entries, key=lambda entry: entry[:2]):
            bounded = Alternative(describe(entry.schedule, entry.setting), entry.bound, exact=False)
            search.alternatives.setdefault(kind_of(entry.schedule, entry.setting), bounded)
        search.looked_at |= {(setting.keep, setting.codec, setting.policy, setting.slots) for setting in alike}


def entered(
    settings: Sequence[Setting], schedules: dict[str, list[Segmented]], search: Leader, *, levels: bool
) -> Iterator[Entry]:
    """Yield what may be the best in some of the settings, each with its first bound."""
    order, least = count(), dict[Setting, float]()
    for setting in settings:
        slots = setting.slots
        upper = (setting.keep, setting.codec, setting.policy, slots[:-1]) in search.looked_at
        least_room = sum(slots[:-1]) if upper else slots[0] if levels else 0  # where less is needed, it was looked at
        for schedule in schedules[setting.keep]:
            fitting = least_room < schedule.peak_snapshots <= sum(slots)
            # In a longer loop only those are looked at whose segments hardly leave the first tier: others move much.
            if fitting and not (levels and schedule.steps > SHORT_LOOP and schedule.inner > slots[0]):
                bound = least_seconds(schedule, setting.work, slots) + least_pinning(schedule, setting)
                least[setting] = min(bound, least.get(setting, inf))
                yield Entry(bound, next(order), 0, setting, schedule)
    listed: dict[tuple[Work, int], list[Recipe]] = {}
    for setting in sorted(settings, key=lambda setting: least.get(setting, inf)):  # the others then need to be better
        work, slots = setting.work, setting.slots
        if levels and setting.keep == "states" and setting.policy == "min" and len(slots) > 1:
            steps = schedules["states"][0].steps
            if (work, slots[0]) not in listed:
                listing = LISTING + steps**2 if steps <= SHORT_LOOP else LONG_LISTING
                if search.spent + LISTED * listing > search.effort or least_of_all(work, steps) >= search.limit:
                    continue
                search.spent += listing
                room = max(sum(other.slots) for other in settings if (other.work, other.slots[0]) == (work, slots[0]))
                listed[work, slots[0]] = recipes(steps, work, slots[0], room, search.limit, search.effort < inf)
            fitted = [recipe for recipe in listed[work, slots[0]] if recipe.snapshots <= sum(slots)]
            look_first(steps, fitted, setting, search)
            better = [recipe for recipe in fitted if recipe.least(steps, work, slots, setting.pin) < search.limit]
            for recipe in known(steps, work, better):
                yield Entry(recipe.least(steps, work, slots, setting.pin), next(order), 0, setting, recipe)


def look_at(entries: list[Entry], search: Leader, schedules: dict[str, list[Segmented]]) -> None:
    """Simulate what may be better than the best so far, smallest bound first; leave the others in the heap."""
    order = count(len(entries))
    while entries and entries[0].bound < search.limit and not search.exhausted:
        bound, _, stage, setting, schedule = heappop(entries)
        if isinstance(schedule, Recipe):
            steps = schedules[setting.keep][0].steps
            made = search.make(schedule, steps, setting.work)
            if made is not None and search.is_new(made, setting):
                bound = max(bound, recipe_of(made).least(steps, setting.work, setting.slots, setting.pin))
                heappush(entries, Entry(bound, next(order), 0, setting, made))
        elif stage < len(TIGHTER) and schedule.peak_snapshots > setting.slots[0]:
            bound = max(bound, TIGHTER[stage](schedule, setting) + least_pinning(schedule, setting))
            search.spent += TIGHTENING * len(schedule)
            heappush(entries, Entry(bound, next(order), stage + 1, setting, schedule))
        else:
            search.take(evaluate(schedule, setting.slots, setting))


def look_first(steps: int, listed: list[Recipe], setting: Setting, search: Leader) -> None:
    """Look at the most promising schedules on levels of a short loop, or where there is no effort for many."""
    if steps > SHORT_LOOP and search.effort == inf:
        return
    looked = 0
    for recipe in sorted(listed, key=lambda recipe: recipe.guess(steps, setting.work)):
        if looked == FIRST_LOOKS or search.exhausted:
            return
        schedule = search.make(recipe, steps, setting.work)
        looked += schedule is not None
        if schedule is not None and count_misses(schedule, setting) + least_pinning(schedule, setting) < search.limit:
            search.take(evaluate(schedule, setting.slots, setting))


def kind_of(schedule: Schedule | Recipe, setting: Setting) -> str:
    """Name what the search tells apart: the family, what is kept, and the codec."""
    return f"{family(schedule)} {setting.keep} {setting.codec}"


def describe(schedule: Schedule | Recipe, setting: Setting) -> str:
    """Name a schedule in its setting."""
    records = " of records" if setting.keep == "records" else ""
    return f"{schedule}{records}" + (f" with {setting.codec}" if setting.codec else "")
