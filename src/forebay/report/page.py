"""One page about a run: a file that any browser opens from disk, with its pictures, charts and their code inside."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Any

STYLE = """
:root { --ink: #1d2330; --soft: #5d6675; --line: #dfe3e9; --back: #f6f7f9; }
* { box-sizing: border-box; }
body { margin: 0; font: 15px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--back); }
main { max-width: 1180px; margin: 0 auto; padding: 32px 24px 64px; }
h1 { font-size: 28px; margin: 0 0 4px; }
h2 { font-size: 19px; margin: 40px 0 12px; }
p.lead { color: var(--soft); margin: 0 0 20px; max-width: 75ch; }
.card { background: white; border: 1px solid var(--line); border-radius: 8px; padding: 16px; margin: 0 0 16px; }
.facts { display: grid; grid-template-columns: repeat(auto-fill, minmax(205px, 1fr)); gap: 12px; }
.fact { background: white; border: 1px solid var(--line); border-radius: 8px; padding: 12px 14px; }
.fact span { display: block; color: var(--soft); font-size: 13px; }
.fact b { font-size: 17px; font-weight: 600; }
figure { margin: 0; }
figure img { width: 100%; height: auto; display: block; }
figcaption { color: var(--soft); font-size: 14px; margin-top: 8px; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 5px 10px; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 500; font-size: 13px; }
pre { overflow-x: auto; margin: 0; font: 13px/1.5 ui-monospace, monospace; }
"""


@dataclass(frozen=True)
class Facts:
    """Short facts side by side."""

    values: Sequence[tuple[str, str]]

    def html(self) -> str:
        """Write the block."""
        facts = (
            f'<div class="fact"><span>{escape(name)}</span><b>{escape(value)}</b></div>' for name, value in self.values
        )
        return f'<div class="facts">{"".join(facts)}</div>'


@dataclass(frozen=True)
class Picture:
    """A picture in a file; a copy of it goes into the page."""

    path: Path
    caption: str

    def html(self) -> str:
        """Write the block."""
        data = base64.b64encode(self.path.read_bytes()).decode()
        return (
            f'<figure class="card"><img alt="{escape(self.caption)}" src="data:image/png;base64,{data}">'
            f"<figcaption>{escape(self.caption)}</figcaption></figure>"
        )


@dataclass(frozen=True)
class TextTable:
    """Rows of text under a heading for each column."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]

    def html(self) -> str:
        """Write the block."""
        head = "".join(f"<th>{escape(text)}</th>" for text in self.headings)
        rows = "".join(f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in row)}</tr>" for row in self.rows)
        return f'<div class="card"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


@dataclass(frozen=True)
class Text:
    """Lines as they are."""

    text: str

    def html(self) -> str:
        """Write the block."""
        return f'<div class="card"><pre>{escape(self.text)}</pre></div>'


@dataclass(frozen=True)
class Chart:
    """A figure of Plotly, to be moved and zoomed."""

    figure: Any

    def html(self) -> str:
        """Write the block."""
        write = import_module("plotly.io").to_html
        drawn = write(self.figure, include_plotlyjs=False, full_html=False, config={"displaylogo": False})
        return f'<div class="card">{drawn}</div>'


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
        Headings, each with its blocks; an empty heading is not shown.
    """
    parts = []
    for heading, blocks in sections:
        parts.append(f"<h2>{escape(heading)}</h2>" if heading else "")
        parts += [block.html() for block in blocks]
    charts = any(isinstance(block, Chart) for _, blocks in sections for block in blocks)
    code = f"<script>{import_module('plotly.offline').get_plotlyjs()}</script>" if charts else ""
    path.write_text(
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{escape(title)}</title>'
        f"<style>{STYLE}</style>{code}</head><body><main><h1>{escape(title)}</h1>"
        f'<p class="lead">{escape(lead)}</p>{"".join(parts)}</main></body></html>\n'
    )
