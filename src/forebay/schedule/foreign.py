"""Schedules of the checkpoint_schedules library, taken as they are.

Their model keeps two kinds of data, restart data and the dependencies of one adjoint step; here both are the state
before a step. What they hold in their work storage for the step that is reversed next is our working state, so it
takes no snapshot. Where a snapshot goes is the plan's affair: their RAM and disk are not told apart.
"""

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from forebay.errors import ScheduleError
from forebay.schedule.actions import Action, Backward, Drop, Forward, Restore, Save, Schedule
from forebay.schedule.check import check


@dataclass(frozen=True)
class Foreign(Schedule):
    """A schedule given by its actions, such as one translated from checkpoint_schedules by `foreign`."""

    steps: int
    actions: tuple[Action, ...]
    name: str = "foreign"

    def __iter__(self) -> Iterator[Action]:
        return iter(self.actions)

    def __len__(self) -> int:
        return len(self.actions)

    @property
    def forward_steps(self) -> int:
        """Steps that are run forward, the first sweep counted in."""
        return sum(action.stop - action.start for action in self.actions if isinstance(action, Forward))

    @property
    def saves(self) -> int:
        """Snapshots that are taken over the whole reversal."""
        return sum(isinstance(action, Save) for action in self.actions)

    @property
    def peak_snapshots(self) -> int:
        """Snapshots that are alive at one time, at most."""
        alive = peak = 0
        for action in self.actions:
            alive += isinstance(action, Save) - isinstance(action, Drop)
            peak = max(peak, alive)
        return peak

    def __str__(self) -> str:
        return self.name

    def to_text(self) -> str:
        """Write the actions in short: S is Save, F Forward, R Restore, D Drop and B Backward."""
        return " ".join(f"{type(action).__name__[0]}{':'.join(map(str, action))}" for action in self.actions)

    @classmethod
    def from_text(cls, steps: int, text: str, name: str = "foreign") -> "Foreign":
        """Read actions that `to_text` wrote.

        Examples
        --------
        >>> Foreign.from_text(1, "S0 F0:1 R0 D0 B0").actions[1]
        Forward(start=0, stop=1)
        """
        kinds = {kind.__name__[0]: kind for kind in (Save, Forward, Restore, Drop, Backward)}
        try:
            actions = tuple(kinds[word[0]](*map(int, word[1:].split(":"))) for word in text.split())
        except (KeyError, ValueError, TypeError) as error:
            raise ScheduleError(f"these are not actions of a schedule: {text[:40]!r}") from error
        return check(cls(steps, actions, name))


def foreign(schedule: Any, steps: int | None = None) -> Foreign:
    """Translate a schedule of the checkpoint_schedules library, or take down the actions of a `Schedule` of your own.

    Their turn keeps the state of the last step in work storage beside all snapshots. Here that state is recomputed
    from the latest snapshot instead, which takes a few forward steps and no memory.

    Parameters
    ----------
    schedule
        Any checkpoint_schedules object that has not been iterated over yet, which is left as it is; or a `Schedule`,
        which is iterated over once.
    steps
        The number of steps, where the object does not know it.

    Examples
    --------
    >>> from checkpoint_schedules import MultistageCheckpointSchedule
    >>> schedule = foreign(MultistageCheckpointSchedule(3751, 8, 0))
    >>> schedule.saves, schedule.peak_snapshots
    (1716, 8)
    """
    if isinstance(schedule, Schedule):
        return check(Foreign(schedule.steps, tuple(schedule), str(schedule)))
    name = type(schedule).__name__
    if not hasattr(schedule, "max_n"):
        raise ScheduleError(f"{schedule!r} is no schedule: give a name, a schedule or a checkpoint_schedules object")
    if hasattr(schedule, "iter"):
        raise ScheduleError(f"this {name} has been iterated over and cannot start again: make a new one")
    schedule = copy.deepcopy(schedule)
    steps = schedule.max_n if steps is None else steps
    if steps is None:
        raise ScheduleError(f"{name} does not know the number of steps: give foreign(schedule, steps=...)")
    if schedule.max_n not in (None, steps):
        raise ScheduleError(f"{name} was made for {schedule.max_n} steps, not {steps}")
    return check(Foreign(steps, tuple(_with_drops(list(_translate(schedule, steps)))), name))


def _translate(schedule: Any, steps: int) -> Iterator[Action]:
    """Yield our actions for theirs, without drops."""
    latest: int | None = None  # the latest snapshot, from which the state before the last step is recomputed
    in_storage: set[int] = set()  # steps whose states their work storage holds, several at once
    turned = False
    for action in schedule:
        kind = type(action).__name__
        if kind == "Forward":
            start, stop = int(action.n0), min(int(action.n1), steps)
            in_work = action.storage.name in ("WORK", "NONE")
            if action.write_adj_deps and (stop - start > 1 or not in_work):
                for step in range(start, stop):
                    yield Save(step)
                    yield Forward(step, step + 1)
                latest = stop - 1
                in_storage.update(range(start, stop) if in_work else ())
            else:
                if latest is None or (action.write_ics and not in_work):
                    yield Save(start)
                    latest = start
                if not action.write_adj_deps:
                    yield Forward(start, stop)
                elif not turned:
                    yield Forward(start, stop)
                    yield Restore(latest)
                    if latest < start:
                        yield Forward(latest, start)
            if stop == steps and schedule.max_n is None:
                schedule.finalize(steps)
        elif kind in ("Copy", "Move") and action.to_storage.name == "WORK":
            yield Restore(int(action.n))
        elif kind == "Reverse":
            for step in range(int(action.n1) - 1, int(action.n0) - 1, -1):
                if step in in_storage:
                    yield Restore(step)
                yield Backward(step)
        elif kind == "EndForward":
            turned = True
        elif kind == "EndReverse":
            return


def _with_drops(actions: list[Action]) -> Iterable[Action]:
    """Drop each snapshot right after its last restore, and do not take those that are never restored."""
    kept: list[Action] = []
    used: set[int] = set()
    for action in reversed(actions):
        if isinstance(action, Restore) and action.step not in used:
            used.add(action.step)
            kept.append(Drop(action.step))
        if isinstance(action, Save):
            if action.step not in used:
                continue
            used.discard(action.step)
        kept.append(action)
    return reversed(kept)
