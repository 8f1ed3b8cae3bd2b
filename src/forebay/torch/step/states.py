"""The states of an optimizer between the device and the host, and its step batch by batch."""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from forebay.machine.machine import Move, Wait
from forebay.machine.region import ALIGNMENT
from forebay.machine.slabs import Piece
from forebay.metrics import Metrics
from forebay.torch.compat import unhooked_step
from forebay.torch.step.batches import BatchPlan, plan_batches
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
        self.wait()
        plan = self._planned()
        self._held = plan.total - plan.moved
        parameters = list(self._sizes)
        batches = [[p for p in map(parameters.__getitem__, batch) if p.grad is not None] for batch in plan.batches]
        moving = [sum(self._sizes[p] for p in batch) for batch in batches[: plan.moving]]
        moving += [0] * (len(batches) - plan.moving)
        coming: Sequence[Any] | None = None
        for number, batch in enumerate(batches):
            arriving = self._fetch(batch, moving[number]) if coming is None else coming
            coming = None
            if number + 1 < len(batches) and self._make_room(moving[number + 1]):
                coming = self._fetch(batches[number + 1], moving[number + 1])
            self._hold("states: arrived", arriving)
            self._advance(batch)
            if number < plan.moving:
                self._send(batch, moving[number])
        self.wait()

    def wait(self, host: bool = False) -> None:
        """Have the computation wait for all copies, and the host too where it is about to look."""
        while self._leaving:
            self._let_go()
        if host and self._mover.device.type == "cuda":
            torch.cuda.synchronize(self._mover.device)

    def _planned(self) -> BatchPlan:
        """Return the plan for the parameters that there are."""
        groups = self.optimizer.param_groups
        parameters = [(p, g) for g in groups for p in g["params"] if p.requires_grad or p.grad is not None]
        if self._plan is not None and [id(p) for p, _ in parameters] == list(map(id, self._sizes)):
            return self._plan
        ratios: dict[tuple[int, torch.dtype], float] = {}
        sizes: dict[Tensor, int] = {}
        for p, group in parameters:
            if states := self.optimizer.state.get(p):
                sizes[p] = sum(state.nbytes for state in states.values() if _movable(state))
                sizes[p] += 4 * p.numel() if self._mastered(p) and MASTER not in states else 0
                continue
            kind = id(group), p.dtype
            if kind not in ratios:
                ratios[kind] = self._ratio(group, p)
            sizes[p] = int(p.numel() * ratios[kind])
        self._plan = plan = plan_batches(list(sizes.values()), self.budget)
        for p in self._sizes:  # some may have stayed that shall do so no more
            self._send([p], 0)
        self.wait()
        self._sizes = sizes
        lacking = plan.moved + 4 * ALIGNMENT * len(sizes) - self._mover.room.nbytes
        if plan.moved and lacking > 0:
            self._mover.room.reserve(min(lacking, self.budget["host"] - self._mover.room.nbytes))
        return plan

    def _ratio(self, group: dict[str, Any], parameter: Tensor) -> float:
        """Return the bytes of states for each element, as a step of a tiny parameter tells."""
        dtype = torch.float32 if self._mastered(parameter) else parameter.dtype
        tiny = torch.zeros(4, 4, dtype=dtype, device=parameter.device)
        tiny.grad = torch.zeros_like(tiny)
        with self._instead([[tiny] if each is group else [] for each in self.optimizer.param_groups]):
            unhooked_step(self.optimizer)
        states = self.optimizer.state.pop(tiny, {})
        bytes_of: int = sum(state.nbytes for state in states.values() if _movable(state))
        return (bytes_of + (tiny.nbytes if self._mastered(parameter) else 0)) / tiny.numel()

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

    def _fetch(self, batch: Sequence[Tensor], nbytes: int) -> Sequence[Any]:
        """Begin to bring the states of some parameters up, and return the ends of the copies."""
        self._make_room(nbytes)
        self._held += nbytes
        self.metrics.peak["device"] = max(self.metrics.peak["device"], self._held)
        moves: list[Move] = []
        for p in batch:
            states = self.optimizer.state.get(p, {})
            for key, state in states.items():
                home = self._homes.get((p, key))
                if home is not None and state is home.view:
                    storage = new_storage(state.nbytes, self._mover.device)
                    moves.append(self._mover.up(home.piece, storage, state.nbytes, home.stored))
                    states[key] = _onto(torch.empty(0, dtype=state.dtype, device=p.device).set_(storage), state)
                    self.metrics.moved["up 1"] += state.nbytes
        return self._mover.machine.moves("up 1", moves) if moves else []

    def _send(self, batch: Sequence[Tensor], nbytes: int) -> None:
        """Begin to copy the states of some parameters down, which stay on the device until that is done."""
        moves: list[Move] = []
        homes: list[HostState] = []
        tensors: list[Tensor] = []
        for p in batch:
            states = self.optimizer.state.get(p, {})
            for key, state in states.items():
                home = self._homes.get((p, key))
                if not _movable(state) or (home is not None and state is home.view):
                    continue
                home = self._home(p, key, state)
                if home is None:
                    continue
                moves.append(self._mover.down(state.untyped_storage(), state.nbytes, home.piece))
                homes.append(home)
                tensors.append(state)
                states[key] = home.view
                self.metrics.moved["down 1"] += state.nbytes
        ends = self._mover.machine.moves("down 1", moves) if moves else []
        for home, end in zip(homes, ends, strict=True):
            home.stored = end
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
