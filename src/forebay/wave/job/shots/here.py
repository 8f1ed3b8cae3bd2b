"""Shots in this process: many together; or the next one read or modelled, and the last written, beside one."""

import math
import warnings
from collections import deque
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Any

from forebay.errors import BudgetError
from forebay.planner import Plan
from forebay.tasks import ThreadTask, Workers
from forebay.wave.advice import WaveWarning
from forebay.wave.job.place import batch_of, leaves, stream_apart
from forebay.wave.job.progress import ProgressBars
from forebay.wave.job.shots.attempt import alone, computed_shot, hopeless, writing_down
from forebay.wave.job.shots.kind import ComputedShot
from forebay.wave.job.shots.kinds import kind_of
from forebay.wave.job.stack import PartialImage
from forebay.wave.job.work import steps_of
from forebay.wave.job.workspace import Workspace
from forebay.wave.survey.geometry import part_of

IMAGES = 6
"""Arrays of an image's size that are held until a shot is written: image and illumination, and what fades them out."""
GATHERS = 3
"""Arrays of the size of a shot's data that are held when they are read: as in the file, finite, and muted."""
AHEAD = 2
"""Shots that are read or modelled ahead, each by a thread: they keep a GPU busy while the host is between two."""
STATES = 2
"""Bytes of a GPU that modelling works with, in those of its state: with what it travels through."""
BYTES = 4
"""of a number"""

_PLANS: dict[tuple[str, type, int], Plan] = {}
"""Those of shots that advance together, by run, kind of work and how many: passes of one run share them."""


@dataclass(frozen=True)
class Attempt:
    """A shot, and how often it may be tried again."""

    shot: int
    left: int


Written = tuple[float, PartialImage | None]
"""Of a shot that was taken: the seconds it took, and the image that was written, if it is one."""


def shots_here(
    workspace: Workspace, todo: list[int], bars: ProgressBars, taken: Callable[..., None] = lambda *about: None
) -> dict[int, str]:
    """Do the work on shots one after the other, and return which failed and why; raise what all would meet.

    `taken` is called with each shot that is finished, and its image if it is one.
    """
    shots = _Shots(workspace, todo, bars, taken)
    reading, writing = closing(Workers(AHEAD, "forebay-read")), closing(Workers(1, "forebay-write"))
    with warnings.catch_warnings(), reading as reader, writing as writer:
        warnings.simplefilter("ignore", WaveWarning)  # the job's notes have told it, and threads share what is ignored
        shots.run_together()
        shots.run(reader, writer)
    return shots.failed


class _Shots:
    """What is left to do, under way and failed."""

    def __init__(self, workspace: Workspace, todo: list[int], bars: ProgressBars, taken: Callable[..., None]) -> None:
        self.workspace, self.bars, self.taken, self.kind = workspace, bars, taken, kind_of(workspace.work)
        self.stream, self.first = (stream_apart(workspace.described.device, first=first) for first in (False, True))
        self.waiting = deque(Attempt(shot, workspace.described.job.run.retries) for shot in todo)
        self.ahead = workspace.ahead
        """what is read of shots to come"""
        self.behind: tuple[Attempt, ThreadTask[Written]] | None = None
        """the shot that is written"""
        self.failed: dict[int, str] = {}

    def run_together(self) -> None:
        """Compute shots that advance together; those of a batch that fails are left, and so is who makes the plan."""
        if not self.kind.reverses:
            return
        described, left = self.workspace.described, list[Attempt]()
        grid, steps = part_of(described.grid, self.workspace.boxes[0]), steps_of(self.workspace)[0]
        most = batch_of(described.job, described.device, grid, steps, described.every)
        if self.workspace.plan() is None and self.waiting:
            left.append(self.waiting.popleft())
        for other in [key for key in _PLANS if key[0] != self.workspace.run]:
            del _PLANS[other]
        batches = -(-len(self.waiting) // most) if min(most, len(self.waiting)) > 1 else 0
        for number in range(batches):
            batch = [self.waiting.popleft() for _ in range(-(-len(self.waiting) // (batches - number)))]
            count, shots = len(batch), [attempt.shot for attempt in batch]
            key = self.workspace.run, type(self.kind), count
            try:
                with alone(None):
                    computed, _PLANS[key] = self.kind.together(self.workspace, shots, _PLANS.get(key), self.bars.steps)
            except Exception as error:
                left += batch
                self.bars.failed(shots[0], f"with {count - 1} others: {type(error).__name__}: {error}", again=True)
                continue
            self.workspace.settled()
            for attempt, shot in zip(batch, computed, strict=True):
                try:
                    self._finish(attempt, _write(self.workspace, [shot]))
                except Exception as error:
                    self._fail(attempt, error)
        self.waiting.extendleft(reversed(left))

    def run(self, reader: Workers, writer: Workers) -> None:
        """Compute all shots in this thread, and have them read and written by others."""
        while self.waiting:
            attempt = self.waiting.popleft()
            for coming in islice(self.waiting, AHEAD if room_for_two(self.workspace) else 0):
                if coming.shot not in self.ahead:
                    self.ahead[coming.shot] = reader.submit(self._read, coming.shot)
            if self.workspace.plan() is None:
                for read in self.ahead.values():
                    read.exception()  # which is over then: steps that a plan is made by are timed alone
            computed = self._compute(attempt)
            self.workspace.take_plan()  # which the next one needs, while this one is written
            self._settle()
            if computed:
                self.behind = attempt, writer.submit(self._write, computed)
            if not self.waiting or not room_for_two(self.workspace):
                self._settle()

    def _write(self, computed: list[ComputedShot]) -> Written:
        """Write a shot, which a GPU may have, once the inputs are on the disk."""
        self.workspace.settled()
        with self.stream():
            return _write(self.workspace, computed)

    def _read(self, shot: int) -> Any:
        """Read a shot; a GPU with room for it models its data beside another one."""
        with self.stream():
            return self.kind.inputs(self.workspace, shot, models=models_ahead(self.workspace))

    def _compute(self, attempt: Attempt) -> list[ComputedShot]:
        """Compute a shot; return none where it fails."""
        shot = attempt.shot
        try:
            with self.first(), writing_down(self.workspace, shot):
                return [computed_shot(self.workspace, shot, tell=self._tell, ahead=self.ahead.pop(shot, None))]
        except Exception as error:
            self._fail(attempt, error)
            return []
        except BaseException:  # Ctrl-C, or SIGTERM on the command line
            self.workspace.take_failure(shot)
            raise

    def _tell(self, shot: int, done: int) -> None:
        """Show how far a shot is, and that the one before is written, once it is."""
        self.bars.steps(shot, done)
        if self.behind is not None and self.behind[1].done():
            self._settle()

    def _settle(self) -> None:
        """Wait until the shot behind is written, and show it."""
        if self.behind is None:
            return
        if self.behind[1].exception() is not None:
            self.workspace.settled()  # else no shot can be written
        (attempt, written), self.behind = self.behind, None
        if (error := written.exception()) is not None:
            self._fail(attempt, error)
        else:
            self._finish(attempt, written.result())

    def _finish(self, attempt: Attempt, written: Written) -> None:
        """Show that a shot is finished, and tell whoever waits for it."""
        seconds, image = written
        self.bars.finished(attempt.shot, seconds)
        self.taken(attempt.shot, image)

    def _fail(self, attempt: Attempt, error: BaseException) -> None:
        """Have a shot tried again, or let it be; the error itself is let go: its frames hold the arrays of the shot."""
        shot = attempt.shot
        self.workspace.take_failure(shot)
        if isinstance(error, BudgetError) and self.workspace.plan() is None:
            raise error
        reason, again = f"{type(error).__name__}: {error}", attempt.left > 0 and not hopeless(error)
        self.bars.failed(shot, reason, again)
        if again:
            self.waiting.appendleft(Attempt(shot, attempt.left - 1))
        else:
            self.failed[shot] = reason


def room_for_two(workspace: Workspace) -> bool:
    """Tell whether the plan for all shots leaves room in its budget for what is read ahead and written behind."""
    plan = workspace.plan()
    return plan is not None and leaves(plan, "host", held_beside(workspace))  # checkpointed shots have each their own


def held_beside(workspace: Workspace) -> int:
    """Return the bytes of what is read ahead of a shot and written behind it."""
    described, geometry = workspace.described, workspace.geometry
    fields = sum(name.startswith(("model/", "true/")) for name in described.inputs)
    points: int = math.prod(side.stop - side.start for side in workspace.boxes[0])
    gathers = GATHERS * geometry.most_receivers * max(len(workspace.wavelet), steps_of(workspace)[0])
    return BYTES * (IMAGES * points + AHEAD * (fields * points + gathers))


def models_ahead(workspace: Workspace) -> bool:
    """Tell whether a GPU has room to model the data of the next shots beside this one; on a CPU all would be slower."""
    plan, described = workspace.plan(), workspace.described
    if plan is None or described.device == "cpu" or described.job.data.file is not None:
        return False
    heard = BYTES * workspace.geometry.most_receivers * steps_of(workspace)[0]
    return leaves(plan, "device", AHEAD * (STATES * plan.state_bytes + heard))


def _write(workspace: Workspace, computed: list[ComputedShot]) -> Written:
    """Write a shot and take it over."""
    shot = computed.pop()  # so that its arrays go when they are written
    with writing_down(workspace, shot.number):
        image = shot.write(workspace)
        workspace.take(shot.number)
    return float(shot.summary["seconds"]), image
