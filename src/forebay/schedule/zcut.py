"""zCut: cut the loop, keep one major snapshot a cut, and save every step of the cut that is being reversed.

zCut is unpublished. This is a reconstruction from what GPUZIP's authors say of it in public: majors and inner
snapshots share the number of snapshots there is, M + k = snapshots with k = steps / M, M as large as possible.
"""

from dataclasses import dataclass, field
from math import isqrt

from forebay.errors import ScheduleError
from forebay.schedule.segmented import Segmented, check_steps, take_whole


@dataclass(frozen=True)
class ZCut(Segmented):
    """Two levels that share `snapshots`: majors, and all the steps of one cut.

    Examples
    --------
    >>> schedule = ZCut(3751, 149)
    >>> schedule.majors, schedule.interval
    (114, 33)
    """

    steps: int
    snapshots: int
    interval: int = field(init=False, repr=False)
    inner: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        take_whole(self, "steps", "snapshots")
        check_steps(self.steps)
        most = self.steps + 1  # every step a major, and one inner snapshot
        if self.snapshots > most:
            raise ScheduleError(f"{self.snapshots} snapshots are more than zcut can use: give {most} or fewer")
        fewest = fewest_snapshots(self.steps)
        if self.snapshots < fewest:
            raise ScheduleError(
                f"zcut needs at least 2 sqrt(steps) snapshots, {fewest} for {self.steps} steps, not {self.snapshots}: "
                f"give {fewest}, or use 'revolve:{max(self.snapshots, 1)}', which works with any number"
            )
        interval = next(k for k in range(1, self.steps + 1) if -(-self.steps // k) + k <= self.snapshots)
        object.__setattr__(self, "interval", interval)
        object.__setattr__(self, "inner", interval - 1)

    def __str__(self) -> str:
        return f"zcut:{self.snapshots}"


def fewest_snapshots(steps: int) -> int:
    """Return the least number of snapshots that zCut works with: 2 sqrt(steps), rounded up."""
    return isqrt(4 * steps - 1) + 1
