"""Tensors that autograd saved: each storage kept once, on the device or below it, and given back as it was.

A saved tensor is a window (type, sizes, strides, offset) onto a storage. The storage is what is kept, moved or encoded,
so views and aliases cost nothing more, gaps between elements stay as they are, and every bit comes back.
"""

from collections import deque
from collections.abc import Callable
from functools import cache, partial
from operator import methodcaller
from typing import Any, NamedTuple
from weakref import ref

import torch

from forebay.codec import Codec
from forebay.machine.machine import Move, Wait
from forebay.machine.slabs import Piece
from forebay.metrics import Metrics
from forebay.torch.compat import check_version, strong_storage
from forebay.torch.storage.mover import Mover, dense, new_storage, weakly


class GraphToken:
    """Held by all that an iteration saved: when nobody holds it any more, the iteration's graph is gone."""

    __slots__ = ("__weakref__",)


class KeptTensor(NamedTuple):
    """A saved tensor that stays where it is: a parameter, a small one, or one of a kind that cannot be moved."""

    held: torch.Tensor
    version: int | None
    """how often it had been changed in place; None where nobody counts that"""
    entry: Any = None
    """what counts its storage as long as it is held"""

    @property
    def changed(self) -> bool:
        """Whether it was changed in place after it was saved."""
        return self.version is not None and self.held._version != self.version

    def tensor(self) -> torch.Tensor:
        """Return the tensor, unless it was changed."""
        tensor, version, _ = self
        if version is not None and tensor._version != version:  # thousands are asked for in a step
            check_version(tensor, version)
        return tensor


def keep(tensor: torch.Tensor) -> KeptTensor:
    """Keep a tensor as it is: an output without its history, or its node would hold itself."""
    version = None if tensor.is_inference() else tensor._version  # nobody counts for those made for inference
    return kept((tensor if tensor.is_leaf else tensor.detach(), version, None))


kept: Callable[[tuple[torch.Tensor, int | None, Any]], KeptTensor] = partial(tuple.__new__, KeptTensor)
"""Makes one of its parts: thousands are made in a step."""


class Entry:
    """One storage that several saved tensors may look onto; without the storage, one that is only counted."""

    __slots__ = ("__weakref__", "away", "codec", "left", "number", "ready", "size", "storage", "store", "token", "weak")

    def __init__(self, store: "TensorStore", nbytes: int, storage: torch.UntypedStorage | None = None) -> None:
        self.store = store
        self.size = nbytes
        """bytes of what is kept: those of the storage, or of its encoding"""
        self.storage = storage
        self.weak = None if storage is None else weakly(storage)
        """while this is held no other storage has the same address"""
        self.number = 0
        """among those of an iteration, where somebody counts them"""
        self.token: GraphToken | None = None
        """of the last iteration that saved it"""
        self.codec: tuple[Codec, torch.dtype, tuple[int, ...], int] | None = None
        """of an encoding: what made it, of which type and shape, and the bytes that these were"""
        self.away: Piece | None = None
        self.ready: Any = None
        """the end of the last copy"""
        self.left: set[int] = set()
        """its saved tensors that have never been asked for, by the identities of their witnesses"""

    def __del__(self) -> None:
        # It may end in any thread, in the middle of anything: the store takes note when it is next used.
        under_way = self.storage if self.ready is not None else None
        if under_way is not None and self.store.mover.machine.free_after(Wait("end: copied", self.ready)):
            under_way = None  # else it goes along, so that nobody is given the memory that a copy still uses
        here = self.size if self.storage is not None or self.weak is None else 0
        self.store.ended.append((here, self.away, self.ready, under_way))


class StoredTensor(NamedTuple):
    """A saved tensor whose storage may be elsewhere."""

    entry: Entry
    window: tuple[Any, ...]
    version: int
    witness: torch.Tensor
    """an alias without memory shares the count of changes, and so tells of them as autograd would"""

    @classmethod
    def of(cls, entry: Entry, tensor: torch.Tensor) -> "StoredTensor":
        """Look onto an entry as a tensor does onto its storage."""
        witness = tensor.detach()
        witness.data = _nothing(tensor.dtype, tensor.device)
        entry.left.add(id(witness))
        window = tensor.storage_offset(), tensor.shape, tensor.stride()
        return tuple.__new__(cls, (entry, window, tensor._version, witness))

    @property
    def changed(self) -> bool:
        """Whether it was changed in place after it was saved."""
        return self.witness._version != self.version

    def tensor(self) -> torch.Tensor:
        """Return the tensor, unless it was changed after it was saved."""
        entry, window, version, witness = self
        check_version(witness, version)
        entry.left.discard(id(witness))
        return torch.empty(0, dtype=witness.dtype, device=witness.device).set_(entry.store.open(entry), *window)


Keep = Callable[[torch.Tensor], KeptTensor | StoredTensor]
"""Keeps a tensor, in a way of its own."""

give_again: Callable[[KeptTensor | StoredTensor], torch.Tensor] = methodcaller("tensor")
"""Returns the tensor that was kept."""


@cache
def _nothing(dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    return torch.empty(0, dtype=dtype, device=device)


_STRIDED = torch.strided


class TensorStore:
    """The saved tensors of one device; storages of fewer than `min_bytes` stay."""

    def __init__(self, mover: Mover, min_bytes: int = 0) -> None:
        self.mover, self.least = mover, max(1, min_bytes)
        self.metrics = Metrics(title="saved tensors")
        self.ended: deque[tuple[int, Piece | None, Any, torch.UntypedStorage | None]] = deque()
        """of entries that have: their bytes on the device, and what is to be given back"""
        self.held = 0
        """bytes on the device"""
        self._moving: deque[ref[Entry]] = deque()
        self._entries: dict[Any, ref[Entry]] = {}

    def restart(self) -> None:
        """Forget what has ended."""
        self.collect()
        self._entries = {key: entry for key, entry in self._entries.items() if entry() is not None}
        self._moving = deque(entry for entry in self._moving if entry() is not None)

    def save(self, tensor: torch.Tensor) -> tuple[KeptTensor | StoredTensor, Entry | None]:
        """Take a tensor that autograd saves; the entry is given where it is a new one, to be moved or not."""
        return self.hold(tensor) if self.movable(tensor, self.least) else (keep(tensor), None)

    def hold(self, tensor: torch.Tensor) -> tuple[StoredTensor, Entry | None]:
        """Take one that is movable."""
        storage = tensor.untyped_storage()
        key = storage._cdata, tensor._version, _storage_part(tensor, storage)
        reference = self._entries.get(key)
        entry = reference() if reference is not None else None
        if entry is not None:
            return StoredTensor.of(entry, tensor), None
        self.collect()
        entry = Entry(self, storage.nbytes(), storage)
        self._entries[key] = ref(entry)
        self._add(entry.size)
        return StoredTensor.of(entry, tensor), entry

    def _add(self, nbytes: int) -> None:
        """Count bytes that come onto the device."""
        self.held += nbytes
        if self.held > self.metrics.peak["device"]:
            self.metrics.peak["device"] = self.held

    def movable(self, tensor: torch.Tensor, least: int) -> bool:
        """Tell whether a tensor is one that may be moved, and of no fewer bytes."""
        if type(tensor) is not torch.Tensor or tensor.layout is not _STRIDED or tensor.is_nested:
            return False  # parameters most of all
        if tensor.untyped_storage().nbytes() < least:  # most are small: that is asked early
            return False
        base = tensor if tensor._base is None else tensor._base
        if base.is_leaf and (base.requires_grad or isinstance(base, torch.nn.Parameter)):
            return False  # parameters, frozen ones too, and their views, are there anyway
        plain = not (tensor.is_quantized or tensor.is_conj() or tensor.is_neg())
        return plain and tensor.device == self.mover.device

    def collect(self) -> None:
        """Take note of what has ended."""
        while self.ended:
            here, away, ready, under_way = self.ended.popleft()
            self.held -= here
            if under_way is not None:
                self._wait("collect: copied", ready)
            if away is not None:
                self.mover.room.give(away, [] if ready is None else [ready])

    def encode(self, entry: Entry, codec: Codec, tensor: torch.Tensor) -> None:
        """Replace what is kept by its encoding, where the codec takes it and it is smaller."""
        array = dense(tensor)
        if array is None or entry.storage is None or not self.mover.handles(codec, array):
            return
        payload, size = self.mover.encode(codec, array)
        if size < entry.size:
            entry.codec = codec, array.dtype, tuple(array.shape), entry.size
            self.metrics.ratios.add(entry.size, size)
            self.held += size - entry.size
            entry.storage, entry.size = payload, size

    def send(self, *entries: Entry) -> list[Entry]:
        """Begin to copy entries down, which stay on the device until they are settled; return those with room below.

        What has left before, or is on its way, is among them.
        """
        sent: list[Entry] = []
        falling: list[tuple[Entry, Piece]] = []
        moves: list[Move] = []
        for entry in entries:
            if entry.storage is not None and entry.away is None:
                piece = self.mover.room.take(entry.size)
                if piece is None:
                    continue
                falling.append((entry, piece))
                moves.append(self.mover.down(entry.storage, entry.size, piece))
            sent.append(entry)
        ends = self.mover.machine.moves("down 1", moves) if moves else []
        for (entry, piece), ready in zip(falling, ends, strict=True):
            entry.away, entry.ready = piece, ready
            self.metrics.moved["down 1"] += entry.size
            self._moving.append(ref(entry))
        if self.mover.room.used > self.metrics.peak["host"]:
            self.metrics.peak["host"] = self.mover.room.used
        return sent

    def settle(self) -> bool:
        """Let the oldest of those under way leave the device; False where none is."""
        while self._moving:
            entry = self._moving.popleft()()
            if entry is not None and self.leave(entry):
                return True
        return False

    def leave(self, entry: Entry) -> bool:
        """Free the device's copy of an entry that has been sent, once the copies that use it have ended."""
        if entry.storage is None or entry.away is None:
            return False
        if entry.ready is not None:
            # Memory that the computation takes again is no longer read or written.
            self._wait("leave: copied", entry.ready)
        entry.storage = None
        self.held -= entry.size
        return True

    def _wait(self, why: str, event: Any) -> None:
        if not self.mover.machine.has_waited(event):
            self.mover.machine.hold(Wait(why, event))

    def fetch(self, *entries: Entry) -> None:
        """Begin to bring entries back, those that have left."""
        gone: list[tuple[Entry, torch.UntypedStorage]] = []
        moves: list[Move] = []
        for entry in entries:
            if entry.storage is None and entry.away is not None and not self._reuse_live_storage(entry):
                storage = new_storage(entry.size, self.mover.device)
                gone.append((entry, storage))
                moves.append(self.mover.up(entry.away, storage, entry.size, entry.ready))
        ends = self.mover.machine.moves("up 1", moves) if moves else []
        for (entry, storage), ready in zip(gone, ends, strict=True):
            entry.storage, entry.ready = storage, ready
            self._add(entry.size)
            self.metrics.moved["up 1"] += entry.size

    def _reuse_live_storage(self, entry: Entry) -> bool:
        """Take the storage back where others have held it all the while: a second copy would take more memory."""
        if entry.codec is None and entry.weak is not None:
            entry.storage = strong_storage(entry.weak)
            self._add(0 if entry.storage is None else entry.size)
        return entry.storage is not None

    def open(self, entry: Entry) -> torch.UntypedStorage:
        """Return the storage of an entry for one of its saved tensors, fetching it where nobody has."""
        self.collect()
        if entry.storage is None:
            self.metrics.misses += 1
            self.fetch(entry)
        else:
            self.metrics.hits += 1
        storage = entry.storage
        assert storage is not None
        if entry.away is not None and entry.ready is not None:
            self._wait("open: arrived", entry.ready)
        if entry.codec is not None:
            codec, dtype, shape, nbytes = entry.codec
            whole = new_storage(nbytes, storage.device)
            out = torch.empty(0, dtype=dtype, device=storage.device).set_(whole).reshape(shape)
            self.mover.decode(codec, storage, entry.size, out)
            storage = whole
        if not entry.left and entry.away is not None:
            # All have been served: who needs it now holds it. A second backward pass finds the copy below.
            entry.storage = None
            self.held -= entry.size
        return storage


def _storage_part(tensor: torch.Tensor, storage: torch.UntypedStorage) -> Any:
    """Tell parts of a storage apart that count their changes each by itself, as those of `unsafe_chunk` do.

    Views count together with the tensor that they look onto; that has all of its storage, but for such parts.
    """
    whole = tensor if tensor._base is None else tensor._base
    if whole.numel() * whole.element_size() == storage.nbytes():
        return None
    return whole.storage_offset(), whole.shape, whole.stride()
