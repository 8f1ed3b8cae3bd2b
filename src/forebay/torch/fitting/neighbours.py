"""Neighbours: blocks that an `nn.Sequential` calls one after another, taken together where a model has many.

What is done for each block takes the host time, as long as that of some operations, and a block that is recomputed
keeps its input. Fifty blocks planned as some sixteen have a third of both, and the planner still has enough to choose.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate
from operator import add
from typing import Any

from torch import nn
from torch.nn.modules import module as torch_module

from forebay.torch.fitting.blocks import ENOUGH, Patch
from forebay.torch.fitting.record import BlockRecord, MeasuredBlock
from forebay.torch.replay.block import FittedBlock, compiled

MOST = 1 / 6
"""The part of the budget that a group may save: while it is recomputed all of that is there."""
LARGER = 4
"""How many times as large groups of the first blocks may be, as many blocks as have to leave the device.

These are recomputed last, when all others have gone, and most likely all of them are. Where the host binds, to choose
between them would gain less than fewer groups do, which have fewer inputs to keep.
"""


def sequences(model: nn.Module, blocks: Iterable[nn.Module]) -> list[nn.Sequential]:
    """Find the `nn.Sequential`s of a model that call two of its blocks or more, and are called as any other."""
    called = set(blocks)
    return [
        module
        for module in model.modules()
        if isinstance(module, nn.Sequential)
        and type(module).forward is nn.Sequential.forward
        and type(module).__iter__ is nn.Sequential.__iter__
        and "forward" not in vars(module)
        and not compiled(module)
        and module not in called
        and sum(child in called for child in module) > 1
    ]


def bare(module: nn.Module) -> bool:
    """Tell whether to call a block is to call its forward, with nothing of others around it."""
    own = vars(module)
    return (
        type(own.get("forward")) is Patch
        and not (own["_forward_hooks"] or own["_forward_pre_hooks"])
        and not (own["_backward_hooks"] or own["_backward_pre_hooks"])
        and type(module).__call__ is nn.Module.__call__
        and not compiled(module)
        and not (torch_module._global_forward_hooks or torch_module._global_forward_pre_hooks)
        and not (torch_module._global_backward_hooks or torch_module._global_backward_pre_hooks)
    )


def note_follower(records: Sequence[BlockRecord], module: nn.Module, before: BlockRecord | None) -> BlockRecord | None:
    """Note that a block was given what the one before gave; return its record, where it was measured just now."""
    if not records or records[-1].module != id(module) or not bare(module):
        return None
    if before is not None and len(records) > 1 and records[-2] is before:
        records[-1].log["follows"].append(True)
    return records[-1]


def groups(blocks: Sequence[MeasuredBlock], budget: int) -> dict[int, tuple[int, ...]]:
    """Choose the blocks that are taken together, by the identity of the first, where they are several.

    The budget is without the bytes that have been taken since by others, as optimizers do.

    Examples
    --------
    >>> from forebay.torch.fitting.record import BlockBytes
    >>> blocks = [MeasuredBlock(f"{n}", n, (), bytes=BlockBytes(10), follows=n > 0) for n in range(40)]
    >>> groups(blocks, 10_000) == {n: (n, n + 1) for n in range(0, 40, 2)}, groups(blocks[:16], 10_000)
    (True, {})
    """
    if len(blocks) <= ENOUGH:
        return {}
    sizes = [block.bytes.saved + block.bytes.inputs for block in blocks]
    most = min(sum(sizes) / ENOUGH, MOST * budget)
    peaks = _peaks(blocks)
    before = accumulate((block.bytes.saved for block in blocks), initial=0)
    leaving = max(map(add, peaks, before)) - budget  # were all of them kept
    times = Counter(block.module for block in blocks)
    grouped: list[list[MeasuredBlock]] = []
    freed = 0
    for number, (block, so_far) in enumerate(zip(blocks, accumulate(sizes), strict=True)):
        last = blocks[number - 1]
        if block.follows and not (block.refused or last.refused) and times[block.module] == times[last.module] == 1:
            group = [*grouped[-1], block]
            among = slice(number + 1 - len(group), number + 1)
            small = sum(sizes[among]) <= most * (LARGER if so_far <= leaving else 1)
            if small and _fits(group, peaks[among], budget + freed):
                grouped[-1] = group
                continue
        if grouped:
            freed += sum(member.bytes.inputs for member in grouped[-1][1:])
        grouped.append([block])
    return {group[0].module: tuple(member.module for member in group) for group in grouped if len(group) > 1}


def _peaks(blocks: Sequence[MeasuredBlock]) -> list[int]:
    """Return the most bytes around each block, all being recomputed; where nobody counts, those that it adds."""
    given = accumulate(block.bytes.inputs for block in blocks)
    return [max(block.bytes.peaks) or nbytes + block.bytes.saved for block, nbytes in zip(blocks, given, strict=True)]


def _fits(group: Sequence[MeasuredBlock], peaks: Sequence[int], budget: int) -> bool:
    """Tell whether a group can be recomputed: when its last block's backward begins, all is there that all of it saves.

    The inputs between its blocks are part of that, and were there when peaks were measured up to the block in question.
    """
    saved = sum(block.bytes.saved for block in group)
    later = 0
    for block, peak in zip(reversed(group), reversed(peaks), strict=True):
        if peak + saved - block.bytes.saved + later > budget:
            return False
        later += block.bytes.inputs
    return True


def group_of(blocks: Sequence[FittedBlock]) -> FittedBlock:
    """Make one block of several that follow each other."""
    calls = [block.call for block in blocks]

    def call(value: Any) -> Any:
        for call_block in calls:
            value = call_block(value)
        return value

    module = nn.Sequential(*(block.module for block in blocks))
    return FittedBlock(f"{blocks[0].name} to {blocks[-1].name}", call, module, len(blocks))
