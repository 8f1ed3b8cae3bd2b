"""The executor: carries a plan's operations out, in order, on whatever backend the arrays need.

A backend has lanes: the computation, and one lane each way on every link between neighbouring tiers. Lanes run
beside each other, and nothing orders them but the events that the executor makes them wait for. Every wait is named
here, and the tests of the virtual backend leave out one after the other to see that each is needed.

The executor knows which snapshot owns each slot, and refuses to read one that is not where the plan says.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from forebay.engine.layout import Layout
from forebay.engine.packing import Packing, Place
from forebay.errors import EngineError
from forebay.machine.lanes import Wait
from forebay.metrics import Metrics
from forebay.planner.operations import Evict, Fetch, Operation, Store
from forebay.schedule import Backward, Drop, Forward, Restore, Save
from forebay.tier.heap import Heap, Meter


class Backend(Protocol):
    """Where arrays live and lanes run."""

    metrics: Metrics

    def reserve(self, tier: int, nbytes: int) -> None:
        """Allocate the memory of a tier, all at once."""

    def block(self, tier: int, offset: int, nbytes: int) -> Any:
        """Give a piece of a tier's memory, as the other methods take it."""

    def passed(self, event: Any) -> bool:
        """Tell whether an event has passed."""

    def move(self, lane: str, step: int, target: Any, source: Any, after: Sequence[Wait]) -> Any:
        """Enqueue a copy of a snapshot from block to block on a lane, and give the event of its end."""

    def save(self, step: int, block: Any, layout: Layout, arrays: Sequence[Any], after: Sequence[Wait]) -> Any:
        """Enqueue a copy of arrays into a block on the computation's lane, and give the event of its end."""

    def encode(
        self, step: int, staging: Any, layout: Layout, packing: Packing, arrays: Sequence[Any]
    ) -> Callable[[], Sequence[int]]:
        """Enqueue the encoding of arrays, each into its worst place; what is given waits for the sizes."""

    def gather(
        self, step: int, target: Any, staging: Any, packing: Packing, places: Sequence[Place], after: Sequence[Wait]
    ) -> Any:
        """Enqueue the copies of encodings from their worst places to those they get, and give the event of the end."""

    def decode(
        self,
        step: int,
        target: Any,
        source: Any,
        layout: Layout,
        packing: Packing,
        places: Sequence[Place],
        after: Sequence[Wait],
    ) -> Any:
        """Enqueue the decoding of a block into another on the computation's lane, and give the event of its end."""

    def wait(self, step: int, after: Sequence[Wait]) -> None:
        """Make the computation wait."""

    def mark(self) -> Any:
        """Give the event at which the computation has done all that was asked of it so far."""

    def forget(self, tier: int, step: int, reads: Sequence[Any]) -> None:
        """Give up what a tier holds of a step once it has been read; only a disk has something to do."""

    def pause(self) -> None:
        """Let a callback that computes elsewhere find done what was asked of the computation."""

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
    offset: int
    nbytes: int
    owner: int | None = None
    ready: Any = None
    """the event at which the snapshot is whole"""
    reads: list[Any] = field(default_factory=list)
    """the events at which it has been read"""
    places: tuple[Place, ...] = ()
    """where the encodings of its arrays lie, where it is encoded"""

    def uses(self) -> list[Any]:
        """List the events after which nothing is done with the slot: no read begins before the snapshot is whole."""
        return self.reads or ([] if self.ready is None else [self.ready])


@dataclass(frozen=True)
class Callbacks:
    """What the computation does, on (coarse) steps of the schedule."""

    forward: Callable[[Any, int, int], Any]
    backward: Callable[[Any, int], None]
    turn: Callable[[Any], None]
    snapshot: Callable[[Any, int], Any]
    """what is kept of a state: itself, or its record"""
    keeps: bool = True
    """that snapshots are states: a restored one is the state to go on from; records are for backward alone"""


class Executor:
    """Runs operations on a backend, with snapshots as they are."""

    def __init__(
        self, backend: Backend, layout: Layout, tiers: Sequence[str], rooms: Sequence[int], callbacks: Callbacks
    ) -> None:
        self.backend, self.layout, self.tiers, self.callbacks = backend, layout, tiers, callbacks
        # Beside the slots, the first tier has the working state's block, with which a slot is swapped at its snapshot's
        # last use. All in one piece, because a device rounds every piece up.
        sizes = (rooms[0] + layout.nbytes, *rooms[1:])
        self.heaps: list[Heap | Meter] = []
        for tier, nbytes in enumerate(sizes):
            backend.reserve(tier, nbytes)
            self.heaps.append(Meter(nbytes) if tiers[tier] == "disk" else Heap(nbytes, self._piece(), backend.passed))
        self.held: list[dict[int, Slot]] = [{} for _ in sizes]
        self.fetched: set[int] = set()  # snapshots that came up and have not been restored since
        self.working = self._allocate(0, layout.nbytes)[0]

    def _piece(self) -> int | None:
        """Give the size that all snapshots have, where they have one."""
        return self.layout.nbytes

    def load(self, arrays: Sequence[Any]) -> Any:
        """Copy arrays into the working state's block, and give the state that lies there."""
        self.backend.save(0, self.working.block, self.layout, arrays, [])
        return self.layout.build(self.backend.arrays(self.working.block, self.layout))

    def run(self, operations: Sequence[Operation], steps: int, state: Any) -> None:
        """Carry operations out from an initial state, without a wait at the turn."""
        for final in self.stages(operations, steps, state):
            self.callbacks.turn(final)

    def stages(self, operations: Sequence[Operation], steps: int, state: Any) -> Iterator[Any]:
        """Carry operations out from an initial state, yielding the final one at the turn and then going on."""
        turned, seen = False, None
        following = iter([*operations[1:], None])
        for operation in operations:
            after = next(following)
            if isinstance(operation, Forward):
                state = self._forward(state, operation.start, operation.stop)
                if operation.stop == steps and not turned:
                    turned = True
                    yield state
            elif isinstance(operation, Backward):
                with self.backend.timed("backward", operation.step):
                    self.callbacks.backward(state if seen is None else seen, operation.step)
            elif isinstance(operation, Save):
                self._save(operation.step, self._snapshot(state, operation.step))
            elif isinstance(operation, Restore):
                last = isinstance(after, Drop) and after.step == operation.step
                tree = self.layout.build(self._restore(operation.step, last))
                if self.callbacks.keeps:
                    state = tree
                else:
                    seen = tree
            elif isinstance(operation, Drop):
                self._drop(operation.step)
            elif isinstance(operation, Store):
                self._store(operation.step, operation.tier)
            elif isinstance(operation, Fetch):
                self._fetch(operation.step, operation.tier)
            elif isinstance(operation, Evict):
                self._evict(operation.step, operation.tier)

    def _snapshot(self, state: Any, step: int) -> Any:
        if self.callbacks.keeps:
            return state
        with self.backend.timed("save", step):
            return self.callbacks.snapshot(state, step)

    def _forward(self, state: Any, start: int, stop: int) -> Any:
        with self.backend.timed("forward", start):
            return self.callbacks.forward(state, start, stop)

    def _save(self, step: int, tree: Any) -> None:
        arrays = self.layout.check(tree, self.backend.describe, "forward")
        slot, room = self._take(0, step, self.layout.nbytes, "save: its slot is free")
        slot.ready = self.backend.save(step, slot.block, self.layout, arrays, room)

    def _restore(self, step: int, last: bool) -> list[Any]:
        slot = self._owned(0, step)
        self._count(step)
        arrived = [Wait("restore: its snapshot has arrived", slot.ready)]
        if last:
            # The slot becomes the working state and what was the working state becomes a slot.
            self.backend.wait(step, arrived)
            del self.held[0][step]
            self.heaps[0].give(self.working.offset, self.working.nbytes, [self.backend.mark()])
            self.working = slot
        else:
            slot.reads.append(self.backend.move("compute", step, self.working.block, slot.block, arrived))
        return self.backend.arrays(self.working.block, self.layout)

    def _count(self, step: int) -> None:
        """Count a restore as a hit or a miss."""
        metrics = self.backend.metrics
        if step in self.fetched:
            self.fetched.discard(step)
            metrics.misses += 1
        else:
            metrics.hits += 1

    def _store(self, step: int, tier: int) -> None:
        source = self._owned(tier - 1, step)
        target, room = self._take(tier, step, source.nbytes, "store: its slot is free")
        waits = [Wait("store: its snapshot is whole", source.ready), *room]
        self._move(f"down {tier}", step, target, source, waits)

    def _fetch(self, step: int, tier: int) -> None:
        source = self._owned(tier, step)
        target, room = self._take(tier - 1, step, source.nbytes, "fetch: its slot is free")
        waits = [Wait("fetch: its snapshot is whole", source.ready), *room]
        self._move(f"up {tier}", step, target, source, waits)
        if tier == 1:
            self.fetched.add(step)

    def _move(self, lane: str, step: int, target: Slot, source: Slot, waits: Sequence[Wait]) -> None:
        target.ready = self.backend.move(lane, step, target.block, source.block, waits)
        target.places = source.places
        source.reads.append(target.ready)
        self.backend.metrics.moved[lane] += source.nbytes

    def _evict(self, step: int, tier: int) -> None:
        self._release(tier, step)

    def _drop(self, step: int) -> None:
        for tier, held in enumerate(self.held):
            if step in held:
                self._release(tier, step)

    def _take(self, tier: int, step: int, nbytes: int, why: str) -> tuple[Slot, list[Wait]]:
        if step in self.held[tier]:
            raise EngineError(f"the plan puts step {step} into the {self.tiers[tier]} tier, which holds it already")
        slot, events = self._allocate(tier, nbytes)
        slot.owner = step
        self.held[tier][step] = slot
        peak, name = self.backend.metrics.peak, self.tiers[tier]
        peak[name] = max(peak[name], self.heaps[tier].used - (0 if tier else self.working.nbytes))
        return slot, [Wait(why, event) for event in events]

    def _allocate(self, tier: int, nbytes: int) -> tuple[Slot, list[Any]]:
        found = self.heaps[tier].take(nbytes)
        if found is None:
            raise EngineError(f"the plan puts a snapshot into the {self.tiers[tier]} tier, which has no room for it")
        offset, events = found
        return Slot(self.backend.block(tier, offset, nbytes), offset, nbytes), events

    def _owned(self, tier: int, step: int) -> Slot:
        slot = self.held[tier].get(step)
        if slot is None or slot.owner != step or slot.ready is None:
            raise EngineError(f"the plan reads step {step} from the {self.tiers[tier]} tier, which does not hold it")
        return slot

    def _release(self, tier: int, step: int) -> None:
        slot = self._owned(tier, step)
        del self.held[tier][step]
        slot.owner = None
        if tier == 0:
            self.fetched.discard(step)
        self.backend.forget(tier, step, slot.reads)
        self.heaps[tier].give(slot.offset, slot.nbytes, slot.uses())
