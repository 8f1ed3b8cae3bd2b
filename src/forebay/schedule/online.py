"""Online: the reversal of a loop whose end is not known before it is there.

The first sweep keeps snapshots while it does not know how far it goes. With s snapshots, the stretch behind the i-th of
those kept (from 0) is later reversed with s - i of them, so beta(s - i, r - 1) steps is its reach: so long it may be if
no state is to be reached more than r times in all. The last stretch grows to its reach, and a snapshot is kept there.
Where no slot is free, the latest two neighbours that are within reach together become one, and the snapshot between
them is dropped. Where there are none, r grows.

Reaches add up to beta(s, r) steps, as many as a schedule that knows the end reverses with r. So r does not grow before
it has to. Forward runs at most 1.15 times the steps of Revolve, and 1.28 times in loops of up to 50 steps; the tests
say so of ends up to 100,000 steps. Levels as in Wang, Moin and Iaccarino, "Minimal repetition dynamic checkpointing
algorithm for unsteady adjoint calculation", SIAM J. Sci. Comput. 31 (2009), make r as small, but keep a snapshot at
every step and thin out sooner.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from forebay.errors import ScheduleError
from forebay.schedule import binomial
from forebay.schedule.actions import Action, Drop, Forward, Restore, Save, Schedule
from forebay.schedule.segmented import check_steps, take_whole


@dataclass(frozen=True)
class Online(Schedule):
    """What a reversal does that finds out in its first sweep that the loop has `steps` steps.

    Examples
    --------
    >>> Online(3751, 8).forward_steps, binomial.forward_steps(3752, 8)
    (21666, 21259)
    """

    steps: int
    snapshots: int

    def __post_init__(self) -> None:
        take_whole(self, "steps", "snapshots")
        check_steps(self.steps)
        if self.snapshots < 1:
            raise ScheduleError(f"a reversal needs at least one snapshot, the state at step 0, not {self.snapshots}")

    def __str__(self) -> str:
        return f"online:{self.snapshots}"

    def sweep(self) -> Iterator[Action]:
        """Yield the actions up to the turn; one that makes room for what would follow may come before it is known."""
        actions = unending(self.snapshots)
        for action in actions:
            if isinstance(action, Forward) and action.stop >= self.steps:
                yield Forward(action.start, self.steps)
                following = next(actions)
                if action.stop == self.steps and isinstance(following, Drop):
                    yield following
                return
            yield action

    @property
    def kept(self) -> list[int]:
        """The steps of the snapshots that are alive when the way back begins."""
        return list(self._swept[0])

    def back(self) -> Iterator[Action]:
        """Yield the actions that follow the sweep."""
        return back(self.kept, self.steps, self.snapshots)

    def __iter__(self) -> Iterator[Action]:
        yield from self.sweep()
        yield from self.back()

    @cached_property
    def _swept(self) -> tuple[list[int], int, int]:
        """The snapshots at the turn, and the actions and saves of the sweep up to there."""
        kept: dict[int, None] = {}
        actions = saves = 0
        for action in self.sweep():
            actions += 1
            if isinstance(action, Save):
                kept[action.step] = None
                saves += 1
            elif isinstance(action, Drop):
                del kept[action.step]
        return list(kept), actions, saves

    def _stretches(self) -> Iterator[tuple[int, int]]:
        """Yield the visits of each stretch at the turn, and its snapshots."""
        kept = self._swept[0]
        for number, (start, stop) in enumerate(zip(kept, [*kept[1:], self.steps], strict=True)):
            yield stop - start, self.snapshots - number

    def __len__(self) -> int:
        # A stretch of v visits has v restores and backwards and v - 1 forwards, and drops its own snapshot too.
        inside = sum(3 * visits + 2 * (binomial.saves(visits, some) - 1) for visits, some in self._stretches())
        return self._swept[1] + inside

    @property
    def forward_steps(self) -> int:
        """Steps that are run forward, the first sweep counted in."""
        return self.steps + sum(binomial.forward_steps(visits, some) for visits, some in self._stretches())

    @property
    def saves(self) -> int:
        """Snapshots that are taken over the whole reversal."""
        return self._swept[2] + sum(binomial.saves(visits, some) - 1 for visits, some in self._stretches())

    @property
    def peak_snapshots(self) -> int:
        """Snapshots that are alive at one time, at most."""
        return min(self.snapshots, self.steps)


def unending(snapshots: int) -> Iterator[Save | Drop | Forward]:
    """Yield the actions of a first sweep, as long as they are asked for: whoever runs them knows when it is over."""
    kept, step, passes = [0], 0, 1
    reach = [1]  # steps of the stretch behind each of those kept, at most
    yield Save(0)
    while True:
        last = len(kept) - 1
        if step < (stop := kept[last] + reach[last]):
            yield Forward(step, stop)
            step = stop
        elif len(kept) < snapshots:
            yield Save(step)
            reach.append(binomial.beta(snapshots - len(kept), passes - 1))
            kept.append(step)
        elif middle := between_neighbours(kept, step, reach):
            reach.pop()
            yield Drop(kept.pop(middle))
        else:
            passes += 1 if snapshots > 1 else passes  # one snapshot reaches as far as one likes
            reach = [binomial.beta(snapshots - number, passes - 1) for number in range(len(kept))]


def between_neighbours(kept: Sequence[int], stop: int, reach: Sequence[int]) -> int:
    """Find the snapshot between the latest two stretches that are within reach as one; 0 where there are none."""
    for middle in range(len(kept) - 1, 0, -1):
        if stop - kept[middle - 1] <= reach[middle - 1]:
            return middle
        stop = kept[middle]
    return 0


def back(
    kept: Sequence[int],
    steps: int,
    snapshots: int,
    retained: Collection[int] = (),
    splits: Callable[[int, int, int], int] | None = None,
) -> Iterator[Action]:
    """Yield the actions that reverse a loop from the snapshots alive at its turn, of which some may be retained.

    Each stretch takes the slots that are free by then, and is reversed in the fewest steps with them; or as `splits`
    says, which is as for `binomial.reverse`.

    Examples
    --------
    >>> list(back([0, 1], 2, 2))[:3]
    [Restore(step=1), Drop(step=1), Backward(step=1)]
    """
    stop, beside = steps, len(retained) + sum(step not in retained for step in kept)
    for start in reversed(kept):
        beside -= start not in retained  # the snapshots that are alive beside those of this stretch
        some = snapshots - beside + (start in retained)
        yield Restore(start)
        if stop - start == 1 and start not in retained:
            yield Drop(start)
        for action in binomial.reverse(start, stop - start, min(some, stop - start), steps, splits):
            if not (isinstance(action, Drop) and action.step in retained):
                yield action
        stop = start


def retainable(kept: Sequence[int], steps: int, snapshots: int) -> list[list[int]]:
    """List choices of snapshots that could be retained for ways back to come, the best for those first.

    Examples
    --------
    >>> retainable([0, 10, 20, 30, 38], 40, 9)[0]
    [0, 10, 20, 30]
    """
    sizes, choices = [1], []
    while sizes[-1] < len(kept):
        sizes.append(min(len(kept), sizes[-1] * 5 // 4 + 1))
    for size in sizes:
        chosen = sorted({kept[bisect_right(kept, number * steps // size) - 1] for number in range(size)})
        lengths = (stop - start for start, stop in zip(chosen, [*chosen[1:], steps], strict=True))
        some = snapshots - len(chosen) + 1
        choices.append((sum(binomial.forward_steps(length, some) for length in lengths), len(chosen), chosen))
    return [chosen for _, _, chosen in sorted(choices)]
