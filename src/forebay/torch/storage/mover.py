"""Storages on their way between the memory that tensors are computed in and the host: on two lanes of a machine.

Between a GPU and the host nothing here waits on the host's side. What orders the copies are waits that are named here
and where the computation waits for them; the tests on the virtual machine leave out one after the other.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from forebay.codec import Codec
from forebay.cuda.arrays import View
from forebay.errors import BudgetError
from forebay.machine.arrays.dispatch import named_library, view_of
from forebay.machine.host import HostMachine
from forebay.machine.machine import Move, TensorMachine, Wait
from forebay.machine.packing import handles
from forebay.machine.region import Region
from forebay.machine.slabs import Piece, SlabHeap
from forebay.machine.spec import ArraySpec
from forebay.units import Budget

if TYPE_CHECKING:
    from forebay.machine.cuda_tensors import CudaTensors


@dataclass(frozen=True, eq=False)
class Mover:
    """Tensors of a device, with so many bytes of host memory as the tier below, and a machine that copies.

    Codecs run where the tensors are: here, in the memory of the host.
    """

    device: torch.device
    machine: TensorMachine
    room: SlabHeap

    @property
    def tier(self) -> str:
        """Where its tensors are."""
        return "device" if self.device.type == "cuda" else "host"

    def down(self, storage: torch.UntypedStorage, nbytes: int, piece: Piece) -> Move:
        """Return the copy of a storage into a piece of host memory."""
        after = [Wait("down: piece free", event) for event in piece.after]
        return Move(piece.region, self.region(storage, nbytes), after)

    def up(self, piece: Piece, storage: torch.UntypedStorage, nbytes: int, stored: Any) -> Move:
        """Return the copy of a piece into a storage that was allocated in the order of the computation just now."""
        after = [] if stored is None else [Wait("up: stored", stored)]
        return Move(self.region(storage, nbytes), piece.region, after)

    def region(self, storage: torch.UntypedStorage, nbytes: int) -> Region:
        """Return where the first bytes of a storage lie."""
        on_host = as_bytes(storage)[:nbytes].numpy() if self.tier == "host" else None
        return Region(storage.data_ptr(), nbytes, on_host)

    def encode(self, codec: Codec, array: torch.Tensor) -> tuple[torch.UntypedStorage, int]:
        """Encode a tensor; on a GPU, where the size depends on the data, wait to learn it."""
        source = view_of(array)
        room = torch.empty(codec.max_bytes(source.shape, source.dtype), dtype=torch.uint8, device=self.device)
        size = self._encode_into(codec, source, room)
        return (room if size == room.numel() else room[:size].clone()).untyped_storage(), size

    def _encode_into(self, codec: Codec, source: Any, room: torch.Tensor) -> int:
        return codec.encode_host(source, room.numpy())

    def encoding_room(self, codec: Codec, array: torch.Tensor, size: int) -> int:
        """Return the bytes of a device that encoding takes for a moment: the worst case, and what is left of it."""
        if self.tier == "host":
            return 0  # which nobody counts
        most = codec.max_bytes(tuple(array.shape), np.dtype(NUMPY[array.dtype]))
        return most if codec.fixed else most + size

    def decode(self, codec: Codec, payload: torch.UntypedStorage, nbytes: int, out: torch.Tensor) -> None:
        """Decode into a tensor."""
        codec.decode_host(as_bytes(payload)[:nbytes].numpy(), out.numpy())

    def handles(self, codec: Codec, array: torch.Tensor) -> bool:
        """Tell whether a codec takes such tensors here."""
        if array.dtype not in NUMPY:
            return False
        return handles(codec, ArraySpec(tuple(array.shape), np.dtype(NUMPY[array.dtype])), self.tier)


@dataclass(frozen=True, eq=False)
class CudaMover(Mover):
    """Tensors of a GPU, with pinned host memory as the tier below; codecs run where the computation does."""

    machine: "CudaTensors"

    def __del__(self) -> None:
        """Wait for the copies under way before the pinned memory goes."""
        self.machine.sync_lanes()

    def _encode_into(self, codec: Codec, source: Any, room: torch.Tensor) -> int:
        with self.machine.current():
            return self.machine.encode_at(codec, source, room.data_ptr(), self.machine.computing())[0]()

    def decode(self, codec: Codec, payload: torch.UntypedStorage, nbytes: int, out: torch.Tensor) -> None:
        """Enqueue the decoding into a tensor."""
        with self.machine.current():
            encoding = View.at(payload.data_ptr(), (nbytes,), np.uint8)
            codec.decode_device(encoding, view_of(out), self.machine.computing())


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
    if device.type != "cuda":
        return Mover(device, host := HostMachine(), SlabHeap(budget, host.pin, host.passed))
    from forebay.machine.cuda_tensors import CudaTensors  # it needs cuda.core

    with torch.cuda.device(device):
        torch.cuda.current_stream()  # torch's context is the current one from here on
        machine = CudaTensors(torch.cuda.current_device(), named_library("torch"))
    return CudaMover(device, machine, SlabHeap(budget, machine.pin, machine.passed))


def storage_of(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """Return the memory of a tensor; None where it is not in one piece, as that of sparse ones."""
    return tensor.untyped_storage() if tensor.layout is torch.strided else None


def bytes_by_storage(tensors: Iterable[torch.Tensor]) -> dict[int, int]:
    """Return the bytes of each storage of some tensors, by its identity."""
    storages = map(storage_of, tensors)
    return {storage._cdata: storage.nbytes() for storage in storages if storage is not None}


def from_outside(tensor: torch.Tensor) -> bool:
    """Tell whether no recorded operation made the memory of a tensor: whoever did may hold it, such as a batch."""
    return tensor.is_leaf if tensor._base is None else tensor._base.is_leaf


def as_bytes(storage: torch.UntypedStorage) -> torch.Tensor:
    """Return all bytes of a storage as a tensor."""
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def new_storage(nbytes: int, device: torch.device) -> torch.UntypedStorage:
    """Allocate a storage, on a GPU in the order of the current stream."""
    return torch.UntypedStorage(nbytes, device=device)  # type: ignore[no-untyped-call]


def weakly(storage: torch.UntypedStorage) -> StorageWeakRef:
    """Refer to a storage without keeping its memory; while this is held no other storage has the same address."""
    return StorageWeakRef(storage)  # type: ignore[no-untyped-call]


def dense(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the whole storage of a tensor as an array in the order of its memory; None where it skips bytes."""
    if tensor.numel() * tensor.element_size() != tensor.untyped_storage().nbytes() or not tensor.numel():
        return None
    strides = tensor.stride()
    order = sorted(range(tensor.dim()), key=lambda axis: (-strides[axis], tensor.shape[axis] == 1))
    array = tensor.detach().permute(order)
    return array if array.is_contiguous() else None
