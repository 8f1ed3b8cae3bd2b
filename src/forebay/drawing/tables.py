"""Tables and texts as markup, for pages and notebooks."""

from collections.abc import Sequence
from html import escape


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return rows of text under a heading for each column.

    Examples
    --------
    >>> table(["a"], [["1 < 2"]])
    '<table><thead><tr><th>a</th></tr></thead><tbody><tr><td>1 &lt; 2</td></tr></tbody></table>'
    """
    head = "".join(f"<th>{escape(text)}</th>" for text in headings)
    body = "".join(f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def preformatted(text: str) -> str:
    """Return lines as they are."""
    return f'<pre style="overflow-x:auto;margin:0">{escape(text)}</pre>'
