"""One block run as its treatment says: what it saves is kept, moved, encoded, or dropped to be computed again."""

from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import ref

import torch
from torch.autograd.graph import saved_tensors_hooks

from forebay.torch.compat import at_end_of_pass, graph_task
from forebay.torch.fitting.choices import TREATMENTS, Treatment
from forebay.torch.fitting.device_tools import DeviceTools
from forebay.torch.fitting.iteration import Iteration
from forebay.torch.mover import bytes_by_storage, from_outside, storage_of
from forebay.torch.replay.arguments import Inputs, tensors_in
from forebay.torch.replay.block import FittedBlock
from forebay.torch.replay.frame import Frame
from forebay.torch.saved_tensors import Entry, GraphToken, Keep, KeptTensor, StoredTensor, TensorStore, keep


def treat(
    tools: DeviceTools,
    iteration: Iteration,
    place: int,
    block: FittedBlock,
    inputs: Inputs,
    refuse: Callable[[str], None],
) -> Any:
    """Run a block as the plan says at this place."""
    assert iteration.plan is not None
    treatment, expected = TREATMENTS[iteration.plan.picks[place].name], iteration.expected[place]
    if treatment == TREATMENTS["keep"]:
        return block.call(*inputs.args, **inputs.kwargs)
    sent = iteration.sent.setdefault(place, [])
    hold = partial(_hold, tools, treatment, sent)
    if treatment.what == "all":
        output = _saving(block, inputs, hold, expected.outputs | expected.small)
    else:
        keep_input = partial(_hold_input, hold) if treatment.inputs_away else keep
        frame = Frame(block, inputs, refuse, expected.outputs, keep_input)
        wanted = expected.costly.numbers if treatment.what == "costly" else frozenset()
        output = frame.run(inputs, wanted, hold if treatment.away else keep)
    # Not one by one while it runs: the device would wait for the host, at the beginning of a step.
    entries = [entry for reference in sent if (entry := reference()) is not None]
    sent[:] = map(ref, tools.store.send(*entries))
    return output


def _hold(
    tools: DeviceTools, treatment: Treatment, sent: list["ref[Entry]"], tensor: torch.Tensor
) -> KeptTensor | StoredTensor:
    held, entry = tools.store.save(tensor)
    if entry is not None:
        if treatment.encoded and tools.codec is not None:
            tools.store.encode(entry, tools.codec, tensor)
        if treatment.away or treatment.inputs_away:
            sent.append(ref(entry))
    return held


def _hold_input(hold: Keep, tensor: torch.Tensor) -> KeptTensor | StoredTensor:
    return keep(tensor) if from_outside(tensor) else hold(tensor)


def _saving(block: FittedBlock, inputs: Inputs, hold: Keep, staying: frozenset[int]) -> Any:
    """Run a block once, its saved tensors going through the store but for some; inputs are other blocks' too."""
    input_storages = bytes_by_storage(inputs.tensors)
    count = -1

    def pack(tensor: torch.Tensor) -> KeptTensor | StoredTensor:
        nonlocal count
        count += 1
        if count in staying:
            return keep(tensor)
        storage = storage_of(tensor)
        return keep(tensor) if storage is None or storage._cdata in input_storages else hold(tensor)

    shielded: Any = torch.compiler.disable(pack) if block.compiled else pack  # type: ignore[no-untyped-call]
    with saved_tensors_hooks(shielded, lambda saved: saved.tensor()):
        return block.call(*inputs.args, **inputs.kwargs)


def leave(store: TensorStore, iteration: Iteration, count: int) -> None:
    """Let the first blocks that move be gone from the device."""
    while iteration.plan is not None and iteration.progress.gone < count:
        number = iteration.plan.moving[iteration.progress.gone]
        for reference in reversed(iteration.sent.get(number, [])):  # who waits for the last waits once
            entry = reference()
            if entry is not None and entry.storage is not None and entry.away is not None:
                store.leave(entry)
        iteration.progress.gone += 1


def reach(tools: DeviceTools, iteration: Iteration, number: int, end: Callable[[], None]) -> bool:
    """Come to a block in a backward pass, at the end of which `end` is called.

    Tells whether the loss needs more blocks than the one that was measured.
    """
    progress, plan, task = iteration.progress, iteration.plan, graph_task()
    if progress.task != task:
        progress.task, progress.below = task, len(iteration.expected)
        at_end_of_pass(end)
    if progress.turned.get(number) == task:  # another of its outputs
        return False
    progress.turned[number] = task
    if plan is None:
        iteration.mark(iteration.records[number])
        return False
    place = iteration.places[number]
    if place is None:
        return False
    for reached in range(progress.below - 1, place - 1, -1):
        leave(tools.store, iteration, plan.foreseen.leave[reached])
        for ahead in plan.foreseen.fetch[reached]:  # what was saved last first
            entries = [reference() for reference in reversed(iteration.sent.get(ahead, []))]
            tools.store.fetch(*[entry for entry in entries if entry is not None])
    progress.below = min(progress.below, place)
    return iteration.own and not iteration.expected[place].needed


def end_pass(iteration: Iteration) -> int:
    """Mark the end of a backward pass; return the most bytes that the iteration took, where they are compared."""
    iteration.mark(None)
    before = iteration.began.most
    most = iteration.began.gauge.most() if before and iteration.plan is not None else 0
    return most if most > before else 0  # else it was no more than what others had taken before


def hook_outputs(iteration: Iteration, inputs: list[torch.Tensor], output: Any, reached: Callable[[], None]) -> None:
    """Have `reached` called when the backward of a block begins: the gradient of one of its outputs is there."""
    own, token = [id(tensor) for tensor in inputs], iteration.graph_token()

    def hook(gradient: torch.Tensor, token: GraphToken = token) -> None:
        reached()

    for tensor in tensors_in(output):
        # The caller's own tensors may outlive the iteration.
        if tensor.grad_fn is not None and id(tensor) not in own:
            tensor.register_hook(hook)  # type: ignore[no-untyped-call]
