"""Which parameters an optimizer steps together, and whose states stay on the device, so that a budget holds."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from forebay.errors import BudgetError
from forebay.units import Budget, to_text

BATCH = 2**28
"""Bytes of states that move together: fewer would not fill the link, more would make the first of them wait longer."""


class BatchPlan(NamedTuple):
    """Parameters by their number: first those whose states move, batch by batch, then those whose states stay."""

    batches: Sequence[range]
    """all parameters, in their order"""
    moving: int
    """so many of the batches move"""
    moved: int
    """bytes that come up and go down in a step"""
    total: int
    """bytes of all states"""
    peak: int
    """the most bytes on the device, one batch coming, one being stepped, and one leaving"""


class StateShape(NamedTuple):
    """What a state has of its parameter's shape: some, as Adafactor's, have not all axes."""

    itemsize: int
    whole: Sequence[bool]
    """whether an axis is as long as the parameter's, rather than 1"""

    def nbytes(self, shape: Sequence[int]) -> int:
        """Return the bytes of one that a parameter of some shape has."""
        lengths = zip(shape, self.whole, strict=True)
        return self.itemsize * math.prod(length for length, whole in lengths if whole)


def plan_batches(sizes: Sequence[int], budget: Budget) -> BatchPlan:
    """Plan a step of parameters whose states have so many bytes, refusing a budget in which it does not fit.

    Examples
    --------
    >>> plan = plan_batches([10**8] * 20, Budget(device="1.5GB", host="8GB"))
    >>> len(plan.batches), plan.moving, to_text(plan.moved), to_text(plan.peak)
    (10, 6, '1.2GB', '1.4GB')
    """
    device, total, largest = budget["device"], sum(sizes), max(sizes, default=0)
    if largest > device:
        raise BudgetError(
            f"the states of one parameter take {to_text(largest)} of the device, whose part of the budget is "
            f"{to_text(device)}: give that or more"
        )
    batches = _batches(sizes, min(BATCH, device // 3))
    bytes_of = [sum(sizes[number] for number in batch) for batch in batches]
    moving, staying = len(batches), 0
    # From the end: those that stay are stepped while the last that moved leave.
    while moving and staying + bytes_of[moving - 1] + _together(bytes_of[: moving - 1]) <= device:
        moving -= 1
        staying += bytes_of[moving]
    moved, host = total - staying, budget.host or 0
    if moved > host:
        raise BudgetError(
            f"{to_text(moved)} of an optimizer's states have to leave the device, and the budget has {to_text(host)} "
            f"of the host: give Budget(device={device}, host={moved}), or more of the device"
        )
    return BatchPlan(batches, moving, moved, total, min(device, staying + _together(bytes_of[:moving])))


def _batches(sizes: Sequence[int], most: int) -> list[range]:
    """Take neighbours together, up to so many bytes; one that has more is alone."""
    batches: list[range] = []
    taken = most
    for number, size in enumerate(sizes):
        if batches and taken + size <= most:
            batches[-1] = range(batches[-1].start, number + 1)
            taken += size
        else:
            batches.append(range(number, number + 1))
            taken = size
    return batches


def _together(bytes_of: Sequence[int]) -> int:
    """Return the bytes of three batches in a row, the most that there are."""
    return max((sum(bytes_of[first : first + 3]) for first in range(len(bytes_of))), default=0)
