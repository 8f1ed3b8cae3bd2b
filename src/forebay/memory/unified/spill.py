"""Allocations that find no room on the device and go to pinned host memory, which kernels reach over the link."""

import threading
import warnings
from dataclasses import dataclass, field
from typing import Any, Protocol

from forebay.units import to_text


class Resource(Protocol):
    """What hands out memory, as RMM has it."""

    def allocate(self, nbytes: int, stream: Any) -> int:
        """Return an address, or raise MemoryError."""

    def deallocate(self, ptr: int, nbytes: int, stream: Any) -> None:
        """Take it back."""


class SpillWarning(UserWarning):
    """An array is in host memory, and kernels that use it run at the speed of the link."""


@dataclass
class Spill:
    """Two resources: the first as long as it has room, then the second.

    What is there stays there: nothing is evicted, so nothing can be evicted wrongly, and no kernel faults.
    """

    first: Resource
    second: Resource
    limit: int
    """bytes of the first, for the message"""
    live: int = 0
    """bytes in the second"""
    peak: int = 0
    _elsewhere: set[int] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _warned: bool = False

    def allocate(self, nbytes: int, stream: Any) -> int:
        """Allocate memory from the first that has it."""
        try:
            return self.first.allocate(nbytes, stream)
        except MemoryError:
            pointer = self.second.allocate(nbytes, stream)
        with self._lock:
            self._elsewhere.add(pointer)
            self.live += nbytes
            self.peak = max(self.peak, self.live)
            warned, self._warned = self._warned, True
        if not warned:
            warnings.warn(
                f"an allocation of {to_text(nbytes)} finds no room within the limit of {to_text(self.limit)} and lies "
                "in pinned host memory, as will others: kernels reach it over the link, so that what is bound by "
                "memory runs slower by the ratio of the two bandwidths (`forebay doctor` measures both). "
                "forebay.memory.report() tells how much it is",
                SpillWarning,
                stacklevel=2,
            )
        return pointer

    def deallocate(self, ptr: int, nbytes: int, stream: Any) -> None:
        """Return memory to where it came from."""
        with self._lock:
            elsewhere = ptr in self._elsewhere
            if elsewhere:
                self._elsewhere.remove(ptr)
                self.live -= nbytes
        (self.second if elsewhere else self.first).deallocate(ptr, nbytes, stream)
