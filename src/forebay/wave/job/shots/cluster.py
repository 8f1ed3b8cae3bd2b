"""Shots as tasks of a Dask cluster: one of this machine's own, one that is there, or one worker for each GPU."""

import logging
import math
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from time import monotonic
from typing import Any

from forebay.cuda.available import gpu_count
from forebay.errors import BudgetError, CorruptionError, WaveError
from forebay.processors import processors
from forebay.units import Budget, to_text
from forebay.wave.job.pilot import run_pilot
from forebay.wave.job.progress import ProgressBars
from forebay.wave.job.shots.attempt import hopeless, try_shot
from forebay.wave.job.shots.kinds import kind_of
from forebay.wave.job.stack import PartialImage, tree_sum
from forebay.wave.job.tables import RunTable
from forebay.wave.job.work import steps_of
from forebay.wave.job.workspace import ShotWork, Workspace
from forebay.wave.survey.geometry import part_of

try:
    distributed: Any = import_module("distributed")
    dask_config: Any = import_module("dask.config")
except ImportError as error:  # pragma: no cover - an optional library
    raise WaveError("workers need Dask: install Forebay with its extra dask") from error

from forebay.dask.clusters import ask_workers, private_cluster
from forebay.dask.limits import limits_of

FIELDS = {("acoustic", 2): 12, ("acoustic", 3): 12, ("elastic", 2): 30, ("elastic", 3): 44}
"""Arrays of the fields' size that a shot works with, beside what it keeps: as measured of these, and a fifth more.

Those of other kinds were not measured. They have fewer fields than elastic ones, and are given as much."""
BYTES = 4
"""of a number"""
GATHERS = 5
"""Arrays of the size of a shot's data that it works with: read, limited in band, and at the steps of the loop."""
OFTEN = 0.5
"""Seconds from one word of a worker about its steps to the next."""
PATIENCE = "15s"
"""How long a scheduler may take to answer, and its first worker to come."""


@contextmanager
def existing(table: RunTable) -> Iterator["ShotCluster"]:
    """Find the cluster whose address is given."""
    try:
        client = distributed.Client(table.scheduler, timeout=PATIENCE)
    except (OSError, ValueError) as error:
        raise WaveError(
            f"run.scheduler: no Dask scheduler answers at {table.scheduler} ({error}): start one with "
            "`dask scheduler`, or take run.workers"
        ) from error
    with client:
        try:
            client.wait_for_workers(1, timeout=PATIENCE)
        except TimeoutError as error:
            why = _why_none_works(client, table.scheduler)
            raise WaveError(f"run.scheduler: nobody computes at {table.scheduler}: {why}") from error
        yield ShotCluster(client, table, None)


def _why_none_works(client: Any, address: str | None) -> str:
    if paused := client.scheduler_info(n_workers=-1)["workers"]:
        return (
            f"all of its {len(paused)} workers are paused, for their memory is nearly full: give them more with "
            "`dask worker --memory-limit`, or restart them"
        )
    return f"it has no workers: start some with `dask worker {address}`, or take run.workers"


@contextmanager
def local(table: RunTable, device: str, folder: Path) -> Iterator["ShotCluster"]:
    """Start a cluster on this machine, which nobody else can use, and whose workers keep their files in a folder."""
    cores, gpus = processors(), gpu_count()
    if device == "gpu" and table.workers > gpus:
        raise WaveError(f"run.workers: expected at most {gpus}, one for each GPU, not {table.workers}")
    start = partial(_start, table.workers, device, gpus)
    with dask_config.set({"temporary-directory": str(folder)}), private_cluster(start) as client:
        yield ShotCluster(client, table, max(1, cores // table.workers))


def _start(workers: int, device: str, gpus: int, security: Any) -> Any:
    quiet = {
        "dashboard_address": None,
        # Dask listens for requests of pages all the same, and without a port given on one that others have, too.
        "scheduler_kwargs": {"dashboard_address": "127.0.0.1:0"},
        "security": security,
        "silence_logs": logging.WARNING,  # and of that, what `private_cluster` lets pass
    }
    if device == "gpu" and gpus > 1:
        try:
            dask_cuda: Any = import_module("dask_cuda")
        except ImportError as error:
            raise WaveError("several GPUs need dask-cuda: pip install dask-cuda, or set run.workers = 0") from error
        return dask_cuda.LocalCUDACluster(n_workers=workers, **quiet)
    return distributed.LocalCluster(n_workers=workers, threads_per_worker=1, processes=True, **quiet)


@dataclass(frozen=True)
class ShotCluster:
    """A cluster at work on a job; its workers must see the job's directory."""

    client: Any
    table: RunTable
    threads: int | None
    """of each worker's loops; None leaves them as they are"""

    def gpus(self) -> int:
        """Count the GPUs that every worker has."""
        return min(ask_workers(self.client, gpu_count).values(), default=0)

    def shots(self, workspace: Workspace, todo: list[int], budget: Budget, bars: ProgressBars) -> dict[int, str]:
        """Do the work on shots, each tried as often as the job says, and tell which failed and why."""
        if not todo:
            return {}
        root, topic = self._root(workspace), f"forebay-steps-{workspace.run}"
        begun: set[int] = set()

        def hear(event: Any) -> None:
            begun.add(event[1][0])
            bars.steps(*event[1])

        self.client.subscribe_topic(topic, hear)
        try:
            failed: dict[int, str] = {}
            rest, about = list(todo), (root, workspace.run, workspace.work, topic, budget)
            # The first one measures and plans, alone; its plan serves the others, unless each has its own.
            while rest and workspace.plan() is None and _shares(workspace):
                failed.update(self._all(workspace, about, [rest.pop(0)], bars))
            return failed | self._all(workspace, about, rest, bars)
        except (KeyboardInterrupt, SystemExit):  # Ctrl-C, or SIGTERM: workers that are ended next cannot tell
            for shot in begun & set(todo) - workspace.finished():
                workspace.fail(shot, traceback.format_exc())
                workspace.take_failure(shot)
            raise
        finally:
            self.client.unsubscribe_topic(topic)

    def pilot(self, workspace: Workspace) -> None:
        """Have a worker find the bound for all shots."""
        about = (self._root(workspace), workspace.run, self.budget(workspace), self.threads)
        self.client.submit(run_pilot, *about, pure=False).result()

    def _root(self, workspace: Workspace) -> str:
        """Return the directory as workers open it, refusing one that some of them do not see."""
        root = str(workspace.root.resolve())
        if blind := [name for name, sees in ask_workers(self.client, _sees, root).items() if not sees]:
            raise WaveError(
                f"the worker {blind[0]} does not see {root}: choose an output.directory that all of them share"
            )
        return root

    def _all(
        self, workspace: Workspace, about: tuple[str, str, ShotWork, str, Budget], todo: list[int], bars: ProgressBars
    ) -> dict[int, str]:
        attempts: Counter[int] = Counter()
        failed: dict[int, str] = {}

        def submit(shot: int) -> Any:
            attempts[shot] += 1
            return self.client.submit(_work, *about, shot, self.threads, pure=False, priority=-shot)

        number = {submit(shot): shot for shot in todo}
        waiting = distributed.as_completed(list(number))
        for future in waiting:
            shot = number.pop(future)
            error: Any = None
            if future.status == "finished":
                try:
                    workspace.take(shot)
                except CorruptionError as damage:
                    error = damage
                else:
                    bars.finished(shot, future.result()["seconds"])
                    continue
            error = error or future.exception()
            workspace.take_failure(shot)
            if isinstance(error, BudgetError) and workspace.plan() is None:
                raise error  # and all others would fail alike
            again = attempts[shot] <= self.table.retries and not hopeless(error)
            reason = f"{type(error).__name__}: {error}"
            if again:
                retried = submit(shot)
                number[retried] = shot
                waiting.add(retried)
            else:
                failed[shot] = reason
            bars.failed(shot, reason, again)
        return failed

    def stack(self, workspace: Workspace, shots: Iterable[int], failed: dict[int, str]) -> PartialImage | None:
        """Sum images on the workers: the same tree as in one process, so the same bits; add to `failed` what cannot."""
        root, chosen = str(workspace.root.resolve()), set(shots)
        checks = {shot: self.client.submit(_damage_of, root, shot, pure=False) for shot in chosen}
        damage = {shot: reason for shot, reason in self.client.gather(checks).items() if reason}
        failed.update(damage)
        leaves = (
            self.client.submit(_read_image, root, shot, pure=False) if shot in chosen - damage.keys() else None
            for shot in range(workspace.geometry.count)
        )
        total = tree_sum(
            leaves, add=lambda left, right: self.client.submit(PartialImage.__add__, left, right, pure=False)
        )
        return None if total is None else total.result()

    def budget(self, workspace: Workspace) -> Budget:
        """Return what the limits of a worker leave beside the arrays that a shot works with, unless the job says."""
        job = workspace.described.job
        if job.memory.budget is not None:
            return job.memory.budget
        limits = limits_of(self.client, try_shot)
        fields = part_of(workspace.described.grid, workspace.boxes[0]).fields(job.physics.order // 2)
        gathers = GATHERS * workspace.geometry.most_receivers * steps_of(workspace)[0]
        working = (
            FIELDS.get((job.physics.kind, len(fields)), FIELDS["elastic", len(fields)]) * math.prod(fields) + gathers
        )
        left = limits.budget - BYTES * working
        if left <= 0:
            raise BudgetError(
                f"a worker has {to_text(limits.budget)} for its tasks, and a shot works with "
                f"{to_text(BYTES * working)}: start fewer workers with more memory, or set imaging.aperture"
            )
        return Budget(host=left)


def _shares(workspace: Workspace) -> bool:
    """Tell whether the first shot makes a plan for all."""
    return kind_of(workspace.work).reverses and not workspace.described.job.memory.checkpoint


def _work(
    root: str, run: str, work: ShotWork, topic: str, budget: Budget, shot: int, threads: int | None
) -> dict[str, Any]:
    """Do the work on a shot on a worker, which now and then says how far it is."""
    worker, told_at = distributed.get_worker(), [-math.inf]

    def tell(number: int, done: int) -> None:
        if monotonic() - told_at[0] >= OFTEN:
            told_at[0] = monotonic()
            worker.log_event(topic, (number, done))

    return try_shot(root, shot, run, budget, threads, tell, work)


def _sees(root: str) -> bool:
    return (Path(root) / "job.json").exists()


def _damage_of(root: str, shot: int) -> str:
    try:
        Workspace(Path(root)).part(shot)
    except CorruptionError as error:
        return str(error)
    return ""


def _read_image(root: str, shot: int) -> PartialImage:
    return Workspace(Path(root)).part(shot)
