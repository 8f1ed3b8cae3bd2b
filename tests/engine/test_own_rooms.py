"""A place for states beside records, where records turn out too large: in memory of its own, or behind snapshots."""

from types import SimpleNamespace

import pytest

from forebay.engine.spilling import SpillingExecutor
from forebay.engine.spilling.replanning import STATES
from forebay.engine.spilling.room_making import SnapshotKind
from forebay.machine.machine import Wait
from forebay.machine.region import Region
from forebay.tier.heap import Heap

WORKING, RECORD, STATE, MOST = 100, 200, 500, 600
"""Bytes of the working state, of a record, of a state, and of a state that does not shrink."""


def executor(tier="host", has=2000, most=10_000, held=()):
    """An executor that keeps records of so many bytes, in a room of which a part is taken at first."""
    made = object.__new__(SpillingExecutor)
    taken, made.asked, made.tiers, made.most = [], [], (tier,), [most]
    heap = Heap(has, None)
    made.heaps, made._packed, made._saved, made._grown = [heap], 0, 0, [[]]
    made.machine = SimpleNamespace(
        extend=lambda tier, nbytes: made.asked.append((tier, nbytes)) or f"memory {len(made.asked)}",
        region=lambda tier, offset, nbytes: Region(offset, nbytes),
        metrics=SimpleNamespace(lost=0, replanned=0),
        sync=list,
        mark=lambda: None,
        copies=lambda *about: taken.append(about),
    )
    made.working = SimpleNamespace(nbytes=WORKING, offset=heap.take(WORKING)[0])
    staging = made._allocate(0, RECORD)[0]
    made.held = [{step: made._allocate(0, nbytes)[0] for step, nbytes in held}]
    made.layout = SimpleNamespace(nbytes=RECORD)
    made.kind = SnapshotKind(made.layout, SimpleNamespace(most=RECORD), staging, "working", "sizes")
    states = SimpleNamespace(nbytes=STATE), SimpleNamespace(most=MOST)
    made.coding, made.callbacks = SimpleNamespace(states=states), SimpleNamespace(keeps=False)
    made._fresh, made._generation_of, made._left, made.fetched = None, {}, None, set()
    return made


@pytest.mark.parametrize(
    ("tier", "most", "asked"),
    [
        ("host", 2000 + MOST + STATE - RECORD, (0, MOST + STATE - RECORD)),  # threads encode a copy
        ("device", 2000 + MOST, (0, MOST)),
    ],
)
def test_states_get_memory_of_their_own_where_the_budget_has_it(tier, most, asked):
    made = executor(tier, most=most)
    used = made.heaps[0].used
    kind = made._state_kind()
    assert made.asked == [asked, (0, STATE)] and made.most == [2000]
    assert made.heaps[0].used == used - RECORD  # where records were encoded before
    assert (kind.staging.region, kind.staging.offset, kind.working, kind.shift) == ("memory 1", 0, "memory 2", STATES)
    assert made.kind.staging is kind.staging and kind.packing.most == MOST
    assert kind.sizes.expected == MOST and kind.sizes.typical(0, 0) == MOST
    kind.sizes.add(0, 7)  # in place of what was assumed of the first
    assert kind.sizes.typical(0, 0) == kind.sizes.typical(1, 1) == 7
    assert made._state_kind() is kind and len(made.asked) == 2


@pytest.mark.parametrize("short", [0, 1])
def test_behind_snapshots_they_have_room_as_long_as_the_budget_has_it_for_all(short):
    """Beside the working state, a state is encoded and one is kept."""
    made = executor("first", 1300 - short, 1300 - short)
    kind = made._state_kind()
    assert (kind is None) == (short == 1)
    if kind is not None:
        assert made.asked == [(0, STATE)] and made.most == [1300] and kind.staging.offset == 700
        assert made.heaps[0].used == WORKING + MOST and made.heaps[0].fits(600) and not made.heaps[0].fits(601)


def test_records_go_that_are_in_the_way_those_that_are_needed_last_first():
    made = executor("first", 1300, 1300, [(4, 300), (2, 300), (7, 300)])
    kind = made._state_kind()
    assert sorted(made.held[0]) == [4, 7] and made.machine.metrics.lost == 1 and made._replans
    assert (kind.staging.nbytes, kind.staging.offset) == (MOST, 700) and made._bytes_of_records() == 600
    assert [slot.offset for slot in made.held[0].values()] == [100, 400]
    made.held[0][STATES + 4] = made.held[0].pop(4)
    assert made._bytes_of_records() == 300
    made.callbacks.keeps = True
    assert made._bytes_of_records() == 0


def test_where_there_is_no_place_for_states_records_keep_theirs():
    made = executor("first", 1250, 1250, [(4, 300)])
    staging = made.kind.staging
    assert made._state_kind() is None and made.kind.staging is staging and made.asked == []
    made.coding.states = None
    made._states_asked = False
    assert made._state_kind() is None and not made._states_asked
    made.callbacks.keeps = True
    assert made._state_kind() is made.kind


def test_what_is_taken_behind_all_snapshots_parts_none_of_them():
    made = executor("first", 1000, 1000, [(1, 100), (2, 200)])
    made._drop(1)
    place = made._allocate_behind(150)
    assert (place.offset, place.nbytes) == (850, 150)
    heap = made.heaps[0]
    assert heap.used == WORKING + RECORD + 200 + 150 and heap.take(350)[0] == 500
    full = executor("first", 500, 500, [(1, 100)])
    assert full._allocate_behind(100).offset == 400 and full.heaps[0].used == 500


def test_where_what_is_free_lies_in_several_pieces_the_one_that_is_large_enough_is_taken():
    made = executor("first", 1000, 1300, [(1, 200)])
    heap = made.heaps[0]
    made._grown[0].append((heap.grow(300), Region(5000, 300)))
    assert (made._allocate_behind(450).offset, heap.used) == (500, 950)
    assert heap.fits(300) and heap.take(50)[0] == 950


class Above(SpillingExecutor):
    """A tier in which there is room for so many bytes, above others that hold one snapshot of 200."""

    def __init__(self, rooms, where):
        self.rooms, self.done = rooms, []
        self.held = [{} for _ in range(3)]
        for tier in where:
            self.held[tier][7] = SimpleNamespace(nbytes=200)
        self._make_room = lambda tier, nbytes: self.rooms[tier] >= nbytes
        self._take = lambda tier, step, nbytes, why: (self.held[tier].update({step: f"slot in {tier}"}), [why])
        self._fetch_to = lambda *about: self.done.append(about)
        self._give_up = lambda fresh: self.done.append(fresh) or self.rooms.update({1: 200})
        self._owned = lambda tier, step: SimpleNamespace(nbytes=200, tier=tier)


@pytest.mark.parametrize("where", [(1,), (1, 2)])
def test_what_has_no_room_above_is_decoded_from_where_snapshots_are_encoded(where):
    above = Above({0: 199}, where)
    kind = SimpleNamespace(staging=SimpleNamespace(region=Region(1000, 600), reads=["copied", "saved"]))
    slot = above._brought_up(kind, 7)
    ((staging, step, tier, waits),) = above.done
    assert staging is slot and (step, tier) == (7, 1) and kind.staging.reads is slot.reads == []
    assert (slot.region.pointer, slot.region.nbytes, slot.offset, slot.nbytes) == (1000, 200, 0, 200)
    assert waits == [Wait("fetch: its slot is free", event) for event in ("copied", "saved")]


def test_what_has_no_room_on_its_way_up_has_others_given_up():
    above = Above({0: 200, 1: 199}, (2,))
    make_room = above._make_room
    above._make_room = lambda tier, nbytes: above.held[tier].pop(7, None) or make_room(tier, nbytes)
    above._take = lambda tier, step, nbytes, why: (above.held[tier].update({7: above._owned(tier, 7)}), [why])
    assert above._brought_up(None, 7).tier == 0
    assert [each if each is None else each[1:] for each in above.done] == [
        None,
        (7, 2, ["fetch: its slot is free"]),
        (7, 1, ["fetch: its slot is free"]),
    ]
