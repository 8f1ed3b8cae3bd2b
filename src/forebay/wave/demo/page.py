"""What the demo leaves behind: pictures, a job to go on with, and a page that sets its three ways side by side."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.drawing.page import Drawn, Facts, Picture, Section, Text, TextTable, write_page
from forebay.planner.drawn.memory import occupancy
from forebay.planner.drawn.reversal import kept_bytes, was_followed
from forebay.planner.drawn.timeline import memory_curves, timeline_chart
from forebay.report.pictures import draw_panels, largest_shown
from forebay.units import seconds_to_text, to_text
from forebay.wave.demo.salt import RecordedLine
from forebay.wave.demo.ways import Strategy, off_by
from forebay.wave.job.results import STRONG, draw_velocity, panels_of
from forebay.wave.simulate import simulate

COLOURS = ("#8a8f98", "#2b7bba", "#d9572b")
HEADINGS = ("way", "seconds", "memory, at most", "forward passes", "image", "predicted", "measured")


def rows_of(line: RecordedLine, ways: Sequence[Strategy]) -> list[tuple[str, ...]]:
    """Return a row for each way, under `HEADINGS`."""
    exact = ways[0].image(line)
    rows: list[tuple[str, ...]] = []
    for way in ways:
        image = way.image(line)
        same = "the same bits" if np.array_equal(image, exact) else f"off by {off_by(image, exact):.2%}"
        rows.append(
            (
                way.name,
                f"{sum(way.seconds):.1f}",
                f"{to_text(way.peak)}, {way.peak / line.history:.0%}",
                f"{way.passes:.2f}",
                "" if way is ways[0] else same,
                seconds_to_text(way.predicted),
                seconds_to_text(way.measured),
            )
        )
    return rows


def write_demo(line: RecordedLine, ways: Sequence[Strategy], folder: Path, times: list[tuple[str, str]]) -> list[Path]:
    """Draw and write everything but the job; return what was written, the page last.

    Parameters
    ----------
    line, ways
        What was migrated, and how.
    folder
        For all files.
    times
        What else took its time, by name.
    """
    exact = ways[0].image(line)
    np.save(folder / "image.npy", exact)
    draw_velocity(line.true.velocity, line.grid, line.geometry, folder / "model.png")
    shown = _draw_images(line, ways, folder / "image.png")
    _draw_wave(line, folder / "snapshots.png")
    ways[1].results[-1].metrics.write_trace(folder / "trace.json")
    pictures = [
        Picture(folder / "image.png", shown),
        Picture(folder / "model.png", "The true velocity, with receivers and sources (red)."),
        Picture(folder / "snapshots.png", "The wave of one shot on its way through the true model."),
    ]
    lead = (
        "Reverse time migration needs the wave of each source backwards in time. Here the same shots are migrated "
        "three times: with room for all of it, with a tenth of that, where what is missing is computed again, and "
        "with a tenth in which a codec keeps all of it."
    )
    page = folder / "report.html"
    write_page(page, "A salt body in a tenth of the memory", lead, _sections(line, ways, times, pictures))
    return [folder / "image.npy", *(picture.path for picture in pictures), folder / "trace.json", page]


def _sections(
    line: RecordedLine, ways: Sequence[Strategy], times: Sequence[tuple[str, str]], pictures: list[Picture]
) -> list[Section]:
    facts = [
        ("shots", f"{len(line.shots)}, in {' x '.join(map(str, line.grid.shape))} points"),
        ("steps of a shot", f"{line.steps}, imaged every {line.every}"),
        ("all that an image needs", f"{to_text(line.history)} a shot"),
        *times,
    ]
    last = [way.results[-1] for way in ways]
    end = max(result.metrics.seconds for result in last)
    curves, colours = {}, {}
    for way, result, colour in zip(ways, last, COLOURS, strict=True):
        spans = list(result.metrics.timeline) if was_followed(result) else result.plan.timeline()
        curve = occupancy(result.plan, spans)["host"]
        curves[way.name] = [(when, count * kept_bytes(result)) for when, count in curve]
        colours[way.name] = colour
    memory = memory_curves(curves, colours, {"a tenth": line.history // 10}, end)
    note = "What is computed again is yellow. Drag over a part to see it larger, double-click to see all."
    charts = [
        Drawn(timeline_chart(result.plan, result.metrics.timeline, kept_bytes(result), end, way.name), note)
        for way, result in zip(ways, last, strict=True)
        if was_followed(result)
    ]
    return [
        ("", [Facts(facts)]),
        ("Three ways", [TextTable(HEADINGS, rows_of(line, ways))]),
        ("Memory over time", [Drawn(memory, "The snapshots of one shot; the dashed line is the budget.")]),
        ("Pictures", pictures),
        ("What happened when, in one shot, on one scale of time", charts),
        *((f"Why: {way.name}", [Text(result.explain())]) for way, result in zip(ways, last, strict=True)),
    ]


def _draw_images(line: RecordedLine, ways: Sequence[Strategy], path: Path) -> str:
    """Draw the image of each way, and thirty times what the codec changed, on one scale; return what is to be seen."""
    rising = np.linspace(STRONG, 1, line.grid.shape[0])[:, None]
    exact = rising * ways[0].image(line)
    limit, panels = largest_shown(exact), []
    drawn: list[tuple[str, NDArray[Any]]] = [(way.name, rising * way.image(line)) for way in ways]
    drawn.append(("what the codec changed, 30 times", 30 * (drawn[-1][1] - exact)))
    for title, values in drawn:
        (panel,) = panels_of(values, line.grid, signed=True)
        panels.append(replace(panel, title=title, limit=limit))
    draw_panels(panels, path, columns=2)
    return (
        "The image, stronger with depth: reflectors where the wave of the source and the data sent back in time meet. "
        "In a tenth of the memory it has the same bits as with everything kept."
    )


def _draw_wave(line: RecordedLine, path: Path) -> None:
    """Model the shot in the middle again, and draw where its wave is at some moments."""
    length = line.steps * line.step
    steps = {round(part * length / line.step): part * length for part in (0.15, 0.3, 0.45, 0.6)}
    seen: dict[int, NDArray[Any]] = {}

    def watch(pressure: Any, step: int) -> None:
        if step in steps:
            seen[step] = np.array(pressure)

    simulate(line.shots[len(line.shots) // 2], line.true, dt=line.step, order=line.job.physics.order, watch=watch)
    (still,) = panels_of(line.true.velocity, line.grid)
    draw_panels(
        [replace(still, title=f"{steps[step]:.2g} s", wave=pressure) for step, pressure in seen.items()],
        path,
        columns=2,
    )
