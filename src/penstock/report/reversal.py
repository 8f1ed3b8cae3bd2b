"""One sheet about a reversal: fields that it started from or made, and below them what it did when, as measured."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.engine import Result
from penstock.report.timeline import draw_timeline
from penstock.units import seconds_to_text


@dataclass(frozen=True)
class Field:
    """A two-dimensional array to look at, its first axis downwards."""

    title: str
    values: NDArray[Any]
    extent: tuple[float, float]
    """of both axes, downwards and across, in `unit`"""
    unit: str
    label: str
    """what the values are"""
    signed: bool = False
    """drawn around zero, the largest hundredth of the values cut off"""


def draw_reversal(fields: Sequence[Field], result: Result, path: Path) -> None:
    """Draw fields side by side above the measured timeline of the reversal."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplot_mosaic(
        [[f"field {number}" for number in range(len(fields))], ["steps"] * len(fields), ["lanes"] * len(fields)],
        figsize=(13, 10),
        height_ratios=[4, 4, 1],
        layout="constrained",
    )
    for number, field in enumerate(fields):
        _draw_field(figure, axes[f"field {number}"], field)
    title = f"{result.plan.schedule}, {seconds_to_text(result.metrics.seconds)}"
    draw_timeline(axes["steps"], axes["lanes"], result.plan, result.metrics.timeline, title, "measured")
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _draw_field(figure: Any, axis: Any, field: Field) -> None:
    down, across = field.extent
    limits: dict[str, Any] = {"cmap": "viridis"}
    if field.signed:
        limit = float(np.quantile(np.abs(field.values), 0.99)) or 1.0
        limits = {"cmap": "gray", "vmin": -limit, "vmax": limit}
    drawn = axis.imshow(field.values, extent=(0, across, down, 0), **limits)
    figure.colorbar(drawn, ax=axis, location="bottom", shrink=0.6, label=field.label)
    axis.set_title(field.title, loc="left", fontweight="bold")
    axis.set_xlabel(field.unit)
    axis.set_ylabel(field.unit)
