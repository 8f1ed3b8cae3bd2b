"""The executor for encoded snapshots, which leaves a plan whose sizes were wrong and goes on with those that are true.

A plan assumes how small snapshots become. As long as all of them have room, it is carried out. Once one has none, or
they are so small that many more have, what is left is decided from step to step: where the next snapshot is kept, which
one goes, and how far to run, by the binomial schedule with as many slots as the free bytes make. So the budget holds,
nothing fails, and no room is left empty, whatever the sizes are; only time is lost.

Records cannot be gone on from. Where they have no room, states are kept from there on, and records where they suffice:
exactly, with a lossy codec, so that what backward sees keeps its bound.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from forebay.engine.executor import Slot
from forebay.engine.spilling.room_making import RoomMaking, SnapshotKind
from forebay.engine.spilling.thinning import SnapshotSizes, forward_steps, next_save, spares
from forebay.planner.operations import Operation, with_next
from forebay.schedule import Backward, Forward, Restore, binomial

STATES = 1 << 40
"""Added to the steps of states that are kept beside records."""
TOO_MUCH = 1.25
"""How wrong sizes may be before a plan is looked at again."""
WORTHWHILE = 0.8
"""Of a plan's forward steps, how many at most a reversal with the true sizes must take for the plan to be left."""


class SpillingExecutor(RoomMaking):
    """Runs operations on a machine, with snapshots encoded, by a plan or without it."""

    _position = 0
    _left: int | None = None  # steps to go back through, once the loop has come to its end
    _replans = False
    _states: SnapshotKind | None = None  # how states are kept beside records
    _states_asked = False  # whether there has been an attempt to make a place for them
    _spares: Sequence[int] = ()  # states that go next

    def run(self, operations: Iterable[Operation], state: Any) -> Any:
        """Carry operations out from a working state as far as their plan holds, and what is left of them without it."""
        if self._left == 0:
            self._left = self.coding.steps  # another adjoint of the same forward run
        if self._replans:
            return self._reverse()
        coming = with_next(operations)
        for operation, after in coming:
            if isinstance(operation, Restore):
                self._settle()  # which may find no room for what is to be restored
            if not self._replans:
                state = self._carry_out(operation, after, state)
            if isinstance(operation, Forward):
                self._position = operation.stop
                if self._left is None and operation.stop == self.coding.steps:
                    self._left = self.coding.steps
            elif isinstance(operation, Backward):
                self._left = operation.step
            elif self._left is None and self._is_wrong():
                self._replans = True
            if self._replans:
                state = None if self._left is not None else state  # nothing is to refer to what is not needed
                goes_back = any(isinstance(each, Backward) for each, _ in coming)
                return self._go_on(state, goes_back)
        return state

    def _is_wrong(self) -> bool:
        """Tell whether the plan has no room for what is to come, or so much that another takes far fewer steps."""
        assumed, sizes = self.coding, self.kind.sizes
        if len(sizes) < 2:  # the first one tells nothing
            return False
        held = set().union(*self.held)
        if (assumed.snapshots - len(held)) * sizes.expected > TOO_MUCH * self.free_bytes():
            return True
        if not self.callbacks.keeps or sizes.expected > assumed.snapshot_bytes / TOO_MUCH:
            return False
        slots = int(assumed.snapshots * assumed.snapshot_bytes / sizes.expected)
        return forward_steps(assumed.steps, slots) < WORTHWHILE * assumed.forward_steps

    def _go_on(self, state: Any, goes_back: bool) -> Any:
        """Leave the plan."""
        self.machine.metrics.replanned += 1
        self._settle()
        if self._left is None:
            state = self._sweep(state)
            self._left = self.coding.steps
            if not goes_back:
                return state
        return self._reverse()

    def _sweep(self, state: Any) -> Any:
        """Run to the end of the loop, keeping states as their sizes allow."""
        kind = self._state_kind()
        position, steps = self._position, self.coding.steps
        while position < steps:
            if kind is None:
                self._keep(self.kind, position, self._snapshot(state, position))
                stop = position + 1
            else:
                self._keep(kind, position, state)
                each = max(1.0, kind.sizes.expected)
                free = self.free_bytes() + self._bytes_of_records()
                whole = sum(self.most) - self.working.nbytes - kind.staging.nbytes
                stop = next_save(position, steps, int(free / each), int(whole / each))
            state = self._forward(state, position, stop)
            position = stop
        return state

    def _reverse(self) -> None:
        """Go back through the steps that are left, from the nearest snapshot each time."""
        assert self._left is not None
        kind, metrics = self._state_kind(), self.machine.metrics
        while self._left > 0:
            last = self._left - 1
            if not self.callbacks.keeps and self._holds(last):
                self._backward(self.layout.build(self._decode(self.kind, last)), last)
            else:
                self._backward(self._snapshot(self._run_to(kind, last), last), last)
            self._left = last
            self._drop(last)
            self._drop(last + STATES)
        metrics.recomputed = max(0, metrics.advanced - self.coding.forward_steps)

    def _run_to(self, kind: SnapshotKind | None, last: int) -> Any:
        """Run to a step from the nearest state before it, keeping on the way what the steps before it will need."""
        held = [] if kind is None else [key - kind.shift for tier in self.held for key in tier]
        position = max((step for step in held if 0 <= step <= last), default=0)
        if kind is not None and position in held:
            state = kind.layout.build(self._decode(kind, position))
        else:
            state, self._generation = self.initial(), 0
        while position < last:
            records = 0 if self.callbacks.keeps else int(self.free_bytes() / self._record_bytes(position, last))
            if kind is None or last - position <= records:
                return self._keep_records(state, position, last, records)
            free = int(self.free_bytes() / max(1.0, kind.sizes.typical(position, last)))
            stop = position + binomial.split(last + 1 - position, free + 1)
            state = self._forward(state, position, stop)
            position = stop
            if position < last and not self._keep(kind, position, state):
                return self._forward(state, position, last)
        return state

    def _record_bytes(self, start: int, stop: int) -> float:
        """Return what a record takes from one step to another, as far as records and states there tell."""
        nbytes = self.kind.sizes.typical(start, stop)
        if self._states is not None and not self._states.packing.fixed:
            share = self.layout.nbytes / self._states.layout.nbytes
            nbytes = max(nbytes, share * self._states.sizes.typical(start, stop))
        return max(1.0, nbytes)

    def _keep_records(self, state: Any, position: int, last: int, most: int) -> Any:
        """Run to a step, keeping records of as many steps before it as there is room for."""
        first = max(position, last - most)
        state = self._forward(state, position, first) if first > position else state
        for step in range(first, last):
            if not self._holds(step):
                self._keep(self.kind, step, self._snapshot(state, step))
            state = self._forward(state, step, step + 1)
        return state

    def _keep(self, kind: SnapshotKind, step: int, tree: Any) -> bool:
        """Keep a snapshot, if there is room for it; tell whether it is there."""
        key = step + kind.shift
        if not self._holds(key):
            self._encode(kind, step, tree)
            self._settle()
        return self._holds(key)

    def _holds(self, key: int) -> bool:
        return any(key in held for held in self.held)

    def _give_up(self, fresh: int | None) -> bool:
        """Drop what costs least to do without, unless that is the fresh one."""
        self._replans = True
        key = self._least_needed(fresh)
        if key is None or key == fresh:
            return False
        self._drop(key)
        self.machine.metrics.lost += 1
        return True

    def _least_needed(self, fresh: int | None) -> int | None:
        """Return what costs least to do without: the first state, then records, then states that lie close.

        None where there is none, or all are needed before the fresh one.
        """
        held, kind = set().union(*self.held), self.kind if self.callbacks.keeps else self._states
        if not held or (fresh is not None and self._left is not None):
            return None  # on the way back, what is there is needed before what comes
        if kind is None or (not self.callbacks.keeps and min(held) < STATES):
            record = min(held)  # the one that is needed last
            return None if fresh is not None and record > fresh else record
        steps = sorted({key - kind.shift for key in held} | ({fresh - kind.shift} if fresh is not None else set()))
        if steps[0] == 0 and fresh != kind.shift:
            return kind.shift  # the state at step 0 can be had again at any time
        known = [step for step in self._spares if step in steps]
        spare, *self._spares = known or spares(steps, self.coding.steps) or steps[-1:]
        return spare + kind.shift

    def _state_kind(self) -> SnapshotKind | None:
        """Return how states are kept; where the plan keeps records, make a place for both first, if there is room."""
        if self.callbacks.keeps:
            return self.kind
        if self.coding.states is None or self._states_asked:
            return self._states
        self._states_asked = True
        layout, packing = self.coding.states
        more = layout.nbytes - self.layout.nbytes if self.tiers[0] == "host" else 0  # threads encode a copy
        needed, staging, fits = packing.most + max(0, more), self.kind.staging, True
        if self.working.nbytes + needed + packing.most > self.most[0]:
            return None
        self.heaps[0].give(staging.offset, staging.nbytes, staging.uses())
        if self.most[0] - self.heaps[0].nbytes >= needed:  # in one piece with snapshots it would part them
            self.most[0] -= needed
            staging = Slot(self.machine.extend(0, needed), 0, 0)
        else:
            while not self._make_room(0, needed) and self._give_up(None):
                pass
            fits = self.heaps[0].fits(needed)
            staging = self._allocate_behind(needed if fits else staging.nbytes)
        self.kind = replace(self.kind, staging=staging)
        if fits:
            working, sizes = self.machine.extend(0, layout.nbytes), SnapshotSizes()
            sizes.add(0, packing.most)
            self._states = SnapshotKind(layout, packing, staging, working, sizes, STATES)
        return self._states

    def _allocate_behind(self, nbytes: int) -> Slot:
        """Take bytes of the first tier behind all snapshots, where they part none of them."""
        heap = self.heaps[0]
        before = heap.nbytes - heap.used - nbytes
        between = heap.take(before) if self._pack(0, nbytes) and before else None
        if between is not None and not heap.fits(nbytes):  # what is free lies in several pieces
            heap.give(between[0], before, between[1])
            between = None
        place = self._allocate(0, nbytes)[0]
        if between is not None:
            heap.give(between[0], before, between[1])
        return place

    def _bytes_of_records(self) -> int:
        """Count the bytes of records, which make room for states."""
        records = (slot for held in self.held for key, slot in held.items() if key < STATES)
        return sum(slot.nbytes for slot in records if not self.callbacks.keeps)
