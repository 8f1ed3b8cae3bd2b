"""An array of the pool, the marks that say where its newest elements are, and the memory that all of them are in."""

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any, NamedTuple

from forebay.codec import Codec
from forebay.errors import StateError
from forebay.machine.machine import Encoding, PoolMachine, Wait
from forebay.machine.region import ALIGNMENT, Region, aligned
from forebay.machine.spec import ArraySpec
from forebay.memory.pool.host import HostMemory, HostRoom
from forebay.tier.heap import Heap


@dataclass(eq=False)
class Staging:
    """Room on the device for one encoding on its way."""

    offset: int
    nbytes: int
    events: list[Any] = field(default_factory=list)
    """what has to end before it may be written"""


class Outgoing(NamedTuple):
    """An encoding on its way to the host, its size not yet known, and where it is."""

    encoding: Encoding
    staging: Staging


class Values(Enum):
    """Where the newest values of an array are."""

    NONE = "it has been given none, or has lost them"
    DIRTY = "on the device alone"
    CLEAN = "on the host, and perhaps on the device: they are never written back"
    DROPPED = "nowhere any more"


@dataclass(eq=False)
class Page:
    """An array of the pool; it is on the device where it has an `offset`."""

    key: int
    name: str
    spec: ArraySpec
    codec: Codec | None
    """of its copy on the host; None where that is kept as it is"""
    offset: int | None = None
    events: list[Any] = field(default_factory=list)
    """what has to end before anybody else may touch its place on the device"""
    origin: str = "room free"
    """whose those are: "room free", of its place's earlier owners; "fetched", of its way here; "computed", of
    uses of it"""
    values: Values = Values.NONE
    room: HostRoom | None = None
    """on the host"""
    outgoing: Outgoing | None = None
    open: int = 0
    """uses in which it is"""
    written: bool = False
    """whether one of them writes it"""

    @property
    def filled(self) -> bool:
        """Whether it has values."""
        return self.values in (Values.DIRTY, Values.CLEAN)

    @cached_property
    def size(self) -> int:
        """Bytes that it takes on the device."""
        return max(ALIGNMENT, aligned(self.spec.nbytes))

    def check_values(self) -> None:
        """Refuse to be read where it has no values."""
        if not self.filled:
            raise StateError(
                f"{self.name} has no values yet, or lost them to a use that overwrites it and failed: use it in "
                "`overwrites` first"
            )

    def waits(self, who: str) -> list[Wait]:
        """List what has to be waited for before its place is touched, and why."""
        return [Wait(f"{who}: {self.origin}", event) for event in self.events]


class PoolMemory:
    """The memory of a pool on both sides, its pages, and the count of what moves."""

    def __init__(self, machine: PoolMachine, device: int, host: int) -> None:
        self.machine = machine
        self.host = HostMemory(host, machine)
        self.heap = Heap(device, passed=machine.passed)
        self.pages: dict[int, Page] = {}
        self._per_use: Counter[str] = Counter()  # bytes that copies before and after every use would have moved
        machine.reserve(0, device)

    def region(self, page: Page) -> Region:
        """Return the place of a page on the device."""
        assert page.offset is not None
        return self.machine.region(0, page.offset, page.spec.nbytes)

    def count(self, lane: str, *, moved: int = 0, per_use: int = 0) -> None:
        """Count bytes that moved, and those that copies before and after every use would have moved."""
        metrics = self.machine.metrics
        if moved:
            metrics.moved[lane] += moved
        self._per_use[lane] += per_use
        metrics.avoided[lane] = max(0, self._per_use[lane] - metrics.moved[lane])
