"""Pictures of seismic fields: models, images, gathers and snapshots, as PNG files."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.files import whole
from forebay.report.drawing import load_pyplot

WIDTH = 11.0
"""inches"""
CUT = 0.985


@dataclass(frozen=True, eq=False)
class Panel:
    """A two-dimensional array to look at, its first axis downwards."""

    values: NDArray[Any]
    extent: tuple[float, float, float, float]
    """of its edges: left, right, bottom, top"""
    down: str
    across: str
    title: str = ""
    signed: bool = False
    """drawn in grey around zero"""
    cut: float = CUT
    """the share of values, by size, that a signed panel tells apart; larger ones are black or white"""
    limit: float | None = None
    """the largest value that a signed panel tells apart, whatever its share: for panels on one scale"""
    label: str = ""
    """what the values are, beside the scale of colours"""
    wave: NDArray[Any] | None = None
    """drawn over the values, red and blue around zero"""
    points: Sequence[tuple[NDArray[Any], NDArray[Any], str]] = ()
    """marks: across, down, and how matplotlib draws them"""


def draw_panels(panels: Sequence[Panel], path: Path, columns: int = 1, equal: bool = True) -> None:
    """Draw panels in rows of so many columns; `equal` gives both axes one scale."""
    pyplot = load_pyplot()
    rows = -(-len(panels) // columns)
    left, right, bottom, top = panels[0].extent
    aspect = abs(bottom - top) / abs(right - left) if equal else 0.75
    size = WIDTH, min(14.0, rows * (WIDTH / columns * 0.9 * aspect + 0.9))
    figure, axes = pyplot.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
    for panel, axis in zip(panels, axes.ravel(), strict=False):
        _draw(figure, axis, panel, "equal" if equal else "auto")
    for axis in axes.ravel()[len(panels) :]:
        axis.set_visible(False)
    with whole(path, private=False) as unfinished:
        figure.savefig(unfinished, dpi=120)
    pyplot.close(figure)


def _draw(figure: Any, axis: Any, panel: Panel, aspect: str) -> None:
    options: dict[str, Any] = {"extent": panel.extent, "aspect": aspect, "interpolation": "bilinear"}
    if panel.signed:
        limits = _around_zero(panel.values, panel.cut, panel.limit)
        drawn = axis.imshow(panel.values, cmap="gray", **limits, **options)
    else:
        drawn = axis.imshow(panel.values, cmap="turbo", **options)
    if panel.wave is not None:
        drawn.set_cmap("gray")
        drawn.set_alpha(0.6)
        limits = _around_zero(panel.wave, panel.cut)
        strength = np.clip(np.abs(panel.wave) / limits["vmax"] * 1.5, 0, 1)
        axis.imshow(panel.wave, cmap="seismic", alpha=strength, **limits, **options)
    for across, down, style in panel.points:
        axis.plot(across, down, style, markersize=9 if "*" in style else 4, clip_on=False)
    axis.set_xlim(panel.extent[:2])
    axis.set_ylim(panel.extent[2:])
    if panel.label:
        figure.colorbar(drawn, ax=axis, shrink=0.8, pad=0.01, label=panel.label)
    axis.set_title(panel.title, loc="left", fontsize=11, parse_math=False)
    axis.set_xlabel(panel.across)
    axis.set_ylabel(panel.down)


def largest_shown(values: NDArray[Any], cut: float = CUT) -> float:
    """Return the largest value that a signed panel of these values tells apart."""
    return float(np.quantile(np.abs(values), cut)) or float(np.abs(values).max()) or 1.0


def _around_zero(values: NDArray[Any], cut: float, limit: float | None = None) -> dict[str, float]:
    limit = largest_shown(values, cut) if limit is None else limit
    return {"vmin": -limit, "vmax": limit}
