"""Surveys of a section: along x, along y, or projected onto the line on which the section runs."""

import numpy as np
from numpy.typing import NDArray

from forebay.errors import WaveError
from forebay.wave.files.segy.layout import TraceFile
from forebay.wave.survey.line import Line, line_through

SAME = 0.01
"""metres within which coordinates are the same: what headers usually tell"""
STRAY = 0.01
"""of its length: how far off an axis a line may run and count as one along it"""
FAR = 0.1
"""of its length: how far off the model's line a survey may run"""

Positions = list[NDArray[np.float64]]


def on_section(
    sources: Positions, receivers: Positions, file: TraceFile, section: Line | None
) -> tuple[Positions, Positions, list[str]]:
    """Return depths and positions along a section, and say how far off it the survey was.

    Parameters
    ----------
    sources, receivers
        Depth, y and x of all traces.
    file
        With its dialect, which may tell the line.
    section
        The line of the model, where its file tells.
    """
    x, y = (np.concatenate([sources[axis], receivers[axis]]) for axis in (2, 1))
    dialect = file.dialect
    line = dialect.line or section
    if line is None:
        wide, narrow = max(np.ptp(x), np.ptp(y)), min(np.ptp(x), np.ptp(y))
        if narrow > max(SAME, STRAY * wide):
            fitted = line_through(x, y)
            ends = [[float(round(place, 1)) for place in end] for end in (fitted.begin, fitted.end)]
            raise WaveError(
                f"{dialect.key('line')}: expected, since SourceX and GroupX of {file.path} vary, and so do SourceY and "
                "GroupY, but the model is a section: give the positions (x, y) where its x is 0 and of a point farther "
                f"along. This survey runs from {ends[0]} to {ends[1]}"
            )
        along, off = (x, np.abs(y - np.median(y))) if np.ptp(x) >= np.ptp(y) else (y, np.abs(x - np.median(x)))
    else:
        along, off = line.project(x, y)
        if dialect.line is None and off.max() > max(SAME, FAR * np.ptp(along)):
            raise WaveError(
                f"{dialect.key('line')}: {file.path} runs up to {off.max():.6g} m off the section of the model: name "
                "the model that it runs over, or give the line onto which it is projected all the same"
            )
    notes = [f"the survey runs up to {off.max():.4g} m off its section, and is projected onto it"]
    count = len(sources[0])
    flat = [sources[0], along[:count]], [receivers[0], along[count:]]
    return *flat, notes if off.max() > SAME else []
