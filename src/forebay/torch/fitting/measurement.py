"""Measuring a block in the first iteration: it runs, runs again in the backward pass, and is looked into there."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from operator import methodcaller
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef

from forebay.codec import Codec
from forebay.torch.advice import Advice, beyond, hidden_state
from forebay.torch.compat import saves_tensors
from forebay.torch.execution_context import NOTHING, shared_random
from forebay.torch.fitting.fitted_block import FittedBlock, Inputs
from forebay.torch.fitting.iteration import Iteration
from forebay.torch.fitting.record import BlockRecord, device_of
from forebay.torch.gauge import HostGauge
from forebay.torch.mover import Mover, bytes_by_storage, dense, from_outside, storage_of, weakly
from forebay.torch.replay.arguments import beyond_containers, tensors_in
from forebay.torch.replay.costly_operations import CostlyOperation, OperationWatch
from forebay.torch.replay.frame import Frame
from forebay.torch.saved_tensors import KeptTensor


def measure(
    iteration: Iteration,
    block: FittedBlock,
    record: BlockRecord,
    inputs: Inputs,
    gauge: HostGauge,
    mover: Mover,
    codec: Codec | None,
    least: int,
    advice: Advice,
    refuse: Callable[[BlockRecord, str], None] | None,
) -> Any:
    """Run a block that will be recomputed.

    Parameters
    ----------
    iteration
        Gets the record.
    record
        Of the block, filled.
    block, inputs
        What is run.
    gauge, mover, codec
        What times it, and what would move or encode what it saves.
    least
        Storages of fewer bytes are not moved.
    advice
        Warns of what the user should know.
    refuse
        Told when the block cannot be run again as it was, and why. None where that is known: it is kept.
    """
    number = len(iteration.records)
    iteration.records.append(record)
    if number:
        iteration.records[number - 1].peak_after = gauge.peak()
    bytes_of = bytes_by_storage(inputs.tensors)
    outside = bytes_by_storage(filter(from_outside, inputs.tensors))
    outside |= {pointer: nbytes for pointer, nbytes in bytes_of.items() if nbytes < least}
    earlier = iteration.input_storages
    record.input_storages = frozenset(bytes_of)
    record.inputs = sum(nbytes for pointer, nbytes in bytes_of.items() if pointer not in earlier)
    record.outside = sum(nbytes for pointer, nbytes in outside.items() if pointer not in earlier)
    record.lone = True
    for other in iteration.records[:number]:
        if other.input_storages & record.input_storages:  # moving it for one would not free it
            record.lone = other.lone = False
    iteration.input_storages |= record.input_storages
    watch = BlockMeasurement(record, gauge, mover, codec, set(bytes_of), least, advice)
    if refuse is None:
        record.refused = True
        start = gauge.mark()
        # Where the device's memory is counted, what is kept is part of every peak.
        with NOTHING if gauge.counts else saved_tensors_hooks(watch.weigh(), methodcaller("tensor")):
            output = block.call(*inputs.args, **inputs.kwargs)
        record.forward, record.peak_forward = (start, gauge.mark()), gauge.peak()
        return output
    frame = Frame(
        block.call,
        block.module_state,
        device_of(inputs.tensors, block.module_state.parameters()),
        watch=watch,
        weighed=True,
        on_reread=record.note_reread,
        on_hidden=lambda right: refuse(record, hidden_state(right)),
        compiled=block.compiled,
    )
    drawn = shared_random()
    start = gauge.mark()
    output = frame.run(inputs.args, inputs.kwargs)
    record.forward = start, gauge.mark()
    if shared_random() != drawn:
        raise RuntimeError(
            f"a block ({block.name}) draws from Python's or NumPy's shared generator, as np.random.rand() does: run "
            "again, it would draw other numbers. Draw from torch's, or leave it out with blocks=..."
        )
    record.peak_forward = gauge.peak()
    if _checkpoints(frame.saved, tensors_in(output), inputs.tensors):
        advice.checkpoints_inside()
    record.outputs, record.made = frame.saved_of(tensors_in(output))
    if (kind := beyond_containers(output)) is not None and not isinstance(output, dict):
        refuse(record, beyond(kind))
    return output


def _checkpoints(saved: int, outputs: list[torch.Tensor], inputs: list[torch.Tensor]) -> bool:
    """Tell whether torch.utils.checkpoint was at work in a block: by its node, or by many nodes that saved little."""
    visited: set[Any] = {None, *(tensor.grad_fn for tensor in inputs)}
    waiting: list[Any] = [tensor.grad_fn for tensor in outputs]
    saving = 0
    while waiting:
        node = waiting.pop()
        if node not in visited:
            visited.add(node)
            kind: Any = type(node)
            saving += saves_tensors(kind)
            if node.name() == "CheckpointFunctionBackward" or saving > 2 * saved:
                return True
            waiting += [following for following, _ in node.next_functions]
    return False


class BlockMeasurement:
    """Measures a block while it runs again."""

    def __init__(
        self,
        record: BlockRecord,
        gauge: HostGauge,
        mover: Mover,
        codec: Codec | None,
        inputs: set[int],
        least: int,
        advice: Advice,
    ) -> None:
        self._record, self._gauge, self._mover, self._codec = record, gauge, mover, codec
        self._inputs, self._least, self._advice = inputs, least, advice
        self._weighed_storages: dict[int, StorageWeakRef] = {}

    @contextmanager
    def __call__(self, frame: Frame) -> Iterator[None]:
        """Be around a second run; only the first of an iteration is looked into."""
        record, gauge = self._record, self._gauge
        start = gauge.mark()
        if record.replay_spans:
            yield
            record.replay_spans.append((start, gauge.mark()))
            return
        self._last_saved = -1
        frame.on_saved = self._take
        if record.compiled:
            yield
        else:
            with OperationWatch(gauge.mark, lambda: frame.count) as watching:
                yield
            self._note_costly(watching)
            if watching.checkpointed:
                self._advice.checkpoints_inside()
        record.replay_spans.append((start, gauge.mark()))
        frame.on_saved = None
        self._weighed_storages.clear()

    def weigh(self) -> Callable[[torch.Tensor], KeptTensor]:
        """Make the hook that keeps and weighs what a block saves."""
        numbers = count()

        def pack(tensor: torch.Tensor) -> KeptTensor:
            self._take(next(numbers), tensor)
            return KeptTensor(tensor)

        return pack

    def _note_costly(self, watching: OperationWatch) -> None:
        for number, (start, end, sizes, packed, aliases) in enumerate(watching.observed):
            changed = number in watching.written or any(alias._version != version for alias, version in aliases)
            if packed <= self._last_saved and not changed:  # something after it is saved, which needs it
                stays = sum(nbytes for nbytes in sizes if nbytes < self._least)
                self._record.operations.append(CostlyOperation(number, sum(sizes), stays))
                self._record.operation_spans.append((start, end))

    def _take(self, number: int, tensor: torch.Tensor) -> None:
        if tensor.is_leaf and tensor.requires_grad and isinstance(tensor, torch.nn.Parameter):
            self._record.small.add(number)
            return
        self._last_saved = number
        storage = storage_of(tensor)
        if storage is None:  # it stays, and is part of every peak
            return
        small = storage.nbytes() < self._least
        if small:
            self._record.small.add(number)
        base = tensor if tensor._base is None else tensor._base
        parameter = base.is_leaf and isinstance(base, torch.nn.Parameter)
        if parameter or storage._cdata in self._weighed_storages or number in self._record.outputs:
            return
        self._weighed_storages[storage._cdata] = weakly(storage)
        if storage._cdata in self._inputs:
            return
        self._record.saved += storage.nbytes()
        self._record.stays += storage.nbytes() if small else 0
        self._record.encoded += storage.nbytes() if small else self._try_codec(tensor)

    def _try_codec(self, tensor: torch.Tensor) -> int:
        nbytes = tensor.untyped_storage().nbytes()
        array = dense(tensor) if self._codec is not None else None
        if self._codec is None or array is None or not self._mover.handles(self._codec, array):
            return nbytes
        gauge = self._gauge
        with torch.no_grad():
            if (kind := (array.dtype, array.dim())) not in self._mover.warm:  # the first time it may be compiled
                self._mover.warm.add(kind)
                self._mover.decode(self._codec, *self._mover.encode(self._codec, array), torch.empty_like(array))
            start = gauge.mark()
            payload, size = self._mover.encode(self._codec, array)
            middle = gauge.mark()
            self._mover.decode(self._codec, payload, size, torch.empty_like(array))
            self._record.encode.append((start, middle))
            self._record.decode.append((middle, gauge.mark()))
        self._record.room = max(self._record.room, self._mover.encoding_room(self._codec, array, size))
        return min(size, nbytes)
