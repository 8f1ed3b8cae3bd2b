"""How the rows of fields lie in memory, where kernels want more of them than the grid asks for."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from forebay.wave.survey.points import Points

WORD = 4
"""Points of a word on a GPU, as in the sources, and the largest radius."""


@dataclass(frozen=True)
class Rows:
    """Points before and after each row of `Grid.fields`; a row then consists of whole words.

    Examples
    --------
    >>> rows = Rows.of(width=389, radius=2, word=4, pitch=8)
    >>> rows, rows.shape((51, 389))
    (Rows(before=2, after=1, word=4), (51, 392))
    >>> rows.window((slice(2, 49), slice(42, 345)))
    (slice(2, 49, None), slice(44, 348, None))
    """

    before: int = 0
    after: int = 0
    word: int = 1

    @classmethod
    def of(cls, width: int, radius: int, word: int, pitch: int, first: int | None = None) -> "Rows":
        """Let rows be multiples of `pitch`, and their computed points begin at one of `first`, or of a word."""
        before = -radius % (first or word)
        return cls(before, -(width + before) % pitch, word)

    def shape(self, fields: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of fields with these rows."""
        return (*fields[:-1], self.before + fields[-1] + self.after)

    def inside(self, place: tuple[slice, ...]) -> tuple[slice, ...]:
        """Move a place in the fields of the grid to where it is in these."""
        return (*place[:-1], slice(place[-1].start + self.before, place[-1].stop + self.before))

    def window(self, place: tuple[slice, ...]) -> tuple[slice, ...]:
        """Return the words that a place in the fields of the grid is in."""
        row = self.inside(place)[-1]
        return (*place[:-1], slice(row.start // self.word * self.word, -(-row.stop // self.word) * self.word))

    def pad(self, values: Any) -> Any:
        """Continue the rows of values on the grid of fields, of whatever library, by their first and last."""
        if not (self.before or self.after):
            return values
        return np.pad(values, [*((0, 0) for _ in values.shape[1:]), (self.before, self.after)], mode="edge")

    def cut(self, values: Any) -> Any:
        """Return the part of values that is on the grid of fields."""
        return values[..., self.before : values.shape[-1] - self.after]

    def moved(self, points: Points, width: int) -> Points:
        """Count the cells of points in these rows instead of rows of a width; their order stays."""
        pitch = self.before + width + self.after

        def place(cells: Any) -> Any:
            return cells // width * pitch + cells % width + self.before

        return replace(points, cells=place(points.cells), touched=place(points.touched))
