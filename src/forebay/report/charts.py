"""Charts for pages: memory over time, what happened when, and bars, as Plotly draws them in a browser."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from forebay.metrics import Span
from forebay.planner import Plan
from forebay.report.drawing import load
from forebay.report.lanes import HEIGHT, bands, lanes_of
from forebay.report.memory import occupancy
from forebay.report.timeline import COLOURS, forward_lines, lane_name
from forebay.units import seconds_to_text

FINEST = 600
"""Pieces into which the time of a chart is cut; the colours of each are in proportion to its seconds."""
TIERS = {"device": "#c0582b", "host": "#2b7bba", "disk": "#3d8f5f"}


def memory_chart(plan: Plan, spans: Sequence[Span], snapshot_bytes: float) -> Any:
    """Draw the bytes of snapshots in each tier over time, below what the budget allows."""
    figure = _figure("seconds", "snapshots, MB")
    for tier, curve in occupancy(plan, spans).items():
        colour = TIERS[tier]
        figure.add_scatter(
            x=[when for when, _ in curve],
            y=[count * snapshot_bytes / 1e6 for _, count in curve],
            name=tier,
            mode="lines",
            line={"shape": "hv", "color": colour},
            fill="tozeroy",
        )
        figure.add_hline(
            plan.budget[tier] / 1e6,
            line={"dash": "dot", "width": 1, "color": colour},
            annotation_text=f"{tier} budget",
            annotation_position="top right",
        )
    return figure


def timeline_chart(plan: Plan, spans: Sequence[Span]) -> Any:
    """Draw the step that the loop is at over time, and below it what computation and links do."""
    figure = load("plotly.subplots", "a chart").make_subplots(
        2, 1, shared_xaxes=True, row_heights=[0.62, 0.38], vertical_spacing=0.04
    )
    _style(figure, "seconds", "step")
    for name, points in (("forward", forward_lines(plan, spans)), ("backward", _back(plan, spans))):
        x = [value for (start, _), (stop, _) in points for value in (start, stop, None)]
        y = [value for (_, first), (_, last) in points for value in (first, last, None)]
        figure.add_scatter(
            x=x, y=y, name=name, mode="lines", line={"color": COLOURS[name]}, legendgroup=name, row=1, col=1
        )
    lanes, end = lanes_of(spans), max(span.stop for span in spans)
    edges = np.linspace(0, end, FINEST + 1)
    named: set[str] = {"forward", "backward"}
    for band in bands(spans, edges, list(COLOURS)):
        (pieces,) = np.nonzero(band.top > band.base)
        heights = (band.top - band.base)[pieces]
        figure.add_bar(
            base=band.base[pieces],
            x=edges[pieces] + end / FINEST / 2,
            y=heights,
            width=end / FINEST,
            name=band.what,
            customdata=heights / HEIGHT,
            hovertemplate=f"{lane_name(plan, band.lane)}, {band.what}: %{{customdata:.0%}} of "
            f"{seconds_to_text(end / FINEST)} at %{{x:.3f}} s<extra></extra>",
            marker={"color": COLOURS[band.what], "line": {"width": 0}},
            legendgroup=band.what,
            showlegend=band.what not in named,
            row=2,
            col=1,
        )
        named.add(band.what)
    figure.update_yaxes(
        tickvals=list(range(len(lanes))), ticktext=[lane_name(plan, lane) for lane in lanes], row=2, col=1
    )
    figure.update_layout(barmode="overlay", height=560, xaxis2_title="seconds", xaxis_title=None)
    return figure


def bars_chart(series: Mapping[str, Sequence[float]], labels: Sequence[str], across: str, up: str) -> Any:
    """Draw bars one on top of the other: one series a colour."""
    figure = _figure(across, up)
    for name, values in series.items():
        figure.add_bar(x=list(labels), y=list(values), name=name, marker={"color": COLOURS.get(name, "#8a8f98")})
    figure.update_layout(barmode="stack", xaxis={"type": "category"})
    return figure


def _back(plan: Plan, spans: Sequence[Span]) -> list[Any]:
    backward = sorted((span for span in spans if span.what == "backward"), key=lambda span: span.start)
    return [((span.start, (span.step + 1) * plan.every), (span.stop, span.step * plan.every)) for span in backward]


def _figure(across: str, up: str) -> Any:
    figure = load("plotly.graph_objects", "a chart").Figure()
    _style(figure, across, up)
    return figure


def _style(figure: Any, across: str, up: str) -> None:
    figure.update_layout(
        template="plotly_white",
        height=360,
        margin={"l": 70, "r": 20, "t": 40, "b": 50},
        xaxis_title=across,
        yaxis_title=up,
        # On the left: buttons come up on the right.
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "xanchor": "left", "traceorder": "normal"},
        font={"family": "system-ui, sans-serif", "size": 13},
    )
