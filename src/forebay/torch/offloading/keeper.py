"""The saved tensors of one device at one place in a program: their order is learned, and the last used ones move."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple
from weakref import ref

import torch

from forebay.codec import Codec
from forebay.errors import BudgetError
from forebay.tier.capacity import free_host_bytes, host_capacity, less_of_host
from forebay.torch.compat import check_version, graph_task
from forebay.torch.mover import mover_for
from forebay.torch.offloading.order import fetch_order, to_move
from forebay.torch.saved_tensors import Entry, GraphToken, StoredTensor, TensorStore
from forebay.units import Budget, to_text

Counted = tuple[torch.Tensor, int, "_LetThrough | None"]
"""A saved tensor that stays where it is, how often it had been changed, and what counts its storage as long as it is
held: a plain tuple, for thousands are saved in a step; None for parameters and others that are there anyway."""


class TrackedTensor:
    """A saved tensor whose use is noted."""

    __slots__ = ("_held", "_keeper", "_token")

    def __init__(self, keeper: "Keeper", held: StoredTensor, token: GraphToken) -> None:
        self._keeper, self._held, self._token = keeper, held, token

    def tensor(self) -> torch.Tensor:
        """Return the tensor, and begin to fetch what comes after it."""
        self._keeper.used(self._held.entry)
        return self._held.tensor()


class _LetThrough:
    """A storage that is only counted, as long as saved tensors hold this, and with it its address."""

    __slots__ = ("__weakref__", "keeper", "nbytes", "token")

    def __init__(self, keeper: "Keeper", nbytes: int) -> None:
        self.keeper, self.nbytes = keeper, nbytes
        self.token: GraphToken | None = None
        """of the last iteration that saved it"""

    def __del__(self) -> None:
        self.keeper.store.ended.append((0, self.nbytes, None, None, None))  # in any thread


def unpack(saved: "Counted | TrackedTensor") -> torch.Tensor:
    """Return a saved tensor, unless it was changed."""
    if type(saved) is not tuple:
        return saved.tensor()  # type: ignore[union-attr]
    tensor, version, let = saved
    if let is not None:
        let.keeper.iteration.turned = True
    if tensor._version != version:
        check_version(tensor, version)
    return tensor


def stays(tensor: torch.Tensor) -> Counted:
    """Save a tensor that is there anyway: an output without its history, or its node would hold itself."""
    return tensor if tensor.is_leaf else tensor.detach(), tensor._version, None


class LearnedOrder(NamedTuple):
    """What an iteration told of those that go like it."""

    sizes: list[int]
    """of what is saved, in that order"""
    let_through: int
    """bytes beside it"""
    order: list[int]
    """of the first uses"""
    moved: frozenset[int]
    """what has to leave the device"""
    fits: bool = False
    """whether there was room for everything"""


NOTHING_LEARNED = LearnedOrder([], 0, [], frozenset())


@dataclass(slots=True)
class SavingIteration:
    """An iteration so far."""

    order: list[int]
    """to fetch in"""
    most: int
    """bytes that were let through at once"""
    token: "Callable[[], GraphToken | None]"
    sizes: list[int] = field(default_factory=list)
    entries: list["ref[Entry]"] = field(default_factory=list)
    uses: list[int] = field(default_factory=list)
    fetched: int = 0
    """how much of the order has been fetched"""
    partly: bool = False
    """whether some of it was only counted, so that its order is not known"""
    turned: bool = False
    """whether something of it has been asked for"""


class Keeper:
    """Learns the order of an iteration, plans what moves, and moves it."""

    def __init__(self, budget: Budget, codec: Codec | None, min_bytes: int, device: torch.device) -> None:
        if budget.host is None:
            budget = budget.with_tier("host", _half_of_host())
        self._budget, self._less = less_of_host(budget, free_host_bytes())
        self._room, self._codec, self._least = self._budget["device"], codec, min_bytes
        self.store = TensorStore(mover_for(device, self._budget.host))
        self.iteration = SavingIteration([], 0, _no_token)
        self._learned = NOTHING_LEARNED
        self._staying: deque[ref[Entry]] = deque()  # entries that nobody has sent away
        self._let: dict[int, ref[_LetThrough]] = {}  # by the addresses of storages

    def restart(self) -> None:
        """Plan the next iteration from the last."""
        last, learned = self.iteration, self._learned
        if last.uses and not last.partly and (last.sizes, last.most) != (learned.sizes, learned.let_through):
            order = fetch_order(len(last.sizes), last.uses)
            moved = to_move(last.sizes, order, self._room - last.most)
            self._learned = LearnedOrder(last.sizes, last.most, order, moved, not moved)
        self.store.restart()
        self._let = {address: let for address, let in self._let.items() if let() is not None}
        self._staying = deque(entry for entry in self._staying if entry() is not None)
        self.iteration = SavingIteration(self._learned.order, self.store.let_through, _no_token)

    def pack(self, tensor: torch.Tensor) -> "Counted | TrackedTensor":
        """Save a tensor; move it where the plan says so, and others where the budget is reached."""
        if type(tensor) is not _PLAIN or tensor.layout is not _STRIDED:
            return stays(tensor)  # parameters most of all
        token = self.iteration.token() or self._begin()
        storage = tensor.untyped_storage()
        reference = self._let.get(storage._cdata)
        let = None if reference is None else reference()
        if let is None:
            base = tensor if tensor._base is None else tensor._base
            if base.is_leaf and (base.requires_grad or type(base) is not _PLAIN):
                return stays(tensor)  # views of parameters
            let = self._let_through(storage)
            if let is None:
                return self._hold(tensor, token)
        let.token = token
        return tensor.detach(), tensor._version, let

    def _hold(self, tensor: torch.Tensor, token: GraphToken) -> "Counted | TrackedTensor":
        if not self.store.movable(tensor) or (tensor.is_cpu and not tensor.dim()):
            return stays(tensor)
        if self._learned.fits:  # there are more than there were
            self.iteration.partly, self._learned = bool(self._let), NOTHING_LEARNED
        held, entry = self.store.save(tensor)
        if entry is not None:
            self.iteration.sizes.append(entry.nbytes)
            self.iteration.entries.append(ref(entry))
            if self._as_learned() and entry.number in self._learned.moved:
                self._send(entry, tensor)
            else:
                self._staying.append(ref(entry))
            self._make_room(0)
        assert isinstance(held, StoredTensor)
        return TrackedTensor(self, held, token)

    def _begin(self) -> GraphToken:
        """Begin the next iteration when all of the last has been used and is gone: a loop may be inside one `with`."""
        if self.iteration.turned and graph_task() == -1:  # a backward pass may save more of its own
            self.restart()
        token = GraphToken()
        self.iteration.token = ref(token)
        return token

    def _let_through(self, storage: torch.UntypedStorage) -> _LetThrough | None:
        """Only count a storage, where all fits or it is small, and where there is room for it."""
        nbytes, store = storage.nbytes(), self.store
        if not self._learned.fits and nbytes >= self._least:
            return None
        if store.ended:
            store.collect()
        if store.held + store.let_through + nbytes > self._room and not self._make_room(nbytes):
            return None
        let = _LetThrough(self, nbytes)
        self._let[storage._cdata] = ref(let)
        store.let(nbytes)
        self.iteration.most = max(self.iteration.most, store.let_through)
        return let

    def _make_room(self, nbytes: int) -> bool:
        """Have others leave the device until so many bytes fit; tell whether they do."""
        if self.store.total + nbytes > self._room:
            self.store.collect()
        while self.store.total + nbytes > self._room:
            if not (self.store.settle() or self._evict()):
                return False
        return True

    def _as_learned(self) -> bool:
        """Tell whether this iteration goes like the one that the plan was made from, so far."""
        sizes, learned = self.iteration.sizes, self._learned.sizes
        return len(sizes) <= len(learned) and sizes[-1] == learned[len(sizes) - 1]

    def _evict(self) -> bool:
        """Send away the oldest that is still here; False where nothing is."""
        while self._staying:
            entry = self._staying.popleft()()
            if entry is not None and entry.storage is not None:
                self._send(entry, None)
                return True
        return False

    def _send(self, entry: Entry, tensor: torch.Tensor | None) -> None:
        if self._codec is not None and tensor is not None:  # one that is evicted later moves as it is
            self.store.encode(entry, self._codec, tensor)
        if not self.store.send(entry):
            less, host = f"{self._less}; " if self._less else "", to_text(self._budget["host"])
            raise BudgetError(
                f"{less}the host budget of {host} has no room for another {to_text(entry.size)} of saved tensors, and "
                f"the device budget of {to_text(self._room)} is full: raise one of them"
            )

    def used(self, entry: Entry) -> None:
        """Note that an entry is asked for, and fetch ahead what fits."""
        now = self.iteration
        if entry.number >= len(now.entries) or now.entries[entry.number]() is not entry:
            return  # of an earlier iteration, whose order is over
        if not now.uses and len(now.sizes) != len(self._learned.sizes):
            now.order = fetch_order(len(now.sizes), [])
        now.turned = True
        now.uses.append(entry.number)
        self.store.collect()
        while now.fetched < len(now.order):
            number = now.order[now.fetched]
            ahead = now.entries[number]() if number < len(now.entries) else None
            if (
                ahead is not None
                and ahead is not entry
                and ahead.away is not None
                and ahead.storage is None
                and ahead.left
            ):
                if self.store.total + ahead.size > self._room:
                    return
                self.store.fetch(ahead)
            now.fetched += 1


_PLAIN, _STRIDED = torch.Tensor, torch.strided


def _no_token() -> None:
    return None


def _half_of_host() -> int:
    return host_capacity().free // 2
