"""One call of a block that can be made again: what autograd saved of it is dropped, and computed anew when needed."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef

from forebay.torch.advice import hidden_state
from forebay.torch.compat import check_version, keeps_graph
from forebay.torch.execution_context import NOTHING, Autocast, random_state, set_random_state
from forebay.torch.mover import bytes_by_storage, storage_of, weakly
from forebay.torch.replay.arguments import CallArguments, tensors_in
from forebay.torch.replay.block import FittedBlock
from forebay.torch.replay.costly_operations import KeptOutput, OutputKeeper, OutputReplay
from forebay.torch.replay.hidden_state import EVERY, Attributes, Samples, looked_at
from forebay.torch.saved_tensors import Keep, KeptTensor


class _EnoughError(BaseException):
    """All that was saved has been computed: the rest of the block need not run, nor catch this as a failure."""


class DroppedTensor:
    """The number of a tensor that was dropped; holds the tensor from when it is given until autograd lets go of it.

    So a function of the user's may read it again. And the peak of a frame that is weighed is that of a block that is
    kept: a node's saved tensors stay until its gradients have been summed to the shapes of its inputs, which takes
    memory of its own on a GPU, 32 MiB of an H200's.
    """

    __slots__ = ("number", "tensor")

    def __init__(self, number: int) -> None:
        self.number = number
        self.tensor: torch.Tensor | None = None


@dataclass(slots=True)
class ReplayFacts:
    """What weighed frames find out of a block for those that follow."""

    outputs: frozenset[int] = frozenset()
    """the numbers of saved tensors that are its output: after these there is nothing to leave out of a second run"""
    rereads: bool = False
    """whether a function reads what it saved more than once: all stays, once given, until autograd lets go of it"""


class Frame:
    """A call of a block.

    `refuse` is told why the block cannot be run again as it was. An iteration that measures has it `weighed`, which
    fills the facts. `watch` is called with the frame around a second run. `wanted` are the numbers of the costly
    operations whose outputs are kept.
    """

    def __init__(
        self,
        block: FittedBlock,
        device: torch.device,
        refuse: Callable[[str], None],
        facts: ReplayFacts,
        weighed: bool = False,
        watch: "Callable[[Frame], Any] | None" = None,
        keep_input: Keep = KeptTensor,
        wanted: frozenset[int] = frozenset(),
        keep_output: Keep = KeptTensor,
    ) -> None:
        self._block, self._device, self._refuse, self._facts, self._weighed = block, device, refuse, facts, weighed
        self._keep_input, self._keep_output, self._wanted, self._watch = keep_input, keep_output, wanted, watch
        self._outputs: dict[int, KeptOutput] = {}
        # Of what the first run saved: hashes, which the garbage collector need not see, and 0 for what none of its
        # operations made that is differentiated, such as parameters, and for what stays.
        self._kinds: list[int] = []
        self._storages: list[StorageWeakRef | None] = []  # of these, where it is weighed
        self._samples: Samples | None = None  # of what the first run saved, until they are compared
        self._attributes: Attributes | None = None  # that it had, where it sets any
        self._values: list[torch.Tensor | None] = []  # what a second run has saved, and autograd has not asked for yet
        self._versions: list[int] = []  # of these, when they were saved
        self._whole = False  # whether a second run goes on to its end, where what it gives is compared
        self._results_alike = True
        self.on_saved: Callable[[int, torch.Tensor], None] | None = None
        """told of every tensor that a second run saves"""

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the block for the first time."""
        state, weighed = self._block.module_state, self._weighed
        self._arguments, turn = CallArguments(args, kwargs, self._keep_input), state.next_run()
        self._random, self._autocast = random_state(self._device), Autocast.now(self._device)
        self._initial = state.note(weighed)
        if weighed or state.sets_attributes:
            self._attributes = Attributes(self._initial.parts, plain=not weighed)
        if weighed or looked_at(turn, self._device):
            self._samples = Samples(self._initial.parts, EVERY[not weighed], turn)
        with self._hooks(self._packing(), self._unpack):
            if not self._wanted:
                output = self._block.call(*args, **kwargs)
            else:
                with OutputKeeper(self._wanted, self._keep_output) as keeping:
                    output = self._block.call(*args, **kwargs)
                # Those that the block itself has changed in place are of no use: they are computed again.
                self._outputs = {number: kept for number, kept in keeping.outputs.items() if not kept.changed}
        if (buffer := state.changed(self._initial)) is not None:
            self._refuse(f"changes a large buffer of its own ({buffer})")
        if self._samples is not None:
            self._samples.end(tensors_in(output) if weighed else [])
        if weighed and self._attributes is not None:
            state.sets_attributes = state.sets_attributes or self._attributes.changed()
        return output

    def _hooks(self, pack: Callable[[torch.Tensor], Any], unpack: Callable[[Any], torch.Tensor]) -> saved_tensors_hooks:
        if self._block.compiled:  # it would trace what is called from inside
            pack = torch.compiler.disable(pack)  # type: ignore[no-untyped-call]
        return saved_tensors_hooks(pack, unpack)

    def note_outputs(self, tensors: list[torch.Tensor]) -> tuple[tuple[StorageWeakRef, int], ...]:
        """Note which saved tensors share memory with these, and return that memory, of a weighed frame."""
        bytes_of = bytes_by_storage(tensors)
        storages, self._storages = self._storages, []
        sharing = {
            number: storage
            for number, storage in enumerate(storages)
            if storage is not None and storage.cdata in bytes_of
        }
        self._facts.outputs = frozenset(sharing)
        return tuple({storage.cdata: (storage, bytes_of[storage.cdata]) for storage in sharing.values()}.values())

    @property
    def saved(self) -> int:
        """The tensors that the first run has saved."""
        return len(self._kinds)

    @property
    def count(self) -> int:
        """The tensors that a second run has saved so far."""
        return len(self._values)

    def _packing(self) -> Callable[[torch.Tensor], int | DroppedTensor | KeptTensor]:
        """Make the hook that drops the tensors of the first run; networks save hundreds, so it does little for each."""
        kinds, storages, weighed, strided = self._kinds, self._storages, self._weighed, torch.strided
        samples, lasting = self._samples, weighed or self._facts.rereads

        def pack(tensor: torch.Tensor) -> int | DroppedTensor | KeptTensor:
            number, stays = len(kinds), tensor.layout is not strided
            kinds.append(0 if stays or tensor.is_leaf else hash((tensor.shape, tensor.dtype)))
            if weighed:
                storage = storage_of(tensor)
                storages.append(None if storage is None else weakly(storage))
            if samples is not None:
                samples.take(number, tensor)
            if stays:  # whatever the plan: sizes of nested tensors are told apart by who made them
                return KeptTensor(tensor)
            return DroppedTensor(number) if lasting else number

        return pack

    def _unpack(self, saved: int | DroppedTensor | KeptTensor) -> torch.Tensor:
        """Return a tensor that was dropped. Each is given once; a second backward pass computes them once more."""
        if isinstance(saved, int):
            return self._value(saved)
        if isinstance(saved, KeptTensor):
            return saved.tensor()
        if saved.tensor is not None:
            self._facts.rereads = True
            return saved.tensor
        tensor = self._value(saved.number)
        if not keeps_graph():
            saved.tensor = tensor
        return tensor

    def _value(self, number: int) -> torch.Tensor:
        # They may be too few where a block differentiates before its forward has ended: running it again refuses that.
        tensor = self._values[number] if number < len(self._values) else None
        if tensor is None:
            self._replay()
            tensor = self._values[number]
            assert tensor is not None
        if tensor._version != self._versions[number]:  # by the block itself, or by a hook of a backward pass
            check_version(tensor, self._versions[number])
        self._values[number] = None
        return tensor

    def _replay(self) -> None:
        samples, self._samples = self._samples, None
        # To ask whether the block depends on what it keeps all of it runs: what it gives may show that alone.
        asking = self._whole = self._weighed and samples is not None
        attributes = Attributes(self._initial.parts) if asking else self._attributes
        same = self._runs_alike(attributes, samples)
        if not same and samples is not None:
            same = asking and self._runs_alike(self._attributes, samples)
            self._refuse(hidden_state(same, later=not self._weighed))
        elif asking and not self._results_alike:  # which what it sets may explain: that is put back
            values, versions = self._values, self._versions
            self._runs_alike(self._attributes, samples)
            self._values, self._versions = values, versions
            if not self._results_alike:
                self._refuse(hidden_state(right=False, later=False))
        self._whole = False
        if len(self._values) != len(self._kinds):
            raise RuntimeError(_OTHERWISE)

    def _runs_alike(self, attributes: Attributes | None, samples: Samples | None) -> bool:
        """Run the block with attributes lent, and tell whether it saved what it had saved; hold nothing otherwise."""
        with NOTHING if attributes is None else attributes.lent():
            alike = self._run_again(samples)
        if not alike:
            self._values = []
        return alike and (samples is None or samples.same(self._values))

    def _run_again(self, samples: Samples | None) -> bool:
        """Run the block, and tell whether it saved tensors of the same shapes and types."""
        self._values, self._versions = [], []
        now = random_state(self._device)
        args, kwargs = self._arguments.again()
        try:
            with (
                self._autocast.replay_context(),
                self._block.module_state.for_replay(self._initial),
                torch.enable_grad(),
                NOTHING if self._watch is None else self._watch(self),
                self._hooks(self._taking(), _refuse),
                OutputReplay(self._outputs) if self._outputs else NOTHING,
            ):
                set_random_state(self._device, self._random)
                with suppress(_EnoughError):
                    result = self._block.call(*args, **kwargs)
                    if self._whole and samples is not None:
                        self._results_alike = samples.same_results(tensors_in(result))
                    result = None  # before the watch ends
        finally:
            set_random_state(self._device, now)
        tensors = [tensor for tensor in self._values if tensor is not None]
        kinds = zip(self._kinds, tensors, strict=False)
        alike = all([not kind or kind == hash((tensor.shape, tensor.dtype)) for kind, tensor in kinds])  # noqa: C419 - faster
        return len(tensors) == len(self._kinds) and alike

    def _taking(self) -> Callable[[torch.Tensor], None]:
        """Make the hook that takes the tensors of a second run, which saves as many as the first."""
        values, versions, on_saved, saved = self._values, self._versions, self.on_saved, len(self._kinds)
        stops = saved - 1 not in self._facts.outputs and not self._whole

        def take(tensor: torch.Tensor) -> None:
            # Without history, which may hold more than these; and as it is now, whatever becomes of its data.
            values.append(tensor if tensor.is_leaf else tensor.detach())
            versions.append(tensor._version)
            if on_saved is not None:
                on_saved(len(values) - 1, tensor)
            if stops and len(values) == saved:
                raise _EnoughError

        return take


_OTHERWISE = (
    "a block that was run again saved other tensors than the first time: its forward must depend on nothing but its "
    "inputs, its parameters and torch's random numbers. Leave it out with blocks=..., or make it so; where a context "
    "such as torch.nn.attention.sdpa_kernel was around the forward pass, have it around backward as well"
)


def _refuse(saved: None) -> torch.Tensor:
    raise RuntimeError("a block differentiates inside its own forward: leave it out with blocks=...")
