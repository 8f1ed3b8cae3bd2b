"""An array of the pool, and the marks that say where its newest elements are."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from forebay.codec import Codec
from forebay.errors import StateError
from forebay.machine.machine import Encoding, Wait
from forebay.machine.region import ALIGNMENT, aligned
from forebay.machine.spec import ArraySpec
from forebay.memory.pool.host import HostRoom


@dataclass(eq=False)
class Staging:
    """Room on the device for one encoding on its way."""

    offset: int
    nbytes: int
    events: list[Any] = field(default_factory=list)
    """what has to end before it may be written"""


@dataclass(eq=False)
class Page:
    """An array of the pool.

    It is on the device where it has an `offset`. What the host has of it is valid where it is `clean`. Data that is
    clean is never written back.
    """

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
    filled: bool = False
    """whether it has been given values"""
    clean: bool = False
    """whether the host has its newest values"""
    room: HostRoom | None = None
    """on the host"""
    stored: Any = None
    """the event of its last way to the host"""
    read: Any = None
    """the event of the last copy from that room"""
    encoding: Encoding | None = None
    """on its way to the host, its size not yet known"""
    staging: Staging | None = None
    """where that is"""
    open: int = 0
    """uses in which it is"""
    written: bool = False
    """whether one of them writes it"""
    ahead: int | None = None
    """index of the use that it was brought in for, and which is still to come"""
    dropped: bool = False

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
