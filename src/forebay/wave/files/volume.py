"""Values on a regular grid, as files hold them."""

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from forebay.wave.survey.line import Line


@dataclass(frozen=True, eq=False)
class Volume:
    """Values on a regular grid, depth first, and what their file tells of it."""

    values: NDArray[Any]
    spacing: tuple[float | None, ...] | None = None
    """metres; None where the file does not tell"""
    origin: tuple[float, ...] | None = None
    line: Line | None = None
    """of a section that is oblique on the map"""
