"""`forebay rtm`: what it writes, what it refuses, and how it goes on."""

import json
import re
import sys

import numpy as np
import pytest
from tests.wave.job.jobs import job_text
from typer.testing import CliRunner

from forebay.cli.main import app
from forebay.errors import WaveError
from forebay.wave.job import work

pytest.importorskip("matplotlib")

TEXT = job_text(shots=2)


@pytest.fixture
def job(tmp_path):
    (tmp_path / "job.toml").write_text(TEXT)
    return tmp_path / "job.toml"


def run(*arguments):
    return CliRunner().invoke(app, ["rtm", *map(str, arguments)])


def test_it_writes_image_pictures_and_report_and_the_second_time_finds_them(job, tmp_path):
    first = run(job)
    assert first.exit_code == 0, first.output
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"image.npy", "image.png", "model.png", "report.html", "stack.npy", "plan.json"} <= names
    image = np.load(tmp_path / "out" / "image.npy")
    assert image.shape == (48, 96) and image.any()
    second = run(job)
    assert second.exit_code == 0 and "2 of 2 shots were finished before" in second.output
    assert np.array_equal(np.load(tmp_path / "out" / "image.npy"), image)


@pytest.mark.slow
def test_json_tells_the_phases_of_a_run_and_the_seconds_of_its_kernels(job):
    told = json.loads(run(job, "--json").stdout)
    assert list(told["phases"]) == ["model", "inputs", "devices", "shots", "sum", "image", "files", "pictures"]
    assert sum(list(told["phases"].values())[:6]) == pytest.approx(told["seconds"])
    assert told["over_kernels"] == pytest.approx(told["seconds"] / told["kernels"])
    assert json.loads(run(job, "--json").stdout)["over_kernels"] is None  # its shots were finished before


def test_check_migrates_nothing(job, tmp_path):
    result = run(job, "--check")
    assert result.exit_code == 0 and "48 x 96 points" in result.output
    assert [path.name for path in tmp_path.iterdir()] == ["job.toml"]


@pytest.mark.slow
def test_without_what_draws_nothing_is_lost_and_the_same_command_draws_later(job, tmp_path, monkeypatch):
    job.write_text(TEXT.replace('["npy"]', '["npy", "png"]').replace("shots = 2", "shots = 1"))
    with monkeypatch.context() as missing:
        missing.setitem(sys.modules, "matplotlib", None)
        says = "there will be no picture: it needs matplotlib: install Forebay with its extra plots"
        assert says in run(job, "--check").output.replace("\n", " ")
        result = run(job)
        assert result.exit_code == 0, result.output
        assert result.output.replace("\n", " ").count("extra plots") == 1
        assert result.output.index("extra plots") < result.output.index("wrote")
        names = {path.name for path in (tmp_path / "out").iterdir()}
        assert {"image.npy", "report.html"} <= names and not {"image.png", "model.png"} & names
    assert run(job).exit_code == 0
    assert {"report.html", "image.png", "model.png"} <= {path.name for path in (tmp_path / "out").iterdir()}


def test_pictures_alone_are_refused_without_what_draws_them(job, tmp_path, monkeypatch):
    job.write_text(TEXT.replace('["npy"]', '["png"]'))
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for arguments in (["--check"], []):
        result = run(job, *arguments)
        assert isinstance(result.exception, WaveError)
        assert "png needs matplotlib: install Forebay with its extra plots" in str(result.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["job.toml"]


@pytest.mark.slow
def test_results_go_where_the_command_says(job, tmp_path):
    assert run(job, "--output", tmp_path / "elsewhere").exit_code == 0
    assert (tmp_path / "elsewhere" / "image.npy").exists() and not (tmp_path / "out").exists()


def test_what_the_command_changes_is_checked_like_the_job(job, tmp_path):
    (tmp_path / "file").write_text("")
    for arguments, says in (
        (["--workers", "-1"], "the job cannot be run:\n  run.workers: expected"),
        (["--workers", "2", "--scheduler", "tcp://127.0.0.1:1"], "were both asked for: give one"),
        (["--output", tmp_path / "file"], "output.directory: .* cannot be made"),
    ):
        result = run(job, *arguments)
        assert isinstance(result.exception, WaveError) and re.search(says, str(result.exception))


def test_of_a_cluster_it_is_not_said_what_it_has(job):
    told = run(job, "--check", "--scheduler", "tcp://127.0.0.1:1").output
    assert "on what the cluster's workers have" in told and "GPU" not in told


def test_what_is_wrong_is_named(job):
    job.write_text(TEXT.replace("frequency", "freqency"))
    result = run(job)
    assert isinstance(result.exception, WaveError) and "did you mean frequency?" in str(result.exception)


@pytest.mark.slow
def test_a_missing_shot_is_told_and_counts_as_failure(job, tmp_path, monkeypatch):
    real = work._run

    def fail(workspace, number, *about):
        if number == 1:
            raise RuntimeError("a bad disk")
        return real(workspace, number, *about)

    monkeypatch.setattr(work, "_run", fail)
    result = run(job)
    assert result.exit_code == 1 and "shot 1 is missing: RuntimeError: a bad disk" in result.output
    assert (tmp_path / "out" / "image.npy").exists()  # of the others
    monkeypatch.undo()
    assert run(job).exit_code == 0
