"""The saved tensors of one device at one place in a program: their order is learned, and the last used ones move."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from weakref import ref

import torch

from forebay.codec import Codec
from forebay.errors import BudgetError
from forebay.tier.capacity import free_host_bytes, host_capacity, less_of_host
from forebay.torch.compat import check_version, graph_task
from forebay.torch.mover import mover_for
from forebay.torch.saved_tensors import Entry, GraphToken, KeptTensor, StoredTensor, TensorStore, keep, kept
from forebay.units import Budget, to_text


class _LetThrough:
    """A storage that is only counted, as long as saved tensors hold this, and with it its address."""

    __slots__ = ("__weakref__", "keeper", "nbytes", "token")

    def __init__(self, keeper: "Keeper", nbytes: int) -> None:
        self.keeper, self.nbytes = keeper, nbytes
        self.token: GraphToken | None = None
        """of the last iteration that saved it"""

    def __del__(self) -> None:
        self.keeper.ended.append((0, self.nbytes, None, None, None))  # in any thread


def unpack(saved: KeptTensor | StoredTensor) -> torch.Tensor:
    """Return a saved tensor, unless it was changed."""
    if type(saved) is not KeptTensor:
        return saved.tensor()
    tensor, version, let = saved
    if let is not None:
        let.keeper.iteration.turned = True
    if tensor._version != version and version is not None:
        check_version(tensor, version)
    return tensor


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


@dataclass(slots=True)
class SavingIteration:
    """An iteration so far."""

    ahead: deque[int]
    """what is to be fetched yet, in its order"""
    most: int
    """bytes that were let through at once"""
    token: Callable[[], GraphToken | None] = lambda: None
    entries: list[tuple[int, "ref[Entry]"]] = field(default_factory=list)
    """what was saved, and its bytes"""
    uses: list[int] = field(default_factory=list)
    turned: bool = False
    """whether something of it has been asked for"""

    @property
    def sizes(self) -> list[int]:
        """The bytes of what was saved."""
        return [nbytes for nbytes, _ in self.entries]


class Limits(NamedTuple):
    """What a keeper may use."""

    device: int
    host: int
    codec: Codec | None
    less: str
    """tells that the host has less than the budget allows"""


class Keeper(TensorStore):
    """Learns the order of an iteration, plans what moves, and moves it; small storages only where they must."""

    def __init__(self, budget: Budget, codec: Codec | None, min_bytes: int, device: torch.device) -> None:
        budget, less = less_of_host(budget.with_tier("host", _host_of(budget)), free_host_bytes())
        self._limits = Limits(budget["device"], budget["host"], codec, less)
        super().__init__(mover_for(device, budget.host), min_bytes)
        self.iteration = SavingIteration(deque(), 0)
        self._learned = LearnedOrder([], 0, [], frozenset())
        self._staying: deque[ref[Entry]] = deque()  # entries that nobody has sent away
        self._let: dict[int, ref[_LetThrough]] = {}  # by the addresses of storages

    def restart(self) -> None:
        """Plan the next iteration from the last."""
        last, learned, sizes = self.iteration, self._learned, self.iteration.sizes
        if last.uses and (sizes, last.most) != (learned.sizes, learned.let_through):
            order = fetch_order(len(sizes), last.uses)
            moved = to_move(sizes, order, self._limits.device - last.most)
            self._learned = LearnedOrder(sizes, last.most, order, moved)
        super().restart()
        self._let = {address: let for address, let in self._let.items() if let() is not None}
        self._staying = deque(entry for entry in self._staying if entry() is not None)
        self.iteration = SavingIteration(deque(self._learned.order), self.let_through)

    def pack(self, tensor: torch.Tensor) -> KeptTensor | StoredTensor:
        """Save a tensor; move it where the plan says so, and others where the budget is reached."""
        if type(tensor) is not _PLAIN or tensor.layout is not _STRIDED:
            return keep(tensor)  # parameters most of all
        token = self.iteration.token() or self._begin()
        storage = tensor.untyped_storage()
        reference = self._let.get(storage._cdata)
        let = None if reference is None else reference()
        if let is None:
            base = tensor if tensor._base is None else tensor._base
            if base.is_leaf and (base.requires_grad or type(base) is not _PLAIN):
                return keep(tensor)  # views of parameters
            let = self._let_through(storage)
            if let is None:
                return self._hold_or_send(tensor, token)
        let.token = token
        return kept((tensor.detach(), tensor._version, let))

    def _hold_or_send(self, tensor: torch.Tensor, token: GraphToken) -> KeptTensor | StoredTensor:
        if not self.movable(tensor, 1) or (tensor.is_cpu and not tensor.dim()):
            return keep(tensor)
        held, entry = self.hold(tensor, token)
        if entry is not None:
            entry.number = len(self.iteration.entries)
            self.iteration.entries.append((entry.size, ref(entry)))
            if self._as_learned(entry) and entry.number in self._learned.moved:
                self._send_away(entry, tensor)
            else:
                self._staying.append(ref(entry))
            self._make_room(0)
        return held

    def _begin(self) -> GraphToken:
        """Begin the next iteration when all of the last has been used and is gone: a loop may be inside one `with`."""
        if self.iteration.turned and graph_task() == -1:  # a backward pass may save more of its own
            self.restart()
        token = GraphToken()
        self.iteration.token = ref(token)
        return token

    def _let_through(self, storage: torch.UntypedStorage) -> _LetThrough | None:
        """Only count a storage, where it is small and there is room for it."""
        nbytes = storage.nbytes()
        if nbytes >= self.least:
            return None
        if self.ended:
            self.collect()
        if self.held + self.let_through + nbytes > self._limits.device and not self._make_room(nbytes):
            return None
        let = _LetThrough(self, nbytes)
        self._let[storage._cdata] = ref(let)
        self.let(nbytes)
        self.iteration.most = max(self.iteration.most, self.let_through)
        return let

    def _make_room(self, nbytes: int) -> bool:
        """Have others leave the device until so many bytes fit; tell whether they do."""
        room = self._limits.device - nbytes
        if self.total > room:
            self.collect()
        while self.total > room:
            if not (self.settle() or self._evict()):
                return False
        return True

    def _as_learned(self, entry: Entry) -> bool:
        """Tell whether this iteration goes like the one that the plan was made from, up to what was saved just now."""
        sizes = self._learned.sizes
        return entry.number < len(sizes) and entry.size == sizes[entry.number]

    def _evict(self) -> bool:
        """Send away the oldest that is still here; False where nothing is."""
        while self._staying:
            entry = self._staying.popleft()()
            if entry is not None and entry.storage is not None:
                self._send_away(entry, None)
                return True
        return False

    def _send_away(self, entry: Entry, tensor: torch.Tensor | None) -> None:
        device, host, codec, less = self._limits
        if codec is not None and tensor is not None:  # one that is evicted later moves as it is
            self.encode(entry, codec, tensor)
        if not self.send(entry):
            raise BudgetError(
                f"{less + '; ' if less else ''}the host budget of {to_text(host)} has no room for another "
                f"{to_text(entry.size)} of saved tensors, and the device budget of {to_text(device)} is full: raise "
                "one of them"
            )

    def open(self, entry: Entry) -> torch.UntypedStorage:
        """Note that an entry is asked for, and fetch ahead what fits."""
        now = self.iteration
        if entry.number < len(now.entries) and now.entries[entry.number][1]() is entry:  # else its order is over
            if not now.uses and len(now.entries) != len(self._learned.sizes):
                now.ahead = deque(fetch_order(len(now.entries), []))
            now.turned = True
            now.uses.append(entry.number)
            self.collect()
            while now.ahead and self._fetch_ahead(now.ahead[0], entry):
                now.ahead.popleft()
        return super().open(entry)

    def _fetch_ahead(self, number: int, asked: Entry) -> bool:
        """Fetch what was saved at some place, where it has left and will be asked for; False where there is no room."""
        entry = self.iteration.entries[number][1]() if number < len(self.iteration.entries) else None
        gone = entry is not None and entry.away is not None and entry.storage is None and entry.left
        if entry is not None and entry is not asked and gone:
            if self.total + entry.size > self._limits.device:
                return False
            self.fetch(entry)
        return True


def fetch_order(count: int, uses: Sequence[int]) -> list[int]:
    """Sort the numbers of all that was saved by when they are first asked for.

    What was never asked for, or is not known to have been, is taken to come in the reverse order of saving.

    Examples
    --------
    >>> fetch_order(4, [3, 1, 3])
    [3, 1, 2, 0]
    """
    asked = list(dict.fromkeys(uses))
    placed = set(asked)
    return asked + [number for number in reversed(range(count)) if number not in placed]


def to_move(sizes: Sequence[int], order: Iterable[int], budget: int) -> frozenset[int]:
    """Choose what has to leave the device so that the rest is within the budget: those asked for last.

    Belady's rule; and as they are mostly those saved first, their copies have the longest time both ways.

    Examples
    --------
    >>> sorted(to_move([4, 4, 4, 4], order=[3, 2, 1, 0], budget=9))
    [0, 1]
    """
    excess = sum(sizes) - budget
    moved = set()
    for number in reversed(list(order)):
        if excess <= 0:
            break
        moved.add(number)
        excess -= sizes[number]
    return frozenset(moved)


_PLAIN, _STRIDED = torch.Tensor, torch.strided


def _host_of(budget: Budget) -> int:
    return _half_of_host() if budget.host is None else budget.host


def _half_of_host() -> int:
    return host_capacity().free // 2
