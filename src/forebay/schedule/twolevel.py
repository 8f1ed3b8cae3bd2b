"""Snapshots at a fixed interval for the slow tier, and a reversal of each segment in the fast one."""

from dataclasses import dataclass

from forebay.errors import ScheduleError
from forebay.schedule.segmented import Segmented, check_steps, take_whole


@dataclass(frozen=True)
class TwoLevel(Segmented):
    """Keep a state every `interval` steps, and reverse each segment with `inner` further snapshots.

    With an interval of about the transfer time over the step time, the major snapshots travel while the loop
    computes, and the work per step no longer depends on the number of steps. Without `inner`, every state
    of the segment that is being reversed is kept.

    Examples
    --------
    >>> schedule = TwoLevel(3751, interval=32)
    >>> schedule.majors, schedule.peak_snapshots, schedule.forward_steps
    (118, 147, 7378)
    >>> TwoLevel(3751, interval=32, inner=7).forward_steps
    10069
    """

    steps: int
    interval: int
    inner: int = -1

    def __post_init__(self) -> None:
        take_whole(self, "steps", "interval", "inner")
        check_steps(self.steps)
        if not 1 <= self.interval <= self.steps:
            raise ScheduleError(f"an interval of {self.interval} steps does not fit: give 1 to {self.steps}")
        if self.inner == -1:
            object.__setattr__(self, "inner", self.interval - 1)
        if not 0 <= self.inner < self.interval:
            raise ScheduleError(
                f"{self.inner} inner snapshots do not fit a segment of {self.interval} steps: "
                f"give 0 to {self.interval - 1}"
            )

    def __str__(self) -> str:
        return f"twolevel:{self.interval},{self.inner}"
