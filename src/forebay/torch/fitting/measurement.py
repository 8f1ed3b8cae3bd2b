"""Measuring a block in the first iteration: it runs, runs again in the backward pass, and is looked into there."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef

from forebay.torch.compat import saves_tensors
from forebay.torch.context import NOTHING, shared_random
from forebay.torch.fitting.facts import BlockRecord, Log
from forebay.torch.fitting.iteration import Iteration
from forebay.torch.fitting.tools import DeviceTools
from forebay.torch.replay.arguments import Inputs, beyond_containers, tensors_in
from forebay.torch.replay.block import FittedBlock
from forebay.torch.replay.costly_operations import Observed, watching
from forebay.torch.replay.frame import Frame
from forebay.torch.storage.mover import bytes_by_storage, dense, from_outside, storage_of, weakly
from forebay.torch.storage.tensors import KeptTensor, give_again, keep

Take = Callable[[int, torch.Tensor], None]
"""Is told of each tensor that a block saves, and its number."""

CHECKPOINTS_INSIDE = (
    "blocks of a fitted model call torch.utils.checkpoint themselves, and what they save there is left to it: switch "
    "that off, as by model.gradient_checkpointing_disable(), to let fit decide"
)
BEYOND = (
    "is given, or gives, a {}: only tensors and plain values, in tuples, lists and dicts, can be given again as they "
    "were. Where that is a cache, switch it off, as by use_cache=False"
)


def measure(
    iteration: Iteration,
    block: FittedBlock,
    inputs: Inputs,
    record: BlockRecord,
    refused: bool,
    refuse: Callable[[str], None],
    tell: Callable[[str], None],
) -> Any:
    """Run a block that will be recomputed, unless it is refused already, and fill its log.

    `refuse` is told why it cannot be run again as it was, and `tell` what else the user should know.
    """
    tools, log = iteration.tools, record.log
    gauge, least = tools.gauge, tools.store.least
    if iteration.records:
        iteration.records[-1].log["peak after"].append(gauge.peak())
    bytes_of = bytes_by_storage(inputs.tensors)
    outside = bytes_by_storage(filter(from_outside, inputs.tensors))
    log["given"] += [(storage, size, size < least or storage in outside) for storage, size in bytes_of.items()]
    iteration.records.append(record)
    if refused:
        start = gauge.mark()
        # Where the device's memory is counted, what is kept is part of every peak.
        with NOTHING if gauge.counts else saved_tensors_hooks(_weighing(tools, log, set(bytes_of)), give_again):
            output = block.call(*inputs.args, **inputs.kwargs)
        log["forward"].append((start, gauge.mark()))
        log["peak forward"].append(gauge.peak())
        return output
    watch = partial(_watch, tools, block, log, set(bytes_of), tell)
    frame = Frame(block, inputs, refuse, watch=watch)
    drawn = shared_random()
    start = gauge.mark()
    output = frame.run(inputs)
    log["forward"].append((start, gauge.mark()))
    if shared_random() != drawn:
        raise RuntimeError(
            f"a block ({block.name}) draws from Python's or NumPy's shared generator, as np.random.rand() does: run "
            "again, it would draw other numbers. Draw from torch's, or leave it out with blocks=..."
        )
    log["peak forward"].append(gauge.peak())
    outputs = tensors_in(output)
    if _checkpoints(frame.saved, outputs, inputs.tensors):
        tell(CHECKPOINTS_INSIDE)
    log["made"] += frame.note_outputs(outputs)
    log["outputs"] += frame.outputs
    if (kind := beyond_containers(output)) is not None and not isinstance(output, dict):
        refuse(BEYOND.format(kind))
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


@contextmanager
def _watch(
    tools: DeviceTools, block: FittedBlock, log: Log, inputs: set[int], tell: Callable[[str], None], frame: Frame
) -> Iterator[Take | None]:
    """Be around a second run of a block; only the first of an iteration is looked into."""
    gauge, start = tools.gauge, tools.gauge.mark()
    if log["replay"]:
        yield None
        log["replay"].append((start, gauge.mark()))
        return
    observed: list[Observed] = []
    tails: list[Any] = []  # when all that is needed had been saved
    weigh, outputs, needed = _weigher(tools, log, inputs), frame.outputs, -1
    last = None if frame.saved - 1 in outputs else frame.saved - 1
    told = partial(tell, CHECKPOINTS_INSIDE)

    def take(number: int, tensor: torch.Tensor) -> None:
        nonlocal needed
        if weigh(number, tensor, number in outputs):
            needed = number
        if number == last:  # what comes now is run for its results alone, in this iteration and no other
            tails.append(gauge.mark())
            log["peak backward"].append(gauge.peak())

    with NOTHING if block.compiled else watching(gauge.mark, lambda: frame.count, lambda: tails, observed, told):
        yield take
    end = gauge.mark()
    log["replay"].append((start, end))
    if tails:
        log["tail"].append((tails[0], end))
        gauge.peak()
    for number, (span, sizes, packed, given) in enumerate(observed):
        if packed <= needed and not given.changed:  # something after it is saved, which needs it
            stays = sum(nbytes for nbytes in sizes if nbytes < tools.store.least)
            log["operations"].append((number, sum(sizes), stays, span))


def _weighing(tools: DeviceTools, log: Log, inputs: set[int]) -> Callable[[torch.Tensor], KeptTensor]:
    """Make the hook that keeps and weighs what a block saves."""
    numbers, weigh = count(), _weigher(tools, log, inputs)

    def pack(tensor: torch.Tensor) -> KeptTensor:
        weigh(next(numbers), tensor, False)
        return keep(tensor)

    return pack


def _weigher(tools: DeviceTools, log: Log, inputs: set[int]) -> Callable[[int, torch.Tensor, bool], bool]:
    """Make what weighs each tensor that a block saves, each storage once, and tells whether it is no parameter."""
    weighed: dict[int, StorageWeakRef] = {}

    def weigh(number: int, tensor: torch.Tensor, is_output: bool) -> bool:
        if tensor.is_leaf and tensor.requires_grad and isinstance(tensor, torch.nn.Parameter):
            log["small"].append(number)
            return False
        storage = storage_of(tensor)
        if storage is None:  # it stays, and is part of every peak
            return True
        nbytes = storage.nbytes()
        small = nbytes < tools.store.least
        if small:
            log["small"].append(number)
        base = tensor if tensor._base is None else tensor._base
        parameter = base.is_leaf and isinstance(base, torch.nn.Parameter)
        if parameter or storage._cdata in weighed or is_output:
            return True
        weighed[storage._cdata] = weakly(storage)
        if storage._cdata not in inputs:
            log["saved"].append((nbytes, nbytes if small else 0, nbytes if small else _encoded(tools, log, tensor)))
        return True

    return weigh


def _encoded(tools: DeviceTools, log: Log, tensor: torch.Tensor) -> int:
    """Return the bytes of a tensor as the codec leaves them, and note what it takes to encode and to decode it."""
    nbytes, codec, gauge, mover = tensor.untyped_storage().nbytes(), tools.codec, tools.gauge, tools.store.mover
    array = dense(tensor) if codec is not None else None
    if codec is None or array is None or not mover.handles(codec, array):
        return nbytes
    with torch.no_grad():
        if (kind := (array.dtype, array.dim())) not in tools.warm:  # the first time it may be compiled
            tools.warm.add(kind)
            mover.decode(codec, *mover.encode(codec, array), torch.empty_like(array))
        start = gauge.mark()
        payload, size = mover.encode(codec, array)
        middle = gauge.mark()
        mover.decode(codec, payload, size, torch.empty_like(array))
        log["encode"].append((start, middle))
        log["decode"].append((middle, gauge.mark()))
    log["room"].append(mover.encoding_room(codec, array, size))
    return min(size, nbytes)
