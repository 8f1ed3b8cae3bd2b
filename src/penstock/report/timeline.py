"""A picture of what a plan does when: the step it is at, and how busy computation and links are."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.metrics import Span
from penstock.planner import Plan
from penstock.units import seconds_to_text

COLOURS = {
    "forward": "#2b7bba",
    "backward": "#d9772b",
    "save": "#7a5fa8",
    "restore": "#a88bd4",
    "stall": "#c22f2f",
    "store": "#3d8f5f",
    "fetch": "#8fc7a3",
}


def draw_timelines(plans: Mapping[str, Plan], path: Path) -> None:
    """Draw plans one above the other, each on its own time axis."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        2 * len(plans),
        1,
        figsize=(12, 4 * len(plans)),
        height_ratios=[3, 1] * len(plans),
        layout="constrained",
        squeeze=False,
    )
    for number, (name, plan) in enumerate(plans.items()):
        spans = plan.timeline()
        steps, lanes = axes[2 * number, 0], axes[2 * number + 1, 0]
        _draw_steps(steps, plan, spans)
        _draw_lanes(lanes, plan, spans)
        steps.set_title(
            f"{name}: {plan.schedule}, {seconds_to_text(plan.prediction.seconds)}", loc="left", fontweight="bold"
        )
        lanes.set_xlabel("predicted seconds")
        steps.sharex(lanes)
        steps.tick_params(labelbottom=False)
    figure.legend(
        handles=[pyplot.Line2D([], [], color=colour, lw=5, label=what) for what, colour in COLOURS.items()],
        loc="outside upper right",
        ncols=len(COLOURS),
        frameon=False,
    )
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _draw_steps(axis: Any, plan: Plan, spans: list[Span]) -> None:
    """Draw the step of the working state over time."""
    from matplotlib.collections import LineCollection

    for what, width in (("forward", 0.8), ("backward", 2.5)):
        pieces = []
        for span in (span for span in spans if span.what == what):
            step = span.step * plan.every
            advance = (span.stop - span.start) / plan.costs.forward if what == "forward" else 0.0
            pieces.append(((span.start, step), (span.stop, step + advance)))
        axis.add_collection(LineCollection(pieces, colors=COLOURS[what], linewidths=width))
    axis.set_ylim(0, plan.steps)
    axis.set_ylabel("step")


def _draw_lanes(axis: Any, plan: Plan, spans: list[Span]) -> None:
    """Draw a bar for the computation and for each link, coloured by what it does."""
    lanes = ["compute", *sorted({span.lane for span in spans} - {"compute"})]
    for height, lane in enumerate(reversed(lanes)):
        for what, colour in COLOURS.items():
            bars = [(span.start, span.stop - span.start) for span in spans if span.lane == lane and span.what == what]
            if bars:
                axis.broken_barh(bars, (height - 0.4, 0.8), color=colour, linewidth=0)
    axis.set_yticks(range(len(lanes)), [_lane_name(plan, lane) for lane in reversed(lanes)])
    axis.set_xlim(0, plan.prediction.seconds)


def _lane_name(plan: Plan, lane: str) -> str:
    if lane == "compute":
        return lane
    direction, tier = lane.split()
    upper, lower = plan.tiers[int(tier) - 1], plan.tiers[int(tier)]
    return f"{lower} to {upper}" if direction == "up" else f"{upper} to {lower}"
