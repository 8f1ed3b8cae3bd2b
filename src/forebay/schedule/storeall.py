"""Keep every state: nothing is recomputed."""

from dataclasses import dataclass, field

from forebay.schedule.segmented import Segmented, check_steps, take_whole


@dataclass(frozen=True)
class StoreAll(Segmented):
    """Keep the state of every step.

    Examples
    --------
    >>> schedule = StoreAll(100)
    >>> schedule.forward_steps, schedule.peak_snapshots
    (100, 100)
    """

    steps: int
    interval: int = field(default=1, init=False, repr=False)
    inner: int = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        take_whole(self, "steps")
        check_steps(self.steps)

    def __str__(self) -> str:
        return "storeall"
