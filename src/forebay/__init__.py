"""Forebay runs wave and tensor computations larger than the GPU, inside a budget in bytes."""

import logging as _logging
import typing as _typing
from importlib import import_module as _import_module

from forebay.errors import BudgetError as BudgetError
from forebay.errors import ForebayError as ForebayError
from forebay.errors import PlanError as PlanError
from forebay.errors import ScheduleError as ScheduleError
from forebay.errors import SlowerError as SlowerError
from forebay.errors import UnitError as UnitError
from forebay.schedule import Online as Online
from forebay.schedule import Revolve as Revolve
from forebay.schedule import StoreAll as StoreAll
from forebay.schedule import TwoLevel as TwoLevel
from forebay.schedule import Uniform as Uniform
from forebay.schedule import Weighted as Weighted
from forebay.schedule import ZCut as ZCut
from forebay.schedule import foreign as foreign
from forebay.units import Budget as Budget
from forebay.version import __version__ as __version__

__all__ = [
    "Budget",
    "BudgetError",
    "CodecCost",
    "Costs",
    "Ended",
    "ForebayError",
    "Link",
    "Online",
    "Plan",
    "PlanError",
    "Result",
    "Reversal",
    "Revolve",
    "ScheduleError",
    "SlowerError",
    "StoreAll",
    "TwoLevel",
    "Uniform",
    "UnitError",
    "Weighted",
    "ZCut",
    "__version__",
    "codec",
    "footprint",
    "foreign",
    "forget_costs",
    "memory",
    "plan",
    "prepare",
    "register_state",
    "reverse",
]
"""What `from forebay import *` brings: not waves and the doors, whose libraries may be missing."""

if _typing.TYPE_CHECKING:
    from forebay import codec as codec
    from forebay import cubed as cubed
    from forebay import dasf as dasf
    from forebay import dask as dask
    from forebay import devito as devito
    from forebay import engine as engine
    from forebay import footprint as footprint
    from forebay import jax as jax
    from forebay import memory as memory
    from forebay import metrics as metrics
    from forebay import planner as planner
    from forebay import schedule as schedule
    from forebay import tier as tier
    from forebay import torch as torch
    from forebay import wave as wave
    from forebay.engine import Ended as Ended
    from forebay.engine import Result as Result
    from forebay.engine import Reversal as Reversal
    from forebay.engine import forget_costs as forget_costs
    from forebay.engine import prepare as prepare
    from forebay.engine import register_state as register_state
    from forebay.engine import reverse as reverse
    from forebay.planner import CodecCost as CodecCost
    from forebay.planner import Costs as Costs
    from forebay.planner import Link as Link
    from forebay.planner import Plan as Plan
    from forebay.planner import plan as plan
else:
    _ROOMS = {"codec", "engine", "footprint", "memory", "metrics", "planner", "schedule", "tier", "wave"}
    _DOORS = {"cubed", "dasf", "dask", "devito", "jax", "torch"}
    _HOMES = dict.fromkeys(("Ended", "Result", "Reversal", "prepare", "register_state", "reverse"), "engine")
    _HOMES["forget_costs"] = "engine"
    _HOMES |= dict.fromkeys(("CodecCost", "Costs", "Link", "Plan", "plan"), "planner")

    def __getattr__(name):
        """Load what a name stands for when it is first used, so that `import forebay` is quick."""
        if name in _ROOMS | _DOORS:
            return _import_module(f"forebay.{name}")
        if name in _HOMES:
            globals()[name] = value = getattr(_import_module(f"forebay.{_HOMES[name]}"), name)
            return value
        raise AttributeError(f"module 'forebay' has no attribute {name!r}")

    def __dir__():  # without the doors: who asks for all there is would load all of their libraries
        return sorted({*globals(), *_ROOMS, *_HOMES})


_logging.getLogger("forebay").addHandler(_logging.NullHandler())  # silent until the application says otherwise
