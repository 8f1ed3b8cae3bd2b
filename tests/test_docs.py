"""The pages: their Python runs, prints what they show, and their links lead somewhere.

A page's blocks run from top to bottom in one namespace. A ```text block right after a ```python block is what that
block prints. Blocks that open with ```python no-run are skipped.
"""

import ast
import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from docs import figures, reference

from tests import result_pages

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]

BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```\n(?:\s*^```text\n(?P<output>.*?)^```$)?", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?P<target>[^)\s#]+)(?:#[^)]*)?\)")


def relative_links(page):
    targets = [match["target"] for match in LINK.finditer(page.read_text())]
    return [target for target in targets if "://" not in target and not target.startswith("mailto:")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_runs_and_prints_what_is_shown(page, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    text = page.read_text()
    namespace = {"__name__": "__main__"}
    for block in BLOCK.finditer(text):
        if "import deepwave" in block["code"] and find_spec("deepwave") is None:
            pytest.skip("there are wheels of Deepwave for Linux on x86-64 alone")
        above = "\n" * text.count("\n", 0, block.start("code"))  # so that a traceback names the line of the page
        exec(compile(above + block["code"], page, "exec"), namespace)
        printed = capsys.readouterr().out
        if block["output"] is not None:
            assert printed == block["output"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_to_files(page):
    missing = [target for target in relative_links(page) if not (page.parent / target).is_file()]
    assert not missing


def test_every_page_is_linked_from_the_index():
    index = DOCS / "index.md"
    linked = {(DOCS / target).resolve() for target in relative_links(index)}
    assert {page.resolve() for page in DOCS.rglob("*.md")} - {index.resolve()} <= linked


def test_every_page_is_a_page_of_the_site():
    site = (ROOT / "mkdocs.yml").read_text()
    assert [page.name for page in DOCS.rglob("*.md") if f": {page.relative_to(DOCS)}\n" not in site] == []


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path):
    pytest.importorskip("mkdocs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", tmp_path / "site"]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    assert (tmp_path / "site" / "reports.html").is_file()
    for package in reference.PACKAGES:
        written = (tmp_path / "site" / "reference" / f"{package}.html").read_text()
        assert [place for place in reference.public_names(package).values() if f'id="{place}"' not in written] == []


def test_every_public_name_is_in_the_reference():
    site, source = (ROOT / "mkdocs.yml").read_text(), ROOT / "src" / "forebay"
    rooms = {f"forebay.{path.parent.name}" for path in source.glob("*/__init__.py") if " as " in path.read_text()}
    assert rooms - {"forebay.drawing"} <= reference.PACKAGES.keys()  # what draws is not for users
    for package in reference.PACKAGES:
        assert f": reference/{package}.md\n" in site
        assert (places := reference.public_names(package))
        assert [name for name, place in places.items() if not documented(place)] == []


def test_every_figure_is_shown_and_every_picture_is_drawn_by_a_command():
    shown = {Path(target).name for page in PAGES for target in relative_links(page) if "pictures/" in target}
    drawn = {f"{name}.svg" for name in figures.FIGURES}
    assert drawn == shown - {"plans.png"} and len(drawn) >= 30
    assert {path.name for path in figures.PICTURES.iterdir()} == drawn | {"plans.png"}


@pytest.mark.parametrize(
    "name",
    [name if name.startswith("measured-") else pytest.param(name, marks=pytest.mark.slow) for name in figures.FIGURES],
)
def test_a_figure_is_what_its_command_draws(name, tmp_path):
    figures.FIGURES[name]().write(tmp_path / "drawn.svg")
    assert (tmp_path / "drawn.svg").read_text() == (figures.PICTURES / f"{name}.svg").read_text()


def documented(place):
    """Tell whether a docstring follows what is defined in a module."""
    module, _, name = place.rpartition(".")
    statements = ast.parse((ROOT / "src" / module.replace(".", "/")).with_suffix(".py").read_text()).body
    for statement, following in zip(statements, [*statements[1:], None], strict=True):
        defines = isinstance(statement, ast.ClassDef | ast.FunctionDef) and statement.name == name
        if defines and ast.get_docstring(statement):  # of overloads the last one has it
            return True
        targets = getattr(statement, "targets", [getattr(statement, "target", None)])
        if name in {getattr(target, "id", None) for target in targets}:
            return isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
    return False


def test_no_page_tells_to_fetch_from_pypi_what_is_not_there():
    assert not [page.name for page in PAGES if re.search(r"pip install ['\"]?forebay", page.read_text())]


def test_tables_of_results_are_those_of_their_files():
    assert result_pages.PAGES
    for page in result_pages.PAGES:
        assert page.read_text() == result_pages.made(page.read_text())


def test_a_table_is_made_of_the_rows_and_keys_that_its_page_names(tmp_path):
    rows = [
        {"way": "min", "seconds": 0.0025, "moved": {"up": 3 * 10**9}},
        {"way": "lru", "seconds": 1.5},
        {"way": "limit", "seconds": 1.0},
    ]
    (tmp_path / "loop.json").write_text(json.dumps({"rows": rows, "facts": {"ratio": 1.2345}}))
    asked = "<!-- table loop way=min,lru | way seconds=by_the_clock:s moved.up:B -->\n"
    page = f"# A loop\n\n{asked}old\n<!-- end -->\n\n<!-- facts loop | ratio:.2f -->\n<!-- end -->\nafter\n"
    table = "| way | by the clock | up |\n| --- | ---: | ---: |\n| min | 2.5 ms | 3GB |\n| lru | 1.5 s |  |"
    made = result_pages.made(page, tmp_path)
    assert made == (
        f"# A loop\n\n{asked}\n{table}\n\n<!-- end -->\n\n"
        "<!-- facts loop | ratio:.2f -->\n\n| ratio |\n| ---: |\n| 1.23 |\n\n<!-- end -->\nafter\n"
    )
    assert result_pages.made(made, tmp_path) == made
    with pytest.raises(ValueError, match="no row of loop"):
        result_pages.made(page.replace("way=min,lru", "way=max"), tmp_path)


LONGER = {"jobs.md", "waves.md", "words.md"}


def test_a_page_is_one_capability_that_is_read_in_one_go():
    lines = {page.name: page.read_text().count("\n") for page in DOCS.glob("*.md")}
    assert {name for name, count in lines.items() if count > 180} <= LONGER
    assert lines.keys() >= LONGER


RESULTS = sorted((DOCS / "results").glob("*.md"))
ELSEWHERE = r"(?:not (?:part of|in)|no part of|outside of) the\s+repository|\bby (?:a|the same) script|scripts? that"


@pytest.mark.parametrize("page", RESULTS, ids=lambda page: page.name)
def test_a_page_of_results_is_read_at_one_look_and_rests_on_commands_of_the_repository(page):
    text = page.read_text()
    written = re.sub(r"<!-- table .*?<!-- end -->", "", text, flags=re.DOTALL)  # the rows are those of a file
    assert written.count("\n") <= 80 and not re.findall(ELSEWHERE, text, re.IGNORECASE)
    scripts = re.findall(r"\b(?:bench|examples)/[\w/]+\.py\b", text)
    assert [script for script in scripts if not (ROOT / script).is_file()] == []
