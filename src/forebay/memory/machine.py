"""What the pool asks of the machine under it: memory, lanes that run beside each other, and the caller's computation.

Nothing orders the lanes but the events that they are made to wait for. Every wait is named where it is made, and the
tests of the virtual machine leave out one after the other to see that each is needed.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from forebay.codec import Codec
from forebay.metrics import Metrics
from forebay.tier.lanes import Wait
from forebay.units import to_text

ALIGNMENT = 256
"""Bytes to which arrays are aligned, which suits every copy, kernel and codec."""


def aligned(nbytes: int) -> int:
    """Round bytes up to what an array takes."""
    return max(ALIGNMENT, -(-nbytes // ALIGNMENT) * ALIGNMENT)


def enough(nbytes: int) -> str:
    """Write bytes in three digits that are not less.

    Examples
    --------
    >>> enough(1024), enough(3_000_000_001)
    ('1.03kB', '3.01GB')
    """
    step = 10 ** max(0, len(str(nbytes)) - 3)
    return to_text(-(-nbytes // step) * step)


class Block(NamedTuple):
    """A piece of memory."""

    pointer: int
    nbytes: int
    array: NDArray[np.uint8] | None = None
    """the same bytes for the host, where it can reach them"""

    def cut(self, start: int, nbytes: int) -> "Block":
        """Give a part of it."""
        array = None if self.array is None else self.array[start : start + nbytes]
        return Block(self.pointer + start, nbytes, array)


@dataclass(frozen=True)
class Form:
    """What an array is, wherever its elements are."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    kind: Any = None
    """the type as torch knows it, where the array is torch's"""

    @cached_property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        return math.prod(self.shape) * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.dtype if self.kind is None else str(self.kind).removeprefix('torch.')}{list(self.shape)}"


class Slab(Protocol):
    """Host memory that copies reach at full speed."""

    pointer: int
    nbytes: int
    array: NDArray[np.uint8]

    def close(self) -> None:
        """Give it back."""


class Encoding(NamedTuple):
    """An encoding under way."""

    event: Any
    size: Callable[[], int]
    """waits for its bytes"""
    arrived: Callable[[], bool]
    """tells whether they are known"""


class Machine(Protocol):
    """Where arrays live and lanes run: "up 1" and "down 1" over the link, "codec" on the device."""

    metrics: Metrics

    def reserve(self, nbytes: int) -> None:
        """Allocate the memory of the device, all at once."""

    def block(self, offset: int, nbytes: int) -> Block:
        """Give a piece of it."""

    def pin(self, nbytes: int) -> Slab:
        """Allocate host memory of exactly this size."""

    def form(self, array: Any) -> Form:
        """Describe an array that is to be put into the pool, refusing one that cannot be."""

    def form_of(self, shape: tuple[int, ...], dtype: Any) -> Form:
        """Describe an array of a shape and type."""

    def handles(self, codec: Codec, form: Form) -> bool:
        """Tell whether a codec knows such arrays where the device is."""

    def on_host(self, array: Any) -> bool:
        """Tell whether an array is in host memory."""

    def array(self, block: Block, form: Form, writable: bool) -> Any:
        """Give the array that lies at a place, to the block of code that was opened last."""

    def host_copy(self, data: NDArray[np.uint8], form: Form) -> Any:
        """Give bytes of the host as an array that the caller keeps."""

    def copy_in(self, data: NDArray[np.uint8], array: Any) -> None:
        """Copy an array of the host into pinned bytes."""

    def fill(self, target: Block, array: Any, after: Sequence[Wait]) -> Any:
        """Copy any array to the device, in the order of the computation; what it gives is the event of its end."""

    def read(self, source: Block, after: Sequence[Wait]) -> NDArray[np.uint8]:
        """Copy a block of the device to the host, and wait for it."""

    def move(self, lane: str, what: str, key: int, target: Block, source: Block, after: Sequence[Wait]) -> Any:
        """Enqueue a copy on a lane, and give the event of its end."""

    def encode(
        self, key: int, codec: Codec, form: Form, target: Block, source: Block, after: Sequence[Wait]
    ) -> Encoding:
        """Enqueue an encoder on its lane."""

    def decode(self, key: int, codec: Codec, form: Form, target: Block, source: Block, after: Sequence[Wait]) -> Any:
        """Enqueue a decoder on its lane, and give the event of its end."""

    def enter(
        self,
        index: int,
        after: Sequence[Wait],
        reads: Sequence[Block],
        writes: Sequence[Block],
        overwrites: Sequence[Block],
    ) -> None:
        """Open a block, and make its computation wait; what it overwrites comes without values."""

    def leave(self, index: int) -> Any:
        """Close a block, and give the event at which its computation and all before it has ended."""

    def passed(self, event: Any) -> bool:
        """Tell whether an event has passed."""

    def sync(self, after: Sequence[Wait]) -> None:
        """Wait for events."""

    def stalled(self) -> float | None:
        """Give the share of its time that the computation stood still, as far as is known; None without a clock."""

    def settle(self) -> None:
        """Read the times of what has ended."""

    def finish(self) -> None:
        """Wait for everything, and raise what went wrong on the way."""

    def close(self) -> None:
        """Give the memory back."""
