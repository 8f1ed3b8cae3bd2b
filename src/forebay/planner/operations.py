"""What a plan adds to a schedule's actions: the movements of snapshots between tiers.

Tiers are counted from 0, the fastest. The computation carries a plan's operations out in order, and each movement runs
beside it. A movement starts once its snapshot is there and a slot is free, and what needs it waits for it.
"""

from collections.abc import Iterable, Iterator
from itertools import chain, pairwise
from typing import Any, NamedTuple

from forebay.schedule import Action, Drop, Restore, Save


class Store(NamedTuple):
    """Start to copy the snapshot of `step` down into `tier`, from the tier above."""

    step: int
    tier: int


class Fetch(NamedTuple):
    """Start to copy the snapshot of `step` up from `tier`, into the tier above."""

    step: int
    tier: int


class Evict(NamedTuple):
    """Free the copy of the snapshot of `step` in `tier`, once it has been read."""

    step: int
    tier: int


class Compute(NamedTuple):
    """Compute for some seconds: stands for actions that move nothing, in simulations only."""

    seconds: float


class Rise(NamedTuple):
    """Save snapshots that never leave the first tier, each after a computation: in simulations only."""

    operations: tuple[Compute | Save, ...]


class Fall(NamedTuple):
    """Drop such snapshots, each after a computation and its restore: in simulations only."""

    operations: tuple[Compute | Restore | Drop, ...]


SingleOperation = Action | Compute | Store | Fetch | Evict
Operation = SingleOperation | Rise | Fall


def spelled(operations: Iterable[Operation]) -> Iterator[SingleOperation]:
    """Yield operations with those inside of rises and falls."""
    for operation in operations:
        if isinstance(operation, Rise | Fall):
            yield from operation.operations
        else:
            yield operation


def with_next(operations: Iterable[Operation]) -> Iterator[tuple[Operation, Operation | None]]:
    """Return an iterator over operations, each with the one after it, or None."""
    ended: tuple[Any, ...] = (None,)
    return pairwise(chain(operations, ended))
