"""`forebay fwi` and `forebay lsrtm`: what they write, tell and refuse, and how they go on."""

import json
import signal
import subprocess
import sys

import numpy as np
import pytest
from tests.wave.job.inversions import inversion_text
from typer.testing import CliRunner

from forebay.cli.main import app
from forebay.errors import ForebayError, WaveError

pytest.importorskip("matplotlib")

SEARCH = "iterations = 1\nbounds = [1400.0, 3400.0]\nprecondition = false"
TEXTS = {
    "fwi": inversion_text(SEARCH, geometry="shots = 1\nreceiver_spacing = 500.0"),
    "lsrtm": inversion_text(
        None, lsrtm="iterations = 1\nprecondition = false", geometry="shots = 1\nreceiver_spacing = 500.0"
    ),
}
PICTURES = {"fwi": {"velocity", "start", "update", "gathers-00000"}, "lsrtm": {"image", "model"}}
FOUND = {"fwi": "velocity", "lsrtm": "image"}


def run(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)])


@pytest.mark.slow
@pytest.mark.parametrize("command", ["fwi", pytest.param("lsrtm", marks=pytest.mark.slow)])
def test_it_writes_what_it_found_pictures_and_a_page_and_the_second_time_finds_them(command, tmp_path):
    job, out = tmp_path / "job.toml", tmp_path / "out"
    job.write_text(TEXTS[command])
    checked = run(command, job, "--check")
    assert checked.exit_code == 0 and "24 x 48 points" in checked.output and not out.exists()
    first = run(command, job)
    assert first.exit_code == 0, first.output
    assert "iteration 1 of 1: " in first.output
    names = {path.name for path in out.iterdir()}
    assert {f"{name}.png" for name in PICTURES[command]} | {"report.html", "results.json"} <= names
    found = np.load(out / f"{FOUND[command]}.npy")
    assert found.shape == (24, 48) and found.dtype == np.float32
    page = (out / "report.html").read_text()
    for heading in ("Pictures", "The plan", "The job", "The last pass over the shots", "predicted and measured"):
        assert heading in page
    second = run(command, job, "--json")
    told = json.loads(second.stdout)
    assert second.exit_code == 0 and len(told["misfits" if command == "fwi" else "residuals"]) > 0
    assert str(out / "report.html") in told["written"]
    assert np.array_equal(np.load(out / f"{FOUND[command]}.npy"), found)
    assert run(command, job, "--verify").exit_code == 0
    again = run("report", out, "--output", tmp_path / "page.html")
    assert again.exit_code == 0 and "The plan" in (tmp_path / "page.html").read_text()
    assert run("report", out).exit_code == 0 and run(command, job, "--verify").exit_code == 0
    data = (out / f"{FOUND[command]}.npy").read_bytes()
    (out / f"{FOUND[command]}.npy").write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    told = run(command, job, "--verify")
    assert told.exit_code == 1 and f"{FOUND[command]}.npy is damaged" in told.output.replace("\n", "")
    refused = run("report", out)
    assert isinstance(refused.exception, ForebayError) and "run the job again, and then" in str(refused.exception)
    (out / f"{FOUND[command]}.npy").write_bytes(data)
    (out / "inversion" / ("stage-0.npz" if command == "fwi" else "outcome.npz")).unlink()
    refused = run("report", out)
    assert "has not ended: run its job to the end, and then ask for the page" in str(refused.exception)


def test_results_go_where_the_command_is_named_after_unless_told(tmp_path):
    (tmp_path / "job.toml").write_text(TEXTS["fwi"].replace('directory = "out"\n', ""))
    assert "there is no " in str(run("fwi", tmp_path / "job.toml", "--verify").exception)
    assert str(tmp_path / "fwi") in str(run("fwi", tmp_path / "job.toml", "--verify").exception)


def test_what_is_asked_at_once_or_of_another_command_is_refused(tmp_path):
    (tmp_path / "job.toml").write_text(TEXTS["fwi"])
    both = run("fwi", tmp_path / "job.toml", "--check", "--verify")
    assert isinstance(both.exception, WaveError) and "exclude each other" in str(both.exception)
    for command in ("rtm", "lsrtm"):
        refused = run(command, tmp_path / "job.toml")
        assert "has a table [inversion]: give it to forebay fwi" in str(refused.exception)


SLOW = """
import sys, time
from forebay.cli.main import main
from forebay.wave.job.inversion import passes

real, count = passes.gradient, []


def gradient(*about, **options):
    count.append(1)
    if len(count) == 2:
        print("in the second shot", flush=True)
        time.sleep(60)
    return real(*about, **options)


passes.gradient = gradient
main()
"""


@pytest.mark.slow
def test_one_that_is_told_to_end_says_how_to_go_on(tmp_path):
    job = tmp_path / "job.toml"
    job.write_text(inversion_text(SEARCH))
    command = [sys.executable, "-c", SLOW, "fwi", str(job)]
    stopped = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    lines = []
    while "in the second shot\n" not in lines:
        lines.append(stopped.stdout.readline())
        assert lines[-1], stopped.stderr.read()
    stopped.send_signal(signal.SIGTERM)
    said, complained = stopped.communicate(timeout=60)
    assert stopped.returncode == 143 and "Traceback" not in complained
    assert f"to go on, give the same command: forebay fwi {job}" in " ".join(said.split())
    assert not list((tmp_path / "out").glob("run-*"))
    again = subprocess.run([sys.executable, "-m", "forebay", "fwi", str(job)], capture_output=True, timeout=300)
    assert again.returncode == 0 and np.load(tmp_path / "out" / "velocity.npy").any()
