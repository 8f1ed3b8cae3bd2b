"""The policies against each other, against brute force, and against the slots they were given."""

from functools import cache
from itertools import chain
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.example_counts import fewer

from forebay.planner import residency
from forebay.planner.choose import operations_of
from forebay.planner.operations import Evict, Fetch, Store
from forebay.planner.residency import StreamedResidency, holdings, reside_back, reside_lru, reside_min
from forebay.planner.trace import moved, trace
from forebay.schedule import Drop, Forward, Online, Restore, Revolve, Save, StoreAll, TwoLevel, Uniform, ZCut

SCHEDULES = [
    StoreAll(9),
    Uniform(12, 4),
    ZCut(12, 7),
    Revolve(12, 3),
    Revolve(14, 4),
    TwoLevel(12, 4, 2),
    TwoLevel(13, 5, 1),
]


def check_slots(operations, slots):
    """Interpret operations on tiers of few slots: every copy is where it is read, and never more than fit."""
    held = [set() for _ in slots]
    for operation in operations:
        match operation:
            case Save(step):
                held[0].add(step)
            case Restore(step):
                assert step in held[0]
            case Store(step, tier):
                assert step in held[tier - 1]
                held[tier].add(step)
            case Fetch(step, tier):
                assert step in held[tier] and step not in held[tier - 1]
                held[tier - 1].add(step)
            case Evict(step, tier):
                held[tier].remove(step)
            case Drop(step):
                assert step in set(chain(*held))
                for tier in held:
                    tier.discard(step)
        for tier, most in zip(held, slots, strict=True):
            assert len(tier) <= most
    assert not any(held)


def least_traffic(schedule, slots):
    """Search every eviction: fewest movements up and down together, the oracle for `min`."""
    accesses = [(kind, step) for _, kind, step, _ in trace(schedule, 0).rows()]

    @cache
    def rest(index, resident, below):
        if index == len(accesses):
            return 0
        kind, step = accesses[index]
        if kind == "drop":
            return rest(index + 1, resident - {step}, below - {step})
        if step in resident:
            return rest(index + 1, resident, below)
        cost = kind == "read"
        if len(resident) < slots:
            return cost + rest(index + 1, resident | {step}, below)
        return cost + min(
            (victim not in below) + rest(index + 1, (resident - {victim}) | {step}, below | {victim})
            for victim in resident
        )

    return rest(0, frozenset(), frozenset())


@pytest.mark.parametrize("slots", [1, 2, 3, 4])
@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_min_moves_as_little_as_any_policy_could(schedule, slots):
    assert sum(moved(reside_min(list(schedule), 0, slots), 1)) == least_traffic(schedule, slots)


schedules = st.builds(
    lambda steps, interval, inner: TwoLevel(steps, min(interval, steps), min(inner, min(interval, steps) - 1)),
    st.integers(1, 90),
    st.integers(1, 90),
    st.integers(0, 30),
)


@given(schedules, st.integers(1, 9), st.sampled_from([reside_min, reside_lru]))
def test_no_policy_uses_more_slots_than_there_are(schedule, slots, reside):
    check_slots(reside(list(schedule), 0, slots), (slots, schedule.steps))


@given(schedules, st.integers(1, 9), st.integers(1, 9), st.sampled_from(["min", "lru"]))
def test_three_tiers_keep_to_their_slots_too(schedule, device, host, policy):
    check_slots(operations_of(schedule, (device, host, schedule.steps), policy), (device, host, schedule.steps))


@pytest.mark.parametrize("outdated", [0, 1, 4])
def test_what_counts_is_found_however_often_the_rest_is_thrown_away(outdated, monkeypatch):
    draw, moves = Random(1), []
    reads = [*map(Save, range(9)), *(Restore(draw.randrange(9)) for _ in range(200)), *map(Restore, range(9))]
    for most in (1000, outdated):
        monkeypatch.setattr(residency, "OUTDATED", most)
        moves.append([spelled(reside_min(reads, 0, slots)) for slots in (1, 2, 4, 7)])
    assert moves[0] == moves[1]


@given(schedules, st.integers(1, 9))
def test_min_never_moves_more_than_lru(schedule, slots):
    up, down = moved(reside_min(list(schedule), 0, slots), 1)
    lru_up, lru_down = moved(reside_lru(list(schedule), 0, slots), 1)
    assert up <= lru_up and down <= lru_down == schedule.saves


@given(schedules, st.integers(1, 8))
def test_more_slots_never_move_more(schedule, slots):
    fewer, more = (sum(moved(reside_min(list(schedule), 0, count), 1)) for count in (slots, slots + 1))
    assert more <= fewer


@given(schedules, st.integers(1, 9))
def test_actions_keep_their_order(schedule, slots):
    operations = reside_min(list(schedule), 0, slots)
    assert [str(op) for op in operations if not isinstance(op, Store | Fetch | Evict)] == list(map(str, schedule))


@pytest.mark.parametrize(
    ("slots", "lru", "least"),
    [
        (2, (923, 1716), (923, 462)),
        (3, (671, 1716), (461, 210)),
        (4, (419, 1716), (209, 84)),
        (6, (265, 1716), (27, 7)),
    ],
)
def test_the_salt_problem_of_gpuzip(slots, lru, least):
    actions = list(Revolve(3751, 8))
    assert moved(reside_lru(actions, 0, slots), 1) == lru
    assert moved(reside_min(actions, 0, slots), 1) == least


def test_a_fetch_starts_when_a_slot_is_free_for_good():
    operations = [str(operation) for operation in reside_min(list(StoreAll(3)), 0, 2)]
    # Step 2 is dropped, and the fetch of step 0 starts at once, two backward computations before its use.
    assert operations[operations.index("Drop(step=2)") + 1] == "Fetch(step=0, tier=1)"


@fewer(30)
@given(st.integers(1, 120), st.lists(st.integers(1, 9), min_size=1, max_size=3))
def test_an_end_that_nobody_knew_keeps_to_the_slots_of_all_tiers_together(steps, slots):
    schedule = Online(steps, max(4, sum(slots)))
    slots[-1] += schedule.snapshots - sum(slots)
    operations = operations_of(schedule, slots, "min")
    check_slots(operations, slots)
    actions = [each for each in operations if not isinstance(each, Store | Fetch | Evict)]
    assert [*map(repr, actions)] == [*map(repr, schedule)]


def test_snapshots_that_lie_in_tiers_already_are_fetched_ahead_from_there():
    operations = [*map(repr, reside_back(list(Online(4, 4).back()), (2, 9), [{2, 3}, {0, 1}]))]
    assert operations[:2] == [repr(Restore(3)), repr(Drop(3))]
    assert operations.index(repr(Fetch(1, 1))) < operations.index(repr(Restore(2)))
    assert not any(each.startswith("Store") for each in operations)


def spelled(operations):
    """Return operations as texts: those of two kinds are equal as tuples."""
    return [*map(repr, operations)]


def test_what_is_never_read_again_is_evicted_without_being_stored():
    actions = [Save(2), Restore(2), Drop(2)]
    assert spelled(reside_min(actions, 0, 1, here={1})) == spelled([Evict(1, 0), *actions])
    again = [*actions, Restore(1), Drop(1)]
    assert spelled(reside_min(again, 0, 1, here={1}))[:2] == spelled([Store(1, 1), Evict(1, 0)])
    assert repr(Store(1, 1)) not in spelled(reside_min(again, 0, 1, here={1}, lower={1}))


def test_of_an_unknown_end_the_earliest_go_down_before_their_slots_are_wanted():
    tiers = StreamedResidency((1, 1, 5))
    assert spelled(tiers.follow(Save(0))) == spelled([Save(0), Store(0, 1)])
    down = [Evict(0, 0), Save(1), Store(0, 2), Evict(0, 1), Store(1, 1)]
    assert spelled(tiers.follow(Save(1))) == spelled(down)
    assert [list(held) for held in tiers.held] == [[1], [1], [0]]
    assert spelled(tiers.follow(Drop(1))) == spelled([Drop(1)])
    assert [list(held) for held in tiers.held] == [[], [], [0]]


@pytest.mark.parametrize(
    ("operations", "slots", "here", "lower", "expected"),
    [
        # What is read last has come up, though nothing comes after it.
        ([Save(0), Save(1), Restore(0)], 1, (), (), "S0 Store0>1 E0@0 S1 E1@0 Fetch0<1 R0"),
        # There is room from the start for what lies below.
        ([Restore(5), Drop(5)], 2, (), (5,), "Fetch5<1 R5 D5"),
        ([Forward(7, 8), Restore(5), Restore(6)], 2, (), (5, 6), "Fetch5<1 Fetch6<1 F7 R5 R6"),
        # Of those that are there, the one that is read last goes, in whatever order they are told.
        ([Save(9), Restore(1), Restore(2), Restore(3)], 3, (2, 1, 3), (), "Store3>1 E3@0 S9 R1 R2 E1@0 Fetch3<1 R3"),
        ([Save(9), Restore(1), Restore(2), Restore(3)], 3, (3, 2, 1), (3,), "E3@0 S9 R1 R2 E1@0 Fetch3<1 R3"),
        # One that is never read goes first, and is not written.
        ([Save(9), Restore(1), Restore(9)], 2, (1, 4), (), "E4@0 S9 R1 R9"),
    ],
)
def test_what_is_there_at_the_start_is_known(operations, slots, here, lower, expected):
    signs = {Save: "S{}", Restore: "R{}", Drop: "D{}", Store: "Store{}>{}", Fetch: "Fetch{}<{}", Evict: "E{}@{}"}
    signs[Forward] = "F{}"
    made = reside_min(operations, 0, slots, here, lower)
    assert " ".join(signs[type(each)].format(*each) for each in made) == expected


def test_what_each_tier_holds_follows_from_the_operations():
    operations = [Save(1), Save(2), Store(1, 1), Evict(1, 0), Store(3, 1), Fetch(1, 1), Drop(2), Evict(3, 1)]
    assert holdings(operations, [(), (3,)]) == ([{1}, {1}], 2)
    assert holdings(operations[:4], [(), (3,)]) == ([{2}, {1, 3}], 2)
    assert holdings([Drop(3)], [(3,), (3, 4)]) == ([set(), {4}], 2)
    assert holdings([], [(7, 8, 9)]) == ([{7, 8, 9}], 3)
