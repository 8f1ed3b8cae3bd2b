"""Measuring a block in the first iteration: it runs, runs again in the backward pass, and is looked into there."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from operator import methodcaller
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef

from forebay.torch.advice import CHECKPOINTS_INSIDE, beyond
from forebay.torch.compat import saves_tensors
from forebay.torch.execution_context import NOTHING, shared_random
from forebay.torch.fitting.device_tools import DeviceTools
from forebay.torch.fitting.iteration import Iteration
from forebay.torch.fitting.record import BlockRecord
from forebay.torch.mover import bytes_by_storage, dense, from_outside, storage_of, weakly
from forebay.torch.replay.arguments import Inputs, beyond_containers, tensors_in
from forebay.torch.replay.block import FittedBlock
from forebay.torch.replay.costly_operations import CostlyOperation, OperationWatch
from forebay.torch.replay.frame import Frame
from forebay.torch.saved_tensors import KeptTensor, keep


def measure(
    tools: DeviceTools,
    iteration: Iteration,
    block: FittedBlock,
    inputs: Inputs,
    record: BlockRecord,
    refuse: Callable[[str], None],
    tell: Callable[[str], None],
) -> Any:
    """Run a block that will be recomputed, unless it is refused already, and fill its record.

    `refuse` is told why it cannot be run again as it was, and `tell` what else the user should know.
    """
    gauge = tools.gauge
    if iteration.records:
        iteration.records[-1].bytes.peak_after = gauge.peak()
    bytes_of = bytes_by_storage(inputs.tensors)
    _note_inputs(iteration, record, bytes_of, inputs.tensors, tools.store.least)
    iteration.records.append(record)
    watch = BlockMeasurement(tools, block, record, set(bytes_of), tell)
    if record.refused:
        start = gauge.mark()
        # Where the device's memory is counted, what is kept is part of every peak.
        with NOTHING if gauge.counts else saved_tensors_hooks(watch.weigh(), methodcaller("tensor")):
            output = block.call(*inputs.args, **inputs.kwargs)
        record.times.forward, record.bytes.peak_forward = (start, gauge.mark()), gauge.peak()
        return output
    frame = Frame(block, refuse, record.facts, weighed=True, watch=watch)
    drawn = shared_random()
    start = gauge.mark()
    output = frame.run(inputs)
    record.times.forward = start, gauge.mark()
    if shared_random() != drawn:
        raise RuntimeError(
            f"a block ({block.name}) draws from Python's or NumPy's shared generator, as np.random.rand() does: run "
            "again, it would draw other numbers. Draw from torch's, or leave it out with blocks=..."
        )
    record.bytes.peak_forward = gauge.peak()
    outputs = tensors_in(output)
    if _checkpoints(frame.saved, outputs, inputs.tensors):
        tell(CHECKPOINTS_INSIDE)
    record.made = frame.note_outputs(outputs)
    if (kind := beyond_containers(output)) is not None and not isinstance(output, dict):
        refuse(beyond(kind))
    return output


def _note_inputs(
    iteration: Iteration, record: BlockRecord, bytes_of: dict[int, int], tensors: list[torch.Tensor], least: int
) -> None:
    """Note what a block is given that none before was, and whether no other is given it."""
    outside = bytes_by_storage(filter(from_outside, tensors))
    outside |= {pointer: nbytes for pointer, nbytes in bytes_of.items() if nbytes < least}
    earlier = frozenset().union(*(other.input_storages for other in iteration.records))
    record.input_storages = frozenset(bytes_of)
    record.bytes.inputs = sum(nbytes for pointer, nbytes in bytes_of.items() if pointer not in earlier)
    record.bytes.outside = sum(nbytes for pointer, nbytes in outside.items() if pointer not in earlier)
    record.lone = True
    for other in iteration.records:
        if other.input_storages & record.input_storages:  # moving it for one would not free it
            record.lone = other.lone = False


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
        self, tools: DeviceTools, block: FittedBlock, record: BlockRecord, inputs: set[int], tell: Callable[[str], None]
    ) -> None:
        self._tools, self._block, self._record, self._inputs, self._tell = tools, block, record, inputs, tell
        self._weighed_storages: dict[int, StorageWeakRef] = {}
        self._last_saved = -1

    @contextmanager
    def __call__(self, frame: Frame) -> Iterator[Callable[[int, torch.Tensor], None] | None]:
        """Be around a second run; only the first of an iteration is looked into."""
        record, gauge = self._record, self._tools.gauge
        start = gauge.mark()
        if record.times.replay_spans:
            yield None
            record.times.replay_spans.append((start, gauge.mark()))
            return
        watching, tail = OperationWatch(gauge.mark, lambda: frame.count), None
        last = None if frame.saved - 1 in record.facts.outputs else frame.saved - 1

        def take(number: int, tensor: torch.Tensor) -> None:
            nonlocal tail
            self._take(number, tensor)
            if number == last:  # what comes now is run for its results alone, in this iteration and no other
                watching.ended = True
                tail, record.bytes.peak_backward = gauge.mark(), max(record.bytes.peak_backward, gauge.peak())

        with NOTHING if self._block.compiled else watching:
            yield take
        end = gauge.mark()
        record.times.replay_spans.append((start, end))
        if tail is not None:
            record.times.tail.append((tail, end))
            gauge.peak()
        self._note_costly(watching)
        if watching.checkpointed:
            self._tell(CHECKPOINTS_INSIDE)
        self._weighed_storages.clear()

    def weigh(self) -> Callable[[torch.Tensor], KeptTensor]:
        """Make the hook that keeps and weighs what a block saves."""
        numbers = count()

        def pack(tensor: torch.Tensor) -> KeptTensor:
            self._take(next(numbers), tensor)
            return keep(tensor)

        return pack

    def _note_costly(self, watching: OperationWatch) -> None:
        for number, (start, end, sizes, packed, aliases) in enumerate(watching.observed):
            changed = number in watching.written or any(alias._version != version for alias, version in aliases)
            if packed <= self._last_saved and not changed:  # something after it is saved, which needs it
                stays = sum(nbytes for nbytes in sizes if nbytes < self._tools.store.least)
                self._record.times.operations.append(CostlyOperation(number, sum(sizes), stays))
                self._record.times.operation_spans.append((start, end))

    def _take(self, number: int, tensor: torch.Tensor) -> None:
        if tensor.is_leaf and tensor.requires_grad and isinstance(tensor, torch.nn.Parameter):
            self._record.facts.small.add(number)
            return
        self._last_saved = number
        storage = storage_of(tensor)
        if storage is None:  # it stays, and is part of every peak
            return
        small = storage.nbytes() < self._tools.store.least
        if small:
            self._record.facts.small.add(number)
        base = tensor if tensor._base is None else tensor._base
        parameter = base.is_leaf and isinstance(base, torch.nn.Parameter)
        if parameter or storage._cdata in self._weighed_storages or number in self._record.facts.outputs:
            return
        self._weighed_storages[storage._cdata] = weakly(storage)
        if storage._cdata in self._inputs:
            return
        self._record.bytes.saved += storage.nbytes()
        self._record.bytes.stays += storage.nbytes() if small else 0
        self._record.bytes.encoded += storage.nbytes() if small else self._try_codec(tensor)

    def _try_codec(self, tensor: torch.Tensor) -> int:
        nbytes, codec = tensor.untyped_storage().nbytes(), self._tools.codec
        gauge, mover, record = self._tools.gauge, self._tools.store.mover, self._record
        array = dense(tensor) if codec is not None else None
        if codec is None or array is None or not mover.handles(codec, array):
            return nbytes
        with torch.no_grad():
            if (kind := (array.dtype, array.dim())) not in mover.warm:  # the first time it may be compiled
                mover.warm.add(kind)
                mover.decode(codec, *mover.encode(codec, array), torch.empty_like(array))
            start = gauge.mark()
            payload, size = mover.encode(codec, array)
            middle = gauge.mark()
            mover.decode(codec, payload, size, torch.empty_like(array))
            record.times.encode.append((start, middle))
            record.times.decode.append((middle, gauge.mark()))
        record.bytes.room = max(record.bytes.room, mover.encoding_room(codec, array, size))
        return min(size, nbytes)
