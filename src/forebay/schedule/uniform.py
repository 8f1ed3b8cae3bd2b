"""Evenly spaced snapshots, each backward step recomputed from the nearest one before it."""

from dataclasses import dataclass, field

from forebay.schedule.segmented import Segmented, check_snapshots, take_whole


@dataclass(frozen=True)
class Uniform(Segmented):
    """Keep one state every ceil(steps / snapshots) steps, and nothing between.

    Examples
    --------
    >>> schedule = Uniform(100, 25)
    >>> schedule.interval, schedule.peak_snapshots, schedule.forward_steps
    (4, 25, 250)
    """

    steps: int
    snapshots: int
    interval: int = field(init=False, repr=False)
    inner: int = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        take_whole(self, "steps", "snapshots")
        check_snapshots(self.steps, self.snapshots)
        object.__setattr__(self, "interval", -(-self.steps // self.snapshots))

    def __str__(self) -> str:
        return f"uniform:{self.snapshots}"
