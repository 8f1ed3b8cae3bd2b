"""Schedules by name: "storeall", "uniform:25", "zcut:149", "revolve:20", "twolevel:32,8", "hierarchical:2,14@30"."""

import re
from collections.abc import Sequence

from forebay.errors import ScheduleError
from forebay.schedule.actions import Schedule
from forebay.schedule.hierarchical import Hierarchical, Level
from forebay.schedule.online import Online
from forebay.schedule.revolve import Revolve
from forebay.schedule.storeall import StoreAll
from forebay.schedule.twolevel import TwoLevel
from forebay.schedule.uniform import Uniform
from forebay.schedule.weighted import Weighted
from forebay.schedule.zcut import ZCut

FAMILIES = {
    "storeall": 0,
    "uniform": 1,
    "zcut": 1,
    "revolve": 1,
    "twolevel": 2,
    "online": 1,
    "weighted": 1,
    "hierarchical": 4,
}
"""The names, and how many numbers may follow each."""

CLASSES = frozenset((Hierarchical, Online, Revolve, StoreAll, TwoLevel, Uniform, Weighted, ZCut))
"""Of schedules whose actions are right by construction, and the same whenever they are asked for."""

ALLOWED = {
    0: "no number",
    1: "one number, as in 'revolve:20'",
    2: "up to two numbers, as in 'twolevel:32,8'",
    4: "up to four levels, each of snapshots and their price, as in 'hierarchical:2,14@30'",
}


def split_name(text: str) -> tuple[str, list[int]]:
    """Take a name apart into its family and its numbers.

    Examples
    --------
    >>> split_name("twolevel:32,8")
    ('twolevel', [32, 8])
    """
    family, parts = _parts(text)
    return family, [int(part.partition("@")[0]) for part in parts]


def is_auto(schedule: object) -> bool:
    """Tell whether the planner is to find the schedule."""
    return isinstance(schedule, str) and schedule.strip().lower() == "auto"


def _parts(text: str) -> tuple[str, list[str]]:
    family, _, rest = text.strip().lower().partition(":")
    parts = [part.strip() for part in rest.split(",")] if rest else []
    if family not in FAMILIES:
        raise ScheduleError(f"no schedule is called {text!r}: use one of {', '.join(FAMILIES)}")
    price = r"(@[0-9.e+-]{1,24})?" if family == "hierarchical" else ""
    if len(parts) > FAMILIES[family] or not all(re.fullmatch(r"[0-9]{1,18}" + price, part) for part in parts):
        raise ScheduleError(f"cannot read the schedule {text!r}: {family} takes {ALLOWED[FAMILIES[family]]}")
    return family, parts


def _level(part: str) -> Level:
    snapshots, _, price = part.partition("@")
    try:
        return Level(int(snapshots), float(price or 0))
    except ValueError as error:
        raise ScheduleError(f"a price of {price!r}: give a number of forward steps, as in '14@30'") from error


def named(text: str, steps: int, costs: Sequence[float] = ()) -> Schedule:
    """Make the schedule of that name for a loop of `steps` steps, which may differ in cost.

    Examples
    --------
    >>> named("revolve:20", steps=1000)
    Revolve(steps=1000, snapshots=20)
    >>> str(named("twolevel:32", steps=1000))
    'twolevel:32,31'
    """
    family, numbers = split_name(text)
    if family != "storeall" and not numbers:
        raise ScheduleError(f"{family!r} needs a number here, for example '{family}:20'")
    match family:
        case "storeall":
            return StoreAll(steps)
        case "uniform":
            return Uniform(steps, *numbers)
        case "zcut":
            return ZCut(steps, *numbers)
        case "revolve":
            return Revolve(steps, *numbers)
        case "hierarchical":
            return Hierarchical(steps, tuple(map(_level, _parts(text)[1])))
        case "weighted" if not costs:
            raise ScheduleError(f"{text!r} is for steps of unequal cost: say what they are with step_costs=")
        case "weighted":
            return Weighted(steps, numbers[0], costs)
        case "online":
            return Online(steps, *numbers)
        case _:
            return TwoLevel(steps, *numbers)
