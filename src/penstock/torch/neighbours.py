"""Neighbours: blocks that an `nn.Sequential` calls one after another, taken together where a model has many.

What is done for each block takes the host time, as long as that of some operations, and a block that is recomputed
keeps its input. Fifty blocks planned as some sixteen have a third of both, and the planner still has enough to choose.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from torch import nn
from torch.nn.modules import module as torch_module

from penstock.torch.belongings import Belongings
from penstock.torch.blocks import Patch
from penstock.torch.known import Part
from penstock.torch.record import Record

ENOUGH = 16
"""Blocks of more than that are taken together, each group with no more than such a part of what all of them save."""
MOST = 1 / 8
"""The part of the budget that a group may save: while it is recomputed all of that is there."""


def sequences(model: nn.Module, blocks: Iterable[nn.Module]) -> list[nn.Sequential]:
    """Give the `nn.Sequential`s of a model that call two of its blocks or more, and are called as any other."""
    found = set(blocks)
    return [
        module
        for module in model.modules()
        if isinstance(module, nn.Sequential)
        and type(module).forward is nn.Sequential.forward
        and "forward" not in vars(module)
        and getattr(module, "_compiled_call_impl", None) is None
        and module not in found
        and sum(child in found for child in module) > 1
    ]


def bare(module: nn.Module) -> bool:
    """Tell whether to call a block is to call its forward, with nothing of others around it."""
    return (
        type(vars(module).get("forward")) is Patch
        and type(module).__call__ is nn.Module.__call__
        and not module._forward_hooks
        and not module._forward_pre_hooks
        and not module._backward_hooks
        and not module._backward_pre_hooks
        and not torch_module._global_forward_hooks
        and not torch_module._global_forward_pre_hooks
        and not torch_module._global_backward_hooks
        and not torch_module._global_backward_pre_hooks
    )


def groups(records: Sequence[Record], budget: int) -> dict[int, int]:
    """Give how many blocks are taken together, by the identity of the first, where they are several.

    Parameters
    ----------
    records
        What was measured of each block.
    budget
        Bytes of the device.

    Examples
    --------
    >>> several = [Record(f"{n}", n, (), False, saved=10, follows=n > 0) for n in range(40)]
    >>> groups(several, 10_000) == dict.fromkeys(range(0, 40, 2), 2), groups(several[:16], 10_000)
    (True, {})
    """
    total = sum(record.saved + record.inputs for record in records)
    peak = max((max(one.peak_forward, one.peak_after, one.peak_backward) for one in records), default=0)
    most = min(total // ENOUGH, int(MOST * budget), budget - peak)
    times = Counter(record.module for record in records)
    counts: dict[int, int] = {}
    first, size = 0, 0
    for record in records if len(records) > ENOUGH else ():
        own = record.saved + record.inputs
        once = times[record.module] == times[first] == 1
        if record.follows and once and size + own <= most:
            counts[first] += 1
            size += own
        else:
            first, size = record.module, own
            counts[first] = 1
    return {module: count for module, count in counts.items() if count > 1}


def one_of(parts: Sequence[Part]) -> Part:
    """Make one block of several that follow each other."""
    calls = [part.call for part in parts]

    def call(given: Any) -> Any:
        for one in calls:
            given = one(given)
        return given

    module = nn.Sequential(*(part.module for part in parts))
    return Part(f"{parts[0].name} to {parts[-1].name}", call, Belongings(module), module, len(parts))
