"""When saved tensors need not be looked at: iterations like some that left room to spare go on without hooks.

A hook takes microseconds for each saved tensor, and networks whose speed the host binds save thousands of them a step.
So hooks look at the first tensors of an iteration. Where these are those of iterations that were alike in all that they
saved, and left room in the budget, the hooks are taken off for the rest. What a GPU allocates meanwhile, and one look
every so many iterations, tell where that is no longer right.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from weakref import ref

import torch

from forebay.torch.offloading.keeper import Keeper, TrackedTensor
from forebay.torch.saved_tensors import GraphToken, KeptTensor

FIRST = 8
"""So many tensors, other than parameters, tell one kind of iteration from another."""

ALIKE = 2
"""So many iterations, of which everything was let through, are alike before one is not looked at."""

LEARNED = 1 + ALIKE
"""After so many iterations hooks are taken off, where all is well; in the first the order of uses is learned."""

LOOK_EVERY = 64
"""Of so many iterations of one kind one is looked at."""

SPARE = 1 / 8
"""The part of the budget that has to be left."""

MOST_ROUNDS = 16
"""A `with` statement around more iterations is a training loop, in which much may change."""

MOST_KINDS = 32
"""So many kinds of iterations are known; that which was met longest ago goes first."""

Look = tuple[torch.Size, torch.dtype, torch.device]
Bytes = dict[torch.device, int]
Keepers = Mapping[torch.device, Keeper]

_push = torch._C._autograd._push_saved_tensors_default_hooks
_pop = torch._C._autograd._pop_saved_tensors_default_hooks
_top = torch._C._autograd._top_saved_tensors_default_hooks


def bytes_ever_allocated(device: torch.device) -> int | None:
    """Return the bytes that the allocator of a GPU was ever asked for; None on the host, or where it does not count."""
    if device.type != "cuda":
        return None
    try:
        return int(torch.cuda.memory_stats_as_nested_dict(device)["allocated_bytes"]["all"]["allocated"])
    except (RuntimeError, KeyError):  # an allocator that was plugged in
        return None


class FirstTensor:
    """One of the first tensors that an iteration saved: while it is held, so is a graph of that iteration."""

    __slots__ = ("_saved", "_token")

    def __init__(self, saved: KeptTensor | TrackedTensor, token: GraphToken) -> None:
        self._saved, self._token = saved, token

    def tensor(self) -> torch.Tensor:
        """Return the tensor."""
        return self._saved.tensor()


class Visit:
    """One passage of a thread through a `with` statement. It is the hook that packs, until it is taken off."""

    def __init__(
        self, steady_state: "SteadyState", pack: Callable[[int, torch.Tensor], KeptTensor | TrackedTensor], alone: bool
    ) -> None:
        self.thread = threading.get_ident()
        self.count = 0
        """of saved tensors that were looked at"""
        self.rounds = 0
        """iterations that have ended"""
        self.first: list[Look] = []
        self.off = False
        """whether it was taken off before the end"""
        self.failed = False
        """whether it ended by an exception, so that it tells nothing"""
        self.alone = alone
        """whether nothing else is under way that would be mistaken for its own"""
        self.before: Bytes = {}
        """bytes ever allocated on each GPU when it began"""
        self.allocated: Bytes = {}
        """bytes that were allocated meanwhile"""
        self._steady_state, self._pack = steady_state, pack
        self._token: ref[GraphToken] | None = None

    def __call__(self, tensor: torch.Tensor) -> KeptTensor | TrackedTensor | FirstTensor:
        """Pack a tensor."""
        self.count += 1
        saved = self._pack(self.thread, tensor)  # a backward pass that saves more does so in another thread
        if len(self.first) == FIRST and self.held:
            return saved
        return saved if _is_parameter(tensor) else self._note(tensor, saved)

    def _note(self, tensor: torch.Tensor, saved: KeptTensor | TrackedTensor) -> FirstTensor:
        if len(self.first) == FIRST:
            self.rounds += torch._C._current_graph_task_id() == -1
        else:
            self.first.append((tensor.shape, tensor.dtype, tensor.device))
        if not self.rounds and len(self.first) == FIRST and self._can_unhook() and self._steady_state.may_skip(self):
            _pop()
            self.off = True
        token = None if self._token is None else self._token()
        if token is None:
            token = GraphToken()
            self._token = ref(token)
        return FirstTensor(saved, token)

    @property
    def held(self) -> bool:
        """Whether somebody still holds a graph of it."""
        return self._token is not None and self._token() is not None

    def _can_unhook(self) -> bool:
        """Tell whether that would leave none, in the thread that entered; a backward pass has hooks of its own."""
        here = threading.get_ident() == self.thread and torch._C._current_graph_task_id() == -1
        return self.alone and here and self._is_on()

    def _is_on(self) -> bool:
        hooks: Any = _top(True)
        return hooks is not None and hooks[0] is self

    def begin(self, unpack: Callable[[Any], torch.Tensor], devices: Keepers) -> None:
        """Look at what is saved from here on."""
        self.alone = self.alone and _top(True) is None  # else those of somebody else would be called instead
        self.before = _counted(devices)
        _push(self, unpack)

    def end(self) -> None:
        """Look no longer."""
        if not self.off or self._is_on():  # it is on again where threads' states were exchanged meanwhile
            _pop()
        self.allocated = {device: now - self.before[device] for device, now in _counted(self.before).items()}


def _counted(devices: Mapping[torch.device, Any]) -> Bytes:
    counted = {device: bytes_ever_allocated(device) for device in devices}
    return {device: nbytes for device, nbytes in counted.items() if nbytes is not None}


def _is_parameter(tensor: torch.Tensor) -> bool:
    base = tensor if tensor._base is None else tensor._base
    return base.is_leaf and base.requires_grad


@dataclass(slots=True)
class IterationKind:
    """Iterations whose first saved tensors have the same shapes."""

    saved: tuple[int, Bytes] | None = None
    """tensors that were saved and bytes that were let through; None where there was no room to spare"""
    alike: int = 0
    """how many were looked at of which that is true, one after the other"""
    unseen: int = 0
    """how many have not been looked at since"""
    allocated: Bytes = field(default_factory=dict)
    """bytes that the last one that was looked at allocated on each GPU"""


class SteadyState:
    """What is known of the iterations of one thread at one place in a program."""

    def __init__(self) -> None:
        self.unseen = 0
        """iterations that were not looked at"""
        self._kinds: dict[tuple[Look, ...], IterationKind] = {}
        self._wanted = ALIKE
        self._open: list[Visit] = []
        self._last: Visit | None = None
        self._held: list[Visit] = []  # those of which somebody holds a graph

    def enter(
        self,
        pack: Callable[[int, torch.Tensor], KeptTensor | TrackedTensor],
        unpack: Callable[[Any], torch.Tensor],
        own: Keepers,
    ) -> Visit:
        """Learn from the last visit, and begin another."""
        last, self._last = self._last, None
        if last is not None:
            self._held.append(last)
            if not last.failed:
                self._judge(last, own)
        self._held = [visit for visit in self._held if visit.held]
        for keeper in own.values():
            keeper.begin(last is None or not last.off)
        for outer in self._open:
            outer.alone = False
        visit = Visit(self, pack, not self._open and not self._held)
        visit.begin(unpack, own)
        self._open.append(visit)
        return visit

    def leave(self, failed: bool) -> None:
        """End the visit that was begun last. One that failed tells nothing."""
        visit = self._open.pop()
        visit.end()
        visit.failed = failed
        self._last = visit  # it is judged at the next, as its backward pass may be still to come

    def may_skip(self, visit: Visit) -> bool:
        """Tell whether the rest of a visit that began like this need not be looked at, and count those that are not."""
        kind = self._kinds.get(tuple(visit.first))
        if kind is None or kind.alike < self._wanted or kind.unseen + 1 >= LOOK_EVERY:
            return False
        kind.unseen += 1
        self.unseen += 1
        return True

    def _judge(self, visit: Visit, own: Keepers) -> None:
        first = tuple(visit.first)
        if len(first) < FIRST:  # it is not worth it
            return
        kind = self._kinds[first] = self._kinds.pop(first, IterationKind())
        while len(self._kinds) > MOST_KINDS:
            del self._kinds[next(iter(self._kinds))]
        if visit.off:
            if _may_have_outgrown(kind, visit, own):
                self._doubt()
            return
        saved = _saved_with_room(visit, own)
        if saved is not None and not visit.alone:  # something else may be in these figures
            return
        kind.unseen = 0
        if saved is None or saved != kind.saved:
            if kind.alike >= self._wanted:
                self._doubt()
                return
            kind.saved, kind.alike, kind.allocated = saved, 0, {}
        kind.alike += saved is not None
        kind.allocated = visit.allocated

    def _doubt(self) -> None:
        """Look at everything again, and for longer than before: what began alike was not."""
        self._wanted = min(2 * self._wanted, LOOK_EVERY)
        self._kinds.clear()


def _saved_with_room(visit: Visit, own: Keepers) -> tuple[int, Bytes] | None:
    if visit.rounds >= MOST_ROUNDS:
        return None
    for keeper in own.values():
        if keeper.stored or keeper.most > keeper.budget * (1 - SPARE):
            return None
    return visit.count, {device: keeper.most for device, keeper in own.items()}


def _may_have_outgrown(kind: IterationKind, visit: Visit, own: Keepers) -> bool:
    """Tell whether more was allocated than before by more than what was left of the budget."""
    saved = {} if kind.saved is None else kind.saved[1]
    counted = visit.allocated.keys() & kind.allocated.keys() & saved.keys()
    more = {device: visit.allocated[device] - kind.allocated[device] for device in counted}
    return any(saved[device] + more[device] > own[device].budget for device in counted)
