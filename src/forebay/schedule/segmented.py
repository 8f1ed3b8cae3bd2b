"""What all our schedules are: a snapshot every `interval` steps, and a binomial reversal inside each segment."""

from collections.abc import Callable, Iterator
from numbers import Integral
from typing import TypeVar

from forebay.errors import ScheduleError
from forebay.schedule import binomial
from forebay.schedule.actions import Action, Drop, Forward, Restore, Save, Schedule
from forebay.units import short

Number = TypeVar("Number", int, float)


class Segmented(Schedule):
    """A schedule of segments of `interval` steps, each reversed with `inner` snapshots beside its first one.

    Storing everything, uniform spacing, zCut and Revolve are its corners; each is named in a file of its own.
    """

    interval: int
    """Steps from one major snapshot to the next."""
    inner: int
    """Further snapshots inside the segment that is being reversed."""

    @property
    def majors(self) -> int:
        """Snapshots that start a segment."""
        return -(-self.steps // self.interval)

    @property
    def last_start(self) -> int:
        """The last major's step."""
        return (self.majors - 1) * self.interval

    @property
    def last_visits(self) -> int:
        """States that are visited in the last segment: its own, and the final one at the turn."""
        return self.steps - self.last_start + 1

    def __iter__(self) -> Iterator[Action]:
        last, snapshots = self.last_start, self.inner + 1
        for start in range(0, last, self.interval):
            yield Save(start)
            yield Forward(start, start + self.interval)
        yield Save(last)
        yield from binomial.reverse(last, self.last_visits, snapshots, self.steps)
        for start in range(last - self.interval, -1, -self.interval):
            yield Restore(start)
            if self.interval == 1:
                yield Drop(start)
            yield from binomial.reverse(start, self.interval, snapshots, self.steps)

    def __len__(self) -> int:
        # Every visit but the turn is reached through one restore, and every forward ends in a visit or a save,
        # while every snapshot's own visit needs no forward: n forwards, n restores, n backwards.
        return 3 * self.steps + 2 * self.saves

    @property
    def forward_steps(self) -> int:
        """Steps that are run forward, the first sweep counted in."""
        last, inside = self.each_stretch(binomial.forward_steps)
        return self.last_start + last + inside * (self.majors - 1)

    @property
    def saves(self) -> int:
        """Snapshots that are taken over the whole reversal."""
        last, inside = self.each_stretch(binomial.saves)
        return last + inside * (self.majors - 1)

    @property
    def peak_snapshots(self) -> int:
        """Snapshots that are alive at one time, at most."""
        last, inside = self.each_stretch(binomial.live)
        return self.majors - 1 + max(last, inside - 1)

    @property
    def alive_at_turn(self) -> int:
        """Snapshots that are alive when the loop has reached its end."""
        return self.majors - 1 + binomial.live(self.last_visits, self.inner + 1)

    def each_stretch(self, count: Callable[[int, int], Number]) -> tuple[Number, Number]:
        """Apply a count of a binomial reversal (visits, snapshots) to the last segment and to any other."""
        return count(self.last_visits, self.inner + 1), count(self.interval, self.inner + 1)


def take_whole(schedule: Schedule, *names: str) -> None:
    """Make numbers of a schedule plain ints, as small ones of NumPy overflow; refuse what is not a whole number."""
    for name in names:
        check_count(value := getattr(schedule, name), name)
        object.__setattr__(schedule, name, int(value))


def check_steps(steps: int) -> None:
    """Refuse a loop without steps."""
    check_count(steps, "steps")
    if steps < 1:
        raise ScheduleError(f"a reversal needs at least one step, not {short(steps)}")


def check_count(value: object, what: str) -> None:
    """Refuse what is not a whole number."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise ScheduleError(f"{what} must be a whole number, not {value!r:.80}")


def check_snapshots(steps: int, snapshots: int) -> None:
    """Refuse a number of snapshots that no reversal of `steps` steps can use."""
    check_steps(steps)
    if snapshots < 1:
        raise ScheduleError(f"a reversal needs at least one snapshot, the state at step 0, not {short(snapshots)}")
    if snapshots > steps:
        raise ScheduleError(
            f"{short(snapshots)} snapshots are more than the {steps} states there are to keep: "
            f"give {steps} or fewer, or 'storeall'"
        )
