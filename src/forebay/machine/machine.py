"""What the pool asks of the machine under it: memory, lanes that run beside each other, and the caller's computation.

Nothing orders the lanes but the events that they are made to wait for. Every wait is named where it is made, and the
tests of the virtual machine leave out one after the other to see that each is needed.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from forebay.codec import Codec
from forebay.machine.lanes import Wait
from forebay.machine.region import Region
from forebay.machine.spec import ArraySpec
from forebay.metrics import Metrics


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

    def block(self, offset: int, nbytes: int) -> Region:
        """Give a piece of it."""

    def pin(self, nbytes: int) -> Slab:
        """Allocate host memory of exactly this size."""

    def form(self, array: Any) -> ArraySpec:
        """Describe an array that is to be put into the pool, refusing one that cannot be."""

    def form_of(self, shape: tuple[int, ...], dtype: Any) -> ArraySpec:
        """Describe an array of a shape and type."""

    def handles(self, codec: Codec, form: ArraySpec) -> bool:
        """Tell whether a codec knows such arrays where the device is."""

    def on_host(self, array: Any) -> bool:
        """Tell whether an array is in host memory."""

    def array(self, block: Region, form: ArraySpec, writable: bool) -> Any:
        """Give the array that lies at a place, to the block of code that was opened last."""

    def host_copy(self, data: NDArray[np.uint8], form: ArraySpec) -> Any:
        """Give bytes of the host as an array that the caller keeps."""

    def copy_in(self, data: NDArray[np.uint8], array: Any) -> None:
        """Copy an array of the host into pinned bytes."""

    def fill(self, target: Region, array: Any, after: Sequence[Wait]) -> Any:
        """Copy any array to the device, in the order of the computation; what it gives is the event of its end."""

    def read(self, source: Region, after: Sequence[Wait]) -> NDArray[np.uint8]:
        """Copy a block of the device to the host, and wait for it."""

    def move(self, lane: str, what: str, key: int, target: Region, source: Region, after: Sequence[Wait]) -> Any:
        """Enqueue a copy on a lane, and give the event of its end."""

    def encode(
        self, key: int, codec: Codec, form: ArraySpec, target: Region, source: Region, after: Sequence[Wait]
    ) -> Encoding:
        """Enqueue an encoder on its lane."""

    def decode(
        self, key: int, codec: Codec, form: ArraySpec, target: Region, source: Region, after: Sequence[Wait]
    ) -> Any:
        """Enqueue a decoder on its lane, and give the event of its end."""

    def enter(
        self,
        index: int,
        after: Sequence[Wait],
        reads: Sequence[Region],
        writes: Sequence[Region],
        overwrites: Sequence[Region],
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
