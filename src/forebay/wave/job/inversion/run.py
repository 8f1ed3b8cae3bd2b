"""An inversion of many shots: its stages, resumed where an earlier run ended, and what came of them."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from forebay.errors import WaveError
from forebay.report.console import say
from forebay.units import seconds_to_text
from forebay.wave.inversion.ledger import EvaluationLedger, Kept
from forebay.wave.inversion.shots import wavelet_of
from forebay.wave.inversion.stage import EVALUATIONS, InversionStage, MiniBatches, run_stages, searches_of
from forebay.wave.inversion.unknowns import arrays_of
from forebay.wave.job.begin import begun, run_held, tell_notes
from forebay.wave.job.inputs import medium_of
from forebay.wave.job.inversion.asked import DATA, FOLDER, PassRequest
from forebay.wave.job.inversion.shots import LAST, ShotPasses, ShotsOfJob
from forebay.wave.job.inversion.start import known_of, start_of
from forebay.wave.job.job import Job
from forebay.wave.job.workspace import Workspace

SHOWN = 3
"""Shots whose gathers a report shows."""


@dataclass(frozen=True, eq=False)
class Gathers:
    """What the receivers of a shot have heard, and what they hear in two models, up to the last stage's frequency."""

    shot: int
    observed: NDArray[Any]
    before: NDArray[Any]
    after: NDArray[Any]


@dataclass(frozen=True, eq=False)
class InvertedSurvey:
    """The model that an inversion found, and how it came there."""

    workspace: Workspace
    start: dict[str, NDArray[Any]]
    """arrays of the model where it began, by name"""
    model: dict[str, NDArray[Any]]
    """those of the model that was found"""
    misfits: list[list[tuple[float, ...]]]
    """of each search of each stage: where it began, and after each iteration"""
    evaluations: int
    """of misfit and gradient, by all runs"""
    sent: NDArray[Any] | None
    """wavelets that the last stage found, a column for each shot"""
    gathers: list[Gathers]
    last: Kept
    """what the last evaluation told of its shots"""
    damage: list[str]
    """what was damaged, and what became of it"""
    seconds: float = 0.0
    """of this run"""
    notes: list[str] = field(default_factory=list)
    """what the search tells"""

    @property
    def told(self) -> dict[str, Any]:
        """What a program is told."""
        told = {"misfits": self.misfits, "evaluations": self.evaluations, "seconds": self.seconds}
        return told | {"damage": self.damage, "notes": self.notes}


def run_inversion(
    job: Job, console: Console | None = None, *, write: Callable[[InvertedSurvey], None] | None = None
) -> InvertedSurvey:
    """Look for the model in which the shots of a job hear what they have heard; the same job again goes on.

    Nothing that an earlier run has finished of an evaluation is computed again: a run that was killed in the middle of
    one goes on with the shots that are missing, to the same bits.

    Parameters
    ----------
    job
        See `read_job`, with the command "fwi".
    console
        Where progress is shown, and what was damaged; without one, a `WaveWarning` tells the latter.
    write
        Writes what the job leaves behind, while no other run can begin in its directory.
    """
    if job.inversion is None:
        raise WaveError("a job without the table [inversion]: read it with the command 'fwi'")
    return run_held(job, lambda shown: _inverted(job, shown), console, write)


def _inverted(job: Job, console: Console) -> InvertedSurvey:
    """Do what `run_inversion` does, in a directory that is held."""
    start, damage = perf_counter(), list[str]()
    with begun(job, console, damage) as (workspace, client):
        tell_notes(console, [*damage, *workspace.described.notes])
        ledger = EvaluationLedger(workspace.root / FOLDER, workspace.identity)
        try:
            survey = _searched(job, ShotPasses(workspace, client, console, ledger, damage))
        finally:
            ledger.close()
    tell_notes(console, ledger.notes)
    return replace(survey, seconds=perf_counter() - start, notes=ledger.notes)


def _searched(job: Job, passes: ShotPasses) -> InvertedSurvey:
    """Run all stages, and model what the report shows."""
    table, workspace, ledger = job.inversion, passes.workspace, passes.ledger
    assert table is not None
    described, everyone = workspace.described, tuple(range(workspace.geometry.count))
    medium = medium_of(job, workspace.fields("model"), described.grid)
    begin, limits = start_of(job, medium, workspace.wavelet, described.sampling)
    if job.data.file is None:
        passes.over(DATA, PassRequest({}, begin.max_vel), everyone)
    drawn = None if table.mini_batch is None else MiniBatches(table.mini_batch, table.seed)
    about = limits, known_of(job, described.grid), table.smooth, table.precondition, table.estimate_source
    shots = [ShotsOfJob(passes, everyone, limit) for limit, _ in table.stages]
    stages = [InversionStage(number, own, *about, drawn, ledger) for number, own in enumerate(shots)]
    counts = [count for _, count in table.stages]
    found, outcomes = run_stages(stages, counts, begin, ledger, _teller(passes.console, sum(counts)))
    sent = _found_wavelets(outcomes[-1], everyone) if table.estimate_source else None
    shown = sorted({everyone[round(place * (len(everyone) - 1))] for place in np.linspace(0, 1, SHOWN)})
    last = replace(shots[-1], sent=sent)
    before, after = last.gathers(begin, "gathers-start", shown), last.gathers(found, "gathers-found", shown)
    return InvertedSurvey(
        workspace,
        start={name: getattr(begin, name) for name in arrays_of(begin)},
        model={name: getattr(found, name) for name in arrays_of(found)},
        misfits=[searches_of(outcome) for outcome in outcomes],
        evaluations=sum(int(outcome[EVALUATIONS]) for outcome in outcomes),
        sent=sent,
        gathers=[Gathers(shot, old[1], old[0], new[0]) for shot, old, new in zip(shown, before, after, strict=True)],
        last=ledger.find(LAST, "") or {},
        damage=passes.damage,
    )


def _found_wavelets(outcome: Kept, shots: tuple[int, ...]) -> NDArray[Any]:
    return np.stack([outcome[wavelet_of(shot)] for shot in shots], axis=1)


def _teller(console: Console, count: int) -> Callable[[Any, int, float], None]:
    """Return what says how far an inversion is, after each iteration."""
    began = perf_counter()

    def tell(model: Any, iteration: int, misfit: float) -> None:
        elapsed = perf_counter() - began
        say(console, f"iteration {iteration} of {count}: misfit {misfit:.5g}, after {seconds_to_text(elapsed)}")

    return tell
