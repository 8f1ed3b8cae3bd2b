"""The symbolic interpreter: it runs a schedule on step numbers instead of states and refuses what cannot work."""

from typing import TypeVar

from forebay.errors import ScheduleError
from forebay.schedule.actions import Action, Drop, Forward, Restore, Save, Schedule

AnySchedule = TypeVar("AnySchedule", bound=Schedule)


def check(schedule: AnySchedule) -> AnySchedule:
    """Return the schedule if it reverses every step once, in order, from states that are there.

    Hold it to its own word too: the numbers of actions, forward steps, saves and live snapshots are as it says.
    """
    position: int | None = 0  # step of the working state; None once a backward computation may have used it up
    turned, next_backward = False, schedule.steps - 1
    alive: set[int] = set()
    actions = forward_steps = saves = peak = 0
    for action in schedule:
        actions += 1
        match action:
            case Forward(start, stop):
                _demand(start < stop <= schedule.steps, schedule, action, "goes nowhere or beyond the last step")
                _demand(position == start, schedule, action, f"but the working state is at {position}")
                position = stop
                forward_steps += stop - start
                if stop == schedule.steps:
                    _demand(not turned, schedule, action, "reaches the end a second time")
                    turned = True
            case Save(step):
                _demand(position == step, schedule, action, f"but the working state is at {position}")
                _demand(step not in alive, schedule, action, "but that snapshot is there already")
                alive.add(step)
                saves += 1
                peak = max(peak, len(alive))
            case Restore(step):
                _demand(step in alive, schedule, action, "but there is no such snapshot")
                position = step
            case Drop(step):
                _demand(step in alive, schedule, action, "but there is no such snapshot")
                alive.remove(step)
            case _:
                _demand(turned, schedule, action, "before the loop has reached its end")
                _demand(action.step == next_backward, schedule, action, f"but the next is {next_backward}")
                _demand(position == action.step, schedule, action, f"but the working state is at {position}")
                next_backward -= 1
                position = None
    _demand(next_backward == -1, schedule, None, f"steps {next_backward} and below are never reversed")
    _demand(not alive, schedule, None, f"the snapshots {sorted(alive)} are never dropped")
    counts = (len(schedule), schedule.forward_steps, schedule.saves, schedule.peak_snapshots)
    _demand(counts == (actions, forward_steps, saves, peak), schedule, None, f"counts {counts} are not as told")
    return schedule


def _demand(holds: bool, schedule: Schedule, action: Action | None, why: str) -> None:
    if not holds:
        raise ScheduleError(
            f"{schedule} over {schedule.steps} steps is not a reversal: {action or 'at its end'}, {why}"
        )
