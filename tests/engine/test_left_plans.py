"""When a plan is left, and what goes first: where both sides are equal, and one step to either side."""

from types import SimpleNamespace

import pytest

from forebay.engine.spilling import EndlessExecutor, SpillingExecutor
from forebay.engine.spilling.replanning import STATES
from forebay.engine.spilling.thinning import SnapshotSizes
from forebay.engine.spilling.thinning import forward_steps as counted


def sizes_of(nbytes, many=3, step=0):
    sizes = SnapshotSizes()
    for number in range(many):
        sizes.add(step + number, nbytes)
    return sizes


def executor(class_=SpillingExecutor, held=(), free=1000, keeps=True, **more):
    """An executor of which is known what a decision asks for."""
    made = object.__new__(class_)
    made.held, made.free_bytes = [dict.fromkeys(held)], lambda: free
    made.callbacks = SimpleNamespace(keeps=keeps)
    vars(made).update(more)
    return made


@pytest.mark.parametrize(
    ("nbytes", "known", "free", "keeps", "wrong"),
    [
        (250, 2, 1600, True, False),  # of 10 planned, 2 held, 8 to come: 2000 bytes are as much as 1.25 times 1600
        (250, 2, 1599, True, True),
        (250, 1, 1, True, False),  # the first one tells nothing
        (81, 3, 1600, True, False),  # less than 1.25 times smaller than the 100 that were planned
        (80, 3, 1600, True, False),  # as small, but too little is gained
        (20, 3, 1600, True, True),
        (20, 3, 1600, False, False),  # records are not run again
    ],
)
def test_a_plan_is_left_where_sizes_are_a_quarter_off_and_that_is_worth_it(nbytes, known, free, keeps, wrong):
    planned = SimpleNamespace(snapshots=10, snapshot_bytes=100, steps=200, forward_steps=counted(200, 10))
    kind = SimpleNamespace(sizes=sizes_of(nbytes, known))
    assert executor(held=(0, 9), free=free, keeps=keeps, coding=planned, kind=kind)._is_wrong() is wrong


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_a_plan_is_left_for_four_fifths_of_its_steps(more):
    steps = next(steps for steps in range(50, 200) if counted(steps, 20) % 4 == 0)
    forward_steps = counted(steps, 20) * 5 // 4 + more
    planned = SimpleNamespace(snapshots=10, snapshot_bytes=100, steps=steps, forward_steps=forward_steps)
    made = executor(held=(0,), coding=planned, kind=SimpleNamespace(sizes=sizes_of(50)))
    assert made._is_wrong() is (more > 0)


@pytest.mark.parametrize(
    ("held", "fresh", "left", "keeps", "goes"),
    [
        ((), None, None, True, None),
        ((0, 5, 9), 12, 30, True, None),  # on the way back what comes is needed later
        ((0, 5, 9), None, 30, True, 0),
        ((0, 5, 9), 12, None, True, 0),  # the first can be had again
        ((5, 9, 30), 12, None, True, 12),
        ((5,), 0, None, True, 5),
        ((5, 9), None, None, False, 5),  # of records the one that is needed last
        ((5, 9), 4, None, False, None),
        ((5, 9), 6, None, False, 5),
        ((STATES, STATES + 5, 9), None, None, False, 9),
        ((STATES, STATES + 5), None, None, False, STATES),
        ((STATES + 3, STATES + 5), None, None, False, STATES + 5),
    ],
)
def test_what_costs_least_goes_first(held, fresh, left, keeps, goes):
    states = SimpleNamespace(shift=0 if keeps else STATES)
    made = executor(held=held, keeps=keeps, kind=SimpleNamespace(shift=0), _states=states, _left=left)
    made.coding, made._spares = SimpleNamespace(steps=40), ()
    assert made._least_needed(fresh) == goes


def test_those_that_were_chosen_together_go_one_after_the_other():
    made = executor(held=range(0, 48, 2), kind=SimpleNamespace(shift=0), _left=None)
    made.coding, made._spares = SimpleNamespace(steps=60), (6, 99, 20)
    del made.held[0][0]
    assert [made._least_needed(None), list(made._spares)] == [6, [20]]
    assert [made._least_needed(None), list(made._spares)] == [20, []]


@pytest.mark.parametrize(
    ("nbytes", "fixed", "expected"), [(300, False, 300), (10, False, 50), (10, True, 10), (0, True, 1)]
)
def test_a_record_takes_what_records_took_or_its_share_of_states(nbytes, fixed, expected):
    states = SimpleNamespace(
        packing=SimpleNamespace(fixed=fixed), layout=SimpleNamespace(nbytes=800), sizes=sizes_of(100)
    )
    kind = SimpleNamespace(sizes=sizes_of(nbytes))
    made = executor(kind=kind, layout=SimpleNamespace(nbytes=400), _states=states)
    assert made._record_bytes(0, 2) == expected
    made._states = None
    assert made._record_bytes(0, 2) == max(1, nbytes)


@pytest.mark.parametrize(("seen", "capacity"), [((), 9), ((90,), 10), ((450,), 2), ((451,), 1), ((0.25,), 900)])
def test_so_many_states_have_room_at_the_sizes_seen_so_far(seen, capacity):
    sizes = SnapshotSizes()
    for nbytes in seen:
        sizes.add(0, 1)
        sizes.expected = nbytes
    kind = SimpleNamespace(sizes=sizes, staging=SimpleNamespace(nbytes=40))
    made = executor(EndlessExecutor, kind=kind, most=[600, 400], working=SimpleNamespace(nbytes=60))
    made.coding = SimpleNamespace(snapshot_bytes=100)
    assert made._capacity() == capacity


def test_the_steps_that_can_be_gone_on_from_are_those_held_and_the_first():
    assert executor(EndlessExecutor, held=(7, 3))._kept() == [0, 3, 7]
