"""Names of files that a terminal, Rich, Matplotlib or a browser would obey: every command takes them as names."""

import ast
import json
import os
import stat
import sys
from pathlib import Path

import pytest
from tests.wave.job.jobs import job_text

import forebay
from forebay.cli import main as command_line
from forebay.report.console import plain

EVIL = "[/nope] [red]:bomb: $\\frac{ \x1b[31m\u202e<script>alert(1)</script>"
FOLDER = "[/nope] [red]:bomb: $\\frac{ \x1b[31m\u202e<b>"
NO_TEXT = "\udcff"

RESULTS = {"image.npy", "stack.npy", "illumination.npy", "image.png", "model.png", "report.html"}
"""What a user asks for: others may read it where the umask lets them."""


@pytest.fixture(params=[FOLDER, NO_TEXT], ids=["obeyed", "no text"])
def folder(request, tmp_path):
    """A folder with such a name."""
    try:
        (tmp_path / request.param).mkdir(parents=True)
    except OSError as error:
        pytest.skip(f"no such name here: {error}")
    return tmp_path / request.param


@pytest.fixture
def forebay_says(monkeypatch, capfd):
    """Run the command line as its script does; return the exit code and what it said."""
    monkeypatch.setenv("COLUMNS", "500")

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["forebay", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            command_line.main()
        said = "".join(capfd.readouterr())
        assert "\x1b[31m" not in said and "\u202e" not in said
        return ended.value.code or 0, said

    return run


def test_doctor(folder, forebay_says):
    code, said = forebay_says("doctor", "--quick", "--directory", folder)
    assert code == 0 and plain(folder.name) in said
    code, said = forebay_says("doctor", "--quick", "--directory", folder / "missing")
    assert code == 2 and "does not exist" in said


@pytest.mark.slow
def test_plan(folder, forebay_says):
    how = ("plan", "--steps", "20", "--state", "1MB", "--host", "4MB")
    code, said = forebay_says(*how, "--output", folder / "plan.json", "--picture", folder / "plan.png")
    assert code == 0 and "host" in said and json.loads((folder / "plan.json").read_text())
    code, said = forebay_says(*how, "--costs", folder / "missing")
    assert code == 2 and plain(folder) in said
    code, said = forebay_says(*how, "--schedule", EVIL)
    assert code == 2 and plain(EVIL) in said.replace("\\\\", "\\")


def test_footprint(folder, forebay_says):
    code, said = forebay_says("footprint", f"{EVIL}:f", "--shape", "8,8")
    assert code == 2
    code, said = forebay_says("footprint", "os:getcwd", "--shape", "8,8", "--picture", folder / "missing" / "x.png")
    assert code == 2 and plain(folder) in said


@pytest.mark.slow
def test_the_picture_of_a_footprint(tmp_path):
    from forebay.footprint import learn, picture

    pytest.importorskip("matplotlib")
    model = learn(command=f"{sys.executable} -c 'b\"x\" * 10**8' {{0}}", ndim=1, shape=(100,), samples=3, seconds=5)
    object.__setattr__(model, "name", EVIL)
    picture.draw(model, tmp_path / "picture.png", (100,))


def test_bench(forebay_says):
    code, said = forebay_says("bench", EVIL)
    assert code == 2 and "no benchmark is called" in said


@pytest.mark.slow
def test_rtm(folder, forebay_says):
    pytest.importorskip("matplotlib")
    job = folder / f"{folder.name}.toml"
    job.write_text(job_text(shots=1))
    before = os.umask(0)
    try:
        code, said = forebay_says("rtm", job)
    finally:
        os.umask(before)
    assert code == 0 and plain(folder / "out" / "image.npy") in said, said
    title = (folder / "out" / "report.html").read_text().partition("</title>")[0]
    assert "<b>" not in title and ("<b>" not in folder.name or "&lt;b&gt;" in title)
    for path in (folder / "out").rglob("*"):
        asked_for = path.parent == folder / "out" and path.name in RESULTS
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o666 if asked_for else 0o700 if path.is_dir() else 0o600), f"{path}: {mode:o}"
    code, said = forebay_says("rtm", folder / "missing.toml")
    assert code == 2 and plain(folder) in said


@pytest.mark.slow
def test_nothing_is_printed_by_rich_but_what_was_made_plain():
    """Find calls of a console's print with a text: its brackets would be markup."""
    offenders = []
    for path in Path(forebay.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            is_print = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "print"
            if not is_print or not ast.unparse(node.func.value).endswith("console"):
                continue
            if isinstance(node.args[0], ast.Constant | ast.JoinedStr | ast.Name):
                offenders.append(f"{path}:{node.lineno}")
    assert not offenders
