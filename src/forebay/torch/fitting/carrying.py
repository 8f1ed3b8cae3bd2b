"""One block run as its treatment says: what it saves is kept, moved, encoded, or dropped to be computed again."""

from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import ref

import torch
from torch.autograd.graph import saved_tensors_hooks

from forebay.torch.fitting.facts import TREATMENTS, Treatment
from forebay.torch.fitting.iteration import Iteration
from forebay.torch.fitting.tools import DeviceTools
from forebay.torch.replay.arguments import Inputs
from forebay.torch.replay.block import FittedBlock
from forebay.torch.replay.frame import Frame
from forebay.torch.storage.mover import bytes_by_storage, from_outside, storage_of
from forebay.torch.storage.tensors import Entry, Keep, KeptTensor, StoredTensor, give_again, keep


def treat(iteration: Iteration, place: int, block: FittedBlock, inputs: Inputs, refuse: Callable[[str], None]) -> Any:
    """Run a block as the plan says at this place."""
    assert iteration.plan is not None
    treatment, expected = TREATMENTS[iteration.plan.picks[place].name], iteration.expected[place]
    if treatment == TREATMENTS["keep"]:
        return block.call(*inputs.args, **inputs.kwargs)
    sent = iteration.sent.setdefault(place, [])
    hold = partial(_hold, iteration.tools, treatment, sent)
    if treatment.what == "all":
        output = _saving(block, inputs, hold, expected.staying)
    else:
        keep_input = partial(_hold_input, hold) if treatment.inputs_away else keep
        frame = Frame(block, inputs, refuse, expected.outputs, keep_input)
        wanted = expected.costly if treatment.what == "costly" else frozenset()
        output = frame.run(inputs, wanted, hold if treatment.away else keep)
    # Not one by one while it runs: the device would wait for the host, at the beginning of a step.
    entries = [entry for reference in sent if (entry := reference()) is not None]
    sent[:] = map(ref, iteration.tools.store.send(*entries))
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
    with saved_tensors_hooks(shielded, give_again):
        return block.call(*inputs.args, **inputs.kwargs)
