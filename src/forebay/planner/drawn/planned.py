"""What a chart asks of a plan."""

from collections.abc import Iterator
from typing import Protocol

from forebay.planner.operations import Operation
from forebay.schedule import Schedule
from forebay.units import Budget


class Planned(Protocol):
    """A plan, as far as it is drawn."""

    @property
    def steps(self) -> int:
        """Of the loop."""

    @property
    def every(self) -> int:
        """Steps of the loop in one of the schedule."""

    @property
    def snapshot_bytes(self) -> int:
        """Of a snapshot as it is kept."""

    @property
    def schedule(self) -> Schedule:
        """What is kept and recomputed."""

    @property
    def budget(self) -> Budget:
        """The bytes allowed."""

    @property
    def tiers(self) -> tuple[str, ...]:
        """Those that it may use, fastest first."""

    def __iter__(self) -> Iterator[Operation]:
        """Yield its operations."""
