"""Schedules by name: "storeall", "uniform:25", "zcut:149", "revolve:20", "twolevel:32,8", "online:20"."""

import re

from forebay.errors import ScheduleError
from forebay.schedule.actions import Schedule
from forebay.schedule.online import Online
from forebay.schedule.revolve import Revolve
from forebay.schedule.storeall import StoreAll
from forebay.schedule.twolevel import TwoLevel
from forebay.schedule.uniform import Uniform
from forebay.schedule.zcut import ZCut

FAMILIES = {"storeall": 0, "uniform": 1, "zcut": 1, "revolve": 1, "twolevel": 2, "online": 1}
"""The names, and how many numbers may follow each."""


def split_name(text: str) -> tuple[str, list[int]]:
    """Take a name apart into its family and its numbers.

    Examples
    --------
    >>> split_name("twolevel:32,8")
    ('twolevel', [32, 8])
    """
    family, _, rest = text.strip().lower().partition(":")
    numbers = rest.split(",") if rest else []
    if family not in FAMILIES:
        raise ScheduleError(f"no schedule is called {text!r}: use one of {', '.join(FAMILIES)}")
    if len(numbers) > FAMILIES[family] or not all(re.fullmatch(r"\s*[0-9]{1,18}\s*", number) for number in numbers):
        allowed = {0: "no number", 1: "one number, as in 'revolve:20'", 2: "up to two numbers, as in 'twolevel:32,8'"}
        raise ScheduleError(f"cannot read the schedule {text!r}: {family} takes {allowed[FAMILIES[family]]}")
    return family, [int(number) for number in numbers]


def named(text: str, steps: int) -> Schedule:
    """Make the schedule of that name for a loop of `steps` steps.

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
        case "online":
            return Online(steps, *numbers)
        case _:
            return TwoLevel(steps, *numbers)
