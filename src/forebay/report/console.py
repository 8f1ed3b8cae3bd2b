"""What is said on a terminal: names of files and other people's texts as they are, and never as a command to it."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # it takes its time to load
    from rich.console import Console
    from rich.text import Text


def plain(text: object) -> str:
    r"""Return a text without what a terminal obeys: such characters, and what is no character, are written out.

    Examples
    --------
    >>> print(plain("a\x1b[2J, a\u202eb and\na line"))
    a\x1b[2J, a\u202eb and
    a line
    """
    return "".join(each if each.isprintable() or each in "\n\t" else _written_out(each) for each in str(text))


def _written_out(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


def rich_text(text: object, style: str = "") -> "Text":
    """Return a text for tables and lines of Rich, in which brackets, colons and numbers mean nothing."""
    from rich.text import Text

    return Text(plain(text), style=style)


def say(console: "Console", text: object, style: str = "") -> None:
    """Print a line as it is, unbroken."""
    console.print(rich_text(text, style), soft_wrap=True)
