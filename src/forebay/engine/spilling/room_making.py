"""Encoded snapshots in tiers: each takes the bytes that it has, rooms grow up to the budget, and what has no room goes.

What goes to the tier below is always the snapshot of the smallest step, which in a reversal is needed last. Out of the
last tier nothing goes while there is room anywhere; which one goes then, whoever derives from this says.

A snapshot is encoded into a place of its own, large enough for one that does not shrink, and copied to where it stays
when the next is saved, or any is asked for: by then, on a GPU, the computation has work queued behind the encoder, and
waiting for the size costs it nothing. The copy is of what the codec left, and keeps the tier without gaps that only an
encoding of unknown size could not use.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from forebay.codec import Encoded
from forebay.engine.executor import Callbacks, Executor, Slot
from forebay.engine.layout import Layout
from forebay.engine.spilling.rooms import Rooms, SnapshotCoding
from forebay.engine.spilling.thinning import SnapshotSizes
from forebay.errors import DeviceError
from forebay.machine.machine import ReversalMachine, Wait
from forebay.machine.packing import Packing, in_a_row, snapshot_bytes
from forebay.machine.region import Region
from forebay.planner.operations import Evict, Store

LEAST_GROWTH = 2**26
"""Bytes by which a room grows at least: allocations and pinning cost time by the call as well."""
FREELY_MOVED = 2**26
"""Bytes of a tier that are moved together whenever that makes room; more only twice as many as were saved."""
PAGE = 2**21
"""Bytes to whose multiples a device rounds what it allocates."""


@dataclass(frozen=True, eq=False)
class SnapshotKind:
    """Snapshots of one kind, states or records: how they are encoded, and where."""

    layout: Layout
    packing: Packing
    staging: Slot
    """where one is encoded, and decoded from where it has no room in the first tier"""
    working: Region
    """where one is decoded to"""
    sizes: SnapshotSizes
    shift: int = 0
    """what is added to a step to tell its snapshot from that of another kind"""


class RoomMaking(Executor):
    """Runs operations on a machine, with snapshots encoded; a plan's movements are wishes.

    `initial` returns the state at step 0 anew.
    """

    even = False

    def __init__(
        self,
        machine: ReversalMachine,
        layout: Layout,
        tiers: Sequence[str],
        rooms: Rooms,
        callbacks: Callbacks,
        coding: SnapshotCoding,
        initial: Callable[[], Any],
    ) -> None:
        self.coding, self.initial = coding, initial
        self.most = list(rooms.most)
        """bytes of each tier that snapshots and staging may take"""
        self._grown: list[list[tuple[int, Region]]] = [[] for _ in tiers]  # further memory, by its offset
        self._fresh: tuple[SnapshotKind, int, Callable[[], Sequence[int]]] | None = None  # whose size is not known yet
        self._handed: list[Encoded] = []  # the record that is handed to backward next, where it is as it is kept
        self._later: list[Store | Evict] = []  # what the plan does with it meanwhile
        self._saved = self._packed = 0  # bytes of all snapshots, and of those that were moved together
        self._generation = 0  # lossy encodings between the exact state and the working one
        self._generation_of: dict[int, int] = {}  # the same of each snapshot
        super().__init__(machine, layout, tiers, rooms.first, callbacks)
        self.most[0] += layout.nbytes  # the working state
        staging = self._allocate(0, coding.packing.most)[0]
        self.kind = SnapshotKind(layout, coding.packing, staging, self.working.region, SnapshotSizes())

    @abstractmethod
    def _give_up(self, fresh: int | None) -> bool:
        """Drop a snapshot, there being no room for all; False where it is the one that room is wanted for."""

    def _save(self, step: int, tree: Any) -> None:
        self._encode(self.kind, step, tree)
        if self.kind.packing.fixed:
            self._settle()

    def _encode(self, kind: SnapshotKind, step: int, tree: Any) -> None:
        self._settle()
        arrays = kind.layout.check(tree, kind.packing.windows)
        strides = kind.layout.windows(arrays) if kind.packing.windows else ()
        coded = kind.packing.coded(kind.layout.regions(arrays), kind.staging.region, kind.packing.worst, strides)
        self._fresh = kind, step, self.machine.encode("compute", step, coded, []).sizes
        self._generation_of[step + kind.shift] = generation = self._generation + kind.packing.lossy
        self.machine.metrics.generations = max(generation, self.machine.metrics.generations)

    def _settle(self) -> None:
        """Copy the newest snapshot to where it stays, and carry out what waited for that."""
        if self._fresh is None:
            return
        (kind, step, sizes), self._fresh = self._fresh, None
        later, self._later = self._later, []
        extents = in_a_row(sizes())
        nbytes, key = snapshot_bytes(extents), step + kind.shift
        kind.sizes.add(step, nbytes)
        self._saved += nbytes
        self.machine.metrics.ratios.add(kind.layout.nbytes, nbytes)
        while not self._make_room(0, nbytes):
            if not self._give_up(key):
                self.machine.metrics.lost += 1
                return
        slot, room = self._take(0, key, nbytes, "save: its slot is free")
        slot.extents = extents
        # From their worst places to those they get.
        pairs = [
            (slot.region.cut(offset, size), kind.staging.region.cut(start, size))
            for (start, _), (offset, size) in zip(kind.packing.worst, extents, strict=True)
        ]
        slot.ready = self.machine.copies("compute", "save", step, pairs, room)
        kind.staging.reads = [slot.ready]
        for operation in later:
            if isinstance(operation, Store):
                self._store(operation.step, operation.tier)
            else:
                self._evict(operation.step, operation.tier)

    def _is_fresh(self, step: int) -> bool:
        return self._fresh is not None and self._fresh[1] == step

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
        return self._decode(self.kind, step)

    def _decode(self, kind: SnapshotKind, step: int) -> list[Any]:
        """Decode a snapshot, wherever it is, and list its arrays."""
        self._settle()
        slot = self._brought_up(kind, step + kind.shift)
        self._count(step + kind.shift)
        if self.callbacks.keeps or kind is not self.kind:
            self._generation = self._generation_of[step + kind.shift]
        arrived = [Wait("restore: its snapshot has arrived", slot.ready)]
        if kind is self.kind and self.callbacks.hands_encoded(step) and slot.nbytes <= kind.working.nbytes:
            # Where it would be decoded, nothing else comes before backward has read it.
            place = kind.working.cut(0, slot.nbytes)
            slot.reads.append(self.machine.copies("compute", "restore", step, [(place, slot.region)], arrived))
            self._handed = kind.packing.encoded(place, slot.extents)
            return self._handed
        coded = kind.packing.coded(kind.packing.arrays_in(kind.working), slot.region, slot.extents)
        slot.reads.append(self.machine.decode("compute", step, coded, arrived))
        return self._lent(kind.working, kind.layout, self.callbacks.keeps or kind is not self.kind)

    def _backward(self, needed: Any, step: int) -> None:
        leaves, self._handed = self._handed, []
        if not leaves:
            super()._backward(needed, step)
        else:
            with self.machine.timed("backward", step):
                self.callbacks.encoded(leaves, step)

    def _drop(self, step: int) -> None:
        self._settle()
        self._generation_of.pop(step, None)
        super()._drop(step)

    def _brought_up(self, kind: SnapshotKind, key: int) -> Slot:
        """Return where a snapshot can be decoded from: its slot in the first tier, or the place for encoding."""
        where = next(tier for tier, held in enumerate(self.held) if key in held)
        for tier in range(where, 0, -1):
            source = self.held[tier][key]
            while not self._make_room(tier - 1, source.nbytes):
                if tier == 1:
                    room = [Wait("fetch: its slot is free", event) for event in kind.staging.reads]
                    staging = Slot(kind.staging.region.cut(0, source.nbytes), 0, source.nbytes)
                    kind.staging.reads = staging.reads
                    self._fetch_to(staging, key, tier, room)
                    return staging
                self._give_up(None)
            super()._fetch(key, tier)
        return self._owned(0, key)

    def _make_room(self, tier: int, nbytes: int, step: int | None = None) -> bool:
        """Push snapshots down until a tier has room, for one of `step` only those that are needed later than that."""
        heap = self.heaps[tier]
        while (
            not heap.fits(nbytes)
            and not self._grow(tier, nbytes)
            and not (self._pack(tier, nbytes) and heap.fits(nbytes))
        ):
            if not self._push_down(tier, step):
                return False
        return True

    def _grow(self, tier: int, nbytes: int) -> bool:
        """Take more of the budget, where it has more."""
        heap, name = self.heaps[tier], self.tiers[tier]
        left = self.most[tier] - heap.nbytes
        size = min(max(nbytes, LEAST_GROWTH, heap.nbytes // 2), left)
        size = size // PAGE * PAGE if name == "device" else size
        if size < nbytes:
            return False
        try:
            region = self.machine.extend(tier, size)
        except (DeviceError, MemoryError, OSError):  # others have taken what the budget allows
            self.most[tier] = heap.nbytes
            return False
        self._grown[tier].append((heap.grow(size), region))
        return True

    def _pack(self, tier: int, nbytes: int) -> bool:
        """Move the snapshots of a host's tier together, where the gaps between them make room, and that is cheap."""
        heap, slots = self.heaps[tier], sorted(self.held[tier].values(), key=lambda slot: slot.offset)
        moved = sum(slot.nbytes for slot in slots)
        cheap = moved <= FREELY_MOVED or self._packed + moved <= 2 * self._saved
        if heap.nbytes - heap.used < nbytes or "device" in self.tiers or self.tiers[tier] == "disk" or not cheap:
            return False
        self._packed += moved
        events = [*heap.under_way(), *(event for slot in slots for event in slot.uses())]
        self.machine.sync([Wait("save: its slot is free", event) for event in events])
        for slot, offset in zip(slots, heap.pack([(slot.offset, slot.nbytes) for slot in slots]), strict=True):
            distance, target = slot.offset - offset, self._region(tier, offset, slot.nbytes)
            if distance:
                for start in range(0, slot.nbytes, distance):  # no copy reads what it writes
                    part = start, min(distance, slot.nbytes - start)
                    self.machine.copies("compute", "save", 0, [(target.cut(*part), slot.region.cut(*part))], [])
                slot.region, slot.offset = target, offset
            slot.ready, slot.reads = self.machine.mark(), []
        return True

    def _region(self, tier: int, offset: int, nbytes: int) -> Region:
        for start, region in reversed(self._grown[tier]):
            if offset >= start:
                piece: Region = region.cut(offset - start, nbytes)
                return piece
        return self.machine.region(tier, offset, nbytes)

    def _push_down(self, tier: int, step: int | None) -> bool:
        """Move the snapshot of the smallest step out of a tier; False where there is no room for it below."""
        last = min(self.held[tier], default=None)
        if last is None or (step is not None and last >= step):
            return False
        if not self._is_elsewhere(last, tier):
            if tier + 1 == len(self.tiers) or not self._make_room(tier + 1, self.held[tier][last].nbytes, last):
                return False
            super()._store(last, tier + 1)
            self.machine.metrics.spilled += 1
        self._release(tier, last)
        return True

    def _is_elsewhere(self, step: int, tier: int) -> bool:
        return any(step in held for other, held in enumerate(self.held) if other != tier)

    def free_bytes(self) -> int:
        """Count the bytes that snapshots can still take."""
        free = (most - heap.used for most, heap in zip(self.most, self.heaps, strict=True))
        return sum(free)
