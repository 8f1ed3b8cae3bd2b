"""One call of a block that can be made again: what autograd saved of it is dropped, and computed anew when needed."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef

from forebay.torch.compat import check_version, keeps_graph
from forebay.torch.context import NOTHING, Autocast, Random, random_state, set_random_state
from forebay.torch.replay.arguments import CallArguments, Inputs, tensors_in
from forebay.torch.replay.block import FittedBlock
from forebay.torch.replay.costly_operations import KeptOutput, giving, keeping
from forebay.torch.replay.hidden_state import EVERY, Attributes, Samples, looked_at
from forebay.torch.replay.module_state import InitialModuleState
from forebay.torch.storage.mover import bytes_by_storage, storage_of, weakly
from forebay.torch.storage.tensors import Keep, KeptTensor, keep


class _EnoughError(BaseException):
    """All that was saved has been computed: the rest of the block need not run, nor catch this as a failure."""


class DroppedTensor:
    """The number of a tensor that was dropped; holds the tensor from when it is given until autograd lets go of it.

    So a function of the user's may read it again. And the peak is that of a block that is kept: a node's saved tensors
    stay until its gradients have been summed to the shapes of its inputs, which takes memory of its own on a GPU.
    """

    __slots__ = ("number", "tensor")

    def __init__(self, number: int) -> None:
        self.number = number
        self.tensor: torch.Tensor | None = None


class FirstRun(NamedTuple):
    """What the first run of a block found, and every other finds again; and what it saved."""

    block: FittedBlock
    refuse: Callable[[str], None]
    watch: "Callable[[Frame], Any] | None"
    device: torch.device
    arguments: CallArguments
    random: Random
    autocast: Autocast
    module_state: InitialModuleState
    attributes: Attributes | None
    """that it had, where it sets any"""
    kinds: list[int]
    """of what it saved: hashes, which the garbage collector need not see, and 0 for what none of its operations made
    that is differentiated, such as parameters, and for what stays"""
    storages: list[StorageWeakRef | None]
    """of these, in an iteration that measures"""
    outputs_kept: dict[int, KeptOutput]
    """of costly operations"""


class Frame:
    """A call of a block.

    `refuse` is told why the block cannot be run again as it was. `outputs` are the numbers of saved tensors that are
    its output, which an iteration that measures finds. Such a one gives `watch`, which is called with the frame around
    a second run, and may give what is told of every tensor that this saves.
    """

    __slots__ = ("_first", "_samples", "_values", "outputs")

    def __init__(
        self,
        block: FittedBlock,
        inputs: Inputs,
        refuse: Callable[[str], None],
        outputs: frozenset[int] = frozenset(),
        keep_input: Keep = keep,
        watch: "Callable[[Frame], Any] | None" = None,
    ) -> None:
        state, device, measured = block.module_state, block.device(inputs.tensors), watch is not None
        arguments, turn = CallArguments.of(inputs, keep_input), next(block.runs)
        initial, random, autocast = state.note(measured), random_state(device), Autocast.now(device)
        setting = measured or state.sets_attributes
        attributes = Attributes.of(initial.modules, plain=not measured) if setting else None
        self._first = FirstRun(
            block, refuse, watch, device, arguments, random, autocast, initial, attributes, [], [], {}
        )
        looked = measured or looked_at(turn, device)
        self._samples = Samples.of(initial.modules, EVERY[not measured], turn) if looked else None  # until compared
        # What a second run has saved and autograd has not asked for yet, and how often that had been changed.
        self._values: list[tuple[torch.Tensor, int] | None] = []
        self.outputs = outputs

    def run(self, inputs: Inputs, wanted: frozenset[int] = frozenset(), keep_output: Keep = keep) -> Any:
        """Run the block for the first time; outputs of costly operations of wanted numbers are kept."""
        first, kept, state = self._first, self._first.outputs_kept, self._first.block.module_state
        with (
            self._hooks(self._packing(), self._unpack),
            keeping(wanted, keep_output, kept) if wanted else NOTHING,
        ):
            output = first.block.call(*inputs.args, **inputs.kwargs)
        for number in [number for number, given in kept.items() if given.changed]:
            del kept[number]  # by the block itself: it is of no use, and computed again
        if (buffer := state.changed(first.module_state)) is not None:
            first.refuse(f"changes a large buffer of its own ({buffer})")
        if self._samples is not None:
            self._samples.end(tensors_in(output) if first.watch else [])
        if first.watch is not None and first.attributes is not None:
            state.sets_attributes = state.sets_attributes or first.attributes.changed()
        return output

    def _hooks(self, pack: Callable[[torch.Tensor], Any], unpack: Callable[[Any], torch.Tensor]) -> saved_tensors_hooks:
        if self._first.block.compiled:  # it would trace what is called from inside
            pack = torch.compiler.disable(pack)  # type: ignore[no-untyped-call]
        return saved_tensors_hooks(pack, unpack)

    def note_outputs(self, tensors: list[torch.Tensor]) -> tuple[tuple[StorageWeakRef, int], ...]:
        """Note which saved tensors share memory with these, and return that memory, in an iteration that measures."""
        bytes_of = bytes_by_storage(tensors)
        sharing = {
            number: storage
            for number, storage in enumerate(self._first.storages)
            if storage is not None and storage.cdata in bytes_of
        }
        self._first.storages.clear()
        self.outputs = frozenset(sharing)
        return tuple({storage.cdata: (storage, bytes_of[storage.cdata]) for storage in sharing.values()}.values())

    @property
    def saved(self) -> int:
        """The tensors that the first run has saved."""
        return len(self._first.kinds)

    @property
    def count(self) -> int:
        """The tensors that a second run has saved so far."""
        return len(self._values)

    def _packing(self) -> Callable[[torch.Tensor], DroppedTensor | KeptTensor]:
        """Make the hook that drops the tensors of the first run; networks save hundreds, so it does little for each."""
        kinds, storages, weighed = self._first.kinds, self._first.storages, self._first.watch is not None
        samples, strided = self._samples, torch.strided

        def pack(tensor: torch.Tensor) -> DroppedTensor | KeptTensor:
            number, stays = len(kinds), tensor.layout is not strided
            kinds.append(0 if stays or tensor.is_leaf else hash((tensor.shape, tensor.dtype)))
            if weighed:
                storage = storage_of(tensor)
                storages.append(None if storage is None else weakly(storage))
            if samples is not None:
                samples.take(number, tensor)
            if stays:  # whatever the plan: sizes of nested tensors are told apart by who made them
                return keep(tensor)
            return DroppedTensor(number)

        return pack

    def _unpack(self, saved: DroppedTensor | KeptTensor) -> torch.Tensor:
        """Return a tensor that was dropped. Each is given once; a second backward pass computes them once more."""
        if isinstance(saved, KeptTensor):
            return saved.tensor()
        tensor = self._value(saved.number) if saved.tensor is None else saved.tensor
        saved.tensor = None if keeps_graph() else tensor
        return tensor

    def _value(self, number: int) -> torch.Tensor:
        # They may be too few where a block differentiates before its forward has ended: running it again refuses that.
        value = self._values[number] if number < len(self._values) else None
        if value is None:
            self._replay()
            value = self._values[number]
            assert value is not None
        tensor, version = value
        if tensor._version != version:  # by the block itself, or by a hook of a backward pass
            check_version(tensor, version)
        self._values[number] = None
        return tensor

    def _replay(self) -> None:
        first = self._first
        samples, self._samples = self._samples, None
        if samples is None or first.watch is None:
            if not self._run_again(first.attributes, samples)[0] and samples is not None:
                first.refuse(_hidden_state(right=False, later=True))
        else:  # it is asked whether the block depends on what it sets, which is put back where it is run again later
            same, gives_same = self._run_again(Attributes.of(first.module_state.modules), samples)
            if not same or not gives_same:
                values = self._values
                same_then, gives_same = self._run_again(first.attributes, samples)
                self._values = values if same else self._values
                if not same or not gives_same:
                    first.refuse(_hidden_state(same_then and gives_same, later=False))
        if len(self._values) != len(first.kinds):
            raise RuntimeError(_OTHERWISE)

    def _run_again(self, attributes: Attributes | None, samples: Samples | None) -> tuple[bool, bool]:
        """Run the block with attributes lent; tell whether it saved the same tensors, and whether it gave the same.

        Nothing is held where these are of other shapes or types. What it gives is only asked for where it is measured.
        """
        first, gives_same, self._values = self._first, True, []
        now = random_state(first.device)
        args, kwargs = first.arguments.again()
        whole = first.watch is not None and samples is not None
        try:
            with (
                NOTHING if attributes is None else attributes.lent(),
                first.autocast.replay_context(),
                first.block.module_state.for_replay(first.module_state),
                torch.enable_grad(),
                NOTHING if first.watch is None else first.watch(self) as on_saved,
                self._hooks(self._taking(on_saved, whole), _refuse),
                giving(first.outputs_kept) if first.outputs_kept else NOTHING,
            ):
                set_random_state(first.device, first.random)
                with suppress(_EnoughError):
                    result = first.block.call(*args, **kwargs)
                    if whole and samples is not None:
                        gives_same = samples.same_results(tensors_in(result))
                    result = None  # before the watch ends
        finally:
            set_random_state(first.device, now)
        tensors = [value[0] for value in self._values if value is not None]
        kinds = zip(first.kinds, tensors, strict=False)
        alike = all([not kind or kind == hash((tensor.shape, tensor.dtype)) for kind, tensor in kinds])  # noqa: C419 - faster
        if len(tensors) != len(first.kinds) or not alike:
            self._values = []
            return False, gives_same
        return samples is None or samples.same(tensors), gives_same

    def _taking(
        self, on_saved: Callable[[int, torch.Tensor], None] | None, whole: bool
    ) -> Callable[[torch.Tensor], None]:
        """Make the hook that takes the tensors of a second run, which saves as many as the first."""
        values, saved = self._values, len(self._first.kinds)
        stops = saved - 1 not in self.outputs and not whole

        def take(tensor: torch.Tensor) -> None:
            # Without history, which may hold more than these; and as it is now, whatever becomes of its data.
            values.append((tensor if tensor.is_leaf else tensor.detach(), tensor._version))
            if on_saved is not None:
                on_saved(len(values) - 1, tensor)
            if stops and len(values) == saved:
                raise _EnoughError

        return take


def _hidden_state(right: bool, later: bool) -> str:
    """Tell why a block with state of its own is kept, and whether what it was recomputed for is right all the same."""
    before = ", and perhaps of some before it," if later else ""
    wrong = f". The gradients of this iteration{before} are not those of the plain model, and its state is a run ahead"
    return (
        "computes other values when it is run again: it has state of its own, such as a generator, a counter, or a "
        f"tensor that is no buffer{'' if right else wrong}"
    )


_OTHERWISE = (
    "a block that was run again saved other tensors than the first time: its forward must depend on nothing but its "
    "inputs, its parameters and torch's random numbers. Leave it out with blocks=..., or make it so; where a context "
    "such as torch.nn.attention.sdpa_kernel was around the forward pass, have it around backward as well"
)


def _refuse(saved: None) -> torch.Tensor:
    raise RuntimeError("a block differentiates inside its own forward: leave it out with blocks=...")
