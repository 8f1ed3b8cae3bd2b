"""What is asked of a machine: memory in tiers, lanes that run beside each other, and the caller's computation.

A machine has the lane of the computation, one for codecs, and one each way on every link between neighbouring tiers:
"up 1" is from the second tier to the first. Nothing orders the lanes but the events that they are made to wait for.
Every wait is named where it is made, and tests on the virtual machine leave out one after the other to see that each is
needed.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from time import perf_counter
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from forebay.codec import Codec
from forebay.machine.arrays.dispatch import array_in
from forebay.machine.lent import Lent
from forebay.machine.region import Region
from forebay.machine.spec import ArraySpec, Leaf
from forebay.metrics import Metrics

Pair = tuple[Region, Region]
"""The target of a copy, and its source; of a disk, which finds its own places, only the bytes are told."""


class Wait(NamedTuple):
    """An event that something has to wait for, and why."""

    why: str
    event: Any


class Timed:
    """Surrounds something that the computation does: there is one for every call, so it is no generator.

    `end` is told of its end: what, the step, and when it began.
    """

    __slots__ = ("_end", "_start", "_step", "_what")

    def __init__(self, end: Callable[[str, int, float], None], what: str, step: int) -> None:
        self._end, self._what, self._step = end, what, step

    def __enter__(self) -> None:
        self._start = perf_counter()

    def __exit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        if kind is None:
            self._end(self._what, self._step, self._start)


class Slab(Protocol):
    """Host memory that copies reach at full speed."""

    pointer: int
    nbytes: int
    array: NDArray[np.uint8]

    def close(self) -> None:
        """Free it."""


class Coded(NamedTuple):
    """An array and its encoding, of which one is made from the other."""

    codec: Codec
    spec: ArraySpec
    array: Region
    encoding: Region
    """where it is, or may be"""
    strides: tuple[int, ...] | None = None
    """bytes from neighbour to neighbour along each axis, where the array is a window of a larger one"""


class Encoding(NamedTuple):
    """Encodings under way."""

    event: Any
    sizes: Callable[[], list[int]]
    """waits for their bytes"""
    arrived: Callable[[], bool]
    """tells whether they are known"""


class Move(NamedTuple):
    """A copy between regions, and what has to end before."""

    target: Region
    source: Region
    after: Sequence[Wait]


class UseRegions(NamedTuple):
    """Where the arrays of a use lie."""

    reads: Sequence[Region]
    writes: Sequence[Region]
    overwrites: Sequence[Region]
    """which come without values"""


class Machine(Protocol):
    """Memory in tiers, the first of which is where the computation is, and lanes between them."""

    metrics: Metrics

    def reserve(self, tier: int, nbytes: int) -> None:
        """Allocate the memory of a tier, all at once."""

    def region(self, tier: int, offset: int, nbytes: int) -> Region:
        """Return a piece of a tier's memory."""

    def copies(self, lane: str, what: str, step: int, pairs: Sequence[Pair], after: Sequence[Wait]) -> Any:
        """Enqueue copies on a lane, and return the event of their end."""

    def encode(self, lane: str, step: int, coded: Sequence[Coded], after: Sequence[Wait]) -> Encoding:
        """Enqueue encoders on a lane."""

    def decode(self, lane: str, step: int, coded: Sequence[Coded], after: Sequence[Wait]) -> Any:
        """Enqueue decoders on a lane, and return the event of their end."""

    def passed(self, event: Any) -> bool:
        """Tell whether an event has passed."""
        raise NotImplementedError

    def sync(self, after: Sequence[Wait]) -> None:
        """Wait for events."""

    def finish(self) -> None:
        """Wait for everything, raise what went wrong on the way, and read the times."""

    def close(self) -> None:
        """Free memory, end threads and remove files, whatever happened."""


class ReversalMachine(Machine, Protocol):
    """A machine whose lane "compute" is the computation, which the machine's user calls."""

    def extend(self, tier: int, nbytes: int) -> Region:
        """Allocate further memory of a tier, which goes with the machine."""

    def wait(self, step: int, after: Sequence[Wait]) -> None:
        """Make the computation wait."""

    def mark(self) -> Any:
        """Return the event at which the computation has done all that was asked of it so far."""

    def moment(self) -> Any:
        """Return when the computation has done all that was asked of it so far, for `between`."""
        return perf_counter()

    def between(self, start: Any, stop: Any) -> float:
        """Return the seconds from one moment to another, waiting for it."""
        return float(stop - start)

    def forget(self, lane: str, step: int, reads: Sequence[Any]) -> None:
        """Drop a snapshot from the disk once it has been read, after its write on the lane."""
        return

    def pause(self) -> None:
        """Let a callback that computes elsewhere find done what was asked of the computation."""
        return

    def arrays(self, region: Region, leaves: Sequence[Leaf]) -> list[Any]:
        """List the arrays that lie in a region, each of its library, without copying; JAX's are copies."""
        return [array_in(region.cut(leaf.offset, leaf.nbytes).bytes, leaf.spec) for leaf in leaves]

    def lend(self, region: Region, leaves: Sequence[Leaf]) -> Lent:
        """Return arrays that lie in a region, for callbacks: no others that anybody still refers to."""
        return Lent(lambda: self.arrays(region, leaves))

    def timed(self, what: str, step: int) -> AbstractContextManager[None]:
        """Surround something that the computation does."""

    def leave(self) -> None:
        """Let the caller do other things meanwhile."""
        return

    def enter(self) -> None:
        """Take up again, in whatever thread."""
        return


class PoolMachine(Machine, Protocol):
    """A machine whose computation is the body of a use, on the caller's own stream."""

    tier: str
    """the first: "device", or "host" where that plays its part"""

    def pin(self, nbytes: int) -> Slab:
        """Allocate host memory of exactly this size."""

    def spec(self, array: Any) -> ArraySpec:
        """Describe an array that is to be put into the pool, refusing one that cannot be."""

    def spec_of(self, shape: tuple[int, ...], dtype: Any) -> ArraySpec:
        """Describe an array that is to be made in the pool, refusing one that cannot be."""

    def array(self, region: Region, spec: ArraySpec, writable: bool) -> Any:
        """Return the array that lies in a region, to the use that was entered last."""

    def fill(self, target: Region, array: Any, after: Sequence[Wait]) -> Any:
        """Copy any array to the device, in the order of the computation, and return the event of its end."""

    def read(self, source: Region, after: Sequence[Wait]) -> NDArray[np.uint8]:
        """Copy a region of the device to the host, and wait for it."""

    def enter(self, index: int, after: Sequence[Wait], regions: UseRegions) -> None:
        """Begin a use, and make its computation wait."""

    def leave(self, index: int) -> Any:
        """End a use, and return the event at which its computation and all before it has ended."""

    def stalled(self) -> float | None:
        """Return the share of its time that the computation stood still, as far as is known; None without a clock."""

    def settle(self) -> None:
        """Read the times of what has ended."""


class TensorMachine(Protocol):
    """What moves batches of tensors beside a computation that is the caller's own."""

    def pin(self, nbytes: int) -> Slab:
        """Allocate host memory of exactly this size."""

    def passed(self, event: Any) -> bool:
        """Tell whether an event has passed."""

    def moves(self, lane: str, moves: Sequence[Move]) -> list[Any]:
        """Enqueue copies on a lane, after what the computation was asked for so far; return their events."""

    def has_waited(self, event: Any) -> bool:
        """Tell whether the computation has waited for a copy, or for a later one of its lane; False is no harm."""
        return False

    def hold(self, wait: Wait) -> None:
        """Make the computation wait for a copy."""
        return

    def free_after(self, wait: Wait) -> bool:
        """Let memory that a copy uses be freed from any thread; False where only `hold` can do that."""
        self.hold(wait)
        return True
