"""Copies between the memory that tensors are computed in and the host: on two streams of a GPU, or at once on a CPU.

Between a GPU and the host nothing here waits on the host's side: a copy down begins once the stream that computes has
come so far, memory is used again only by a stream that was made to wait for the copy, and so the peak of device memory
follows from the order of the calls alone, not from how far the host has run ahead.
"""

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from forebay.errors import BudgetError
from forebay.machine.slabs import Piece, Room
from forebay.torch.ambient import NOTHING
from forebay.units import Budget


class HostMover:
    """Tensors in host memory, with other host memory as the tier below: the same steps, each done at once."""

    def __init__(self, device: torch.device, budget: int | None) -> None:
        self.device = device
        self.room = Room(budget, lambda nbytes: np.empty(nbytes, np.uint8))
        self.warm: set[tuple[torch.dtype, int]] = set()
        """kinds of tensors that have been encoded and decoded before"""

    def down(self, several: Sequence["Fall"]) -> list[Any]:
        """Copy storages into pieces of host memory."""
        for storage, nbytes, piece in several:
            torch.from_numpy(piece.array).copy_(as_bytes(storage)[:nbytes])
        return [None] * len(several)

    def up(self, several: Sequence["Rise"]) -> list[Any]:
        """Copy pieces of host memory into storages."""
        for piece, storage, nbytes, _ in several:
            as_bytes(storage)[:nbytes].copy_(torch.from_numpy(piece.array))
        return [None] * len(several)

    def waited(self, event: Any) -> bool:
        """Tell whether the computation has waited for a copy."""
        return False

    def wait(self, event: Any) -> None:
        """Make the computation wait for a copy."""

    def free_after(self, event: Any) -> bool:
        """Let memory that a copy uses be freed from any thread; False where only `wait` can do that."""
        self.wait(event)
        return True

    def encode(self, codec: Any, array: torch.Tensor) -> tuple[torch.UntypedStorage, int]:
        """Encode a tensor."""
        source = array.numpy()
        room = torch.empty(codec.max_bytes(source.shape, source.dtype), dtype=torch.uint8)
        size = int(codec.encode_host(source, room.numpy()))
        return (room if size == room.numel() else room[:size].clone()).untyped_storage(), size

    def encoding_room(self, codec: Any, array: torch.Tensor, size: int) -> int:
        """Give the bytes that the encoding of a tensor takes for a moment; nobody counts them here."""
        return 0

    def decode(self, codec: Any, payload: torch.UntypedStorage, nbytes: int, out: torch.Tensor) -> None:
        """Decode into a tensor."""
        codec.decode_host(as_bytes(payload)[:nbytes].numpy(), out.numpy())

    def handles(self, codec: Any, array: torch.Tensor) -> bool:
        """Tell whether a codec takes such tensors here."""
        return array.dtype in NUMPY and bool(codec.handles(np.dtype(NUMPY[array.dtype])))


class Copied(NamedTuple):
    """A copy on a GPU."""

    end: Any
    computing: Any
    """the stream that computes with the memory that is read or written"""
    lane: int
    """the identity of the stream that copies"""
    number: int
    """of the copies of its lane, which end in their order"""


class _Here(threading.local):
    """What a thread has done."""

    entered = False


class CudaMover:
    """A GPU, with pinned host memory as the tier below.

    Convolutional networks save hundreds of tensors a step, so what is asked of the driver for each of them is little: a
    stream that waits for a copy has waited for all that its lane was asked for before.
    """

    def __init__(self, device: torch.device, budget: int | None) -> None:
        from forebay.cuda.copy import copy_async  # it needs cuda.core
        from forebay.cuda.driver import current_context
        from forebay.cuda.slab import PinnedSlab
        from forebay.cuda.stream import Mark, create_streams, spare_events

        self._mark, self._copy_async = Mark, copy_async  # to import them for each copy would take as long as it does
        self.device = device
        with torch.cuda.device(device):
            torch.cuda.current_stream()  # torch's context is the current one from here on
            self._streams = create_streams()
            self._context = current_context()
            self._spare = spare_events()
            self._index = torch.cuda.current_device()
        self.room = Room(budget, PinnedSlab, lambda copied: bool(copied.end.is_done))
        self.warm: set[tuple[torch.dtype, int]] = set()
        self._callers: dict[int, Any] = {}  # the streams that computations run on, by their handles
        self._here = _Here()
        self._numbers = count(1)
        self._waited: dict[tuple[int, int], int] = {}  # the last copy of a lane that a stream was made to wait for
        self._lock = threading.Lock()

    def __del__(self) -> None:
        """Wait for the copies under way before the pinned memory goes."""
        with suppress(Exception), self._current():  # at the end of the process the driver may be gone
            for stream in (self._streams.down, self._streams.up):
                self._mark(stream).sync()

    def _current(self) -> AbstractContextManager[None]:
        """Make the device current: a thread of autograd, or one that collects garbage, may not have used it yet."""
        there = self._here.entered and torch._C._cuda_getDevice() == self._index
        return NOTHING if there else self._enter()

    @contextmanager
    def _enter(self) -> Iterator[None]:
        from cuda.bindings import driver

        from forebay.cuda.driver import checked

        with torch.cuda.device(self.device):
            checked(driver.cuCtxSetCurrent(self._context), "entering the context of a device")
            self._here.entered = True
            yield

    def down(self, several: Sequence["Fall"]) -> list[Any]:
        """Enqueue copies into pieces of host memory, after what was asked of the computation so far."""
        wanted = [(piece.address, storage.data_ptr(), nbytes, piece.after) for storage, nbytes, piece in several]
        return self._copy(self._streams.down, wanted)

    def up(self, several: Sequence["Rise"]) -> list[Any]:
        """Enqueue copies into storages that were allocated on the computation's stream just now."""
        wanted = [(storage.data_ptr(), piece.address, nbytes, [after]) for piece, storage, nbytes, after in several]
        return self._copy(self._streams.up, wanted)

    def _copy(self, stream: Any, several: Sequence[tuple[int, int, int, Sequence[Copied]]]) -> list[Copied]:
        copies: list[Copied] = []
        count, size = 0, 0  # of those since the last mark
        with self._current():  # events and the default stream are those of the current device
            computing = self._computing()
            self._mark(computing, self._spare).hold(stream)
            with self._lock:  # numbers are in the order of the lane
                for number, (target, source, nbytes, after) in enumerate(several, 1):
                    for copied in after:
                        self._hold(copied, stream)
                    self._copy_async(target, source, nbytes, stream)
                    count, size = count + 1, size + nbytes
                    if size >= MARKED or number == len(several):
                        end = self._mark(stream, self._spare)
                        copies += [Copied(end, computing, id(stream), next(self._numbers))] * count
                        count = size = 0
        return copies

    def _hold(self, copied: Copied, stream: Any) -> None:
        """Make a stream wait for a copy, unless it has waited for it or for a later one of its lane."""
        if not self._has_waited(copied, stream):
            copied.end.hold(stream)
            self._waited[copied.lane, id(stream)] = copied.number

    def _has_waited(self, copied: Copied, stream: Any) -> bool:
        return copied.number <= self._waited.get((copied.lane, id(stream)), 0)

    def waited(self, event: Copied) -> bool:
        """Tell whether the computation has waited for a copy, or for a later one of its lane."""
        return self._has_waited(event, self._computing())

    def wait(self, event: Copied) -> None:
        """Make the computation wait for a copy."""
        with self._current():
            self._hold(event, self._computing())

    def free_after(self, event: Copied) -> bool:
        """Let memory that a copy uses be freed: the stream that would be given it again waits for the copy."""
        if self._has_waited(event, event.computing):
            return True
        with suppress(Exception):  # at the end of the process the driver may be gone
            with self._current():
                self._hold(event, event.computing)
            return True
        return False

    def _computing(self) -> Any:
        handle = torch._C._cuda_getCurrentRawStream(self._index)
        found = self._callers.get(handle)
        if found is None:
            from cuda.core import LEGACY_DEFAULT_STREAM, Stream

            found = self._callers[handle] = LEGACY_DEFAULT_STREAM if handle == 0 else Stream.from_handle(handle)
        return found

    def encode(self, codec: Any, array: torch.Tensor) -> tuple[torch.UntypedStorage, int]:
        """Enqueue the encoding of a tensor; where its size depends on the data, wait to learn it."""
        from forebay.cuda.arrays import View, view
        from forebay.cuda.mailbox import post

        source = view(array)
        most = codec.max_bytes(source.shape, source.dtype)
        room = torch.empty(most, dtype=torch.uint8, device=self.device)
        with self._current():
            stream = self._computing()
            codec.encode_device(source, View.at(room.data_ptr(), (most,), np.uint8), stream)
            if codec.fixed:
                return room.untyped_storage(), most
            size = int(post(room.data_ptr(), stream).value())
        return room[:size].clone().untyped_storage(), size

    def encoding_room(self, codec: Any, array: torch.Tensor, size: int) -> int:
        """Give the bytes that the encoding of a tensor takes for a moment: the worst case, and what is left of it."""
        most = int(codec.max_bytes(tuple(array.shape), np.dtype(NUMPY[array.dtype])))
        return most if codec.fixed else most + size

    def decode(self, codec: Any, payload: torch.UntypedStorage, nbytes: int, out: torch.Tensor) -> None:
        """Enqueue the decoding into a tensor."""
        from forebay.cuda.arrays import View, view

        with self._current():
            codec.decode_device(View.at(payload.data_ptr(), (nbytes,), np.uint8), view(out), self._computing())

    def handles(self, codec: Any, array: torch.Tensor) -> bool:
        """Tell whether a codec takes such tensors here."""
        if array.dtype not in NUMPY:
            return False
        dtype = np.dtype(NUMPY[array.dtype])
        return bool(codec.handles(dtype)) and bool(codec.handles_on_device(tuple(array.shape), dtype))


MARKED = 2**24
"""Copies of fewer bytes than this end together: who needs the first of them waits for no more than that."""

Mover = HostMover | CudaMover
Fall = tuple[torch.UntypedStorage, int, Piece]
"""A storage, its bytes, and the piece to copy it into."""
Rise = tuple[Piece, torch.UntypedStorage, int, Any]
"""A piece, the storage to copy it into, its bytes, and what has to end before."""

NUMPY = {torch.float32: "float32", torch.float64: "float64", torch.int32: "int32", torch.int64: "int64"}
"""The types whose values codecs may read; NumPy has none for bfloat16."""


def budget_of(amount: Budget | str | float, who: str) -> Budget:
    """Read a budget of the two tiers that tensors move between."""
    budget = Budget.of(amount)
    if budget.device is None:
        raise BudgetError(f"{who} needs the bytes of the device: give Budget(device='8GB', host='64GB')")
    if budget.disk is not None:
        raise BudgetError(f"{who} moves tensors to the host and no further: give Budget(device='8GB', host='64GB')")
    return budget


def mover_for(device: torch.device, budget: int | None) -> Mover:
    """Make the mover of a device, which may use so many bytes of host memory."""
    return CudaMover(device, budget) if device.type == "cuda" else HostMover(device, budget)


def storage_of(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """Give the memory of a tensor; None where it is not in one piece, as that of sparse ones."""
    return tensor.untyped_storage() if tensor.layout is torch.strided else None


def bytes_by_storage(tensors: Iterable[torch.Tensor]) -> dict[int, int]:
    """Give the bytes of each storage of some tensors, by its identity."""
    storages = (storage_of(one) for one in tensors)
    return {storage._cdata: storage.nbytes() for storage in storages if storage is not None}


def from_outside(tensor: torch.Tensor) -> bool:
    """Tell whether no recorded operation made the memory of a tensor: whoever did may hold it, such as a batch."""
    return tensor.is_leaf if tensor._base is None else tensor._base.is_leaf


def as_bytes(storage: torch.UntypedStorage) -> torch.Tensor:
    """Give all bytes of a storage as a tensor."""
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def new_storage(nbytes: int, device: torch.device) -> torch.UntypedStorage:
    """Allocate a storage, on a GPU in the order of the current stream."""
    return torch.UntypedStorage(nbytes, device=device)  # type: ignore[no-untyped-call]


def weakly(storage: torch.UntypedStorage) -> StorageWeakRef:
    """Refer to a storage without keeping its memory; while this is held no other storage has the same address."""
    return StorageWeakRef(storage)  # type: ignore[no-untyped-call]
