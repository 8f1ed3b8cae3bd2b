"""What a step depends on besides its arguments: random number generators, autocast, and who runs it."""

import pickle
import random
import threading
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from forebay.torch.compat import graph_task, top_hooks, transformed


class Random(NamedTuple):
    """The states of the generators that steps on a device may draw from."""

    host: torch.Tensor
    device: tuple[int, int] | None
    """seed and offset of a GPU's, which are all of its state, and need no tensor to be read"""


def random_state(device: torch.device) -> Random:
    """Read the generators of the host and of a device."""
    host = torch.default_generator.get_state()
    if device.type != "cuda":
        return Random(host, None)
    generator = _generator(device)
    return Random(host, (generator.initial_seed(), generator.get_offset()))


def set_random_state(device: torch.device, state: Random) -> None:
    """Set the generators of the host and of a device."""
    torch.default_generator.set_state(state.host)
    if state.device is not None:
        generator, (seed, offset) = _generator(device), state.device
        if generator.initial_seed() != seed:
            generator.manual_seed(seed)
        if generator.get_offset() != offset:
            generator.set_offset(offset)


def _generator(device: torch.device) -> torch.Generator:
    torch.cuda.init()  # type: ignore[no-untyped-call]  # there are none before
    return torch.cuda.default_generators[torch.cuda.current_device() if device.index is None else device.index]


def same_random(first: Random, second: Random) -> bool:
    """Tell whether nothing was drawn between two states."""
    return first.device == second.device and torch.equal(first.host, second.host)


def shared_random() -> bytes:
    """Read the generators of Python and NumPy that whole programs share: nobody sets these again for a second run.

    Where another thread is there, which may draw from them at any time, nothing is read.
    """
    if threading.active_count() > 1:
        return b""
    return pickle.dumps((random.getstate(), np.random.get_state(legacy=False)))


@contextmanager
def random_untouched(device: torch.device) -> Iterator[None]:
    """Leave the generators as they were, whatever is drawn inside."""
    before = random_state(device)
    try:
        yield
    finally:
        set_random_state(device, before)


@dataclass(frozen=True)
class Autocast:
    """The autocast of the host and of a device as it was when the loop ran."""

    settings: tuple[tuple[str, bool, torch.dtype], ...]

    @classmethod
    def now(cls, device: torch.device) -> "Autocast":
        """Read what is set."""
        kinds = ("cpu",) if device.type == "cpu" else ("cpu", device.type)
        return cls(tuple([(kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in kinds]))

    def replay_context(self) -> AbstractContextManager[None]:
        """Set it again, without the cache of cast parameters, which would outlive the graph that it belongs to."""
        for kind, enabled, _ in self.settings:
            if enabled or torch.is_autocast_enabled(kind):
                return self._set()
        return NOTHING

    @contextmanager
    def _set(self) -> Iterator[None]:
        with ExitStack() as stack:
            for kind, enabled, dtype in self.settings:
                if enabled or torch.is_autocast_enabled(kind):
                    stack.enter_context(torch.autocast(kind, dtype=dtype, enabled=enabled, cache_enabled=False))
            yield


NOTHING: AbstractContextManager[None] = nullcontext()
"""Is around what needs nothing around it."""


def checkpointing() -> bool:
    """Tell whether what is saved now goes to torch.utils.checkpoint."""
    hooks = top_hooks()
    return hooks is not None and getattr(hooks[0], "__module__", "") == "torch.utils.checkpoint"


def default_saving() -> bool:
    """Tell whether what is saved now is ours to treat: somebody may differentiate it in the usual way, and once.

    Who runs it again, as torch.utils.checkpoint does, has to save the same tensors in the same order in both runs.
    """
    if not torch.is_grad_enabled():
        return False
    if checkpointing() or graph_task() != -1:
        warnings.warn(
            "a block of a fitted model runs inside of torch.utils.checkpoint or of a backward function and is left to "
            "it: switch that off to let fit decide",
            stacklevel=2,
        )
    elif transformed():
        warnings.warn(
            "a block of a fitted model runs inside of torch.func or forward AD, which take its memory in their own "
            "way: it runs as if it were not fitted",
            stacklevel=2,
        )
    else:
        return True
    return False
