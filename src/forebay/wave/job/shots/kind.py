"""What can be done with each shot of a job: one kind of work is one object that answers `ShotKind`."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from forebay.planner import Plan
from forebay.tasks import ThreadTask
from forebay.units import Budget
from forebay.wave.job.stack import PartialImage
from forebay.wave.job.workspace import Workspace

StepListener = Callable[[int, int], None]
"""``tell(shot, done)`` hears how many steps of a shot are done."""


class ComputedShot(Protocol):
    """A shot that is computed, and not yet written."""

    @property
    def number(self) -> int:
        """Of the shot."""

    @property
    def summary(self) -> dict[str, Any]:
        """What it tells of itself: its number and its seconds at least."""

    def write(self, workspace: Workspace) -> PartialImage | None:
        """Write what was computed for the run to take; return the image that was written, if it is one."""


class ShotKind(Protocol):
    """A kind of work."""

    @property
    def reverses(self) -> bool:
        """Whether a shot is a reversal, so that the plan of the first one serves all others."""

    def steps(self, workspace: Workspace) -> int:
        """Return the steps of a shot, of all its ways."""

    def inputs(self, workspace: Workspace, number: int, *, models: bool = False) -> Any:
        """Read what a shot is computed from; with `models`, compute its data too where they are not read."""

    def compute(
        self,
        workspace: Workspace,
        number: int,
        budget: Budget | None,
        tell: StepListener,
        ahead: ThreadTask[Any] | None,
    ) -> ComputedShot:
        """Compute one shot, of which `ahead` has its inputs, or is reading them."""

    def together(
        self, workspace: Workspace, numbers: Sequence[int], plan: Plan | None, tell: StepListener
    ) -> tuple[Sequence[ComputedShot], Plan]:
        """Compute shots that advance together, by the plan of as many or by another one, which is returned too."""

    def check(self, workspace: Workspace, number: int) -> None:
        """Refuse a finished shot that is damaged."""
