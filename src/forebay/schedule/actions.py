"""The five actions of a reversal, and what every schedule has in common.

A reversal of n steps works on one state, which starts at step 0. It runs the loop forward once to its end, where
the turn happens, and then visits the states n-1, ..., 0 in that order, recomputing them from snapshots.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import NamedTuple


class Forward(NamedTuple):
    """Advance the working state from step `start` to step `stop`."""

    start: int
    stop: int


class Save(NamedTuple):
    """Keep the working state, which is at `step`, as a snapshot."""

    step: int


class Restore(NamedTuple):
    """Make the snapshot of `step` the working state."""

    step: int


class Drop(NamedTuple):
    """Forget the snapshot of `step`: it is not used again."""

    step: int


class Backward(NamedTuple):
    """Run the backward computation of `step` on the working state, which is the state before that step."""

    step: int


Action = Forward | Save | Restore | Drop | Backward
"""One thing that a reversal does."""


class Schedule(ABC):
    """An immutable description of a reversal that yields its actions, any number of times."""

    steps: int
    """Steps of the loop that is reversed."""

    @abstractmethod
    def __iter__(self) -> Iterator[Action]:
        """Yield the actions in order."""

    @abstractmethod
    def __len__(self) -> int:
        """Count the actions."""

    @property
    @abstractmethod
    def forward_steps(self) -> int:
        """Steps that are run forward, the first sweep counted in."""

    @property
    @abstractmethod
    def saves(self) -> int:
        """Snapshots that are taken over the whole reversal."""

    @property
    @abstractmethod
    def peak_snapshots(self) -> int:
        """Snapshots that are alive at one time, at most."""
