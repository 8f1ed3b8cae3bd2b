"""The saved tensors of one device at one place in a program: their order is learned, and the last used ones move."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple
from weakref import ref

import torch

from forebay.codec import Codec
from forebay.errors import BudgetError
from forebay.tier.capacity import free_host_bytes, host_capacity, less_of_host
from forebay.torch.compat import graph_task
from forebay.torch.storage.mover import mover_for
from forebay.torch.storage.tensors import Entry, GraphToken, KeptTensor, StoredTensor, TensorStore, keep, kept
from forebay.units import Budget, to_text


class LearnedOrder(NamedTuple):
    """What an iteration told of those that go like it."""

    sizes: Sequence[int] = ()
    """of what is saved, in that order"""
    counted: int = 0
    """bytes beside it that are only counted"""
    order: Sequence[int] = ()
    """of the first uses"""
    moved: frozenset[int] = frozenset()
    """what has to leave the device"""


class SavingIteration(NamedTuple):
    """An iteration so far."""

    token: Callable[[], GraphToken | None]
    learned: LearnedOrder
    """of the iterations before"""
    ahead: deque[int]
    """what is to be fetched yet, in its order"""
    entries: list[tuple[int, "ref[Entry]"]]
    """what was saved, and its bytes"""
    uses: list[int]
    counted: list[int]
    """bytes of what is only counted"""


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
        host = _half_of_host() if budget.host is None else budget.host
        budget, less = less_of_host(budget.with_tier("host", host), free_host_bytes())
        self._limits = Limits(budget["device"], budget["host"], codec, less)
        super().__init__(mover_for(device, budget.host), min_bytes)
        self._iteration = SavingIteration(lambda: None, LearnedOrder(), deque(), [], [], [])
        self._staying: deque[ref[Entry]] = deque()  # entries that nobody has sent away

    def restart(self) -> None:
        """Plan the next iteration from the last."""
        last, learned = self._iteration, self._iteration.learned
        sizes, counted = [nbytes for nbytes, _ in last.entries], sum(last.counted)
        if last.uses and (sizes, counted) != (learned.sizes, learned.counted):
            order = fetch_order(len(sizes), last.uses)
            learned = LearnedOrder(sizes, counted, order, to_move(sizes, order, self._limits.device - counted))
        super().restart()
        self._staying = deque(entry for entry in self._staying if entry() is not None)
        live = [entry for reference in self._entries.values() if (entry := reference()) is not None]
        counted_before = [entry.size for entry in live if entry.weak is None]
        self._iteration = SavingIteration(lambda: None, learned, deque(learned.order), [], [], counted_before)

    def pack(self, tensor: torch.Tensor) -> KeptTensor | StoredTensor:
        """Save a tensor; move it where the plan says so, and others where the budget is reached."""
        if type(tensor) is not _PLAIN or tensor.layout is not _STRIDED:
            return keep(tensor)  # parameters most of all
        token = self._iteration.token() or self._begin()
        storage = tensor.untyped_storage()
        reference = self._entries.get(storage._cdata)
        entry = None if reference is None else reference()
        if entry is None:
            base = tensor if tensor._base is None else tensor._base
            if base.is_leaf and (base.requires_grad or type(base) is not _PLAIN):
                return keep(tensor)  # views of parameters
            entry = self._only_count(storage)
            if entry is None:
                return self._hold_or_send(tensor, token)
        entry.token = token
        return kept((tensor.detach(), tensor._version, entry))

    def _hold_or_send(self, tensor: torch.Tensor, token: GraphToken) -> KeptTensor | StoredTensor:
        if not self.movable(tensor, 1) or (tensor.is_cpu and not tensor.dim()):
            return keep(tensor)
        stored, entry = self.hold(tensor)
        stored.entry.token = token
        if entry is not None:
            entry.number = len(self._iteration.entries)
            self._iteration.entries.append((entry.size, ref(entry)))
            sizes = self._iteration.learned.sizes  # does this iteration go like those, up to what was saved just now?
            as_learned = entry.number < len(sizes) and entry.size == sizes[entry.number]
            if as_learned and entry.number in self._iteration.learned.moved:
                self._send_away(entry, tensor)
            else:
                self._staying.append(ref(entry))
            self._make_room(0)
        return stored

    def _begin(self) -> GraphToken:
        """Begin the next iteration when all of the last is gone: a loop may be inside of one `with` statement."""
        if graph_task() == -1:  # a backward pass may save more of its own
            self.restart()
        token = GraphToken()
        self._iteration = self._iteration._replace(token=ref(token))
        return token

    def _only_count(self, storage: torch.UntypedStorage) -> Entry | None:
        """Count a storage and let it stay, where it is small and there is room for it."""
        nbytes = storage.nbytes()
        if nbytes >= self.least:
            return None
        if self.ended:
            self.collect()
        if self.held + nbytes > self._limits.device and not self._make_room(nbytes):
            return None
        entry = Entry(self, nbytes)
        self._entries[storage._cdata] = ref(entry)
        self._iteration.counted.append(nbytes)
        self._add(nbytes)
        return entry

    def _make_room(self, nbytes: int) -> bool:
        """Have others leave the device until so many bytes fit; tell whether they do."""
        room = self._limits.device - nbytes
        if self.held > room:
            self.collect()
        while self.held > room:
            if not (self.settle() or self._evict()):
                return False
        return True

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
        now = self._iteration
        if entry.number < len(now.entries) and now.entries[entry.number][1]() is entry:  # else its order is over
            if not now.uses and len(now.entries) != len(now.learned.sizes):
                now.ahead.clear()
                now.ahead.extend(fetch_order(len(now.entries), []))
            now.uses.append(entry.number)
            self.collect()
            while now.ahead and self._fetch_ahead(now.ahead[0], entry):
                now.ahead.popleft()
        return super().open(entry)

    def _fetch_ahead(self, number: int, asked: Entry) -> bool:
        """Fetch what was saved at some place, where it has left and will be asked for; False where there is no room."""
        entry = self._iteration.entries[number][1]() if number < len(self._iteration.entries) else None
        if entry is not None and entry is not asked and entry.away and entry.storage is None and entry.left:
            if self.held + entry.size > self._limits.device:
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


def _half_of_host() -> int:
    return host_capacity().free // 2
