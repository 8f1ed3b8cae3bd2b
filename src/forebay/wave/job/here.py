"""Shots in this process: many together; or the next one read or modelled, and the last written, beside one."""

import math
import warnings
from collections import deque
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from time import perf_counter

from forebay.errors import BudgetError
from forebay.planner import Plan
from forebay.tasks import ThreadTask, Workers
from forebay.wave.advice import WaveWarning
from forebay.wave.job.place import batch_of, budget_of, leaves, stream_apart
from forebay.wave.job.progress import ProgressBars
from forebay.wave.job.work import (
    MigratedShot,
    ShotInputs,
    StepListener,
    alone,
    finished_shot,
    hopeless,
    inputs_of,
    migrated_shot,
    model_of,
    muted,
    options_of,
    shot_of,
    steps_of,
    writing_down,
)
from forebay.wave.job.workspace import Workspace
from forebay.wave.migrate import migrate
from forebay.wave.simulate import simulate
from forebay.wave.survey.geometry import part_of

IMAGES = 6
"""Arrays of an image's size that are held until a shot is written: image and illumination, and what fades them out."""
GATHERS = 3
"""Arrays of the size of a shot's data that are held when they are read: as in the file, finite, and muted."""
STATES = 2
"""Bytes of a GPU that modelling works with, in those of its state: with what it travels through."""
BYTES = 4
"""of a number"""


@dataclass(frozen=True)
class Attempt:
    """A shot, and how often it may be tried again."""

    shot: int
    left: int


def shots_here(workspace: Workspace, todo: list[int], bars: ProgressBars) -> dict[int, str]:
    """Migrate shots one after the other, and return which failed and why; raise what all would meet."""
    shots = _Shots(workspace, todo, bars)
    reading, writing = closing(Workers(1, "forebay-read")), closing(Workers(1, "forebay-write"))
    with warnings.catch_warnings(), reading as reader, writing as writer:
        warnings.simplefilter("ignore", WaveWarning)  # the job's notes have told it, and threads share what is ignored
        shots.run_together()
        shots.run(reader, writer)
    return shots.failed


class _Shots:
    """What is left to do, under way and failed."""

    def __init__(self, workspace: Workspace, todo: list[int], bars: ProgressBars) -> None:
        self.workspace, self.bars = workspace, bars
        self.stream = stream_apart(workspace.described.device)
        self.waiting = deque(Attempt(shot, workspace.described.job.run.retries) for shot in todo)
        self.ahead: dict[int, ThreadTask[ShotInputs]] = {}
        """what is read of shots to come"""
        self.behind: tuple[Attempt, ThreadTask[float]] | None = None
        """the shot that is written, whose task returns the seconds it took"""
        self.failed: dict[int, str] = {}

    def run_together(self) -> None:
        """Compute shots that advance together; those of a batch that fails are left, and so is who makes the plan."""
        described, left = self.workspace.described, list[Attempt]()
        grid, steps = part_of(described.grid, self.workspace.boxes[0]), steps_of(self.workspace)[0]
        most = batch_of(described.job, described.device, grid, steps, described.every)
        if self.workspace.plan() is None and self.waiting:
            left.append(self.waiting.popleft())
        plans: dict[int, Plan] = {}
        batches = -(-len(self.waiting) // most) if min(most, len(self.waiting)) > 1 else 0
        for number in range(batches):
            batch = [self.waiting.popleft() for _ in range(-(-len(self.waiting) // (batches - number)))]
            count, shots = len(batch), [attempt.shot for attempt in batch]
            try:
                migrated, plans[count] = _together(self.workspace, shots, plans.get(count), self.bars.steps)
            except Exception as error:
                left += batch
                self.bars.failed(shots[0], f"with {count - 1} others: {type(error).__name__}: {error}", again=True)
                continue
            for attempt, shot in zip(batch, migrated, strict=True):
                try:
                    self.bars.finished(attempt.shot, _write(self.workspace, [shot]))
                except Exception as error:
                    self._fail(attempt, error)
        self.waiting.extendleft(reversed(left))

    def run(self, reader: Workers, writer: Workers) -> None:
        """Compute all shots in this thread, and have them read and written by others."""
        while self.waiting:
            attempt, overlaps = self.waiting.popleft(), room_for_two(self.workspace)
            if overlaps and self.waiting and (coming := self.waiting[0].shot) not in self.ahead:
                self.ahead[coming] = reader.submit(self._read, coming)
            migrated = self._compute(attempt)
            self._settle()
            if migrated:
                self.behind = attempt, writer.submit(_write, self.workspace, migrated)
            if not overlaps or not self.waiting:
                self._settle()  # before the next one begins, which may need its plan

    def _read(self, shot: int) -> ShotInputs:
        """Read a shot; a GPU with room for it models its data beside another one."""
        with self.stream():
            return inputs_of(self.workspace, shot, models=models_ahead(self.workspace))

    def _compute(self, attempt: Attempt) -> list[MigratedShot]:
        """Migrate a shot; return none where it fails."""
        shot = attempt.shot
        try:
            with writing_down(self.workspace, shot):
                return [migrated_shot(self.workspace, shot, tell=self._tell, ahead=self.ahead.pop(shot, None))]
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
        (attempt, written), self.behind = self.behind, None
        if (error := written.exception()) is not None:
            self._fail(attempt, error)
        else:
            self.bars.finished(attempt.shot, written.result())

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


def _together(
    workspace: Workspace, numbers: Sequence[int], plan: Plan | None, tell: StepListener
) -> tuple[list[MigratedShot], Plan]:
    """Migrate shots that advance together, by the plan of as many or by another one, which is returned too."""
    described, start, count = workspace.described, perf_counter(), len(numbers)
    job, all_steps = described.job, steps_of(workspace)[1]
    inputs = [inputs_of(workspace, number) for number in numbers]
    shots = [shot_of(workspace, number) for number in numbers]
    data = [own.data for own in inputs]
    with alone(None):
        if job.data.file is None:
            true = [model_of(workspace, each, own.media["true"]) for each, own in zip(numbers, inputs, strict=True)]
            heard = simulate(shots, true, dt=described.step, order=job.physics.order)
            data = [muted(workspace, own, shot) for own, shot in zip(heard, shots, strict=True)]
        shots = [shot.with_data(own) for shot, own in zip(shots, data, strict=True)]
        recorded = perf_counter()
        migrations = migrate(
            shots,
            [model_of(workspace, each, own.media["model"]) for each, own in zip(numbers, inputs, strict=True)],
            **options_of(workspace),
            condition=lambda source, receiver, step: tell(numbers[0], count * (all_steps - step)),  # the first for all
            plan=plan,
            budget=budget_of(job, described.device, None) if plan is None else None,
            schedule=job.memory.schedule,
            reversals=-(-workspace.geometry.count // count),
        )
    seconds = (perf_counter() - start) / count, (recorded - start) / count
    about = zip(numbers, shots, migrations, inputs, strict=True)
    done = [
        finished_shot(workspace, number, shot, migration, seconds, own.dropped, count)
        for number, shot, migration, own in about
    ]
    return done, migrations[0].result.plan


def room_for_two(workspace: Workspace) -> bool:
    """Tell whether the plan for all shots leaves room in its budget for what is read ahead and written behind."""
    plan = workspace.plan()
    if plan is None:  # the first shot makes it; with checkpoints each has its own
        return False
    described, geometry = workspace.described, workspace.geometry
    fields = sum(name.startswith(("model/", "true/")) for name in described.inputs)
    points = math.prod(side.stop - side.start for side in workspace.boxes[0])
    gathers = GATHERS * geometry.most_receivers * max(len(workspace.wavelet), steps_of(workspace)[0])
    return leaves(plan, "host", BYTES * ((IMAGES + fields) * points + gathers))


def models_ahead(workspace: Workspace) -> bool:
    """Tell whether a GPU has room to model the data of the next shot beside this one; on a CPU both would be slower."""
    plan, described = workspace.plan(), workspace.described
    if plan is None or described.device == "cpu" or described.job.data.file is not None:
        return False
    heard = BYTES * workspace.geometry.most_receivers * steps_of(workspace)[0]
    return leaves(plan, "device", STATES * plan.state_bytes + heard)


def _write(workspace: Workspace, migrated: list[MigratedShot]) -> float:
    """Write a shot, take it over, and return the seconds it took."""
    shot = migrated.pop()  # so that its image goes when it is written
    with writing_down(workspace, shot.number):
        shot.write(workspace)
        workspace.take(shot.number)
    return float(shot.summary["seconds"])
