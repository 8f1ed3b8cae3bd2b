"""What a search for a footprint may spend, and what it asks of whatever runs its samples."""

from dataclasses import dataclass
from typing import Protocol

from forebay.footprint.measure.sample import Sample


class Runner(Protocol):
    """Runs one sample: our child process, or a command."""

    @property
    def how(self) -> str:
        """How it measures."""

    @property
    def exact(self) -> bool:
        """Whether that sees everything."""

    @property
    def resolution(self) -> int:
        """The bytes by which two readings of one peak may differ."""

    @property
    def gpu(self) -> str | None:
        """The kind of device, where one is measured."""

    def measure(self, lengths: tuple[int, ...], seed: int = 0, timeout: float | None = None) -> Sample:
        """Run it."""

    def close(self) -> None:
        """End it."""


@dataclass(frozen=True)
class Limits:
    """What a search may spend, and when it has found enough."""

    samples: int
    deadline: float
    """on the clock of `time.perf_counter`"""
    tight: float
    smallest: int
    """length of an axis"""
    elements: float
    """of a sample, at most"""
    target: tuple[int, ...] | None
    """the lengths that matter most, where they are known"""
