"""A least-squares migration of many shots: the change of the model that explains their echoes, step by step."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from forebay.errors import WaveError
from forebay.report.console import say
from forebay.units import seconds_to_text
from forebay.wave.inversion.ledger import EvaluationLedger, Kept
from forebay.wave.inversion.light import balance
from forebay.wave.job.begin import begun, run_held, tell_notes
from forebay.wave.job.inputs import medium_of
from forebay.wave.job.inversion.asked import DATA, FOLDER, OUTCOME, PassRequest
from forebay.wave.job.inversion.echoes import DIRECTION, LEFT, SCATTERED, STEP, told_of
from forebay.wave.job.inversion.shots import LAST, LostPassError, ShotPasses, ShotsOfJob
from forebay.wave.job.inversion.start import at_most
from forebay.wave.job.job import Job
from forebay.wave.job.workspace import ShotWork, Workspace
from forebay.wave.lsrtm import explain


@dataclass(frozen=True, eq=False)
class ExplainedSurvey:
    """The change of a model that explains echoes, and how much it leaves of them."""

    workspace: Workspace
    change: NDArray[Any]
    """of the parameter, on the whole model"""
    residuals: list[float]
    """of the echoes' norm, what is left before the first and after each iteration"""
    last: Kept
    """what the last pass back told of its shots"""
    damage: list[str]
    """what was damaged, and what became of it"""
    seconds: float
    """of this run"""

    @property
    def told(self) -> dict[str, Any]:
        """What a program is told."""
        return {"residuals": self.residuals, "seconds": self.seconds, "damage": self.damage}


def run_least_squares(
    job: Job, console: Console | None = None, *, write: Callable[[ExplainedSurvey], None] | None = None
) -> ExplainedSurvey:
    """Find the change of the model that explains the echoes of a job's shots; the same job again goes on.

    Parameters are those of `run_inversion`; the job is read with the command "lsrtm".
    """
    if job.lsrtm is None:
        raise WaveError("a job without the table [lsrtm]: read it with the command 'lsrtm'")
    return run_held(job, lambda shown: _explained(job, shown), console, write)


def _explained(job: Job, console: Console) -> ExplainedSurvey:
    """Do what `run_least_squares` does, in a directory that is held."""
    start, damage = perf_counter(), list[str]()
    with begun(job, console, damage) as (workspace, client):
        tell_notes(console, [*damage, *workspace.described.notes])
        ledger = EvaluationLedger(workspace.root / FOLDER, workspace.identity)
        try:
            passes = ShotPasses(workspace, client, console, ledger, damage)
            try:
                found = ledger.once(OUTCOME, "", lambda: _searched(job, passes))
            except LostPassError as error:
                damage.append(f"{error}: the search begins again")
                tell_notes(console, damage[-1:])
                for pattern in ("echoes", "back-*", "scatter-*"):
                    ledger.forget(pattern)
                passes.sweep()
                found = ledger.once(OUTCOME, "", lambda: _searched(job, passes))
            for pattern in ("echoes", "light", "back-*", "scatter-*"):
                ledger.forget(pattern)
            passes.sweep()
            last = ledger.find(LAST, "") or {}
        finally:
            ledger.close()
    tell_notes(console, ledger.notes)
    change = found["change"].astype(np.float32)
    residuals = [float(residual) for residual in found["residuals"]]
    return ExplainedSurvey(workspace, change, residuals, last, [*damage, *ledger.notes], perf_counter() - start)


def _searched(job: Job, passes: ShotPasses) -> Kept:
    """Find the change."""
    table, workspace, console = job.lsrtm, passes.workspace, passes.console
    assert table is not None
    medium = medium_of(job, workspace.fields("model"), workspace.described.grid)
    model = at_most(medium, medium.fastest)
    everyone = tuple(range(workspace.geometry.count))
    if job.data.file is None:
        passes.over(DATA, PassRequest({}, model.max_vel), everyone)
    shots = EchoesOfJob(passes, PassRequest({"velocity": model.velocity}, model.max_vel), everyone)
    weight = np.ones(workspace.described.grid.shape)
    if table.precondition:
        weight = balance(ShotsOfJob(passes, everyone, None).light(model, "light"))
    began = perf_counter()

    def tell(change: NDArray[np.float64], iteration: int, residual: float) -> None:
        elapsed = seconds_to_text(perf_counter() - began)
        say(console, f"iteration {iteration} of {table.iterations}: {residual:.2%} of the echoes left, after {elapsed}")

    change, residuals = explain(shots, weight, table.iterations, tell)
    return {"change": change, "residuals": np.array(residuals)}


class EchoesOfJob:
    """The echoes of a job's shots, as `EchoShots`; what is left of them stays where workers see it."""

    def __init__(self, passes: ShotPasses, asked: PassRequest, numbers: tuple[int, ...]) -> None:
        self._passes, self._asked, self._numbers = passes, asked, numbers
        self._left = ShotWork("echoes", "echoes", asked.checksum)
        self._scattered: ShotWork | None = None
        self._step, self._count = 0.0, 0

    def squared(self) -> float:
        """Return the sum of squares of all echoes."""

        def computed() -> Kept:
            over = self._passes.over(self._left, self._asked, self._numbers)
            return {"squared": np.array(sum(float(over.arrays(number, "squared")[0]) for number in self._numbers))}

        whole = float(self._passes.ledger.once("echoes", self._left.of, computed)["squared"])
        if not whole:
            raise WaveError("data that the model explains, or of zeros: there is no echo to explain")
        return whole

    def back(self) -> NDArray[np.float64]:
        """Apply the transpose of Born modelling to what is left of the echoes, and keep that."""
        more: dict[str, NDArray[Any]] = {LEFT: told_of(self._left)}
        needs = [self._left]
        if self._scattered is not None:
            more |= {SCATTERED: told_of(self._scattered), STEP: np.array(self._step)}
            needs.append(self._scattered)
        work, asked = self._work("back", more)

        def computed() -> Kept:
            start, over = perf_counter(), self._passes.over(work, asked, self._numbers, needs)
            total = np.zeros(over.described.grid.shape)
            for number in self._numbers:
                total[over.boxes[number]] += over.arrays(number, "slope")[0]
            self._passes.remember(over, self._numbers, perf_counter() - start)
            return {"slope": total}

        slope = self._passes.ledger.once(work.name, work.of, computed)["slope"]
        self._left, self._scattered = work, None
        return slope

    def scatter(self, direction: NDArray[np.float64]) -> tuple[float, float]:
        """Model what a change scatters."""
        self._count += 1
        told: dict[str, NDArray[Any]] = {LEFT: told_of(self._left), DIRECTION: direction.astype(np.float32)}
        work, asked = self._work("scatter", told)

        def computed() -> Kept:
            over = self._passes.over(work, asked, self._numbers, [self._left])
            both = [over.arrays(number, "squared", "along") for number in self._numbers]
            return {name: np.array(sum(float(each[n]) for each in both)) for n, name in enumerate(("squared", "along"))}

        found = self._passes.ledger.once(work.name, work.of, computed)
        self._scattered = work
        return float(found["squared"]), float(found["along"])

    def take(self, step: float) -> None:
        """Take so many times what was scattered last from what is left, when that is sent back."""
        self._step = step

    def _work(self, kind: str, more: dict[str, NDArray[Any]]) -> tuple[ShotWork, PassRequest]:
        """Return a pass, and what it is asked."""
        asked = replace(self._asked, arrays=self._asked.arrays | more)
        return ShotWork(kind, f"{kind}-{self._count:04d}", asked.checksum), asked
