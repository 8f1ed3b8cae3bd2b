"""What a fitted model knows: its blocks, what was measured for each set of shapes, and the iteration at work."""

from dataclasses import dataclass, field
from typing import Any
from weakref import ref

from torch import nn

from penstock.torch.blocks import Call
from penstock.torch.buffers import Buffers
from penstock.torch.choices import Timed
from penstock.torch.fitplan import FitPlan
from penstock.torch.record import Record
from penstock.torch.saved import Entry


@dataclass(frozen=True, eq=False)
class Part:
    """A block of the model."""

    name: str
    call: Call
    buffers: Buffers
    module: nn.Module

    @property
    def compiled(self) -> bool:
        """Whether torch.compile made its call, whose operations cannot be seen one by one."""
        return hasattr(self.module, "_orig_mod") or getattr(self.module, "_compiled_call_impl", None) is not None


@dataclass
class Known:
    """What is known of iterations with the same shapes."""

    records: list[Record] = field(default_factory=list)
    times: list[Timed] = field(default_factory=list)
    outside: float = 0.0
    measured: float | None = None
    base: int = 0
    """bytes of the device before the iteration that was measured"""
    planned: int = 0
    """the same before the one that the plan was made for"""
    seen: int = 0
    plan: FitPlan | None = None

    def forget(self) -> None:
        """Have the next iteration measured anew."""
        self.seen, self.times, self.plan = 0, [], None


@dataclass(eq=False)
class Iteration:
    """One forward and its backward."""

    known: Known
    measuring: bool
    base: int
    start: Any
    plan: FitPlan | None
    timed: bool
    records: list[Record] = field(default_factory=list)
    sent: dict[int, list["ref[Entry]"]] = field(default_factory=dict)
    gone: int = 0
    given: set[int] = field(default_factory=set)
    """the storages that blocks were given"""
    last: Record | None = None
    """the one whose backward began last"""
    turned: bool = False
    end: Any = None
    broken: bool = False
    """whether it went otherwise than its plan"""

    @property
    def other_way(self) -> bool:
        """Whether it ended before its plan did."""
        return self.plan is not None and len(self.records) != len(self.plan.picks)
