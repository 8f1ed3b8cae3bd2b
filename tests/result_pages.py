"""The tables of docs/results and the README, made from the JSON that benchmarks wrote into docs/results/data.

A page names each table in a comment, and what follows up to the next `<!-- end -->` is made from it:

    <!-- measured reversal-tiny -->                              device, versions, command and date of that file
    <!-- table reversal-tiny way=min,auto | way seconds:s -->    its rows with these values, and of them these keys
    <!-- facts reversal-tiny | costs.forward:s links.up:B -->    single values beside the rows

Keys and formats are those of `Report.table`; `key=words_of_a_heading:format` names a column otherwise.
`python -m tests.result_pages` writes all pages again.
"""

import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "bench"))

from harness.report import Row, cell  # noqa: E402

DATA = ROOT / "docs" / "results" / "data"
PAGES = [ROOT / "README.md", *sorted(DATA.parent.glob("*.md"))]
PART = re.compile(r"(?P<opening><!-- (?P<asked>(?:measured|table|facts) [^>]*?) -->\n).*?(?=<!-- end -->)", re.DOTALL)


def made(text: str, data: Path = DATA) -> str:
    """Return a page with all that its comments name made again."""
    return PART.sub(lambda part: f"{part['opening']}\n{answer(part['asked'], data)}\n\n", text)


def answer(asked: str, data: Path) -> str:
    """Return the lines that a comment asks for."""
    selection, _, columns = (piece.strip() for piece in asked.partition("|"))
    what, name, *wanted = selection.split()
    written = json.loads((data / f"{name}.json").read_text())
    if what == "measured":
        return measured(written)
    if what == "facts":
        return table((heading, form, [cell(written["facts"], key, form)]) for key, heading, form in parsed(columns))
    conditions = dict(condition.split("=", 1) for condition in wanted)
    rows = [row for row in written["rows"] if all(cell(row, k, "") in v.split(",") for k, v in conditions.items())]
    if not rows:
        raise ValueError(f"no row of {name}.json has {' '.join(wanted)}")
    return table((heading, form, [cell(row, key, form) for row in rows]) for key, heading, form in parsed(columns))


def parsed(columns: str) -> Iterable[tuple[str, str, str]]:
    """Yield the key, the heading and the format of each column."""
    for column in columns.split():
        named, _, form = column.partition(":")
        key, _, heading = named.partition("=")
        yield key, (heading or key.rpartition(".")[2]).replace("_", " "), form


def table(columns: Iterable[tuple[str, str, list[str]]]) -> str:
    """Return columns, each a heading, a format and its cells, as a table of Markdown; numbers stand on the right."""
    headings, forms, cells = zip(*columns, strict=True)
    lines = [headings, ["---:" if form else "---" for form in forms], *zip(*cells, strict=True)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def measured(written: Row) -> str:
    """Return when, where and how a file was written."""
    environment: dict[str, Any] = written["environment"]
    gpus = [f"{gpu['name']}, driver {gpu['driver']}" for gpu in environment["gpus"]]
    libraries = [f"{name} {version}" for name, version in environment["versions"].items() if name != "forebay"]
    where = " and ".join([*gpus, f"{environment['cpus']} cores"])
    commit = f", commit {environment['commit']}" if environment["commit"] else ""
    return (
        f"`python bench/{written['command']}` on {written['date'][:10]}{commit}\n({where}; {environment['platform']}; "
        f"{', '.join(libraries)})."
    )


def main() -> None:
    """Write all pages again."""
    for page in PAGES:
        page.write_text(made(page.read_text()))


if __name__ == "__main__":
    main()
