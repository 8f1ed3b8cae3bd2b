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
CHILDREN = '''"""Calls a function that works and one that does not."""
import os
from harness import benchmark, child

def works():
    return {"pid": os.getpid()}

def fails():
    raise ValueError("broken")

@benchmark()
def main(asked, report):
    report.add(child(works) | {"own": os.getpid()})
    report.add(child(fails))

if __name__ == "__main__":
    main()
'''


def test_only_benchmarks_are_listed_each_with_a_line():
    listed = CliRunner().invoke(app, ["bench", "--list"]).output.splitlines()
    assert [line.split()[0] for line in listed] == NAMES
    assert all(len(line.split()) > 4 for line in listed)
    about = json.loads(CliRunner().invoke(app, ["bench", "--json"]).output)
    assert [f"{name:14} {line}" for name, line in about.items()] == listed
    assert {"reversal", "codecs", "rtm", "pool"} <= set(NAMES) and not {"harness", "wavefields", "nets"} & set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_is_a_script_of_the_harness(name):
    source = (FOLDER / f"{name}.py").read_text()
    assert source.startswith('"""') and "@benchmark(" in source and 'if __name__ == "__main__":' in source


def test_a_benchmark_run_for_its_json_prints_nothing_else(tmp_path, monkeypatch):
    (tmp_path / "own.py").write_text(CHILDREN.replace("report.add(child(works) | {", "print('a word'); report.add({"))
    (tmp_path / "harness").symlink_to(FOLDER / "harness")
    command = f"from pathlib import Path; from forebay.cli import bench; bench.FOLDER = Path({str(tmp_path)!r}); "
    command += "from forebay.cli.main import main; main()"
    ran = subprocess.run([sys.executable, "-c", command, "bench", "own", "--json"], capture_output=True, text=True)
    assert json.loads(ran.stdout)["rows"] and "a word" in ran.stderr


def test_a_benchmark_describes_its_arguments(capfd):
    assert CliRunner().invoke(app, ["bench", "planning", "--", "--help"]).exit_code == 0
    said = capfd.readouterr().out
    assert "How long `plan` takes" in said and "--tiny" in said and "--output" in said


def test_options_that_are_a_benchmarks_own_reach_it(monkeypatch, tmp_path):
    (tmp_path / "told.py").write_text(
        '"""Tells its arguments."""\nimport sys\nopen(sys.argv[2], "w").write(str(sys.argv))\n'
    )
    monkeypatch.setattr(bench, "FOLDER", tmp_path)
    out = tmp_path / "out.txt"
    run = CliRunner().invoke(app, ["bench", "told", "--tiny", "--output", str(out), "-n", "3", "--quick"])
    assert run.exit_code == 0, run.output
    assert out.read_text().endswith(f"['--output', {str(out)!r}, '-n', '3', '--quick', '--tiny']".lstrip("["))


LONG = {"chunks", "devito_memory", "footprint", "jax_loop", "rtm", "torch_fit", "torch_loop", "torch_step"}
"""Benchmarks whose tiny form takes longest; `forebay bench --all --tiny` runs them beside the tests."""
TINY = [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in NAMES]


def script(path, *arguments, cwd):
    command = [sys.executable, str(path), *map(str, arguments)]
    own = {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), str(FOLDER)]),
    }
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=os.environ | own)


@pytest.mark.parametrize("name", TINY)
def test_a_tiny_benchmark_ends_and_writes_the_one_schema(name, tmp_path):
    out = tmp_path / "out.json"
    run = script(FOLDER / f"{name}.py", "--tiny", "--output", out, cwd=tmp_path)
    if run.returncode == 77:
        assert "needs" in run.stdout and "skipped" in run.stdout
        return
    assert run.returncode == 0, run.stdout + run.stderr
    written = json.loads(out.read_text())
    assert written["name"] == name and written["rows"] and written["environment"]["versions"]["forebay"]
    assert {"command", "date", "arguments", "facts", "failures", "seconds"} <= set(written)


def test_functions_run_in_processes_of_their_own_and_the_tiny_form_fails_with_them(tmp_path):
    (tmp_path / "calls.py").write_text(CHILDREN)
    out = tmp_path / "out.json"
    run = script("calls.py", "--output", out, cwd=tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr
    worked, failed = json.loads(out.read_text())["rows"]
    assert worked["pid"] != worked["own"] and failed == {"failed": "ValueError: broken"}
    run = script("calls.py", "--tiny", "--output", out, cwd=tmp_path)
    (worked,) = json.loads(out.read_text())["rows"]
    assert run.returncode == 1 and "ValueError: broken" in run.stderr and worked["pid"] == worked["own"]


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
def test_one_that_needs_a_gpu_says_so(capfd):
    assert CliRunner().invoke(app, ["bench", "reversal", "--tiny"]).exit_code == 77
    assert "needs a GPU" in capfd.readouterr().out


def test_without_a_checkout_it_says_what_it_needs(monkeypatch, tmp_path):
    monkeypatch.setattr(bench, "FOLDER", tmp_path / "bench")
    run = CliRunner().invoke(app, ["bench", "reversal"])
    assert "checkout" in str(run.exception) and "bench" in str(run.exception)


def test_a_name_that_is_none_is_told_with_those_that_are():
    run = CliRunner().invoke(app, ["bench", "nothing"])
    assert "no benchmark is called 'nothing'" in str(run.exception) and "reversal" in str(run.exception)
