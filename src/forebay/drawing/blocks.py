"""An array cut into blocks, drawn as a box with its cuts; one block stands out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

LONGEST, THINNEST = 260.0, 16.0
"""pixels of the longest axis, and what no axis is drawn shorter than"""
BACK = (0.5, -0.32)
"""how far an element of the axis that recedes is drawn to the right and down, in its length"""
FINEST = 60
"""cuts that are drawn along an axis, at most"""
COLOUR = "#2b7bba"

Place = tuple[float, float]


@dataclass(frozen=True)
class Blocks:
    """An array, and the blocks that it is cut into.

    Examples
    --------
    >>> Blocks((100, 80), (30, 80)).told
    'axis 0: 100 in 4 of 30; axis 1: 80 whole'
    """

    shape: tuple[int, ...]
    chunks: tuple[int, ...]

    @property
    def told(self) -> str:
        """How each axis is cut, in words."""
        return "; ".join(
            f"axis {axis}: {extent} " + ("whole" if length >= extent else f"in {-(-extent // length)} of {length}")
            for axis, (extent, length) in enumerate(zip(self.shape, self.chunks, strict=True))
        )

    @property
    def markup(self) -> str:
        """The box, of the last three axes where there are more, above what is told of all."""
        shape = (1, 1, 1, *self.shape)[-3:]
        chunks = (1, 1, 1, *self.chunks)[-3:]
        most = max(shape)
        sizes = [max(THINNEST, LONGEST * extent / most) for extent in shape]
        if len(self.shape) < 3:
            sizes[0] = 0.0
        back, across, down = sizes
        width, height = across + BACK[0] * back, down - BACK[1] * back
        front = (2.0, 2.0 - BACK[1] * back)
        over, side = (front[0], front[1]), (front[0] + across, front[1])
        right, below, away = (1.0, 0.0), (0.0, 1.0), BACK
        faces = [_Face(front, right, below, across, down)]
        cuts = [(shape[1], chunks[1], shape[2], chunks[2])]
        if back:
            faces += [_Face(over, right, away, across, back), _Face(side, away, below, back, down)]
            cuts += [(shape[1], chunks[1], shape[0], chunks[0]), (shape[0], chunks[0], shape[2], chunks[2])]
        parts = []
        for number, (face, (one, cut_one, other, cut_other)) in enumerate(zip(faces, cuts, strict=True)):
            parts.append(f'<path d="{face.part(1, 1)}" fill="currentColor" fill-opacity="0.06"/>')
            if number < 2 or chunks[1] >= shape[1]:  # the block stands at the left, which the side is not
                first = face.part(min(1, cut_one / one), min(1, cut_other / other))
                parts.append(f'<path d="{first}" fill="{COLOUR}" fill-opacity="{0.75 - 0.15 * number:g}"/>')
            lines = "".join((*face.lines(one, cut_one, True), *face.lines(other, cut_other, False)))
            parts.append(
                f'<path d="{lines}{face.part(1, 1)}" fill="none" stroke="currentColor" stroke-opacity="0.55"/>'
            )
        told = escape(self.told)
        style = f"width:100%;max-width:{width + 4:.0f}px;height:auto;display:block"
        box = f'viewBox="0 0 {width + 4:.0f} {height + 4:.0f}" role="img" aria-label="{told}" style="{style}"'
        return (
            f'<figure class="fb-blocks" style="margin:0 0 12px;font:13px system-ui,sans-serif"><svg {box}>'
            f"{''.join(parts)}</svg><figcaption>{told}</figcaption></figure>"
        )

    def _repr_html_(self) -> str:
        return self.markup


@dataclass(frozen=True)
class _Face:
    """One side of the box: a corner, and where its two axes lead."""

    corner: Place
    first: Place
    second: Place
    length: float
    other_length: float

    def at(self, share: float, other: float) -> str:
        """Return where shares of both axes lead, as a path has it."""
        one, two = share * self.length, other * self.other_length
        x, y = (self.corner[each] + one * self.first[each] + two * self.second[each] for each in (0, 1))
        return f"{x:.1f} {y:.1f}"

    def part(self, share: float, other: float) -> str:
        """Return the outline of a part that begins at the corner."""
        return f"M{self.at(0, 0)}L{self.at(share, 0)}L{self.at(share, other)}L{self.at(0, other)}Z"

    def lines(self, extent: int, length: int, along: bool) -> Iterator[str]:
        """Yield the cuts of the first axis, or of the second; of too many to be told apart, some."""
        places: Sequence[int] = range(length, extent, length)
        for place in places[:: -(-len(places) // FINEST) or 1]:
            share = place / extent
            ends = (self.at(share, 0), self.at(share, 1)) if along else (self.at(0, share), self.at(1, share))
            yield f"M{ends[0]}L{ends[1]}"
