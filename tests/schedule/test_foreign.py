import numpy as np
import pytest

import forebay as fb
from forebay.errors import ScheduleError
from forebay.schedule import Backward, Drop, Foreign, Forward, Restore, Revolve, Save, Schedule, foreign
from forebay.schedule.foreign import _with_drops

library = pytest.importorskip("checkpoint_schedules")

MAKERS = {
    "HRevolve": lambda n: library.HRevolve(n, 2, 3),
    "DiskRevolve": lambda n: library.DiskRevolve(n, 2),
    "PeriodicDiskRevolve": lambda n: library.PeriodicDiskRevolve(n, 2),
    "Revolve": lambda n: library.Revolve(n, 3),
    "Mixed": lambda n: library.MixedCheckpointSchedule(n, 3),
    "Multistage": lambda n: library.MultistageCheckpointSchedule(n, 1, 2),
    "Multistage, revolve": lambda n: library.MultistageCheckpointSchedule(n, 3, 0, trajectory="revolve"),
    "TwoLevel": lambda n: library.TwoLevelCheckpointSchedule(4, 2),
    "SingleMemory": lambda n: library.SingleMemoryStorageSchedule(),
    "SingleDisk": lambda n: library.SingleDiskStorageSchedule(),
    "SingleDisk, moving": lambda n: library.SingleDiskStorageSchedule(move_data=True),
}


@pytest.mark.parametrize("steps", [1, 2, 3, 5, 17, 40])
@pytest.mark.parametrize(
    "name",  # the library compiles its mixed schedules with Numba, for many seconds
    [pytest.param(name, marks=pytest.mark.slow) if name == "Mixed" else name for name in MAKERS],
)
def test_every_schedule_of_the_library_is_taken_as_it_is(name, steps):
    try:
        theirs = MAKERS[name](steps)
    except (IndexError, ValueError):
        pytest.skip("the library makes no such schedule for so few steps")
    ours = foreign(theirs, steps)  # checked by the interpreter
    assert ours.steps == steps
    assert Foreign.from_text(steps, ours.to_text(), ours.name) == ours


def test_snapshots_stay_within_theirs():
    assert foreign(library.MultistageCheckpointSchedule(500, 8, 0)).peak_snapshots == 8
    assert foreign(library.HRevolve(100, 3, 4)).peak_snapshots <= 7


@pytest.mark.slow
def test_snapshots_of_a_mixed_schedule_stay_within_theirs():
    assert foreign(library.MixedCheckpointSchedule(100, 5)).peak_snapshots <= 5


def test_theirs_is_no_shorter_than_ours():
    theirs, ours = foreign(library.MultistageCheckpointSchedule(500, 8, 0)), Revolve(500, 8)
    assert ours.forward_steps <= theirs.forward_steps
    assert ours.saves <= theirs.saves


def test_the_object_is_left_as_it_was_and_a_used_one_is_refused():
    theirs = library.MultistageCheckpointSchedule(20, 3, 0)
    assert foreign(theirs) == foreign(theirs)
    next(iter(theirs))
    with pytest.raises(ScheduleError, match="make a new one"):
        foreign(theirs)


def test_the_number_of_steps_must_be_known_and_right():
    with pytest.raises(ScheduleError, match="does not know the number of steps"):
        foreign(library.SingleMemoryStorageSchedule())
    with pytest.raises(ScheduleError, match="made for 20 steps"):
        foreign(library.MultistageCheckpointSchedule(20, 3, 0), 21)


def test_snapshots_that_are_never_restored_are_not_taken():
    theirs = [Save(0), Forward(0, 2), Save(2), Forward(2, 3), Restore(0), Forward(0, 1), Restore(0), Backward(0)]
    ours = [action for action in theirs if action != Save(2)]
    ours.insert(-1, Drop(0))
    assert list(_with_drops(theirs)) == ours


def test_what_is_no_action_is_refused():
    with pytest.raises(ScheduleError, match="not actions"):
        Foreign.from_text(1, "S0 X1")


class OneShot(Schedule):
    """Somebody's own, whose actions come once and then never again."""

    def __init__(self, actions, inner):
        self._actions, self._inner, self.steps = iter(actions), inner, inner.steps

    def __iter__(self):
        return self._actions

    def __len__(self):
        return len(self._inner)

    forward_steps = property(lambda self: self._inner.forward_steps)
    saves = property(lambda self: self._inner.saves)
    peak_snapshots = property(lambda self: self._inner.peak_snapshots)

    def __str__(self):
        return "mine"


def steps_reversed(schedule):
    called = []
    fb.reverse(
        lambda state, start, stop: (state[0] + (stop - start),),
        lambda state, step: called.append((step, int(state[0][0]))),
        (np.zeros(8),),
        steps=30,
        schedule=schedule,
        budget="100kB",
    )
    return called


def test_a_schedule_of_your_own_is_taken_down_once():
    assert steps_reversed(OneShot(Revolve(30, 5), Revolve(30, 5))) == [(step, step) for step in reversed(range(30))]


@pytest.mark.parametrize("kind", [OneShot, lambda actions, inner: Foreign(30, actions)])
def test_a_schedule_that_is_no_reversal_is_refused_before_the_first_step(kind):
    actions = tuple(Revolve(30, 5))
    for wrong in ((), actions[:-1], tuple(action for action in actions if action != Backward(7))):
        with pytest.raises(ScheduleError, match="not a reversal"):
            steps_reversed(kind(wrong, Revolve(30, 5)))
