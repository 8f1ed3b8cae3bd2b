"""Weights of a codec in a file that a job names: found beside the job, known by its content, and refused in words."""

import os

import numpy as np
import pytest
from tests.wave.job.jobs import job_text

from forebay.errors import WaveError
from forebay.wave.job import parse
from forebay.wave.job.checks import inspect
from forebay.wave.job.workspace.description import differences, frozen

TEXT = job_text(memory='codec = "bounded:1e-4, weight = deep/w.npy"\nhost = "4MB"')
SHAPE = (48, 96)


@pytest.fixture
def path(tmp_path):
    (tmp_path / "deep").mkdir()
    np.save(tmp_path / "deep" / "w.npy", np.linspace(1, 0.01, 48)[:, None])
    return tmp_path / "deep" / "w.npy"


def test_the_file_lies_beside_the_job_and_its_content_makes_it_this_job(path, tmp_path):
    job = parse(TEXT, tmp_path)
    assert job.memory.weights == [path] and parse(TEXT, tmp_path).memory.codec == job.memory.codec
    assert "48 x 96" in inspect(job)
    before, moved = frozen(job), tmp_path / "moved"
    (moved / "deep").mkdir(parents=True)
    path.rename(moved / "deep" / "w.npy")
    assert frozen(parse(TEXT, moved)) == before
    np.save(moved / "deep" / "w.npy", np.ones((48, 1)))
    assert differences(before, frozen(parse(TEXT, moved))) == ["memory.codec"]


@pytest.mark.parametrize(
    ("write", "complaint"),
    [
        (lambda path: path.unlink(), r"there is no .*w\.npy"),
        (lambda path: path.write_bytes(b""), "no array can be read there"),
        (lambda path: path.write_text("depth 1 0.01"), "no array can be read there"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "no array can be read there"),
        (lambda path: np.savez(path.open("wb"), w=np.ones(SHAPE)), "weights are numbers from zero on"),
        (lambda path: np.save(path, np.full(SHAPE, -1.0)), "weights are numbers from zero on"),
        (lambda path: np.save(path, np.full(SHAPE, np.nan)), "weights are numbers from zero on"),
        (lambda path: np.save(path, np.full(SHAPE, "1")), "weights are numbers from zero on"),
        (lambda path: np.save(path, np.ones((48, 97))), r"a weight of \[48, 97\] does not fit an array of \[48, 96\]"),
        (lambda path: (path.unlink(), path.mkdir()), "no array can be read there, for it is no file"),
        (lambda path: (path.unlink(), os.mkfifo(path)), "neither a file nor a folder"),
    ],
)
def test_a_file_that_is_no_weight_is_refused_before_anything_runs(path, tmp_path, write, complaint):
    write(path)
    with pytest.raises(WaveError, match=complaint):
        inspect(parse(TEXT, tmp_path))


def test_a_folder_that_no_name_can_hold_is_refused(tmp_path):
    with pytest.raises(WaveError, match="without commas or equals signs"):
        parse(TEXT, tmp_path / "a=b")
