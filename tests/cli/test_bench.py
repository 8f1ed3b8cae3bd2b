"""Benchmarks are listed with what they measure, run by name, and end in seconds in their tiny form."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from forebay.cli import bench
from forebay.cli.main import app
from forebay.cuda.available import gpu_count

FOLDER = Path(__file__).parents[2] / "bench"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py"))
CHEAP = ("loop_on_disk", "planning", "reversal")
"""Run by the fast tests: two that compute and one that needs a GPU. CI runs all of them in a step of its own."""


def forebay(*arguments):
    command = [sys.executable, "-c", "from forebay.cli.main import main; main()", "bench", *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def test_only_benchmarks_are_listed_each_with_a_line():
    listed = CliRunner().invoke(app, ["bench", "--list"]).output.splitlines()
    assert [line.split()[0] for line in listed] == NAMES
    assert all(len(line.split()) > 4 for line in listed)
    assert {"reversal", "codecs", "rtm", "pool"} <= set(NAMES) and not {"harness", "wavefields", "nets"} & set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_is_a_script_of_the_harness(name):
    source = (FOLDER / f"{name}.py").read_text()
    assert source.startswith('"""') and "@benchmark(" in source and 'if __name__ == "__main__":' in source


def test_a_benchmark_describes_its_arguments():
    run = forebay("planning", "--", "--help")
    assert run.returncode == 0 and "How long `plan` takes" in run.stdout
    assert "--tiny" in run.stdout and "--output" in run.stdout


def test_options_that_are_a_benchmarks_own_reach_it(monkeypatch, tmp_path):
    (tmp_path / "told.py").write_text(
        '"""Tells its arguments."""\nimport sys\nopen(sys.argv[2], "w").write(str(sys.argv))\n'
    )
    monkeypatch.setattr(bench, "FOLDER", tmp_path)
    out = tmp_path / "out.txt"
    run = CliRunner().invoke(app, ["bench", "told", "--tiny", "--output", str(out), "-n", "3", "--quick"])
    assert run.exit_code == 0, run.output
    assert out.read_text().endswith(f"['--output', {str(out)!r}, '-n', '3', '--quick', '--tiny']".lstrip("["))


@pytest.mark.parametrize(
    "name", [*CHEAP, *(pytest.param(name, marks=pytest.mark.slow) for name in NAMES if name not in CHEAP)]
)
def test_a_tiny_benchmark_ends_and_writes_the_one_schema(name, tmp_path):
    out = tmp_path / "out.json"
    run = subprocess.run(
        [sys.executable, str(FOLDER / f"{name}.py"), "--tiny", "--output", str(out)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    if run.returncode == 77:
        assert "needs" in run.stdout and "skipped" in run.stdout
        return
    assert run.returncode == 0, run.stdout + run.stderr
    written = json.loads(out.read_text())
    assert written["name"] == name and written["rows"] and written["environment"]["versions"]["forebay"]
    assert {"command", "date", "arguments", "facts", "failures", "seconds"} <= set(written)


def test_all_counts_what_lacks_a_gpu_as_skipped(monkeypatch, tmp_path):
    (tmp_path / "fine.py").write_text('"""Does nothing."""\n')
    (tmp_path / "lacking.py").write_text('"""Lacks something."""\nraise SystemExit(77)\n')
    monkeypatch.setattr(bench, "FOLDER", tmp_path)
    run = CliRunner().invoke(app, ["bench", "--all", "--tiny"])
    assert run.exit_code == 0 and "1 ran, 1 skipped (lacking)" in run.output
    (tmp_path / "wrong.py").write_text('"""Fails."""\nraise SystemExit(3)\n')
    run = CliRunner().invoke(app, ["bench", "--all"])
    assert run.exit_code == 1 and "1 failed (wrong)" in run.output


@pytest.mark.skipif(gpu_count() > 0, reason="there is a GPU")
def test_one_that_needs_a_gpu_says_so():
    run = forebay("reversal", "--tiny")
    assert run.returncode == 77 and "needs a GPU" in run.stdout


def test_without_a_checkout_it_says_what_it_needs(monkeypatch, tmp_path):
    monkeypatch.setattr(bench, "FOLDER", tmp_path / "bench")
    run = CliRunner().invoke(app, ["bench", "reversal"])
    assert "checkout" in str(run.exception) and "bench" in str(run.exception)


def test_a_name_that_is_none_is_told_with_those_that_are():
    run = forebay("nothing")
    assert run.returncode == 2 and "no benchmark is called 'nothing'" in run.stderr and "reversal" in run.stderr
