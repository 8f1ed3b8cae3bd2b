"""What an inversion leaves behind: the model in files, pictures, and a page that tells how it was found."""

import json
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path

import numpy as np

from forebay.drawing import Chart, Series, Subplot
from forebay.drawing.bars import bars_chart
from forebay.drawing.page import Drawn, Element, Facts, Picture, Section, Text, TextTable, write_page
from forebay.planner.drawn.timeline import COLOURS
from forebay.report.pictures import Panel, draw_panels, largest_shown
from forebay.units import seconds_to_text, to_text
from forebay.wave.files.formats import write_field
from forebay.wave.inversion.ledger import Kept
from forebay.wave.job.inversion.run import Gathers, InvertedSurvey
from forebay.wave.job.results import draw_velocity, panels_of, planned, shown_in_time
from forebay.wave.job.workspace import Workspace

INKS = ("#2b7bba", "#d1603d", "#3f8f5b", "#8a5fb0")
"""Colours of searches, one after the other."""


def write_models(survey: InvertedSurvey, folder: Path, formats: Sequence[str]) -> list[Path]:
    """Write each array of the model that was found in each format."""
    grid, written = survey.workspace.described.grid, []
    for array, values in survey.model.items():
        for name in [name for name in formats if name != "png"]:
            write_field(folder / f"{array}.{name}", values, grid.spacing, grid.origin)
            written.append(folder / f"{array}.{name}")
    return written


def draw_pictures(survey: InvertedSurvey, folder: Path) -> list[Picture]:
    """Draw the velocity before and after, what was changed, and gathers of some shots; return them with captions."""
    grid, geometry = survey.workspace.described.grid, survey.workspace.geometry
    name = next(iter(survey.model))
    start, found = survey.start[name], survey.model[name]
    draw_velocity(found, grid, geometry, folder / f"{name}.png")
    draw_velocity(start, grid, geometry, folder / "start.png")
    draw_panels(panels_of(found - start, grid, signed=True, label="m/s"), folder / "update.png")
    pictures = [
        Picture(folder / f"{name}.png", "The velocity that was found, receivers and sources."),
        Picture(folder / "start.png", "The velocity from which the search began."),
        Picture(folder / "update.png", "What was changed: faster is white, slower is black."),
    ]
    for gathers in survey.gathers:
        path = folder / f"gathers-{gathers.shot:05d}.png"
        draw_panels(_gather_panels(gathers, survey.workspace.described.sampling), path, columns=4, equal=False)
        left = [float(np.linalg.norm(heard - gathers.observed)) for heard in (gathers.before, gathers.after)]
        told = f"of what the first model leaves unexplained, {left[1] / left[0]:.1%} are left" if left[0] else "no echo"
        pictures.append(Picture(path, f"Shot {gathers.shot}, on one scale: {told}."))
    return pictures


def _gather_panels(gathers: Gathers, sampling: float) -> list[Panel]:
    """Make panels of what was heard, what is heard in both models, and what is left."""
    samples, traces = gathers.observed.shape
    extent, limit = (0.0, float(traces), samples * sampling, 0.0), largest_shown(gathers.observed)
    values = {
        "observed": gathers.observed,
        "in the first model": gathers.before,
        "in the model found": gathers.after,
        "left": gathers.observed - gathers.after,
    }
    return [
        Panel(traces, extent, "time, s", "receiver", title, signed=True, limit=limit)
        for title, traces in values.items()
    ]


def misfit_chart(survey: InvertedSurvey) -> Chart:
    """Draw how the misfit came down in each search, as a share of where the search began."""
    series, begin = [], 0
    names = stage_names(survey)
    for name, ink, searches in zip(names, cycle(INKS), survey.misfits, strict=False):
        lines = []
        for misfits in searches:
            first = misfits[0] or 1.0
            lines.append([(float(begin + number), value / first) for number, value in enumerate(misfits)])
            begin += len(misfits) - 1
        series.append(Series(name, ink, lines))
    return Chart([Subplot(series, "misfit, of where it began", 1.05)], "iteration", float(max(begin, 1)))


def stage_names(survey: InvertedSurvey) -> list[str]:
    """Name each stage by what it takes."""
    table = survey.workspace.described.job.inversion
    assert table is not None
    return [f"stage {n}, " + (f"up to {limit:g} Hz" if limit else "all") for n, (limit, _) in enumerate(table.stages)]


def write_report(survey: InvertedSurvey, path: Path, pictures: Sequence[Picture], title: str, lead: str) -> None:
    """Write the page: facts, pictures, misfits, where time and memory went, and the shots of the last evaluation."""
    workspace = survey.workspace
    described, plan = workspace.described, workspace.plan()
    grid = described.grid
    facts = [
        ("shots", str(workspace.geometry.count)),
        ("grid", " x ".join(map(str, grid.shape)) + f" at {grid.spacing[0]:.6g} m"),
        ("step", f"{described.step * 1000:.4g} ms, the same in all models"),
        ("iterations", str(sum(len(misfits) - 1 for searches in survey.misfits for misfits in searches))),
        ("evaluations by all shots", str(survey.evaluations)),
        ("this run", seconds_to_text(survey.seconds)),
        *(planned(plan, described.every) if plan is not None else []),
        *measured(workspace, survey.last),
    ]
    rows = [
        [
            name,
            str(len(misfits) - 1),
            f"{misfits[0]:.5g}",
            f"{misfits[-1]:.5g}",
            f"{misfits[-1] / (misfits[0] or 1):.1%}",
        ]
        for name, searches in zip(stage_names(survey), survey.misfits, strict=True)
        for misfits in searches
    ]
    stages = TextTable(("search", "iterations", "misfit before", "after", "left"), rows)
    sections: list[Section] = [("", [Facts(facts)])]
    sections += [("Pictures", pictures)] if pictures else []
    sections.append(("Misfit", [Drawn(misfit_chart(survey)), stages]))
    sections += [("What was damaged", [Text("\n".join(survey.damage))])] if survey.damage else []
    sections += [("What the search tells", [Text("\n".join(survey.notes))])] if survey.notes else []
    sections += shown_in_time(workspace, 1.0)
    sections += last_pass(survey.last)
    write_page(path, title, lead, [*sections, *about_job(workspace)])


def about_job(workspace: Workspace) -> list[Section]:
    """Return the sections that end a page: the plan, and what the job says."""
    plan = workspace.plan()
    told = workspace.described.job.model_dump(mode="json", exclude_none=True)
    job = ("The job", [Text(json.dumps(told, indent=2, ensure_ascii=False))])
    return [job] if plan is None else [("The plan", [Text(plan.explain())]), job]


def measured(workspace: Workspace, last: Kept) -> list[tuple[str, str]]:
    """Return seconds and bytes of a shot's reversal, as predicted, and as measured in the last pass of them."""
    plan = workspace.plan()
    if plan is None or not last:
        return []
    peaks = [
        (
            f"peak on the {tier}, predicted and measured",
            f"{to_text(peak)}, {to_text(int(np.max(last.get(f'peak {tier}', 0))))}",
        )
        for tier, peak in plan.peak_bytes.items()
    ]
    seconds = seconds_to_text(plan.seconds), seconds_to_text(float(np.median(last["reversal"])))
    return [("reversal of a shot, predicted and measured", ", ".join(seconds)), *peaks]


def last_pass(last: Kept) -> list[Section]:
    """Return the section about the shots of the last pass of reversals."""
    if not last:
        return []
    labels = [str(int(shot)) for shot in last["shot"]]
    series = {"reversal": last["reversal"].tolist(), "other": (last["seconds"] - last["reversal"]).clip(0).tolist()}
    tiers = [name for name in sorted(last) if name.startswith("peak ")]
    headings = ["shot", "seconds", "reversal", *(f"peak on the {name.removeprefix('peak ')}" for name in tiers)]
    rows = [
        [
            label,
            f"{last['seconds'][row]:.2f}",
            f"{last['reversal'][row]:.2f}",
            *(to_text(int(last[t][row])) for t in tiers),
        ]
        for row, label in enumerate(labels)
    ]
    chart: list[Element] = [Drawn(bars_chart(series, labels, "shot", "seconds", COLOURS)), TextTable(headings, rows)]
    return [("The last pass over the shots", chart)]
