"""`offload`: the saved tensors of any autograd code kept within a budget, by moving those that are needed last."""

import sys
import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Self

import torch
from torch.autograd.graph import saved_tensors_hooks

from forebay.codec import get as get_codec
from forebay.metrics import Metrics
from forebay.torch.storage.keeper import Keeper
from forebay.torch.storage.mover import budget_of
from forebay.torch.storage.tensors import KeptTensor, StoredTensor, give_again, keep
from forebay.units import Budget, to_bytes

MOST_CALL_SITES = 32
"""What was learned at so many places, with so many budgets, is kept; that of the place used longest ago goes first."""

Keepers = dict[tuple[torch.device, int], Keeper]
"""What was learned at one place in a program, by device, and by the thread that entered."""


def offload(budget: Budget | str | float, codec: str | None = None, min_bytes: str | float = "1MB") -> "Offload":
    """Keep the saved tensors of autograd code within a budget.

    In the first iteration those saved first move to the host when the budget is reached. Their order is learned. From
    the second iteration on just those move that are asked for last. They leave as soon as they are saved, and come back
    ahead of their use. What is learned belongs to the place in the program where `offload` was called. So a ``with``
    statement in a loop learns as well as an object made before the loop. A loop inside of a ``with`` statement learns
    too: an iteration ends when its graph is gone.

    Parameters
    ----------
    budget : Budget, str or int
        Bytes of saved tensors on the device, and of pinned memory on the host. Where the host is not named, it is half
        of the memory that is free at the beginning. What a backward function is just using comes on top. Where a
        program uses several devices or threads here, each has a budget of that size.
    codec : str, optional
        Encodes what moves, such as ``"cast:float16"``; tensors of types that it does not take move as they are. A
        lossy codec changes gradients; without one they are bit-equal.
    min_bytes : str or int
        Smaller storages stay on the device as long as they fit there beside each other: they move only where larger
        ones are not enough.

    Returns
    -------
    Offload
        A context manager. Backward may be called inside or outside; ``metrics`` tells what moved, and the most bytes
        that were on the device.

    Examples
    --------
    >>> x = torch.ones(1000, requires_grad=True)
    >>> with offload(Budget(device="5kB", host="1MB"), min_bytes=0) as saved:
    ...     x.exp().exp().sum().backward()
    >>> round(x.grad[0].item(), 3), saved.metrics.moved["down 1"]
    (41.194, 4000)
    """
    budget = budget_of(budget, "offload")
    caller = sys._getframe(1)
    site = caller.f_code.co_filename, caller.f_code.co_name, caller.f_lineno
    coder = None if codec is None else get_codec(codec)
    key = site, budget, None if coder is None else coder.name, to_bytes(min_bytes)
    return Offload(partial(Keeper, budget, coder, to_bytes(min_bytes)), _keepers_at(key))


def release() -> None:
    """Let go of what `offload` has learned, and of the host memory that it keeps for the next iteration.

    Tensors that a graph still holds stay where they are until it is gone.
    """
    with _lock:
        for keepers in _call_sites.values():
            keepers.clear()
        _call_sites.clear()


_call_sites: dict[Hashable, Keepers] = {}  # slabs stay pinned for the next iteration
_lock = threading.Lock()


def _keepers_at(key: Hashable) -> Keepers:
    with _lock:
        keepers = _call_sites[key] = _call_sites.pop(key, {})
        while len(_call_sites) > MOST_CALL_SITES:
            del _call_sites[next(iter(_call_sites))]
    return keepers


@dataclass(frozen=True, eq=False)
class Offload:
    """The context manager that `offload` makes."""

    _make_keeper: Callable[[torch.device], Keeper]
    _keepers: Keepers
    _entered: dict[int, list[saved_tensors_hooks]] = field(default_factory=dict)
    """by threads"""

    @property
    def metrics(self) -> Metrics:
        """What moved, since this place in the program was first reached, on all devices; from threads still running."""
        by_keeper = [keeper.metrics for keeper in self._keepers.values()]
        return by_keeper[0] if len(by_keeper) == 1 else _together(by_keeper)

    def __enter__(self) -> Self:
        thread = threading.current_thread().ident or 0  # it is known as one that runs from here on
        self._forget_ended_threads()
        for (_, owner), keeper in list(self._keepers.items()):
            if owner == thread:
                keeper.restart()
        hooks = saved_tensors_hooks(self._packing(thread), give_again)
        hooks.__enter__()
        self._entered.setdefault(thread, []).append(hooks)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._entered[threading.get_ident()].pop().__exit__(kind, error, trace)

    def _forget_ended_threads(self) -> None:
        """Let go of what they would keep for nobody: host memory."""
        keepers = list(self._keepers)  # before: a thread may begin meanwhile
        running = {thread.ident for thread in threading.enumerate()}
        for device, owner in keepers:
            if owner not in running:
                self._keepers.pop((device, owner), None)

    def _packing(self, thread: int) -> Callable[[torch.Tensor], KeptTensor | StoredTensor]:
        """Make the hook that packs what a thread saves; thousands are saved in a step, most of them on one device."""
        pack_last: Callable[[torch.Tensor], KeptTensor | StoredTensor] = keep
        last: int | None = None  # which is compared faster than devices are

        def pack(tensor: torch.Tensor) -> KeptTensor | StoredTensor:
            nonlocal pack_last, last
            if (index := tensor.get_device()) != last:
                device = tensor.device
                if device.type not in ("cpu", "cuda") or (device.type == "cpu" and not tensor.dim()):
                    return keep(tensor)  # numbers are on the host even where all else is on a GPU
                if (device, thread) not in self._keepers:
                    self._keepers[device, thread] = self._make_keeper(device)
                pack_last, last = self._keepers[device, thread].pack, index
            return pack_last(tensor)

        return pack


def _together(parts: list[Metrics]) -> Metrics:
    total = Metrics(title="saved tensors")
    for metrics in parts:
        total.add_counts(metrics)
    return total
