"""Forebay runs tensor and wave computations larger than the GPU at the speed of those that fit."""

from importlib import import_module as _import_module
from types import ModuleType as _ModuleType

from forebay import codec as codec
from forebay import footprint as footprint
from forebay.engine import Result as Result
from forebay.engine import reverse as reverse
from forebay.errors import BudgetError as BudgetError
from forebay.errors import ForebayError as ForebayError
from forebay.errors import PlanError as PlanError
from forebay.errors import ScheduleError as ScheduleError
from forebay.errors import SlowerError as SlowerError
from forebay.errors import UnitError as UnitError
from forebay.planner import CodecCost as CodecCost
from forebay.planner import Costs as Costs
from forebay.planner import Link as Link
from forebay.planner import Plan as Plan
from forebay.planner import plan as plan
from forebay.schedule import Revolve as Revolve
from forebay.schedule import StoreAll as StoreAll
from forebay.schedule import TwoLevel as TwoLevel
from forebay.schedule import Uniform as Uniform
from forebay.schedule import ZCut as ZCut
from forebay.schedule import foreign as foreign
from forebay.units import Budget as Budget
from forebay.version import __version__ as __version__


def __getattr__(name: str) -> _ModuleType:
    """Load a door to another library, or the wave application, on first use: `fb.dask`, `fb.wave`."""
    if name in {"cubed", "dasf", "dask", "devito", "jax", "memory", "torch", "wave"}:
        return _import_module(f"forebay.{name}")
    raise AttributeError(f"module 'forebay' has no attribute {name!r}")
