"""Charts as SVG inside of HTML: as wide as the room there is, in the colours of the page, zoomed where scripts run.

What is drawn lies in an inner SVG that is stretched to its place; texts lie outside of it, at shares of the width.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import NamedTuple

from forebay.drawing.ticks import label, ticks

LEFT, RIGHT, ABOVE, BELOW, GAP = 94, 14, 10, 40, 12
"""Pixels around the panels, and between them."""
FINEST = 2000
"""Places that are told apart along an axis."""
WIDTH = 960
"""Pixels of a chart in a file of its own."""
FONT = "font: 12px system-ui, sans-serif"

Point = tuple[float, float]


class Tip(NamedTuple):
    """What is told of a part of a panel when something points there."""

    left: float
    right: float
    low: float
    high: float
    text: str


@dataclass(frozen=True)
class Series:
    """Lines of one colour, or areas."""

    name: str
    """in the legend and, where nothing else tells it, of what is pointed at"""
    colour: str
    lines: Sequence[Sequence[Point]]
    filled: bool = False
    width: float = 1.5
    """pixels of a line"""
    dashed: bool = False
    about: str = ""
    """what is told of all of it"""


@dataclass(frozen=True)
class Subplot:
    """One of the fields of a chart, which lie one below the other on one axis across."""

    marks: Sequence[Series]
    up: str
    """what the axis upwards counts"""
    top: float
    """its end; it begins at `bottom`"""
    bottom: float = 0.0
    height: int = 220
    """pixels"""
    names: Sequence[tuple[float, str]] = ()
    """in the place of numbers along that axis"""
    tips: Sequence[Tip] = ()


@dataclass(frozen=True)
class Chart:
    """Panels one below the other, with a legend; notebooks show it, and `write` writes it.

    Examples
    --------
    >>> chart = Chart([Subplot([Series("a", "#2b7bba", [[(0, 0), (1, 2)]])], "y", top=2)], "seconds", 1.0)
    >>> chart.markup.count("<path")
    1
    """

    panels: Sequence[Subplot]
    across: str
    """what the axis across counts"""
    end: float
    """where it ends; it begins at 0"""
    title: str = ""
    columns: Sequence[str] = ()
    """names of the whole numbers across, each in the middle of its room"""

    @property
    def height(self) -> int:
        """Pixels."""
        return ABOVE + sum(panel.height for panel in self.panels) + GAP * (len(self.panels) - 1) + BELOW

    @property
    def markup(self) -> str:
        """The chart as HTML: its legend and an SVG as wide as what is around it."""
        place = f'style="display:block;overflow:visible;margin-left:{LEFT}px;width:calc(100% - {LEFT + RIGHT}px)"'
        return f'<figure class="fb-chart" style="margin:0;{FONT}">{self._legend()}{self._svg(place)}</figure>'

    def write(self, path: Path | str) -> None:
        """Write the chart as an SVG file, or as HTML where the name ends so."""
        path = Path(path)
        if path.suffix.lower() in (".html", ".htm"):
            path.write_text(f"<!doctype html>\n<meta charset=utf-8>\n{self.markup}\n", encoding="utf-8")
            return
        inside = f'x="{LEFT}" width="{WIDTH - LEFT - RIGHT}" overflow="visible"'
        path.write_text(
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{self.height + 22}" style="{FONT}">'
            f'<rect width="100%" height="100%" fill="white"/>{self._svg(inside)}'
            f"{_legend_alone(self._entries(), self.height)}</svg>\n",
            encoding="utf-8",
        )

    def _repr_html_(self) -> str:
        return self.markup

    def _entries(self) -> dict[str, str]:
        marks = [mark for panel in self.panels for mark in panel.marks]
        return {mark.name: mark.colour for mark in marks if mark.name and not mark.dashed}

    def _legend(self) -> str:
        box = "display:inline-block;width:11px;height:11px;border-radius:2px;margin-right:5px"
        entries = "".join(
            f'<span style="white-space:nowrap"><i style="{box};background:{colour}"></i>{escape(name)}</span>'
            for name, colour in self._entries().items()
        )
        head = f'<b style="font-weight:600">{escape(self.title)}</b>' if self.title else ""
        return f'<div style="display:flex;flex-wrap:wrap;gap:2px 14px;margin:0 0 4px {LEFT}px">{head}{entries}</div>'

    def _svg(self, place: str) -> str:
        above = ABOVE
        parts: list[str] = []
        for number, panel in enumerate(self.panels):
            parts += self._panel(panel, above, last=number == len(self.panels) - 1)
            above += panel.height + GAP
        return (
            f'<svg class="fb" {place} height="{self.height}" role="img" data-end="{self.end:.9g}" '
            f'data-across="{escape(self.across)}" fill="currentColor" aria-label="{escape(self.title or self.across)}">'
            f"{''.join(parts)}</svg>"
        )

    def _panel(self, panel: Subplot, above: int, last: bool) -> Iterator[str]:
        yield f'<svg y="{above}" width="100%" height="{panel.height}" overflow="visible">'
        for value, name in panel.names or [(value, label(value)) for value in ticks(panel.bottom, panel.top, 5)]:
            y = panel.height * (1 - _share(value, panel.bottom, panel.top))
            yield f'<text x="-6" y="{y + 4:.1f}" text-anchor="end">{escape(name)}</text>'
        if panel.up:
            middle, left = panel.height / 2, 14 - LEFT
            turned = f'transform="rotate(-90 {left} {middle})"'
            yield f'<text x="{left}" y="{middle}" text-anchor="middle" opacity="0.7" {turned}>{escape(panel.up)}</text>'
        if not panel.names:
            for value in ticks(panel.bottom, panel.top, 5):
                y = panel.height * (1 - _share(value, panel.bottom, panel.top))
                yield f'<line x1="0" x2="100%" y1="{y:.1f}" y2="{y:.1f}" stroke="currentColor" opacity="0.12"/>'
        tips = escape(json.dumps([[*map(_short, tip[:4]), tip.text] for tip in panel.tips], separators=(",", ":")))
        yield (
            f'<svg class="fb-data" viewBox="0 0 {FINEST} {FINEST}" preserveAspectRatio="none" width="100%" '
            f'height="{panel.height}" data-low="{panel.bottom:.9g}" data-high="{panel.top:.9g}" data-tips="{tips}">'
        )
        yield f'<rect width="{FINEST}" height="{FINEST}" fill="transparent"/>'
        for mark in panel.marks:
            yield self._path(mark, panel)
        yield "</svg>"
        yield f'<line x1="0" x2="100%" y1="{panel.height}" y2="{panel.height}" stroke="currentColor" opacity="0.4"/>'
        if last:
            yield f'<g class="fb-ticks">{"".join(self._ticks(panel.height))}</g>'
            yield (
                f'<text x="50%" y="{panel.height + 34}" text-anchor="middle" opacity="0.7">{escape(self.across)}</text>'
            )
        yield "</svg>"

    def _ticks(self, height: int) -> Iterator[str]:
        places = [(number + 0.5, name) for number, name in enumerate(self.columns)]
        if len(places) > 12:  # their names would lie on each other
            places = places[:: -(-len(places) // 12)]
        for value, name in places or [(value, label(value)) for value in ticks(0, self.end)]:
            share = 100 * _share(value, 0, self.end)
            yield f'<text x="{share:.3f}%" y="{height + 16}" text-anchor="middle">{escape(name)}</text>'

    def _path(self, mark: Series, panel: Subplot) -> str:
        lines = list(_placed(mark.lines, self.end, panel, mark.filled))
        ink = f'fill="{mark.colour}"' if mark.filled else f'fill="none" stroke="{mark.colour}"'
        if not mark.filled:
            ink += f' stroke-width="{mark.width}" vector-effect="non-scaling-stroke"'
            ink += ' stroke-dasharray="4 4"' if mark.dashed else ""
        about = escape(mark.about or mark.name)
        return f'<path d="{"".join(lines)}" {ink} data-what="{escape(mark.name)}"><title>{about}</title></path>'


def _short(value: float) -> float:
    return float(f"{value:.7g}")


def _share(value: float, low: float, high: float) -> float:
    return (value - low) / (high - low) if high > low else 0.0


def _placed(lines: Iterable[Sequence[Point]], end: float, panel: Subplot, filled: bool) -> Iterator[str]:
    """Yield lines as SVG has them; one that nobody could tell from the last is left out."""
    last = None
    for line in lines:
        points = [(FINEST * _share(x, 0, end), FINEST * (1 - _share(y, panel.bottom, panel.top))) for x, y in line]
        if not filled:
            seen = [(round(x), round(y)) for x, y in points]
            if seen == last:
                continue
            last = seen
        yield "M" + "L".join(f"{x:.2f} {y:.2f}" for x, y in points) + ("Z" if filled else "")


def _legend_alone(entries: dict[str, str], below: int) -> str:
    apart = (WIDTH - LEFT) / max(1, len(entries))
    return "".join(
        f'<rect x="{LEFT + number * apart:.0f}" y="{below}" width="11" height="11" fill="{colour}"/>'
        f'<text x="{LEFT + number * apart + 16:.0f}" y="{below + 10}">{escape(name)}</text>'
        for number, (name, colour) in enumerate(entries.items())
    )
