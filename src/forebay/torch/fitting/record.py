"""What one iteration tells of a block: seconds, bytes saved, the dear part of it, and the peaks around it."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from statistics import median
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from forebay.codec import Codec
from forebay.torch.gauge import HostGauge
from forebay.torch.mover import Mover, storage_of, weakly
from forebay.torch.replay.costly_operations import Operation, Share, Watching, shares_of
from forebay.torch.replay.frame import Frame
from forebay.torch.saved_tensors import dense


def device_of(tensors: Iterable[torch.Tensor], parameters: Iterable[torch.Tensor]) -> torch.device:
    """Tell where a block computes: on the first GPU among its inputs and parameters, and on the host if there is none.

    An input that is on the host, such as lengths, does not mean that the block is.
    """
    for one in chain(tensors, parameters):
        if not one.is_cpu:
            return one.device
    return torch.device("cpu")


Signature = tuple[Any, ...]


def signature(tensors: list[torch.Tensor]) -> Signature:
    """Give what a plan depends on: shapes, types, and whether gradients are wanted."""
    return tuple([(one.shape, one.dtype, one.requires_grad, one.device) for one in tensors])


@dataclass(slots=True)
class Record:
    """One block in one iteration."""

    name: str
    module: int
    """the identity of the module, or of those that it is made of"""
    signature: Signature
    compiled: bool
    kind: tuple[Any, ...] = ()
    """what blocks that are alike have in common"""
    count: int = 1
    """the blocks of the model that it is made of"""
    forward: tuple[Any, Any] | None = None
    """moments"""
    again: list[tuple[Any, Any]] = field(default_factory=list)
    """of its second run, and of one more for each further backward pass"""
    spans: list[tuple[Any, Any]] = field(default_factory=list)
    """of its backward; none where the loss did not need it"""
    waits: list[tuple[Any, Any]] = field(default_factory=list)
    """of these, in which the computation waited for copies, but for those of a second run"""
    waits_again: list[tuple[Any, Any]] = field(default_factory=list)
    """those of a second run"""
    saved: int = 0
    """bytes, but for parameters, inputs and outputs"""
    stays: int = 0
    """those of them that are in storages smaller than what is moved"""
    inputs: int = 0
    """bytes of tensors that no block before was given"""
    outside: int = 0
    """those of them that do not move: small ones, and those that no operation made, as a batch that the caller holds"""
    given: frozenset[int] = frozenset()
    """the storages of its inputs"""
    made: tuple[tuple[StorageWeakRef, int], ...] = ()
    """those of its outputs that it saved, and their bytes"""
    loose: int = 0
    """bytes of these that no later block is given: they stay for this one alone"""
    lone: bool = False
    """whether its inputs are given to no other block"""
    follows: bool = False
    """whether an `nn.Sequential` gave it what the block before gave, and nothing of others is around both"""
    outputs: frozenset[int] = frozenset()
    """the numbers of saved tensors that are the block's output"""
    small: set[int] = field(default_factory=set)
    """the numbers of those that are parameters, or smaller than what is moved"""
    read_again: bool = False
    """whether a function reads what it saved more than once, each time all of it"""
    operations: list[Operation] = field(default_factory=list)
    """dear ones whose outputs are worth keeping"""
    operation_spans: list[tuple[Any, Any]] = field(default_factory=list)
    """of these"""
    dear: Mapping[str, Share] = field(default_factory=dict)
    """the shares of their outputs that may be kept"""
    encoded: int = 0
    """bytes of the encodings of those that the codec takes, and of the others as they are"""
    encode: list[tuple[Any, Any]] = field(default_factory=list)
    decode: list[tuple[Any, Any]] = field(default_factory=list)
    room: int = 0
    """bytes that an encoder needs on the device for a moment, at most"""
    peak_forward: int = 0
    peak_after: int = 0
    peak_backward: int = 0

    def note_read_again(self) -> None:
        """Take note that a saved tensor was read more than once."""
        self.read_again = True


def find_loose(records: list[Record]) -> None:
    """Find the outputs that a block saved and that no later block is given."""
    later: frozenset[int] = frozenset()
    for record in reversed(records):
        record.loose = sum(nbytes for storage, nbytes in record.made if storage.cdata not in later)
        record.made = ()
        later |= record.given


def find_dear(records: list[Record], gauge: HostGauge) -> None:
    """Find the shares of dear outputs that may be kept: the same for blocks that are alike."""
    alike: dict[Any, list[Record]] = defaultdict(list)
    for record in records:
        alike[record.kind, tuple(record.operations)].append(record)
    for several in alike.values():
        seconds = [[gauge.seconds(*span) for span in record.operation_spans] for record in several]
        shares = shares_of(several[0].operations, [median(one) for one in zip(*seconds, strict=True)])
        for record in several:
            record.dear = shares


class Watch:
    """Measures a block while it runs again."""

    def __init__(
        self, record: Record, gauge: HostGauge, mover: Mover, codec: Codec | None, inputs: set[int], least: int
    ) -> None:
        self._record, self._gauge, self._mover, self._codec = record, gauge, mover, codec
        self._inputs, self._least = inputs, least
        self._seen: dict[int, StorageWeakRef] = {}

    @contextmanager
    def __call__(self, frame: Frame) -> Iterator[None]:
        """Be around a second run; only the first of an iteration is looked into."""
        record, gauge = self._record, self._gauge
        start = gauge.mark()
        if record.again:
            yield
            record.again.append((start, gauge.mark()))
            return
        self._last_saved = -1
        frame.taken = self._take
        if record.compiled:
            yield
        else:
            with Watching(gauge.mark, lambda: frame.count) as watching:
                yield
            self._note_dear(watching)
            frame.note_read(watching.read)
        record.again.append((start, gauge.mark()))
        frame.taken = None
        self._seen.clear()

    def _note_dear(self, watching: Watching) -> None:
        for number, (start, end, sizes, packed, aliases) in enumerate(watching.seen):
            changed = number in watching.written or any(alias._version != version for alias, version in aliases)
            if packed <= self._last_saved and not changed:  # something after it is saved, which needs it
                stays = sum(nbytes for nbytes in sizes if nbytes < self._least)
                self._record.operations.append(Operation(number, sum(sizes), stays))
                self._record.operation_spans.append((start, end))

    def _take(self, number: int, tensor: torch.Tensor) -> None:
        if tensor.is_leaf and tensor.requires_grad and isinstance(tensor, torch.nn.Parameter):
            self._record.small.add(number)
            return
        self._last_saved = number
        storage = storage_of(tensor)
        if storage is None:  # it stays, and is part of every peak
            return
        small = storage.nbytes() < self._least
        if small:
            self._record.small.add(number)
        base = tensor if tensor._base is None else tensor._base
        parameter = base.is_leaf and isinstance(base, torch.nn.Parameter)
        if parameter or storage._cdata in self._seen or number in self._record.outputs:
            return
        self._seen[storage._cdata] = weakly(storage)
        if storage._cdata in self._inputs:
            return
        self._record.saved += storage.nbytes()
        self._record.stays += storage.nbytes() if small else 0
        self._record.encoded += storage.nbytes() if small else self._try_codec(tensor)

    def _try_codec(self, tensor: torch.Tensor) -> int:
        nbytes = tensor.untyped_storage().nbytes()
        array = dense(tensor) if self._codec is not None else None
        if self._codec is None or array is None or not self._mover.handles(self._codec, array):
            return nbytes
        gauge = self._gauge
        with torch.no_grad():
            if (kind := (array.dtype, array.dim())) not in self._mover.warm:  # the first time it may be compiled
                self._mover.warm.add(kind)
                self._mover.decode(self._codec, *self._mover.encode(self._codec, array), torch.empty_like(array))
            start = gauge.mark()
            payload, size = self._mover.encode(self._codec, array)
            middle = gauge.mark()
            self._mover.decode(self._codec, payload, size, torch.empty_like(array))
            self._record.encode.append((start, middle))
            self._record.decode.append((middle, gauge.mark()))
        self._record.room = max(self._record.room, self._mover.encoding_room(self._codec, array, size))
        return min(size, nbytes)
