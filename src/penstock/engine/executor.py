"""The executor: carries a plan's operations out, in order, on whatever backend the arrays need.

A backend has lanes: the computation, and one lane each way on every link between neighbouring tiers. Lanes run
beside each other, and nothing orders them but the events that the executor makes them wait for. Every wait is named
here, and the tests of the virtual backend leave out one after the other to see that each is needed.

The executor knows which snapshot owns each slot, and refuses to read one that is not where the plan says.
"""

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from penstock.engine.layout import Layout
from penstock.errors import EngineError
from penstock.metrics import Metrics
from penstock.planner.operations import Evict, Fetch, Operation, Store
from penstock.schedule import Backward, Drop, Forward, Restore, Save


class Wait(NamedTuple):
    """An event that something has to wait for, and why."""

    why: str
    event: Any


class Backend(Protocol):
    """Where arrays live and lanes run."""

    metrics: Metrics

    def blocks(self, tier: int, count: int, nbytes: int) -> list[Any]:
        """Allocate the slots of a tier, all at once."""

    def move(self, lane: str, step: int, target: Any, source: Any, after: Sequence[Wait]) -> Any:
        """Enqueue a copy of a snapshot from block to block on a lane, and give the event of its end."""

    def save(self, step: int, block: Any, layout: Layout, arrays: Sequence[Any], after: Sequence[Wait]) -> Any:
        """Enqueue a copy of arrays into a block on the computation's lane, and give the event of its end."""

    def wait(self, step: int, after: Sequence[Wait]) -> None:
        """Make the computation wait."""

    def mark(self) -> Any:
        """Give the event at which the computation has done all that was asked of it so far."""

    def forget(self, tier: int, step: int, block: Any) -> None:
        """Give up what a block holds; only a disk has something to do."""

    def arrays(self, block: Any, layout: Layout) -> list[Any]:
        """Give the arrays that lie in a block, without copying."""

    def describe(self, array: Any) -> Any:
        """Give shape and dtype of an array, refusing one that cannot be kept."""

    def timed(self, what: str, step: int) -> AbstractContextManager[None]:
        """Surround something that the computation does."""


@dataclass(eq=False)
class Slot:
    """Room for one snapshot, and what has to end before it can be used anew."""

    block: Any
    owner: int | None = None
    ready: Any = None
    """the event at which the snapshot is whole"""
    reads: list[Any] = field(default_factory=list)
    """the events at which it has been read"""

    def uses(self) -> list[Any]:
        """List the events of everything that was done with the slot."""
        return ([] if self.ready is None else [self.ready]) + self.reads


@dataclass(frozen=True)
class Callbacks:
    """What the computation does, on (coarse) steps of the schedule."""

    forward: Callable[[Any, int, int], Any]
    backward: Callable[[Any, int], None]
    turn: Callable[[Any], None]
    snapshot: Callable[[Any, int], Any]
    """what is kept of a state: itself, or its record"""


class Executor:
    """Runs operations on a backend."""

    def __init__(self, backend: Backend, layout: Layout, tiers: Sequence[str], slots: Sequence[int]) -> None:
        self.backend, self.layout, self.tiers = backend, layout, tiers
        nbytes = layout.nbytes
        # One block more than slots: the working state's, with which a slot is swapped at its snapshot's last use. All
        # in one piece, because a device rounds every piece up.
        rooms = (slots[0] + 1, *slots[1:])
        self.free = [deque(map(Slot, backend.blocks(tier, count, nbytes))) for tier, count in enumerate(rooms)]
        self.working = self.free[0].pop()
        self.held: list[dict[int, Slot]] = [{} for _ in slots]

    def load(self, arrays: Sequence[Any]) -> Any:
        """Copy arrays into the working state's block, and give the state that lies there."""
        self.backend.save(0, self.working.block, self.layout, arrays, [])
        return self.layout.build(self.backend.arrays(self.working.block, self.layout))

    def run(self, operations: Sequence[Operation], steps: int, state: Any, callbacks: Callbacks, keeps: bool) -> Any:
        """Carry operations out from an initial state, and give the final one.

        `keeps` says that snapshots are states: a restored one is the state to go on from. Otherwise they are records,
        which are for the backward computation alone.
        """
        backend, metrics = self.backend, self.backend.metrics
        final = seen = None
        following = iter([*operations[1:], None])
        for operation in operations:
            after = next(following)
            if isinstance(operation, Forward):
                with backend.timed("forward", operation.start):
                    state = callbacks.forward(state, operation.start, operation.stop)
                if operation.stop == steps and final is None:
                    final = state
                    callbacks.turn(state)
            elif isinstance(operation, Backward):
                with backend.timed("backward", operation.step):
                    callbacks.backward(state if seen is None else seen, operation.step)
            elif isinstance(operation, Save):
                self._save(operation.step, callbacks.snapshot(state, operation.step))
            elif isinstance(operation, Restore):
                last = isinstance(after, Drop) and after.step == operation.step
                tree = self.layout.build(self._restore(operation.step, last))
                if keeps:
                    state = tree
                else:
                    seen = tree
            elif isinstance(operation, Drop):
                self._drop(operation.step)
            elif isinstance(operation, Store):
                self._store(operation.step, operation.tier)
                metrics.moved[f"down {operation.tier}"] += self.layout.nbytes
            elif isinstance(operation, Fetch):
                self._fetch(operation.step, operation.tier)
                metrics.moved[f"up {operation.tier}"] += self.layout.nbytes
            elif isinstance(operation, Evict):
                self._release(operation.tier, operation.step)
        return final

    def _save(self, step: int, tree: Any) -> None:
        arrays = self.layout.check(tree, self.backend.describe, "forward")
        slot, room = self._take(0, step, "save: its slot is free")
        slot.ready = self.backend.save(step, slot.block, self.layout, arrays, room)

    def _restore(self, step: int, last: bool) -> list[Any]:
        slot = self._owned(0, step)
        arrived = [Wait("restore: its snapshot has arrived", slot.ready)]
        if last:
            # The slot becomes the working state and what was the working state becomes a slot.
            self.backend.wait(step, arrived)
            del self.held[0][step]
            self.working.owner, self.working.ready, self.working.reads = None, self.backend.mark(), []
            self.free[0].append(self.working)
            self.working = slot
        else:
            slot.reads.append(self.backend.move("compute", step, self.working.block, slot.block, arrived))
        return self.backend.arrays(self.working.block, self.layout)

    def _store(self, step: int, tier: int) -> None:
        source = self._owned(tier - 1, step)
        target, room = self._take(tier, step, "store: its slot is free")
        waits = [Wait("store: its snapshot is whole", source.ready), *room]
        target.ready = self.backend.move(f"down {tier}", step, target.block, source.block, waits)
        source.reads.append(target.ready)

    def _fetch(self, step: int, tier: int) -> None:
        source = self._owned(tier, step)
        target, room = self._take(tier - 1, step, "fetch: its slot is free")
        waits = [Wait("fetch: its snapshot is whole", source.ready), *room]
        target.ready = self.backend.move(f"up {tier}", step, target.block, source.block, waits)
        source.reads.append(target.ready)

    def _drop(self, step: int) -> None:
        for tier, held in enumerate(self.held):
            if step in held:
                self._release(tier, step)

    def _take(self, tier: int, step: int, why: str) -> tuple[Slot, list[Wait]]:
        if not self.free[tier] or step in self.held[tier]:
            raise EngineError(f"the plan puts step {step} into the {self.tiers[tier]} tier, which has no slot for it")
        slot = self.free[tier].popleft()
        waits = [Wait(why, event) for event in slot.uses()]
        slot.owner, slot.ready, slot.reads = step, None, []
        self.held[tier][step] = slot
        peak = self.backend.metrics.peak
        peak[self.tiers[tier]] = max(peak[self.tiers[tier]], len(self.held[tier]) * self.layout.nbytes)
        return slot, waits

    def _owned(self, tier: int, step: int) -> Slot:
        slot = self.held[tier].get(step)
        if slot is None or slot.owner != step or slot.ready is None:
            raise EngineError(f"the plan reads step {step} from the {self.tiers[tier]} tier, which does not hold it")
        return slot

    def _release(self, tier: int, step: int) -> None:
        slot = self._owned(tier, step)
        del self.held[tier][step]
        slot.owner = None
        self.backend.forget(tier, step, slot.block)
        self.free[tier].append(slot)
