"""The executor for encoded snapshots, whose sizes are known only once they are there.

A plan assumes how small snapshots become. Where they are larger, its operations become wishes: what has no room goes
to the next tier, and out of the last one it is lost and computed again when it is needed. What goes is always the
snapshot of the smallest step, which in a reversal is needed last. So the budget holds, and nothing fails, whatever the
sizes are; only time is lost.

A snapshot is encoded into a place of its own, large enough for one that does not shrink, and copied to where it stays
when the next is saved, or any is asked for: by then, on a GPU, the computation has work queued behind the encoder, and
waiting for the size costs it nothing. The copy is of what the codec left, and keeps the tier without gaps that only an
encoding of unknown size could not use.
"""

from collections.abc import Callable, Sequence
from typing import Any

from forebay.engine.executor import Callbacks, Executor
from forebay.engine.layout import Layout
from forebay.machine.arrays.dispatch import region_of
from forebay.machine.machine import ReversalMachine, Wait
from forebay.machine.packing import Packing, snapshot_bytes
from forebay.planner.operations import Evict, Store


class SpillingExecutor(Executor):
    """Runs operations on a machine, with snapshots encoded."""

    even = False

    def __init__(
        self,
        machine: ReversalMachine,
        layout: Layout,
        tiers: Sequence[str],
        rooms: Sequence[int],
        callbacks: Callbacks,
        packing: Packing,
        initial: Callable[[], Any],
    ) -> None:
        self.packing = packing
        self._initial = initial  # gives the state at step 0 anew
        self._fresh: tuple[int, Callable[[], Sequence[int]]] | None = None  # the step whose size is not known yet
        self._later: list[Store | Evict] = []  # what the plan does with it meanwhile
        self._lost: set[int] = set()
        super().__init__(machine, layout, tiers, rooms, callbacks)
        self._staging = self._allocate(0, packing.most)[0]

    def _save(self, step: int, tree: Any) -> None:
        self._settle()
        arrays = self.layout.check(tree)
        coded = self.packing.coded(list(map(region_of, arrays)), self._staging.region, self.packing.worst)
        self._fresh = step, self.machine.encode("compute", step, coded, []).sizes
        self._lost.discard(step)
        if self.packing.fixed:
            self._settle()

    def _settle(self) -> None:
        """Copy the newest snapshot to where it stays, and carry out what waited for that."""
        if self._fresh is None:
            return
        (step, sizes), self._fresh = self._fresh, None
        extents = self.packing.extents(sizes())
        nbytes = snapshot_bytes(extents)
        self.machine.metrics.ratios.add(self.layout.nbytes, nbytes)
        self._make_room(0, nbytes)
        slot, room = self._take(0, step, nbytes, "save: its slot is free")
        slot.extents = extents
        # From their worst places to those they get.
        pairs = [
            (slot.region.cut(offset, size), self._staging.region.cut(start, size))
            for (start, _), (offset, size) in zip(self.packing.worst, extents, strict=True)
        ]
        slot.ready = self.machine.copies("compute", "save", step, pairs, room)
        later, self._later = self._later, []
        for operation in later:
            if isinstance(operation, Store):
                self._store(operation.step, operation.tier)
            else:
                self._evict(operation.step, operation.tier)

    def _is_fresh(self, step: int) -> bool:
        return self._fresh is not None and self._fresh[0] == step

    def _store(self, step: int, tier: int) -> None:
        if self._is_fresh(step):
            self._later.append(Store(step, tier))
            return
        slot = self.held[tier - 1].get(step)
        if slot is not None and step not in self.held[tier] and self._make_room(tier, slot.nbytes, step):
            super()._store(step, tier)

    def _evict(self, step: int, tier: int) -> None:
        if self._is_fresh(step):
            self._later.append(Evict(step, tier))
        elif step in self.held[tier] and self._is_elsewhere(step, tier):
            self._release(tier, step)

    def _fetch(self, step: int, tier: int) -> None:
        self._settle()
        slot = self.held[tier].get(step)
        if slot is not None and step not in self.held[tier - 1] and self._make_room(tier - 1, slot.nbytes, step):
            super()._fetch(step, tier)

    def _restore(self, step: int, last: bool) -> list[Any]:
        self._settle()
        if step in self._lost:
            self._recompute(step)
        self._bring_up(step)
        slot = self._owned(0, step)
        self._count(step)
        arrived = [Wait("restore: its snapshot has arrived", slot.ready)]
        coded = self.packing.coded(self.packing.arrays_in(self.working.region), slot.region, slot.extents)
        slot.reads.append(self.machine.decode("compute", step, coded, arrived))
        return self._arrays()

    def _drop(self, step: int) -> None:
        self._settle()
        self._lost.discard(step)
        super()._drop(step)

    def _bring_up(self, step: int) -> None:
        """Fetch a snapshot that the plan would have in the first tier by now."""
        where = next((tier for tier, held in enumerate(self.held) if step in held), 0)
        for tier in range(where, 0, -1):
            self._make_room(tier - 1, self.held[tier][step].nbytes)
            super()._fetch(step, tier)

    def _recompute(self, step: int) -> None:
        """Run forward to a lost snapshot from the nearest before it, saving all lost ones on the way."""
        before = [held for tier in self.held for held in tier if held < step] if self.callbacks.keeps else []
        start = max(before, default=None)
        state = self._initial() if start is None else self.layout.build(self._restore(start, False))
        reached = start or 0
        for lost in sorted(lost for lost in self._lost if reached <= lost <= step):
            state = self._forward(state, reached, lost) if lost > reached else state
            self.machine.metrics.recomputed += lost - reached
            self._save(lost, self._snapshot(state, lost))
            reached = lost
        self._settle()

    def _make_room(self, tier: int, nbytes: int, step: int | None = None) -> bool:
        """Spill until a tier has room, for a snapshot of `step` only what is needed later than that.

        Every tier that is passed through has room for one snapshot that does not shrink.
        """
        while not self.heaps[tier].fits(nbytes):
            last = min(self.held[tier], default=None)
            if last is None or (step is not None and last >= step):
                return False
            self._spill(tier, last)
        return True

    def _spill(self, tier: int, step: int) -> None:
        """Move a snapshot out of a tier: to the next, or, out of the last, nowhere."""
        metrics = self.machine.metrics
        if not self._is_elsewhere(step, tier):
            if tier + 1 < len(self.tiers) and self._make_room(tier + 1, self.held[tier][step].nbytes, step):
                super()._store(step, tier + 1)
                metrics.spilled += 1
            else:
                self._lost.add(step)
                metrics.lost += 1
        self._release(tier, step)

    def _is_elsewhere(self, step: int, tier: int) -> bool:
        return any(step in held for other, held in enumerate(self.held) if other != tier)
