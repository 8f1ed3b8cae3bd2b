"""The dry run: who writes and reads a tier, when, and when each snapshot is read next."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from forebay.planner.operations import Fetch, Operation, Store
from forebay.schedule import Drop, Restore, Save

NEVER = 1 << 62
"""The index of a use that does not come."""


class Access(NamedTuple):
    """A use of a tier by one of the operations."""

    at: int
    """index of the operation"""
    kind: str
    """write, read or drop"""
    step: int
    next_read: int
    """Index of the operation that reads the snapshot next, or NEVER."""


def trace(operations: Sequence[Operation], tier: int) -> list[Access]:
    """List the accesses to a tier: saves and restores for the first one, stores and fetches for a lower one.

    Examples
    --------
    >>> from forebay.schedule import Revolve
    >>> [(access.kind, access.step) for access in trace(list(Revolve(3, 1)), tier=0)][:4]
    [('write', 0), ('read', 0), ('read', 0), ('read', 0)]
    """
    accesses = []
    next_read: dict[int, int] = {}
    for index in range(len(operations) - 1, -1, -1):
        operation = operations[index]
        if isinstance(operation, Drop):
            accesses.append(Access(index, "drop", operation.step, NEVER))
            next_read.pop(operation.step, None)
        elif isinstance(operation, Save):
            if tier == 0:
                accesses.append(Access(index, "write", operation.step, next_read.pop(operation.step, NEVER)))
        elif isinstance(operation, Store):
            if tier == operation.tier:
                accesses.append(Access(index, "write", operation.step, next_read.pop(operation.step, NEVER)))
        elif isinstance(operation, Restore | Fetch) and tier == (operation.tier if isinstance(operation, Fetch) else 0):
            accesses.append(Access(index, "read", operation.step, next_read.get(operation.step, NEVER)))
            next_read[operation.step] = index
    accesses.reverse()
    return accesses


def insert(operations: Sequence[Operation], before: dict[int, list[Operation]]) -> list[Operation]:
    """Merge movements into operations, each in front of the operation at its index."""
    merged: list[Operation] = []
    done = 0
    for index in sorted(before):
        merged.extend(operations[done:index])
        merged.extend(before[index])
        done = index
    merged.extend(operations[done:])
    return merged


def moved(operations: Iterable[Operation], tier: int) -> tuple[int, int]:
    """Count the snapshots fetched up from a tier and stored down into it."""
    up = down = 0
    for operation in operations:
        if isinstance(operation, Fetch):
            up += operation.tier == tier
        elif isinstance(operation, Store):
            down += operation.tier == tier
    return up, down
