"""The charts of a plan: the step that its loop is at, what computation and links do, and the memory that it takes."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.drawing import Chart, Series, Subplot, Tip
from forebay.drawing.chart import Point
from forebay.metrics import Span
from forebay.planner.drawn.doings import AGAIN, Doing, doings_of, told_by_piece
from forebay.planner.drawn.lanes import HEIGHT, bands, lanes_of
from forebay.planner.drawn.memory import occupancy
from forebay.planner.drawn.planned import Planned
from forebay.units import UNITS, seconds_to_text, to_text

COLOURS = {
    "forward": "#2b7bba",
    AGAIN: "#e3a008",
    "backward": "#d9572b",
    "save": "#7a5fa8",
    "restore": "#a88bd4",
    "compress": "#b0487f",
    "decompress": "#e39cc2",
    "stall": "#8b1e1e",
    "store": "#3d8f5f",
    "fetch": "#8fc7a3",
}
TIERS = {"device": "#c0582b", "host": "#2b7bba", "disk": "#3d8f5f"}
OTHER = "#8a8f98"
FINEST = 600
"""Pieces into which the time of a chart is cut; the colours of each are in proportion to its seconds."""


def timeline_chart(
    plan: Planned, spans: Sequence[Span], snapshot_bytes: float | None = None, end: float = 0.0, title: str = ""
) -> Chart:
    """Draw the step that the loop is at over time, and below it what computation and links do.

    Parameters
    ----------
    plan
        What was carried out, or simulated.
    spans
        Its timeline, measured or predicted.
    snapshot_bytes
        Of each snapshot, where that is known better than by the plan.
    end
        Seconds that the axis has at least, to compare charts by eye.
    title
        Above it.
    """
    doings = doings_of(plan, spans, snapshot_bytes)
    end = max([end, 1e-9, *(doing.stop for doing in doings)])
    return Chart([_steps(plan, doings), _lanes(plan, doings, end)], "seconds", end, title)


def run_chart(
    plan: Planned, spans: Sequence[Span], snapshot_bytes: float | None = None, end: float = 0.0, title: str = ""
) -> Chart:
    """Draw steps and lanes, and below them memory; parameters are those of `timeline_chart`."""
    upper = timeline_chart(plan, spans, snapshot_bytes, end, title)
    lower = memory_chart(plan, spans, snapshot_bytes, upper.end)
    return replace(upper, panels=[*upper.panels, *lower.panels])


def memory_chart(
    plan: Planned, spans: Sequence[Span], snapshot_bytes: float | None = None, end: float = 0.0, title: str = ""
) -> Chart:
    """Draw the bytes of snapshots in each tier over time, below what the budget allows."""
    end = max([end, 1e-9, *(span.stop for span in spans)])
    nbytes = plan.snapshot_bytes if snapshot_bytes is None else snapshot_bytes
    curves = {tier: [(when, count * nbytes) for when, count in curve] for tier, curve in occupancy(plan, spans).items()}
    budgets = {tier: plan.budget[tier] for tier in curves}
    return memory_curves(curves, {tier: TIERS[tier] for tier in curves}, budgets, end, title)


def memory_curves(
    curves: Mapping[str, Sequence[Point]],
    colours: Mapping[str, str],
    budgets: Mapping[str, float],
    end: float,
    title: str = "",
) -> Chart:
    """Draw curves of bytes over time, and budgets as dashed lines."""
    most = max([1.0, *budgets.values(), *(nbytes for curve in curves.values() for _, nbytes in curve)])
    unit = next(unit for unit in ("TB", "GB", "MB", "kB", "B") if most >= UNITS[unit])
    marks, tips = [], []
    for name, curve in curves.items():
        corners = _corners([(when, nbytes / UNITS[unit]) for when, nbytes in curve], end)
        about = f"{name}: {to_text(max(nbytes for _, nbytes in curve))} at most"
        marks.append(Series(name, colours[name], [corners], width=1.8, about=about))
        tips.append(about)
    for name, nbytes in budgets.items():
        line = [(0.0, nbytes / UNITS[unit]), (end, nbytes / UNITS[unit])]
        marks.append(Series(f"{name} budget", colours.get(name, OTHER), [line], width=1, dashed=True))
        tips.append(f"{name} budget: {to_text(nbytes)}")
    top = 1.08 * most / UNITS[unit]
    everywhere = Tip(0, end, 0, top, "\n".join(tips))
    return Chart([Subplot(marks, f"snapshots, {unit}", top, tips=[everywhere])], "seconds", end, title)


def _corners(curve: Sequence[Point], end: float) -> list[Point]:
    """Return a line that stays where it is until the next value comes, without what nobody could tell apart."""
    corners = [curve[0]]
    for when, value in curve[1:]:
        before = corners[-1][1]
        if value != before:
            corners += [(when, before), (when, value)]
    return [*corners, (end, corners[-1][1])]


def _steps(plan: Planned, doings: Sequence[Doing]) -> Subplot:
    lines = defaultdict(list)
    for doing in doings:
        if doing.what in ("forward", AGAIN):
            lines[doing.what].append([(doing.start, doing.first), (doing.stop, doing.last)])
        elif doing.what == "backward":
            lines[doing.what].append([(doing.start, doing.last), (doing.stop, doing.first)])
    steps: Counter[str] = Counter()
    for doing in doings:
        steps[doing.what] += doing.last - doing.first
    marks = [
        Series(
            what,
            COLOURS[what],
            lines[what],
            width=2.4 if what == "backward" else 1.2,
            about=f"{what}: {steps[what]} steps",
        )
        for what in ("forward", AGAIN, "backward")
        if what in lines
    ]
    return Subplot(marks, "step", float(plan.steps), height=200)


def _lanes(plan: Planned, doings: Sequence[Doing], end: float) -> Subplot:
    lanes = lanes_of(doings)
    edges = np.linspace(0, end, FINEST + 1)
    seconds: defaultdict[tuple[str, str], float] = defaultdict(float)
    for doing in doings:
        seconds[doing.lane, doing.what] += doing.stop - doing.start
    kinds = [*COLOURS, *sorted({doing.what for doing in doings} - set(COLOURS))]
    marks = []
    for band in bands(doings, edges, kinds):
        spent = seconds_to_text(seconds[band.lane, band.what])
        about = f"{lane_name(plan, band.lane)}, {band.what}: {spent}"
        areas = list(_areas(band.base, band.top, edges))
        marks.append(Series(band.what, COLOURS.get(band.what, OTHER), areas, filled=True, about=about))
    numbers = {lane: number for number, lane in enumerate(lanes)}
    tips = [
        Tip(left, right, numbers[lane] - 0.5, numbers[lane] + 0.5, f"{lane_name(plan, lane)}\n{text}")
        for lane, left, right, text in told_by_piece(doings, FINEST, end)
    ]
    names = [(float(number), lane_name(plan, lane)) for lane, number in numbers.items()]
    return Subplot(marks, "", len(lanes) - 0.5, -0.5, 44 * len(lanes), names, tips)


def _areas(base: NDArray[Any], top: NDArray[Any], edges: NDArray[Any]) -> list[list[Point]]:
    """Return the outline of each run of pieces in which a band has some height."""
    areas = []
    (pieces,) = np.nonzero(top - base > 1e-4 * HEIGHT)
    for run in np.split(pieces, np.nonzero(np.diff(pieces) > 1)[0] + 1):
        if not len(run):
            continue
        above: list[Point] = []
        below: list[Point] = []
        for piece in run:
            if above and above[-1][1] == top[piece] and below[-1][1] == base[piece]:
                above[-1], below[-1] = (edges[piece + 1], top[piece]), (edges[piece + 1], base[piece])
                continue
            above += [(edges[piece], top[piece]), (edges[piece + 1], top[piece])]
            below += [(edges[piece], base[piece]), (edges[piece + 1], base[piece])]
        areas.append([(float(x), float(y)) for x, y in [*above, *reversed(below)]])
    return areas


def lane_name(plan: Planned, lane: str) -> str:
    """Return what a lane of a timeline connects."""
    direction, _, tier = lane.partition(" ")
    if not tier:
        return lane
    upper, lower = plan.tiers[int(tier) - 1], plan.tiers[int(tier)]
    return f"{lower} to {upper}" if direction == "up" else f"{upper} to {lower}"
