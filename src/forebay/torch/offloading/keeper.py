"""The saved tensors of one device at one place in a program: their order is learned, and the last used ones move."""

from weakref import ref

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from forebay.codec import Codec
from forebay.errors import BudgetError
from forebay.tier.capacity import free_host_bytes, host_capacity, less_of_host
from forebay.torch.mover import mover_for, weakly
from forebay.torch.offloading.order import fetch_order, to_move
from forebay.torch.saved_tensors import Entry, GraphToken, KeptTensor, StoredTensor, TensorStore
from forebay.units import Budget, to_text


class CountedTensor(KeptTensor):
    """A saved tensor that stays because everything fits."""

    __slots__ = ("_keeper", "_token")

    def __init__(self, keeper: "Keeper", tensor: torch.Tensor, token: GraphToken) -> None:
        super().__init__(tensor)
        self._keeper, self._token = keeper, token

    def tensor(self) -> torch.Tensor:
        """Return the tensor, unless it was changed."""
        self._keeper.turned = True
        return super().tensor()


class TrackedTensor:
    """A saved tensor whose use is noted."""

    __slots__ = ("_held", "_keeper", "_token")

    def __init__(self, keeper: "Keeper", held: StoredTensor, token: GraphToken) -> None:
        self._keeper, self._held, self._token = keeper, held, token

    def tensor(self) -> torch.Tensor:
        """Return the tensor, and begin to fetch what comes after it."""
        self._keeper.used(self._held.entry)
        return self._held.tensor()


class Keeper:
    """Learns the order of an iteration, plans what moves, and moves it."""

    def __init__(self, budget: Budget, codec: Codec | None, min_bytes: int, device: torch.device) -> None:
        if budget.host is None:
            budget = budget.with_tier("host", _half_of_host())
        budget, self._less = less_of_host(budget, free_host_bytes())
        self.store = TensorStore(mover_for(device, budget.host), min_bytes)
        self.turned = False
        """whether something of this iteration has been asked for"""
        self.stored = False
        """whether something was more than counted since the last `with`"""
        self.most = 0
        """bytes that were let through since then, in one iteration"""
        self.budget = budget["device"]
        self._host, self._codec = budget["host"], codec
        self._token: ref[GraphToken] | None = None
        self._held: list[ref[GraphToken]] = []  # earlier iterations whose graphs somebody holds
        self._sizes: list[int] = []
        self._uses: list[int] = []
        self._entries: list[ref[Entry]] = []
        self._learned: list[int] = []  # the sizes that the plan is for
        self._order: list[int] = []
        self._moved: frozenset[int] = frozenset()
        self._next = 0
        self._fits = False  # whether the last iteration had room for everything
        self._partly = False  # whether some of this one was only counted, so that its order is not known
        self._plain: dict[int, tuple[StorageWeakRef, int]] = {}  # storages that were let through, and their bytes
        self._plain_bytes = 0

    def begin(self, learn: bool) -> None:
        """Begin another `with` statement, and learn from the last unless only its first tensors were looked at."""
        self._partly = self._partly or not learn
        self.restart()
        self.stored, self.most = False, 0

    def restart(self) -> None:
        """Plan the next iteration from the last."""
        if self._sizes and self._uses and self._sizes != self._learned and not self._partly:
            self._order = fetch_order(len(self._sizes), self._uses)
            self._moved = to_move(self._sizes, self._order, self.budget)
            self._learned = self._sizes
            self._fits = not self._moved
        self._held = [
            reference for reference in (*self._held, self._token) if reference is not None and reference() is not None
        ]
        if self._held:
            self._forget_gone()
        else:
            self._plain.clear()
            self._plain_bytes = 0
        self._partly = False
        self._sizes, self._uses, self._entries, self._next = [], [], [], 0
        self.turned, self._token = False, None
        self.store.restart()

    def pack(self, tensor: torch.Tensor) -> KeptTensor | TrackedTensor:
        """Save a tensor; move it where the plan says so, and others where the budget is reached."""
        if not self.store.movable(tensor):
            return KeptTensor(tensor)
        token = self._iteration()
        if self._fits and self._let_through(tensor):
            return CountedTensor(self, tensor, token)
        self.stored = True
        held, entry = self.store.save(tensor)
        if entry is not None:
            self._sizes.append(entry.nbytes)
            self._entries.append(ref(entry))
            if self._as_learned() and entry.number in self._moved:
                self._send(entry, tensor)
            if self.store.held + self._plain_bytes > self.budget:
                self._forget_gone()
            if self._plain_bytes:
                self.store.count_let_through(self._plain_bytes)
            while self.store.held + self._plain_bytes > self.budget and (self.store.settle() or self._evict()):
                pass
        return TrackedTensor(self, held, token) if isinstance(held, StoredTensor) else held

    def _iteration(self) -> GraphToken:
        """Begin the next iteration when all of the last has been used and is gone: a loop may be inside one `with`."""
        token = None if self._token is None else self._token()
        if token is None:
            if self.turned and torch._C._current_graph_task_id() == -1:  # a backward pass may save more of its own
                self.restart()
            token = GraphToken()
            self._token = ref(token)
        return token

    def _let_through(self, tensor: torch.Tensor) -> bool:
        """Only count a tensor where all are known to fit; False when there are more than there were."""
        storage = tensor.untyped_storage()
        if storage._cdata not in self._plain:
            nbytes = storage.nbytes()
            if self.store.held + self._plain_bytes + nbytes > self.budget:
                self.store.collect()
                self._forget_gone()
            if self.store.held + self._plain_bytes + nbytes > self.budget:
                self._fits, self._partly = False, bool(self._plain)
                self._learned = []
                return False
            self._plain[storage._cdata] = weakly(storage), nbytes  # no other storage has its address meanwhile
            self._plain_bytes += nbytes
            if self._plain_bytes > self.most:
                self.most = self._plain_bytes
                self.store.count_let_through(self.most)
        return True

    def _forget_gone(self) -> None:
        """Count no longer those that were let through and whose memory is free again."""
        gone = [address for address, (storage, _) in self._plain.items() if storage.expired()]  # type: ignore[no-untyped-call]
        for address in gone:
            self._plain_bytes -= self._plain.pop(address)[1]

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
            less = f"{self._less}; " if self._less else ""
            raise BudgetError(
                f"{less}the host budget of {to_text(self._host)} has no room for another {to_text(entry.size)} of "
                f"saved tensors, and the device budget of {to_text(self.budget)} is full: raise one of them"
            )

    def used(self, entry: Entry) -> None:
        """Note that an entry is asked for, and fetch ahead what fits."""
        if entry.number >= len(self._entries) or self._entries[entry.number]() is not entry:
            return  # of an earlier iteration, whose order is over
        if not self._uses and len(self._sizes) != len(self._learned):
            self._order = fetch_order(len(self._sizes), [])
        self.turned = True
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
                if self.store.held + ahead.size > self.budget:
                    return
                self.store.fetch(ahead)
            self._next += 1


def _half_of_host() -> int:
    return host_capacity().free // 2
