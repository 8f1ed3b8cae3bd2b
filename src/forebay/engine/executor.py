"""The executor: carries a plan's operations out, in order, on whatever machine the arrays need.

A machine has lanes: the computation, and one lane each way on every link between neighbouring tiers. Lanes run
beside each other, and nothing orders them but the events that the executor makes them wait for. Every wait is named
here, and the tests on the virtual machine leave out one after the other to see that each is needed.

The executor knows which snapshot owns each slot, and refuses to read one that is not where the plan says.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from forebay.codec import Encoded
from forebay.engine.layout import Layout
from forebay.engine.states.loans import Loans
from forebay.errors import EngineError
from forebay.machine.machine import ReversalMachine, Wait
from forebay.machine.region import Region
from forebay.planner.operations import Evict, Fetch, Operation, Store, with_next
from forebay.schedule import Backward, Drop, Forward, Restore, Save
from forebay.tier.heap import Heap, Meter
from forebay.tier.space import Extent


@dataclass(eq=False, slots=True)
class Slot:
    """Room for one snapshot, and what has to end before it can be used anew."""

    region: Region
    offset: int
    nbytes: int
    ready: Any = None
    """the event at which the snapshot is whole"""
    reads: list[Any] = field(default_factory=list)
    """the events at which it has been read"""
    extents: tuple[Extent, ...] = ()
    """where the encodings of its arrays lie, where it is encoded"""

    def uses(self) -> list[Any]:
        """List the events after which nothing is done with the slot: no read begins before the snapshot is whole."""
        return self.reads or ([] if self.ready is None else [self.ready])


@dataclass(frozen=True)
class Callbacks:
    """What the computation does, on (coarse) steps of the schedule."""

    forward: Callable[[Any, int, int], Any]
    backward: Callable[[Any, int], None]
    snapshot: Callable[[Any, int], Any]
    """what is kept of a state: itself, or its record"""
    keeps: bool = True
    """that snapshots are states: a restored one is the state to go on from; records are for backward alone"""
    loans: Loans | None = None
    """what notices that forward keeps arrays of the engine"""
    encoded: Callable[[Sequence[Encoded], int], None] = lambda leaves, step: None
    """what backward is for records whose arrays it takes as they are kept"""
    hands_encoded: Callable[[int], bool] = lambda step: False
    """tells whether it takes those of a step so"""


class Executor:
    """Runs operations on a machine, with snapshots as they are."""

    even = True
    """whether all snapshots have one size"""

    def __init__(
        self, machine: ReversalMachine, layout: Layout, tiers: Sequence[str], rooms: Sequence[int], callbacks: Callbacks
    ) -> None:
        self.machine, self.layout, self.tiers, self.callbacks = machine, layout, tiers, callbacks
        # Beside the slots, the first tier has the working state's region, with which a slot is swapped at the last use
        # of its snapshot. All in one piece, because a device rounds every piece up.
        sizes = (rooms[0] + layout.nbytes, *rooms[1:])
        piece = layout.nbytes if self.even else None
        self.heaps: list[Heap] = []
        for tier, nbytes in enumerate(sizes):
            machine.reserve(tier, nbytes)
            self.heaps.append(Meter(nbytes) if tiers[tier] == "disk" else Heap(nbytes, piece, machine.passed))
        self.held: list[dict[int, Slot]] = [{} for _ in sizes]
        self.fetched: set[int] = set()  # snapshots that came up and have not been restored since
        self.record: Any = None  # what was restored last, where records are kept
        self.working = self._allocate(0, layout.nbytes)[0]

    def load(self, arrays: Sequence[Any]) -> Any:
        """Copy arrays into the working state's region, and return the state that lies there."""
        self._copy_in(0, self.working, arrays, [])
        return self.layout.build(self._arrays())

    def run(self, operations: Iterable[Operation], state: Any) -> Any:
        """Carry operations out from a working state, and return the one that they end with."""
        for operation, after in with_next(operations):
            state = self._carry_out(operation, after, state)
        return state

    def _carry_out(self, operation: Operation, after: Operation | None, state: Any) -> Any:
        """Carry one operation out, before the one after it, and return the working state."""
        if isinstance(operation, Forward):
            return self._forward(state, operation.start, operation.stop)
        if isinstance(operation, Backward):
            self._backward(state if self.record is None else self.record, operation.step)
        elif isinstance(operation, Save):
            self._save(operation.step, self._snapshot(state, operation.step))
        elif isinstance(operation, Restore):
            last = isinstance(after, Drop) and after.step == operation.step
            tree = self.layout.build(self._restore(operation.step, last))
            if self.callbacks.keeps:
                return tree
            self.record = tree
        elif isinstance(operation, Drop):
            self._drop(operation.step)
        elif isinstance(operation, Store):
            self._store(operation.step, operation.tier)
        elif isinstance(operation, Fetch):
            self._fetch(operation.step, operation.tier)
        elif isinstance(operation, Evict):
            self._evict(operation.step, operation.tier)
        return state

    def _backward(self, needed: Any, step: int) -> None:
        with self.machine.timed("backward", step):
            self.callbacks.backward(needed, step)

    def _snapshot(self, state: Any, step: int) -> Any:
        if self.callbacks.keeps:
            return state
        with self.machine.timed("save", step):
            return self.callbacks.snapshot(state, step)

    def _forward(self, state: Any, start: int, stop: int) -> Any:
        self.machine.metrics.advanced += stop - start
        loans = self.callbacks.loans
        if loans is not None:
            loans.give()
        with self.machine.timed("forward", start):
            state = self.callbacks.forward(state, start, stop)
        if loans is not None:
            loans.check()
        return state

    def _save(self, step: int, tree: Any) -> None:
        arrays = self.layout.check(tree)
        slot, room = self._take(0, step, self.layout.nbytes, "save: its slot is free")
        slot.ready = self._copy_in(step, slot, arrays, room)

    def _copy_in(self, step: int, slot: Slot, arrays: Sequence[Any], after: Sequence[Wait]) -> Any:
        targets = [slot.region.cut(leaf.offset, leaf.nbytes) for leaf in self.layout.leaves]
        pairs = list(zip(targets, self.layout.regions(arrays), strict=True))
        return self.machine.copies("compute", "save", step, pairs, after)

    def _restore(self, step: int, last: bool) -> list[Any]:
        slot = self._owned(0, step)
        self._count(step)
        arrived = [Wait("restore: its snapshot has arrived", slot.ready)]
        if last:
            # The slot becomes the working state and what was the working state becomes a slot.
            self.machine.wait(step, arrived)
            del self.held[0][step]
            self.heaps[0].give(self.working.offset, self.working.nbytes, [self.machine.mark()])
            self.working = slot
        else:
            pairs = [(self.working.region, slot.region)]
            slot.reads.append(self.machine.copies("compute", "restore", step, pairs, arrived))
        return self._arrays()

    def _arrays(self) -> list[Any]:
        """List the arrays of the working state."""
        return self._lent(self.working.region, self.layout, self.callbacks.keeps)

    def _lent(self, region: Region, layout: Layout, is_state: bool) -> list[Any]:
        """List the arrays in the region of a working state, or of a record."""
        lent = self.machine.lend(region, layout.leaves)
        if self.callbacks.loans is not None and is_state:
            self.callbacks.loans.lend(lent)
        return lent.arrays

    def _count(self, step: int) -> None:
        """Count a restore as a hit or a miss."""
        metrics = self.machine.metrics
        if step in self.fetched:
            self.fetched.discard(step)
            metrics.misses += 1
        else:
            metrics.hits += 1

    def _store(self, step: int, tier: int) -> None:
        source = self._owned(tier - 1, step)
        target, room = self._take(tier, step, source.nbytes, "store: its slot is free")
        waits = [Wait("store: its snapshot is whole", source.ready), *room]
        self._move(f"down {tier}", "store", step, target, source, waits)

    def _fetch(self, step: int, tier: int) -> None:
        target, room = self._take(tier - 1, step, self._owned(tier, step).nbytes, "fetch: its slot is free")
        self._fetch_to(target, step, tier, room)

    def _fetch_to(self, target: Slot, step: int, tier: int, room: Sequence[Wait]) -> None:
        source = self._owned(tier, step)
        waits = [Wait("fetch: its snapshot is whole", source.ready), *room]
        self._move(f"up {tier}", "fetch", step, target, source, waits)
        if tier == 1:
            self.fetched.add(step)

    def _move(self, lane: str, what: str, step: int, target: Slot, source: Slot, waits: Sequence[Wait]) -> None:
        target.ready = self.machine.copies(lane, what, step, [(target.region, source.region)], waits)
        target.extents = source.extents
        source.reads.append(target.ready)
        self.machine.metrics.moved[lane] += source.nbytes

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
        self.held[tier][step] = slot
        peak, name = self.machine.metrics.peak, self.tiers[tier]
        peak[name] = max(peak[name], self.heaps[tier].used - (0 if tier else self.working.nbytes))
        return slot, [Wait(why, event) for event in events]

    def _allocate(self, tier: int, nbytes: int) -> tuple[Slot, list[Any]]:
        taken = self.heaps[tier].take(nbytes)
        if taken is None:
            raise EngineError(f"the plan puts a snapshot into the {self.tiers[tier]} tier, which has no room for it")
        offset, events = taken
        on_disk = self.tiers[tier] == "disk"  # which finds its own places
        region = Region(0, nbytes) if on_disk else self._region(tier, offset, nbytes)
        return Slot(region, offset, nbytes), events

    def _region(self, tier: int, offset: int, nbytes: int) -> Region:
        return self.machine.region(tier, offset, nbytes)

    def _owned(self, tier: int, step: int) -> Slot:
        slot = self.held[tier].get(step)
        if slot is None:
            raise EngineError(f"the plan reads step {step} from the {self.tiers[tier]} tier, which does not hold it")
        return slot

    def _release(self, tier: int, step: int) -> None:
        slot = self._owned(tier, step)
        del self.held[tier][step]
        if tier == 0:
            self.fetched.discard(step)
        if self.tiers[tier] == "disk":
            self.machine.forget(f"down {tier}", step, slot.reads)
        self.heaps[tier].give(slot.offset, slot.nbytes, slot.uses())
