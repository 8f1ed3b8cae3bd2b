"""Neighbours: blocks that an `nn.Sequential` calls one after another, taken together where a model has many.

What is done for each block takes the host time, as long as that of some operations, and a block that is recomputed
keeps its input. Fifty blocks planned as some sixteen have a third of both, and the planner still has enough to choose.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from operator import add
from typing import Any

from torch import nn
from torch.nn.modules import module as torch_module

from forebay.torch.fitting.blocks import ENOUGH
from forebay.torch.fitting.facts import MeasuredBlock
from forebay.torch.fitting.patch import Patch
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


def adjacent(several: Iterable[nn.Sequential]) -> set[tuple[int, int]]:
    """Tell which blocks are given what another gave, with nothing of others around both, by their identities."""
    pairs = (pair for sequence in several for pair in pairwise(list(sequence)))
    return {(id(first), id(second)) for first, second in pairs if bare(first) and bare(second)}


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


def groups(
    blocks: Sequence[MeasuredBlock], budget: int, several: Iterable[nn.Sequential]
) -> dict[int, tuple[int, ...]]:
    """Choose the blocks that are taken together, by the identity of the first, where they are several.

    The budget is without the bytes that have been taken since by others, as optimizers do.
    """
    if len(blocks) <= ENOUGH or not (following := adjacent(several)):
        return {}
    sizes = [block.saved + block.inputs for block in blocks]
    most = min(sum(sizes) / ENOUGH, MOST * budget)
    peaks = [max(block.planned.peak_forward, block.planned.peak_after, block.planned.peak_backward) for block in blocks]
    before = accumulate((block.saved for block in blocks), initial=0)
    leaving = max(map(add, peaks, before)) - budget  # were all of them kept
    modules = [block.record.module for block in blocks]
    times = Counter(modules)
    alone = [block.refused or times[module] > 1 for block, module in zip(blocks, modules, strict=True)]
    grouped: list[slice] = []
    freed = 0
    for number, so_far in enumerate(accumulate(sizes)):
        if number and (modules[number - 1], modules[number]) in following and not any(alone[number - 1 : number + 1]):
            among = slice(grouped[-1].start, number + 1)
            small = sum(sizes[among]) <= most * (LARGER if so_far <= leaving else 1)
            if small and _fits(blocks[among], peaks[among], budget + freed):
                grouped[-1] = among
                continue
        if grouped:
            freed += sum(member.inputs for member in blocks[grouped[-1]][1:])
        grouped.append(slice(number, number + 1))
    return {modules[group.start]: tuple(modules[group]) for group in grouped if group.stop > group.start + 1}


def _fits(group: Sequence[MeasuredBlock], peaks: Sequence[int], budget: int) -> bool:
    """Tell whether a group can be recomputed: when its last block's backward begins, all is there that all of it saves.

    The inputs between its blocks are part of that, and were there when peaks were measured up to the block in question.
    """
    saved = sum(block.saved for block in group)
    later = 0
    for block, peak in zip(reversed(group), reversed(peaks), strict=True):
        if peak + saved - block.saved + later > budget:
            return False
        later += block.inputs
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
