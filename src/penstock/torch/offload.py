"""`offload`: the saved tensors of any autograd code kept within a budget, by moving those that are needed last."""

import sys
from collections.abc import Hashable
from types import TracebackType
from typing import Any, Self
from weakref import ref

import torch

from penstock.codec import Codec
from penstock.codec import get as get_codec
from penstock.errors import BudgetError
from penstock.metrics import Metrics
from penstock.torch.mover import mover_for
from penstock.torch.order import fetch_order, to_move
from penstock.torch.saved import Entry, Held, Kept, Store
from penstock.units import Budget, to_bytes, to_text


def offload(budget: Budget | str | float, codec: str | None = None, min_bytes: str | float = "1MB") -> "Offload":
    """Keep the saved tensors of autograd code within a budget.

    In the first iteration those saved first move to the host when the budget is reached. Their order is learned, and
    from the second iteration on just those move that are asked for last, as soon as they are saved, and come back
    ahead of their use. What is learned belongs to the place in the program where `offload` was called, so a ``with``
    statement in a loop learns as well as an object made before the loop.

    Parameters
    ----------
    budget : Budget, str or int
        Bytes of saved tensors on the device, and of pinned memory on the host; half of the free host memory where it
        is not named. What a backward function is just using comes on top.
    codec : str, optional
        Encodes what moves, such as ``"cast:float16"``; tensors of types that it does not take move as they are. A
        lossy codec changes gradients; without one they are bit-equal.
    min_bytes : str or int
        Smaller storages stay on the device and are not counted.

    Returns
    -------
    Offload
        A context manager. Backward may be called inside or outside; ``metrics`` tells what moved.

    Examples
    --------
    >>> x = torch.ones(1000, requires_grad=True)
    >>> with offload(Budget(device="5kB", host="1MB"), min_bytes=0) as saved:
    ...     x.exp().exp().sum().backward()
    >>> round(x.grad[0].item(), 3), saved.metrics.moved["down 1"]
    (41.194, 4000)
    """
    budget = Budget.of(budget)
    if budget.device is None:
        raise BudgetError("offload needs the bytes of the device: give Budget(device='8GB', host='64GB')")
    if budget.host is None:
        budget = budget.with_tier("host", _half_of_host())
    caller = sys._getframe(1)
    place = caller.f_code.co_filename, caller.f_code.co_name, caller.f_lineno
    return Offload(budget, None if codec is None else get_codec(codec), to_bytes(min_bytes), place)


class Offload:
    """The context manager that `offload` makes."""

    def __init__(self, budget: Budget, codec: Codec | None, min_bytes: int, place: Hashable) -> None:
        self._key = place, budget, None if codec is None else codec.name, min_bytes
        self._budget, self._codec, self._min_bytes = budget, codec, min_bytes
        self._keeper: Keeper | None = None
        self._hooks: list[Any] = []

    @property
    def metrics(self) -> Metrics:
        """What moved, since this place in the program was first reached."""
        return self._keeper.store.metrics if self._keeper else Metrics(title="saved tensors")

    def __enter__(self) -> Self:
        if self._keeper is not None:
            self._keeper.restart()
        hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, _unpack)
        hooks.__enter__()
        self._hooks.append(hooks)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._hooks.pop().__exit__(kind, error, trace)

    def _pack(self, tensor: torch.Tensor) -> "Kept | Held | Opened":
        if self._keeper is None:
            device = tensor.device
            if device.type not in ("cpu", "cuda") or (device.type == "cpu" and torch.cuda.is_available()):
                return Kept(tensor)  # a scalar on the host before the first tensor of the GPU
            key = *self._key, device
            if key not in _keepers:
                _keepers[key] = Keeper(self._budget, self._codec, self._min_bytes, device)
            self._keeper = _keepers[key]
            self._keeper.restart()
        return self._keeper.pack(tensor)


_keepers: dict[Hashable, "Keeper"] = {}  # slabs stay pinned for the next iteration


class Opened:
    """A saved tensor whose use is noted."""

    __slots__ = ("_held", "_keeper")

    def __init__(self, keeper: "Keeper", held: Held) -> None:
        self._keeper, self._held = keeper, held

    def tensor(self) -> torch.Tensor:
        """Give the tensor, and begin to fetch what comes after it."""
        self._keeper.used(self._held.entry)
        return self._held.tensor()


def _unpack(saved: Kept | Held | Opened) -> torch.Tensor:
    return saved.tensor()


class Keeper:
    """Learns the order of an iteration, plans what moves, and moves it."""

    def __init__(self, budget: Budget, codec: Codec | None, min_bytes: int, device: torch.device) -> None:
        self.store = Store(mover_for(device, budget.host), min_bytes)
        self._host, self._budget, self._codec = budget["host"], budget["device"], codec
        self._sizes: list[int] = []
        self._uses: list[int] = []
        self._entries: list[ref[Entry]] = []
        self._learned: list[int] = []  # the sizes that the plan is for
        self._order: list[int] = []
        self._moved: frozenset[int] = frozenset()
        self._next = 0
        self._fits = False  # whether the last iteration had room for everything
        self._plain: set[int] = set()  # storages that were let through
        self._plain_bytes = 0

    def restart(self) -> None:
        """Plan the next iteration from the last."""
        if self._sizes and self._uses and self._sizes != self._learned:
            self._order = fetch_order(len(self._sizes), self._uses)
            self._moved = to_move(self._sizes, self._order, self._budget)
            self._learned = self._sizes
            self._fits = not self._moved
        self._plain.clear()
        self._plain_bytes = 0
        self._sizes, self._uses, self._entries, self._next = [], [], [], 0
        self.store.restart()

    def pack(self, tensor: torch.Tensor) -> Kept | Opened:
        """Save a tensor; move it where the plan says so, and others where the budget is reached."""
        if self._fits and self._let_through(tensor):
            return Kept(tensor)
        held, entry = self.store.save(tensor)
        if entry is not None:
            self._sizes.append(entry.nbytes)
            self._entries.append(ref(entry))
            if self._as_learned() and entry.number in self._moved:
                self._send(entry, tensor)
            while self.store.held + self._plain_bytes > self._budget and (self.store.settle() or self._evict()):
                pass
        return Opened(self, held) if isinstance(held, Held) else held

    def _let_through(self, tensor: torch.Tensor) -> bool:
        """Only count a tensor where all are known to fit; False when there are more than there were."""
        if not self.store.movable(tensor):
            return True
        storage = tensor.untyped_storage()
        if storage._cdata not in self._plain:
            if self._plain_bytes + storage.nbytes() > self._budget:
                self._fits = False
                self._learned = []
                return False
            self._plain.add(storage._cdata)
            self._plain_bytes += storage.nbytes()
        return True

    def _as_learned(self) -> bool:
        """Tell whether this iteration goes like the one that the plan was made from, so far."""
        number = len(self._sizes) - 1
        return number < len(self._learned) and self._sizes[number] == self._learned[number]

    def _evict(self) -> bool:
        """Send away the oldest that is still here; False where nothing is."""
        for reference in self._entries:
            entry = reference()
            if entry is not None and entry.storage is not None and entry.away is None and entry.codec is None:
                self._send(entry, None)
                return True
        return False

    def _send(self, entry: Entry, tensor: torch.Tensor | None) -> None:
        if self._codec is not None and tensor is not None:  # one that is evicted later moves as it is
            self.store.encode(entry, self._codec, tensor)
        if not self.store.send(entry):
            raise BudgetError(
                f"the host budget of {to_text(self._host)} has no room for another {to_text(entry.size)} of saved "
                f"tensors, and the device budget of {to_text(self._budget)} is full: raise one of them"
            )

    def used(self, entry: Entry) -> None:
        """Note that an entry is asked for, and fetch ahead what fits."""
        if entry.number >= len(self._entries) or self._entries[entry.number]() is not entry:
            return  # of an earlier iteration, whose order is over
        if not self._uses and len(self._sizes) != len(self._learned):
            self._order = fetch_order(len(self._sizes), [])
        self._uses.append(entry.number)
        self.store.collect()
        while self._next < len(self._order):
            number = self._order[self._next]
            ahead = self._entries[number]() if number < len(self._entries) else None
            if (
                ahead is not None
                and ahead is not entry
                and ahead.away is not None
                and ahead.storage is None
                and ahead.left
            ):
                if self.store.held + ahead.size > self._budget:
                    return
                self.store.fetch(ahead)
            self._next += 1


def _half_of_host() -> int:
    from penstock.tier.capacity import host_capacity

    return host_capacity().free // 2
