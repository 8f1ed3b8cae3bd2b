"""One page about a run: a file that any browser opens from disk, with its pictures, charts and their code inside."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from forebay.drawing import Chart
from forebay.drawing.blocks import Blocks
from forebay.drawing.tables import preformatted, table
from forebay.files import whole

STYLE, SCRIPT = (Path(__file__).with_name(f"page.{kind}") for kind in ("css", "js"))


@dataclass(frozen=True)
class Facts:
    """Short facts side by side."""

    values: Sequence[tuple[str, str]]

    @property
    def markup(self) -> str:
        """A box for each."""
        boxes = (f'<div class="fact"><span>{escape(n)}</span><b>{escape(v)}</b></div>' for n, v in self.values)
        return f'<div class="facts">\n{"".join(boxes)}\n</div>'


@dataclass(frozen=True)
class Picture:
    """A picture in a PNG file; a copy of it goes into the page."""

    path: Path
    caption: str

    @property
    def markup(self) -> str:
        """The picture above its caption."""
        data, caption = base64.b64encode(self.path.read_bytes()).decode(), escape(self.caption)
        return (
            f'<figure class="card"><img alt="{caption}" src="data:image/png;base64,{data}">'
            f"<figcaption>{caption}</figcaption></figure>"
        )


@dataclass(frozen=True)
class TextTable:
    """Rows of text under a heading for each column."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]

    @property
    def markup(self) -> str:
        """The table; where it is wider than the page it is scrolled by itself."""
        return f'<div class="card">{table(self.headings, self.rows)}</div>'


@dataclass(frozen=True)
class Text:
    """Lines as they are."""

    text: str

    @property
    def markup(self) -> str:
        """The lines, escaped."""
        return f'<div class="card">{preformatted(self.text)}</div>'


@dataclass(frozen=True)
class Drawn:
    """A chart, and what there is to see in it."""

    chart: Chart | Blocks
    caption: str = ""

    @property
    def markup(self) -> str:
        """The chart above its caption."""
        caption = f"<figcaption>{escape(self.caption)}</figcaption>" if self.caption else ""
        return f'<div class="card">{self.chart.markup}{caption}</div>'


Element = Facts | Picture | TextTable | Text | Drawn
Section = tuple[str, Sequence[Element]]


def write_page(path: Path | str, title: str, lead: str, sections: Sequence[Section]) -> None:
    """Write a page.

    Parameters
    ----------
    path
        Of the file.
    title, lead
        What it is about, in a few words and in a sentence or two.
    sections
        Headings, each with its elements; an empty heading is not shown.
    """
    charts = any(isinstance(element, Drawn) for _, elements in sections for element in elements)
    script = f"<script>{SCRIPT.read_text()}</script>\n" if charts else ""
    body = []
    for heading, elements in sections:
        body += [f"<h2>{escape(heading)}</h2>"] if heading else []
        body += [element.markup for element in elements]
    page = (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{escape(title)}</title>\n'
        f"<style>\n{STYLE.read_text()}</style>\n</head>\n<body>\n<main>\n<h1>{escape(title)}</h1>\n"
        f'<p class="lead">{escape(lead)}</p>\n' + "\n".join(body) + f"\n</main>\n{script}</body>\n</html>\n"
    )
    with whole(Path(path), private=False) as unfinished:
        unfinished.write_text(page, encoding="utf-8", errors="backslashreplace")  # names need not be text
