"""Penstock runs tensor and wave computations larger than the GPU at the speed of those that fit."""

from importlib import import_module as _import_module
from types import ModuleType as _ModuleType

from penstock import codec as codec
from penstock import footprint as footprint
from penstock.engine import Result as Result
from penstock.engine import reverse as reverse
from penstock.errors import BudgetError as BudgetError
from penstock.errors import PenstockError as PenstockError
from penstock.errors import PlanError as PlanError
from penstock.errors import ScheduleError as ScheduleError
from penstock.errors import SlowerError as SlowerError
from penstock.errors import UnitError as UnitError
from penstock.planner import CodecCost as CodecCost
from penstock.planner import Costs as Costs
from penstock.planner import Link as Link
from penstock.planner import Plan as Plan
from penstock.planner import plan as plan
from penstock.schedule import Revolve as Revolve
from penstock.schedule import StoreAll as StoreAll
from penstock.schedule import TwoLevel as TwoLevel
from penstock.schedule import Uniform as Uniform
from penstock.schedule import ZCut as ZCut
from penstock.schedule import foreign as foreign
from penstock.units import Budget as Budget
from penstock.version import __version__ as __version__


def __getattr__(name: str) -> _ModuleType:
    """Load a door to another library, or the wave application, on first use: `ps.dask`, `ps.wave`."""
    if name in {"cubed", "dasf", "dask", "devito", "jax", "memory", "torch", "wave"}:
        return _import_module(f"penstock.{name}")
    raise AttributeError(f"module 'penstock' has no attribute {name!r}")
