"""A picture of what a reversal does when: the step it is at, and how busy computation and links are."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from forebay.metrics import Span
from forebay.planner import Plan
from forebay.report.drawing import load, load_pyplot
from forebay.report.lanes import bands, lanes_of
from forebay.schedule import Forward
from forebay.units import seconds_to_text

COLOURS = {
    "forward": "#2b7bba",
    "backward": "#d9772b",
    "save": "#7a5fa8",
    "restore": "#a88bd4",
    "compress": "#b0487f",
    "decompress": "#e39cc2",
    "stall": "#c22f2f",
    "store": "#3d8f5f",
    "fetch": "#8fc7a3",
}
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
    spans = plan.timeline()
    _draw_steps(steps, plan, spans)
    _draw_lanes(lanes, plan, spans)
    steps.set_title(title, loc="left", fontweight="bold", parse_math=False)
    steps.sharex(lanes)
    steps.tick_params(labelbottom=False)
    lanes.set_xlabel("predicted seconds")
    _add_legend(steps, spans)


def _draw_steps(axis: Any, plan: Plan, spans: Sequence[Span]) -> None:
    """Draw the step of the working state over time."""
    lines = load("matplotlib.collections", "a picture").LineCollection
    back = [
        ((span.start, span.step * plan.every), (span.stop, span.step * plan.every))
        for span in spans
        if span.what == "backward"
    ]
    axis.add_collection(lines(forward_lines(plan, spans), colors=COLOURS["forward"], linewidths=0.8))
    axis.add_collection(lines(back, colors=COLOURS["backward"], linewidths=2.5))
    axis.set_ylim(0, plan.steps)
    axis.set_ylabel("step")


def forward_lines(plan: Plan, spans: Sequence[Span]) -> list[Any]:
    """List from when and which step to when and which the loop goes forward, in spans measured or predicted."""
    runs = [operation for operation in plan if isinstance(operation, Forward)]
    forward = sorted((span for span in spans if span.what == "forward"), key=lambda span: span.start)
    # Where snapshots were lost and computed again, there are more spans than planned.
    return [
        ((span.start, run.start * plan.every), (span.stop, min(run.stop * plan.every, plan.steps)))
        for span, run in zip(forward, runs, strict=False)
    ]


def _draw_lanes(axis: Any, plan: Plan, spans: Sequence[Span]) -> None:
    """Draw a bar for the computation and for each link, coloured by what it does."""
    lanes, end = lanes_of(spans), max(span.stop for span in spans)
    edges = np.linspace(0, end, FINEST + 1)
    for band in bands(spans, edges, list(COLOURS)):
        axis.stairs(band.top, edges, baseline=band.base, fill=True, color=COLOURS[band.what], linewidth=0)
    axis.set_yticks(range(len(lanes)), [lane_name(plan, lane) for lane in lanes])
    axis.set_xlim(0, end)


def _add_legend(axis: Any, spans: Sequence[Span]) -> None:
    line = load("matplotlib.lines", "a picture").Line2D
    kinds = {span.what for span in spans}
    entries = [line([], [], color=colour, lw=5, label=what) for what, colour in COLOURS.items() if what in kinds]
    axis.legend(handles=entries, loc="upper right", ncols=2, frameon=False)  # a loop that goes back leaves that corner


def lane_name(plan: Plan, lane: str) -> str:
    """Return what a lane of a timeline connects."""
    direction, _, tier = lane.partition(" ")
    if not tier:
        return lane
    upper, lower = plan.tiers[int(tier) - 1], plan.tiers[int(tier)]
    return f"{lower} to {upper}" if direction == "up" else f"{upper} to {lower}"
