"""Rooms of tiers grow as they are needed, in pieces that are worth a call, and never above the budget."""

from types import SimpleNamespace

import pytest

from forebay.engine.spilling.room_making import RoomMaking
from forebay.errors import DeviceError

MIB, GIB = 2**20, 2**30


class Growing:
    """A room of so many bytes that has a neighbour above it, and what is asked of its machine."""

    def __init__(self, name, has, most, refuses=None):
        self.tiers, self.most, self._grown = ("first", name), [0, most], [[], []]
        self.heaps = [None, SimpleNamespace(nbytes=has, grow=lambda size: has)]
        self.asked, self.refuses = [], refuses
        self.machine = SimpleNamespace(extend=self.extend)

    def extend(self, tier, size):
        self.asked.append((tier, size))
        if self.refuses is not None:
            raise self.refuses
        return "memory"

    def grows(self, nbytes):
        return RoomMaking._grow(self, 1, nbytes)


@pytest.mark.parametrize(
    ("name", "has", "left", "needed", "grown"),
    [
        ("host", MIB, GIB, 5, 64 * MIB),  # at least
        ("host", 512 * MIB, GIB, 5, 256 * MIB),  # half of what it has
        ("host", 512 * MIB, GIB, 300 * MIB, 300 * MIB),  # as much as is needed
        ("host", 512 * MIB, MIB + 3, 5, MIB + 3),  # no more than is left
        ("host", 512 * MIB, MIB, MIB, MIB),
        ("host", 512 * MIB, MIB, MIB + 1, None),
        ("device", 512 * MIB, 5 * MIB, 5, 4 * MIB),  # in whole pages
        ("device", 512 * MIB, 2 * MIB - 1, 5, None),
        ("device", 512 * MIB, 2 * MIB, 2 * MIB, 2 * MIB),
    ],
)
def test_a_room_grows_by_a_piece_that_is_worth_a_call(name, has, left, needed, grown):
    room = Growing(name, has, has + left)
    assert room.grows(needed) is (grown is not None)
    assert room.asked == ([] if grown is None else [(1, grown)])
    assert room._grown == [[], [] if grown is None else [(has, "memory")]]


@pytest.mark.parametrize("error", [DeviceError(), MemoryError(), OSError()], ids=repr)
def test_where_others_have_taken_what_the_budget_allows_it_stays_as_it_is(error):
    room = Growing("host", MIB, GIB, error)
    assert room.grows(5) is False and room.most == [0, MIB] and room.grows(5) is False
    assert room.asked == [(1, 64 * MIB)]  # and is not asked for again


class Packing:
    """A tier in which two snapshots lie behind gaps, and what is done to move them together."""

    def __init__(self, name="host", sizes=(64 * MIB, 0), packed=0, saved=0, free=8):
        self.tiers, self._packed, self._saved, self.moves = (name,), packed, saved, []
        region = SimpleNamespace(cut=lambda start, size: (start, size))
        places = ((sizes[0], 0), (sizes[1], sizes[0] + 3))
        self.slots = [SimpleNamespace(nbytes=n, offset=o, region=region, uses=list) for n, o in places]
        self.held = [dict(enumerate(self.slots))]
        used = sum(sizes)
        self.heaps = [
            SimpleNamespace(nbytes=used + free, used=used, under_way=list, pack=lambda extents: (0, sizes[0]))
        ]
        copies = lambda lane, what, step, pairs, after: self.moves.extend(pairs)  # noqa: E731
        self.machine = SimpleNamespace(sync=list, copies=copies, mark=lambda: "moved")

    def _region(self, tier, offset, nbytes):
        return SimpleNamespace(cut=lambda start, size: (offset + start, size))

    def packs(self, nbytes=8):
        return RoomMaking._pack(self, 0, nbytes)


@pytest.mark.parametrize(
    ("tier", "needed", "is_done"),
    [
        (Packing(), 8, True),
        (Packing(), 9, False),  # the gaps have 8 bytes
        (Packing("device"), 8, False),
        (Packing("disk"), 8, False),
        (Packing(sizes=(64 * MIB, 1)), 8, False),  # it takes too long
        (Packing(sizes=(64 * MIB, 2), saved=32 * MIB + 1), 8, True),  # no more than twice as many as were saved
        (Packing(sizes=(64 * MIB, 2), packed=1, saved=32 * MIB + 1), 8, False),
    ],
)
def test_snapshots_are_moved_together_where_that_makes_room_and_is_cheap(tier, needed, is_done):
    before = tier._packed
    assert tier.packs(needed) is is_done
    assert tier._packed - before == (sum(slot.nbytes for slot in tier.slots) if is_done else 0)


def test_a_snapshot_is_moved_in_pieces_that_do_not_overlap():
    tier = Packing(sizes=(10, 8))
    assert tier.packs()
    assert tier.moves == [((10, 3), (0, 3)), ((13, 3), (3, 3)), ((16, 2), (6, 2))]
    assert [slot.offset for slot in tier.slots] == [0, 10] and tier.slots[1].ready == "moved"
