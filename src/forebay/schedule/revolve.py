"""Revolve: the fewest forward steps that a number of snapshots allows."""

from dataclasses import dataclass, field

from forebay.schedule.segmented import Segmented, check_snapshots, take_whole


@dataclass(frozen=True)
class Revolve(Segmented):
    """The binomial schedule of Griewank and Walther over the whole loop, with the fewest saves among optimal ones.

    The first sweep goes to the end of the loop, where the turn needs the final state. So steps + 1 states are
    visited, and the forward steps are the binomial optimum of that many visits. The state at step 0 is one of the
    snapshots.

    Examples
    --------
    >>> schedule = Revolve(3751, 8)
    >>> schedule.forward_steps, schedule.saves, schedule.peak_snapshots
    (21259, 1716, 8)
    """

    steps: int
    snapshots: int
    interval: int = field(init=False, repr=False)
    inner: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        take_whole(self, "steps", "snapshots")
        check_snapshots(self.steps, self.snapshots)
        object.__setattr__(self, "interval", self.steps)
        object.__setattr__(self, "inner", self.snapshots - 1)

    def __str__(self) -> str:
        return f"revolve:{self.snapshots}"
