"""One call of a block that can be made again: what autograd saved of it is dropped, and computed anew when needed."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._pytree import tree_flatten, tree_unflatten

from penstock.torch.ambient import Autocast, random_state, random_untouched, set_random_state
from penstock.torch.belongings import Belongings
from penstock.torch.dear import Keep, Keeping, Output, Replaying
from penstock.torch.mover import bytes_by_storage, storage_of, weakly
from penstock.torch.saved import Held, Kept


class _EnoughError(Exception):
    """All that was saved has been computed: the rest of the block need not run."""


class Again:
    """A saved tensor that was dropped."""

    __slots__ = ("_frame", "_number")

    def __init__(self, frame: "Frame", number: int) -> None:
        self._frame, self._number = frame, number

    def tensor(self) -> torch.Tensor:
        """Compute it anew, with all others of its block, unless that has just been done."""
        return self._frame.value(self._number)


class Frame:
    """A call of a block.

    Parameters
    ----------
    call
        The block's own forward.
    belongings
        Its parameters, buffers and modes.
    device
        Where it computes.
    keep_input
        Keeps a tensor that it was given.
    wanted, keep_output
        The numbers of the dear operations whose outputs are kept, and how.
    watch
        Called with the frame around a second run: a context manager that measures it.
    compiled
        Whether torch.compile made the call: it would trace what is called from inside.
    """

    def __init__(
        self,
        call: Callable[..., Any],
        belongings: Belongings,
        device: torch.device,
        keep_input: Keep = Kept,
        wanted: frozenset[int] = frozenset(),
        keep_output: Keep = Kept,
        watch: "Callable[[Frame], Any] | None" = None,
        compiled: bool = False,
    ) -> None:
        self._call, self._belongings, self._device = call, belongings, device
        self._shield: Callable[[Any], Any] = torch.compiler.disable if compiled else (lambda hook: hook)
        self._keep_input, self._keep_output, self._wanted, self._watch = keep_input, keep_output, wanted, watch
        self._outputs: dict[int, Output] = {}
        self._kinds: list[tuple[torch.Size, torch.dtype]] = []
        self._dropped: set[int] = set()
        self._storages: list[StorageWeakRef | None] = []
        self._values: dict[int, torch.Tensor] = {}
        self.count = 0
        """tensors that the run in progress has saved"""
        self.taken: Callable[[int, torch.Tensor], None] | None = None
        """told of every tensor that a second run saves"""

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the block for the first time."""
        leaves, self._structure = tree_flatten((args, kwargs))
        self._inputs = [
            (self._keep_input(leaf), leaf.requires_grad) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves
        ]
        self._random = random_state(self._device)
        self._autocast = Autocast.now(self._device)
        self._noted = self._belongings.note()
        with saved_tensors_hooks(self._shield(self._pack), _unpack), self._belongings.watched(self._noted):
            if not self._wanted:
                return self._call(*args, **kwargs)
            with Keeping(self._wanted, self._keep_output) as keeping:
                output = self._call(*args, **kwargs)
            # Those that the block itself has changed in place are of no use: they are computed again.
            self._outputs = {number: one for number, one in keeping.outputs.items() if not one.changed}
            return output

    def saved_of(self, tensors: list[torch.Tensor]) -> tuple[frozenset[int], tuple[tuple[StorageWeakRef, int], ...]]:
        """Give the numbers of the saved tensors that share memory with these, and that memory, of a watched frame."""
        bytes_of = bytes_by_storage(tensors)
        found = [
            (number, one) for number, one in enumerate(self._storages) if one is not None and one.cdata in bytes_of
        ]
        self._storages = []
        shared = {one.cdata: (one, bytes_of[one.cdata]) for _, one in found}
        return frozenset(number for number, _ in found), tuple(shared.values())

    def _pack(self, tensor: torch.Tensor) -> Kept | Again:
        number = self.count
        self.count += 1
        self._kinds.append((tensor.shape, tensor.dtype))
        storage = storage_of(tensor)
        if self._watch is not None:
            self._storages.append(None if storage is None else weakly(storage))
        if storage is None or (tensor.is_leaf and tensor.requires_grad):
            return Kept(tensor)  # parameters are there anyway; sparse tensors stay, whatever the plan
        self._dropped.add(number)
        return Again(self, number)

    def value(self, number: int) -> torch.Tensor:
        """Give a tensor that was dropped. Each is given once; a second backward pass computes them once more."""
        if number not in self._values:
            self._run_again()
        return self._values.pop(number)

    def _run_again(self) -> None:
        leaves = [
            leaf[0].tensor().detach().requires_grad_(leaf[1])
            if isinstance(leaf, tuple) and isinstance(leaf[0], Kept | Held)
            else leaf
            for leaf in self._inputs
        ]
        args, kwargs = tree_unflatten(leaves, self._structure)
        saved, self.count = self.count, 0
        last = max(self._dropped)

        def take(tensor: torch.Tensor) -> None:
            number = self.count
            self.count += 1
            if number >= saved or self._kinds[number] != (tensor.shape, tensor.dtype):
                raise RuntimeError(_OTHERWISE)
            if number in self._dropped:
                self._values[number] = tensor.detach()
            if self.taken is not None:
                self.taken(number, tensor)
            if number == last:
                raise _EnoughError

        with ExitStack() as stack:
            stack.enter_context(random_untouched(self._device))
            set_random_state(self._device, self._random)
            stack.enter_context(self._autocast.again())
            stack.enter_context(self._belongings.again(self._noted))
            stack.enter_context(torch.enable_grad())
            if self._watch is not None:
                stack.enter_context(self._watch(self))
            stack.enter_context(saved_tensors_hooks(self._shield(take), _refuse))
            if self._outputs:
                stack.enter_context(Replaying(self._outputs))
            try:
                self._call(*args, **kwargs)
            except _EnoughError:
                pass
            else:
                if last not in self._values:
                    raise RuntimeError(_OTHERWISE)
            finally:
                self.count = saved


_OTHERWISE = (
    "a block that was run again saved other tensors than the first time: its forward must depend on nothing but its "
    "inputs, its parameters and torch's random numbers. Leave it out with blocks=..., or make it so"
)


def _unpack(saved: Kept | Again) -> torch.Tensor:
    return saved.tensor()


def _refuse(saved: None) -> torch.Tensor:
    raise RuntimeError("a block differentiates inside its own forward: leave it out with blocks=...")
