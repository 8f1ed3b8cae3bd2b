"""The states of an optimizer between the device and the host, and its step batch by batch."""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from forebay.errors import BudgetError
from forebay.machine.machine import Move, Wait
from forebay.machine.region import aligned
from forebay.machine.slabs import Piece
from forebay.metrics import Metrics
from forebay.torch.compat import unhooked_step
from forebay.torch.step.batches import BatchPlan, StateShape, plan_batches
from forebay.torch.storage.mover import mover_for, new_storage
from forebay.units import Budget, to_text

MASTER = "master"
"""The key of a parameter's float32 copy among its states."""


@dataclass(eq=False, slots=True)
class HostState:
    """The place of one state below the device."""

    piece: Piece
    view: Tensor
    """what is there, as the optimizer shows it between steps"""
    stored: Any = None
    """the end of the last copy"""


class Away(NamedTuple):
    """Tensors of the device that copies read."""

    nbytes: int
    tensors: Sequence[Tensor]
    ends: Sequence[Any]


class OffloadedStates:
    """The states of an optimizer, between the device and the host."""

    def __init__(self, optimizer: Optimizer, budget: Budget, device: torch.device, master: bool) -> None:
        self.optimizer, self.budget, self.master = optimizer, budget, master
        self.metrics = Metrics(title="optimizer states")
        self._mover = mover_for(device, budget.host)
        self._homes: dict[tuple[Tensor, str], HostState] = {}
        self._sizes: dict[Tensor, int] = {}  # bytes of the states of each parameter that is planned for
        self._plan: BatchPlan | None = None
        self._loading: dict[str, Any] = {}
        self._held = 0
        self._leaving: deque[Away] = deque()
        self._arriving: list[Any] = []  # the ends of copies that no computation waited for yet

    def explain(self) -> str:
        """Tell where the states are."""
        plan = self._plan
        if plan is None:
            return f"no step yet, {self.budget!r}: states are planned for in the first"
        return (
            f"{to_text(plan.total)} of states, {self.budget!r}: {to_text(plan.total - plan.moved)} stay on the device\n"
            f"moves     {to_text(plan.moved)} come up and go down in each step, in {plan.moving} batches\n"
            f"device    {to_text(plan.peak)} of states at most, beside what their arithmetic takes for a batch"
        )

    # A step.

    def step(self) -> None:
        """Step all parameters that have gradients, batch by batch."""
        plan = self.plan()
        try:
            self._step(plan)
        except BaseException:
            self._plan = None  # what came up goes down again before the next step
            raise

    def _step(self, plan: BatchPlan) -> None:
        self._held = plan.total - plan.moved
        parameters = list(self._sizes)
        batches = [[p for p in map(parameters.__getitem__, batch) if p.grad is not None] for batch in plan.batches]
        moving = [sum(self._sizes[p] for p in batch) for batch in batches[: plan.moving]]
        moving += [0] * (len(batches) - plan.moving)
        fetched = 0
        for number, batch in enumerate(batches):
            if number == fetched:
                self._fetch(batch, moving[number])
                fetched += 1
            arriving = len(self._arriving)
            if fetched < len(batches) and self._make_room(moving[fetched]):
                self._fetch(batches[fetched], moving[fetched])
                fetched += 1
            self._hold("states: arrived", self._arriving[:arriving])
            del self._arriving[:arriving]
            self._advance(batch)
            if number < plan.moving:
                self._send(batch, moving[number])
        self.wait()

    def wait(self, host: bool = False) -> None:
        """Have the computation wait for all copies, and the host too where it is about to look."""
        self._hold("states: arrived", self._arriving)
        self._arriving.clear()
        while self._leaving:
            self._let_go()
        if host and self._mover.device.type == "cuda":
            torch.cuda.synchronize(self._mover.device)

    def plan(self) -> BatchPlan:
        """Return the plan for the parameters that there are, with their states where it has them."""
        self.wait()
        states = self.optimizer.state
        every = ((p, group) for group in self.optimizer.param_groups for p in group["params"])
        # The states of those that were frozen since are still somewhere.
        groups = {p: group for p, group in every if p.requires_grad or p.grad is not None or states.get(p)}
        if self._plan is not None and list(map(id, groups)) == list(map(id, self._sizes)):
            return self._plan
        kinds: dict[tuple[int, torch.dtype, int], list[StateShape]] = {}
        sizes: dict[Tensor, int] = {}
        for p, group in groups.items():
            if (own := states.get(p, {})).keys() - {MASTER}:
                sizes[p] = sum(aligned(state.nbytes) for state in own.values() if _movable(state))
                sizes[p] += aligned(4 * p.numel()) if self._mastered(p) and MASTER not in own else 0
                continue
            kind = id(group), p.dtype, p.dim()
            if kind not in kinds:
                kinds[kind] = self._shapes(group, p)
            sizes[p] = sum(aligned(state.nbytes(p.shape)) for state in kinds[kind])
        self._plan, plan = None, plan_batches(list(sizes.values()), self.budget)
        parameters = list(sizes)
        moving = plan.batches[plan.moving - 1].stop if plan.moving else 0
        for p in parameters[moving:]:
            self._keep(p)
        lacking = plan.moved - self._mover.room.nbytes
        if lacking > 0:
            self._mover.room.reserve(lacking)
        for p in parameters[:moving]:
            self._send([p], 0)
        self.wait()
        self._sizes, self._plan = sizes, plan
        return plan

    def _shapes(self, group: dict[str, Any], parameter: Tensor) -> list[StateShape]:
        """Return what states a parameter gets, as a step of a tiny one of as many axes tells."""
        dtype = torch.float32 if self._mastered(parameter) else parameter.dtype
        tiny = torch.zeros(tuple(range(2, 2 + parameter.dim())), dtype=dtype, device=parameter.device)
        tiny.grad = torch.zeros_like(tiny)
        with self._instead([[tiny] if each is group else [] for each in self.optimizer.param_groups]):
            unhooked_step(self.optimizer)
        states = [state for state in self.optimizer.state.pop(tiny, {}).values() if _movable(state)]
        states += [tiny] if self._mastered(parameter) and tiny.dim() else []
        return [
            StateShape(state.element_size(), [own == whole for own, whole in zip(state.shape, tiny.shape, strict=True)])
            for state in states
        ]

    @contextmanager
    def _instead(self, parameters: Sequence[list[Tensor]]) -> Iterator[None]:
        """Have the groups hold other parameters."""
        groups = self.optimizer.param_groups
        whole = [group["params"] for group in groups]
        try:
            for group, some in zip(groups, parameters, strict=True):
                group["params"] = some
            yield
        finally:
            for group, own in zip(groups, whole, strict=True):
                group["params"] = own

    def _mastered(self, parameter: Tensor) -> bool:
        return self.master and parameter.dtype in (torch.bfloat16, torch.float16)

    def _advance(self, batch: Sequence[Tensor]) -> None:
        """Have the optimizer's own code step some parameters, or their masters."""
        states, among = self.optimizer.state, set(batch)
        # All of them are there before anything moves: memory may end while they are made.
        masters = {p: self._stand_in(p) for p in batch if self._mastered(p)}
        groups = [[masters.get(p, p) for p in group["params"] if p in among] for group in self.optimizer.param_groups]
        try:
            for p, master in masters.items():
                if own := {key: state for key, state in states.get(p, {}).items() if key != MASTER}:
                    states[master] = own
            with self._instead(groups):
                unhooked_step(self.optimizer)
        finally:
            for p, master in masters.items():
                master.grad = None
                states[p] = states.pop(master, states.get(p, {})) | {MASTER: master}
            for p, master in masters.items():
                p.copy_(master)

    def _stand_in(self, parameter: Tensor) -> Tensor:
        """Return the float32 copy of a parameter, with its gradient."""
        wide = parameter.detach().float()
        master: Tensor = self.optimizer.state.get(parameter, {}).get(MASTER, wide)
        if master is not wide:  # somebody else may have changed the parameter, and nothing need have counted that
            torch.where(master.to(parameter.dtype) == parameter, master, wide, out=master)
        assert parameter.grad is not None
        master.grad = parameter.grad.float()
        return master

    # Between the device and the host.

    def _make_room(self, nbytes: int) -> bool:
        """Let go of what has left until so many bytes fit; tell whether they do."""
        while self._held + nbytes > self.budget["device"] and self._leaving:
            self._let_go()
        return self._held + nbytes <= self.budget["device"]

    def _fetch(self, batch: Sequence[Tensor], nbytes: int) -> None:
        """Begin to bring the states of some parameters up."""
        self._make_room(nbytes)
        self._held += nbytes
        self.metrics.peak["device"] = max(self.metrics.peak["device"], self._held)
        moves: list[Move] = []
        came: list[tuple[dict[str, Any], str, Tensor]] = []
        for p in batch:
            states = self.optimizer.state.get(p, {})
            for key, state in states.items():
                home = self._homes.get((p, key))
                if home is not None and state is home.view:
                    storage = new_storage(state.nbytes, self._mover.device)
                    moves.append(self._mover.up(home.piece, storage, state.nbytes, home.stored))
                    flat = torch.empty(0, dtype=state.dtype, device=p.device).set_(storage)
                    came.append((states, key, _onto(flat, state)))
                    self.metrics.moved["up 1"] += state.nbytes
        self._arriving += self._mover.machine.moves("up 1", moves) if moves else []
        for states, key, state in came:  # nothing can fail any more
            states[key] = state

    def _keep(self, parameter: Tensor) -> None:
        """Bring the states of a parameter up to stay, and give their places on the host back."""
        self._fetch([parameter], 0)
        ends = list(self._arriving)
        self.wait()
        for key in self.optimizer.state.get(parameter, {}):
            if (home := self._homes.pop((parameter, key), None)) is not None:
                self._mover.room.give(home.piece, ends)

    def _send(self, batch: Sequence[Tensor], nbytes: int) -> None:
        """Begin to copy the states of some parameters down, which stay on the device until that is done."""
        moves: list[Move] = []
        tensors: list[Tensor] = []
        went: list[tuple[dict[str, Any], str, HostState]] = []
        for p in batch:
            states = self.optimizer.state.get(p, {})
            for key, state in states.items():
                home = self._homes.get((p, key))
                if not _movable(state) or (home is not None and state is home.view):
                    continue
                home = self._home(p, key, state)
                if home is None:
                    raise BudgetError(
                        f"the host has {to_text(self._mover.room.nbytes)} of room for states, but none in one piece "
                        f"for {to_text(state.nbytes)} more: give a budget with more of the host"
                    )
                moves.append(self._mover.down(state.untyped_storage(), state.nbytes, home.piece))
                tensors.append(state)
                went.append((states, key, home))
                self.metrics.moved["down 1"] += state.nbytes
        ends = self._mover.machine.moves("down 1", moves) if moves else []
        for (states, key, home), end in zip(went, ends, strict=True):
            states[key], home.stored = home.view, end
        self._leaving.append(Away(nbytes, tensors, ends))
        self.metrics.peak["host"] = max(self.metrics.peak["host"], self._mover.room.used)

    def _home(self, parameter: Tensor, key: str, like: Tensor) -> HostState | None:
        """Return the place of a state on the host, a new one where there is none of its kind; None without room."""
        home = self._homes.get((parameter, key))
        if home is not None:
            kind = home.view.dtype, home.view.shape, home.view.stride()
            if kind == (like.dtype, like.shape, like.stride()):
                return home
            del self._homes[parameter, key]
            self._mover.room.give(home.piece, [] if home.stored is None else [home.stored])
        piece = self._mover.room.take(like.nbytes)
        if piece is None:
            return None
        view = _onto(torch.from_numpy(piece.region.bytes).view(like.dtype), like)
        home = self._homes[parameter, key] = HostState(piece, view)
        return home

    def _let_go(self) -> None:
        """Free the device's copy of what left first, once it is below."""
        away = self._leaving.popleft()
        self._hold("states: stored", away.ends)
        self._held -= away.nbytes

    def _hold(self, why: str, ends: Sequence[Any]) -> None:
        for end in ends:
            if not self._mover.machine.has_waited(end):
                self._mover.machine.hold(Wait(why, end))

    # What is saved and loaded.

    def set_aside(self, saved: dict[str, Any]) -> dict[str, Any]:
        """Take the states out of what the optimizer loads: it would put them all onto the device."""
        self.wait(host=True)
        self._loading = saved
        return saved | {"state": {}}

    def load(self) -> None:
        """Take over the states of what was loaded, on the host, as the optimizer would on the device."""
        saved, self._loading, self._plan = self._loading, {}, None
        for group, numbers in zip(self.optimizer.param_groups, saved["param_groups"], strict=True):
            for p, number in zip(group["params"], numbers["params"], strict=True):
                for key, state in saved["state"].get(number, {}).items():
                    if key != MASTER or self._mastered(p):
                        self.optimizer.state[p][key] = self._loaded(group, p, key, state)

    def _loaded(self, group: dict[str, Any], parameter: Tensor, key: str, state: Any) -> Any:
        """Return a state where it belongs, and of the type that it has there."""
        if not isinstance(state, Tensor):
            return state
        if key == "step" and not (group.get("capturable") or group.get("fused")):
            return state.clone()
        wide = key == "step" or self._mastered(parameter)
        dtype = (torch.float32 if wide else parameter.dtype) if state.is_floating_point() else state.dtype
        like = torch.empty_like(state, dtype=dtype, device="meta")
        home = self._home(parameter, key, like) if state.dim() else None
        return state.to(parameter.device, dtype, copy=True) if home is None else home.view.copy_(state)


def _movable(state: Any) -> bool:
    """Tell whether a state is a tensor that has its memory for itself; numbers stay where they are."""
    return (
        type(state) is Tensor
        and state.dim() > 0
        and state.layout == torch.strided
        and state.nbytes == state.untyped_storage().nbytes() > 0
    )


def _onto(flat: Tensor, like: Tensor) -> Tensor:
    """Look onto memory as another tensor does onto its own."""
    return flat.as_strided(like.shape, like.stride())
