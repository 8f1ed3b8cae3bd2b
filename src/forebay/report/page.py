"""One page about a run: a file that any browser opens from disk, with its pictures, charts and their code inside."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from forebay.files import whole
from forebay.report.drawing import load

TEMPLATE = Path(__file__).with_name("page.html")
"""How the elements look; text is escaped there."""


@dataclass(frozen=True)
class Facts:
    """Short facts side by side."""

    kind: ClassVar = "facts"
    values: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Picture:
    """A picture in a PNG file; a copy of it goes into the page."""

    kind: ClassVar = "picture"
    path: Path
    caption: str

    @property
    def base64(self) -> str:
        """The file as text."""
        return base64.b64encode(self.path.read_bytes()).decode()


@dataclass(frozen=True)
class TextTable:
    """Rows of text under a heading for each column."""

    kind: ClassVar = "table"
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Text:
    """Lines as they are."""

    kind: ClassVar = "text"
    text: str


@dataclass(frozen=True)
class Chart:
    """A figure of Plotly, to be moved and zoomed."""

    kind: ClassVar = "chart"
    figure: Any

    @property
    def html(self) -> str:
        """Plotly's own markup, without its library."""
        write = load("plotly.io", "a chart").to_html
        return str(write(self.figure, include_plotlyjs=False, full_html=False, config={"displaylogo": False}))


Element = Facts | Picture | TextTable | Text | Chart


def write_page(path: Path, title: str, lead: str, sections: Sequence[tuple[str, Sequence[Element]]]) -> None:
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
    jinja2 = load("jinja2", "a page")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATE.parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    charts = any(element.kind == Chart.kind for _, elements in sections for element in elements)
    script = load("plotly.offline", "a chart").get_plotlyjs() if charts else ""
    page = environment.get_template(TEMPLATE.name).render(title=title, lead=lead, sections=sections, script=script)
    with whole(path, private=False) as unfinished:
        unfinished.write_text(page, encoding="utf-8", errors="backslashreplace")  # names need not be text
