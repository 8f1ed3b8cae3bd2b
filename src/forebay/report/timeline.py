"""A picture of what a reversal does when: the step it is at, and how busy computation and links are."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from forebay.planner import Plan
from forebay.planner.drawn.doings import AGAIN, Doing, doings_of
from forebay.planner.drawn.lanes import bands, lanes_of
from forebay.planner.drawn.timeline import COLOURS, lane_name
from forebay.report.drawing import load, load_pyplot
from forebay.units import seconds_to_text

FINEST = 1500
"""Pieces into which the time of a picture is cut; the colours of each are in proportion to its seconds."""


def draw_timelines(plans: Mapping[str, Plan], path: Path) -> None:
    """Draw plans one above the other as they are predicted, on one scale of time."""
    pyplot = load_pyplot()
    figure, axes = pyplot.subplots(
        2 * len(plans),
        1,
        figsize=(12, 4 * len(plans)),
        height_ratios=[3, 1] * len(plans),
        layout="constrained",
        squeeze=False,
    )
    for number, (name, plan) in enumerate(plans.items()):
        title = f"{name}: {plan.schedule}, {seconds_to_text(plan.prediction.seconds)}"
        draw_timeline(axes[2 * number, 0], axes[2 * number + 1, 0], plan, title)
    longest = max(axis.get_xlim()[1] for axis in axes[:, 0])
    for axis in axes[:, 0]:
        axis.set_xlim(0, longest)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def draw_timeline(steps: Any, lanes: Any, plan: Plan, title: str) -> None:
    """Draw a plan as it is predicted on two axes of matplotlib, one above the other."""
    doings = doings_of(plan, plan.timeline())
    _draw_steps(steps, plan, doings)
    _draw_lanes(lanes, plan, doings)
    steps.set_title(title, loc="left", fontweight="bold", parse_math=False)
    steps.sharex(lanes)
    steps.tick_params(labelbottom=False)
    lanes.set_xlabel("predicted seconds")
    _add_legend(steps, doings)


def _draw_steps(axis: Any, plan: Plan, doings: Sequence[Doing]) -> None:
    """Draw the step of the working state over time."""
    lines = load("matplotlib.collections", "a picture").LineCollection
    for what, width in (("forward", 0.8), (AGAIN, 0.8), ("backward", 2.5)):
        found = [doing for doing in doings if doing.what == what]
        ends = [((doing.start, doing.first), (doing.stop, doing.last)) for doing in found]
        if what == "backward":
            ends = [((doing.start, doing.first), (doing.stop, doing.first)) for doing in found]
        axis.add_collection(lines(ends, colors=COLOURS[what], linewidths=width))
    axis.set_ylim(0, plan.steps)
    axis.set_ylabel("step")


def _draw_lanes(axis: Any, plan: Plan, doings: Sequence[Doing]) -> None:
    """Draw a bar for the computation and for each link, coloured by what it does."""
    lanes, end = lanes_of(doings), max(doing.stop for doing in doings)
    edges = np.linspace(0, end, FINEST + 1)
    for band in bands(doings, edges, list(COLOURS)):
        axis.stairs(band.top, edges, baseline=band.base, fill=True, color=COLOURS[band.what], linewidth=0)
    axis.set_yticks(range(len(lanes)), [lane_name(plan, lane) for lane in lanes])
    axis.set_xlim(0, end)


def _add_legend(axis: Any, doings: Sequence[Doing]) -> None:
    line = load("matplotlib.lines", "a picture").Line2D
    kinds = {doing.what for doing in doings}
    entries = [line([], [], color=colour, lw=5, label=what) for what, colour in COLOURS.items() if what in kinds]
    axis.legend(handles=entries, loc="upper right", ncols=2, frameon=False)  # a loop that goes back leaves that corner
