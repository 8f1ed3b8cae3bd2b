"""What a job leaves behind: the image in files, pictures, and a page that tells how it was made."""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.drawing.bars import bars_chart
from forebay.drawing.page import Drawn, Element, Facts, Picture, Section, Text, TextTable, write_page
from forebay.planner import Plan
from forebay.planner.drawn.timeline import COLOURS, memory_chart, timeline_chart
from forebay.processors import processors
from forebay.report.pictures import Panel, draw_panels, largest_shown
from forebay.tasks import at_once
from forebay.units import seconds_to_text, to_text
from forebay.wave.earth.grid import Grid
from forebay.wave.files.formats import write_field
from forebay.wave.job.pilot import picture_of
from forebay.wave.job.run import Survey
from forebay.wave.job.workspace import Workspace
from forebay.wave.job.workspace.pilot_files import exact_parts
from forebay.wave.survey.geometry import Geometry

STRONG = 0.4
"""Of the deepest row's gain: what the first rows of a picture of an image are multiplied by at least."""
AFTERWARDS = ("files", "pictures")
"""The phases that come when a run is over, and do not count among its seconds."""


def write_image(survey: Survey, folder: Path, formats: Sequence[str]) -> list[Path]:
    """Write the image in each format, and the sums that it was made of in the first that is an array."""
    grid = survey.workspace.described.grid
    fields = {folder / f"image.{name}": survey.image for name in formats}
    for name in [name for name in formats if name in ("npy", "zarr")][:1]:
        fields |= {folder / f"stack.{name}": survey.stack.image}
        fields |= {folder / f"illumination.{name}": survey.stack.illumination}
    files = [
        partial(write_field, path, values, grid.spacing, grid.origin)
        for path, values in fields.items()
        if path.suffix != ".png"
    ]
    at_once(files, processors(), "forebay-images")
    for path in fields:
        if path.suffix == ".png":
            draw_image(survey, path)
    return list(fields)


def draw_image(survey: Survey, path: Path) -> None:
    """Draw the image, stronger with depth; of a volume, three planes through its middle."""
    grid = survey.workspace.described.grid
    rising = np.linspace(STRONG, 1, grid.shape[0]).reshape(-1, *[1] * (grid.ndim - 1))
    gains = panels_of(np.broadcast_to(rising, grid.shape), grid)
    panels = panels_of(survey.image, grid, signed=True)
    draw_panels(
        [replace(panel, values=panel.values * gain.values) for panel, gain in zip(panels, gains, strict=True)], path
    )


def draw_difference(survey: Survey, path: Path) -> str:
    """Draw the picture of a pilot's shot with an exact history, as the job has it, and their difference, on one scale.

    Return what the picture shows, in a sentence.
    """
    workspace, check, found = survey.workspace, survey.check, survey.pilot
    assert check is not None and found is not None
    shot = max(check.errors, key=lambda shot: check.errors[shot])
    exact = picture_of(exact_parts(workspace, [shot])[shot], workspace)
    lossy = picture_of(workspace.part(shot), workspace)
    error = check.errors[shot]
    times = 10 ** int(-np.log10(error)) if error else 1
    limit, panels = largest_shown(exact), []
    for values, title in (
        (exact, "exact history"),
        (lossy, "as the job has it"),
        (lossy - exact, "difference"),
        (times * (lossy - exact), f"difference, {times} times"),
    ):
        for panel in panels_of(values, workspace.described.grid, signed=True):
            panels.append(replace(panel, title=f"{title} {panel.title}".strip(), limit=limit))
    draw_panels(panels, path, columns=len(panels) // 4)
    ratio = next((summary["ratio"] for summary in survey.summaries if summary["shot"] == shot), None)
    size = f"records {ratio:.3g} times smaller" if ratio else "no codec"
    return f"Shot {shot} alone, with an exact history and as the job has it, with {size}: off by {error:.2%}."


def _found(survey: Survey) -> list[tuple[str, Sequence[Element]]]:
    """Return the section that tells how the bound of a job was found."""
    found, check = survey.pilot, survey.check
    if found is None:
        return []
    rows = [
        [str(entry.shot), f"{entry.bound:.2g}", f"{entry.error:.2%}", f"{entry.ratio:.3g}"] for entry in found.tried
    ]
    table = TextTable(("shot", "bound, of the range", "image off by", "records smaller by"), rows)
    facts = [
        ("image error allowed", f"{survey.workspace.described.job.memory.image_error:.2%}"),
        ("codec", found.codec or "none"),
    ]
    if check is not None:
        facts += [(f"shot {shot}, as summed", f"off by {error:.2%}") for shot, error in check.errors.items()]
        facts.append(("all shots, were each as far off", f"at most {check.stack:.2%}"))
    return [("How the bound was found", [Facts(facts), table])]


def draw_model(workspace: Workspace, path: Path) -> None:
    """Draw the velocity that is migrated through, with sources and receivers."""
    draw_velocity(workspace.fields("model")["velocity"], workspace.described.grid, workspace.geometry, path)


def draw_velocity(velocity: NDArray[Any], grid: Grid, geometry: Geometry, path: Path) -> None:
    """Draw a velocity, with sources and receivers."""
    panels = panels_of(velocity, grid, label="m/s")
    marks = [
        (geometry.receivers_of(0)[::8, 1] / 1000, geometry.receivers_of(0)[::8, 0] / 1000, "wv"),
        (geometry.sources[:, 1] / 1000, geometry.sources[:, 0] / 1000, "r*"),
    ]
    draw_panels([replace(panels[0], points=marks), *panels[1:]], path)


def panels_of(values: NDArray[Any], grid: Grid, *, signed: bool = False, label: str = "") -> list[Panel]:
    """Make a panel of a section, or three of a volume."""
    low = [start / 1000 for start in grid.origin]
    high = [stop / 1000 for stop in grid.end]
    names = ("depth, km", "x, km") if values.ndim == 2 else ("depth, km", "y, km", "x, km")
    if values.ndim == 2:
        planes = [(values, 0, 1, "")]
    else:
        middle = [length // 2 for length in values.shape]
        planes = [
            (values[:, :, middle[2]], 0, 1, "at the middle of x"),
            (values[:, middle[1]], 0, 2, "at the middle of y"),
            (values[middle[0]], 1, 2, "at the middle of the depth"),
        ]
    return [
        Panel(plane, (low[b], high[b], high[a], low[a]), names[a], names[b], title, signed=signed, label=label)
        for plane, a, b, title in planes
    ]


def write_report(survey: Survey, path: Path, pictures: Sequence[Picture], title: str, lead: str) -> None:
    """Write the page: facts, pictures, where time and memory went, and each shot."""
    workspace = survey.workspace
    described, plan = workspace.described, workspace.plan()
    grid = described.grid
    every, steps = survey.summaries[0]["every"], survey.summaries[0]["steps"]
    facts = [
        ("shots", f"{len(survey.summaries) - len(survey.aside)} of {workspace.geometry.count}"),
        ("grid", " x ".join(map(str, grid.shape)) + f" at {grid.spacing[0]:.6g} m"),
        ("steps of a shot", f"{steps} of {described.step * 1000:.4g} ms"),
        ("imaged every", f"{every} steps, {every * described.step * 1000:.4g} ms"),
        *(planned(plan, every) if plan is not None else []),
        *times_of(survey),
    ]
    names = ("forward", "backward", "save", "restore", "compress", "decompress", "stall")
    phases = {name: [shot["phases"].get(name, 0.0) for shot in survey.summaries] for name in names}
    series = {"data": [shot["data"] for shot in survey.summaries]} | {
        name: values for name, values in phases.items() if any(values)
    }
    labels = [str(shot["shot"]) for shot in survey.summaries]
    told = json.dumps(described.job.model_dump(mode="json", exclude_none=True), indent=2, ensure_ascii=False)
    sections: list[tuple[str, Sequence[Element]]] = [("", [Facts(facts)])]
    sections += [("Pictures", pictures)] if pictures else []
    if survey.failed:
        rows = [[str(number), reason] for number, reason in survey.failed.items()]
        sections.append(("Shots that are missing", [TextTable(("shot", "why"), rows)]))
    if survey.aside:
        rows = [[str(number), reason] for number, reason in survey.aside.items()]
        sections.append(("Shots that were set aside", [TextTable(("shot", "why"), rows)]))
    if survey.damage:
        sections.append(("What was damaged", [Text("\n".join(survey.damage))]))
    sections += _found(survey)
    ratio = next((summary["ratio"] for summary in survey.summaries if summary["ratio"]), 1.0)
    sections += shown_in_time(workspace, ratio)
    sections += [
        ("Where the time of each shot went", [Drawn(bars_chart(series, labels, "shot", "seconds", COLOURS))]),
        ("Each shot", [_table(survey)]),
        *([("The plan", [Text(plan.explain())])] if plan is not None else []),
        (
            "The job",
            [Text(told)],
        ),
    ]
    write_page(path, title, lead, sections)


def shown_in_time(workspace: Workspace, ratio: float) -> list[Section]:
    """Return sections about the shot that made the plan, whose snapshots are so many times smaller."""
    plan, timeline = workspace.plan(), workspace.timeline()
    if plan is None or timeline is None:
        return []
    shot, spans = timeline
    return [
        (f"Memory over time, in shot {shot}", [Drawn(memory_chart(plan, spans, _kept(plan) / ratio))]),
        (f"What happened when, in shot {shot}", [Drawn(timeline_chart(plan, spans, _kept(plan) / ratio))]),
    ]


def _kept(plan: Plan) -> int:
    """Return the bytes of a snapshot before any codec."""
    return (plan.state_bytes if plan.keep == "states" else plan.record_bytes) or 0


def planned(plan: Plan, every: int) -> list[tuple[str, str]]:
    """Return the facts that a plan tells; where the last run lost its plan before it made another, there is none."""
    return [
        ("history of a shot", f"{to_text(-(-plan.steps // every) * _kept(plan))} of {plan.keep}"),
        *((f"{tier} budget", to_text(plan.budget[tier])) for tier in plan.budget.tiers),
        ("schedule", str(plan.schedule)),
        ("codec", plan.codec or "none"),
    ]


def kernel_seconds(survey: Survey) -> float:
    """Return the seconds of all shots' steps: modelled, forward and back.

    Where a GPU models one shot beside another, each takes longer; so it counts as the first, which made the plan alone.
    Those that advanced together count as they are.
    """
    ways, shots = ("modelled", "forward", "backward"), survey.summaries
    timeline = survey.workspace.timeline() if survey.workspace.described.device == "gpu" else None
    alone = [shot for shot in shots if timeline is not None and shot["shot"] == timeline[0]]
    counted = [alone[0] if alone and shot.get("together", 1) == 1 else shot for shot in shots]
    return float(sum(shot["phases"].get(way, 0.0) for shot in counted for way in ways))


def times_of(survey: Survey) -> list[tuple[str, str]]:
    """Return the facts about time: that of kernels beside what the clock says of shots and run."""
    kernels, device = kernel_seconds(survey), survey.workspace.described.device
    shots = sum(shot["seconds"] for shot in survey.summaries)
    data = sum(shot["data"] for shot in survey.summaries)
    run, ratio = seconds_to_text(survey.seconds), over_kernels(survey)
    if ratio is not None:
        run += f", {ratio:.3g} times that of its kernels"
    return [
        (f"kernels on the {device.upper()}", f"{seconds_to_text(kernels)} of steps, modelled, forward and back"),
        ("seconds of all shots", f"{seconds_to_text(shots)}, of which {seconds_to_text(data)} for data"),
        ("this run", run),
        *([("its phases", _phases(survey))] if survey.phases else []),
    ]


def over_kernels(survey: Survey) -> float | None:
    """Return how many times as long as its kernels a run took that computed all of its shots, up to the image."""
    kernels = kernel_seconds(survey)
    return survey.seconds / kernels if kernels > 0 and not survey.resumed else None


def _phases(survey: Survey) -> str:
    """Tell of phases, and of the shot that made the plan: what comes once, and is not the model, it waited for."""
    seconds = {name: f"{name} {seconds_to_text(took)}" for name, took in survey.phases.items()}
    within = ", ".join(told for name, told in seconds.items() if name not in AFTERWARDS)
    after = ", ".join(seconds[name] for name in AFTERWARDS if name in seconds)
    timeline = survey.workspace.timeline()
    first = [shot for shot in survey.summaries if timeline is not None and shot["shot"] == timeline[0]]
    told = [
        f"shot {shot['shot']}, which made the plan, {seconds_to_text(shot['seconds'])}, "
        f"of which {seconds_to_text(shot['data'])} for data"
        for shot in first
    ]
    return "; ".join([within, *told, *([f"and then {after}"] if after else [])])


def _table(survey: Survey) -> TextTable:
    tiers = sorted({tier for shot in survey.summaries for tier in shot["peak"]})
    codec = any(shot["ratio"] for shot in survey.summaries)
    headings = ["shot", "seconds", "of which data", "reversal", *(f"peak on the {tier}" for tier in tiers), "moved"]
    headings += ["smaller by", "at worst", "largest error"] if codec else []
    rows = []
    for shot in survey.summaries:
        row = [str(shot["shot"]), *(f"{shot[name]:.2f}" for name in ("seconds", "data", "reversal"))]
        row += [to_text(shot["peak"].get(tier, 0)) for tier in tiers]
        row.append(to_text(sum(shot["moved"].values())))
        if codec:
            row += [f"{shot[name]:.3g}" if shot[name] else "" for name in ("ratio", "worst", "error")]
        rows.append(row)
    return TextTable(headings, rows)
