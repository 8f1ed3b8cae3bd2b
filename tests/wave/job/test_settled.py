"""Inputs of a new job are brought to the disk beside its first shot, and before anything of that is written."""

import errno
import threading

import pytest
from tests.wave.job.jobs import SHOTS, TEXT, same_images

from forebay.errors import DiskFullError
from forebay.wave.job import parse, prepare, run_job, work
from forebay.wave.job.workspace import Workspace

pytestmark = pytest.mark.filterwarnings("ignore::forebay.wave.WaveWarning")
LONG = 60.0
"""Seconds after which what never comes is not waited for any more."""


def test_shots_begin_while_inputs_are_brought_to_the_disk(finished, tmp_path, monkeypatch):
    begun, met = threading.Event(), []
    real_sync, real_run, real_keep = prepare.sync, work._run, Workspace.keep

    def sync(path):
        assert begun.wait(LONG)
        real_sync(path)
        met.append(path.relative_to(tmp_path / "out"))

    def run(*about):
        begun.set()
        return real_run(*about)

    def keep(*about):
        met.append("kept")
        return real_keep(*about)

    monkeypatch.setattr(prepare, "sync", sync)
    monkeypatch.setattr(work, "_run", run)
    monkeypatch.setattr(Workspace, "keep", keep)
    survey = run_job(parse(TEXT, tmp_path))
    assert same_images(survey, finished)
    inputs, folders = [*survey.workspace.described.inputs, "job.json"], {".", "model", "true"}
    assert {str(path) for path in met[: len(inputs)]} == set(inputs)
    assert {str(path) for path in met[len(inputs) : -SHOTS]} == folders and met[-SHOTS:] == ["kept"] * SHOTS
    met.clear()
    run_job(parse(TEXT, tmp_path))
    assert not met  # they are there


def test_a_disk_that_does_not_take_inputs_ends_a_run_before_a_shot_is_written(tmp_path, monkeypatch):
    def sync(path):
        raise OSError(errno.ENOSPC, "no room left")

    monkeypatch.setattr(prepare, "sync", sync)
    with pytest.raises(DiskFullError, match="does not take the model, geometry and wavelet"):
        run_job(parse(TEXT, tmp_path))
    assert not list((tmp_path / "out").rglob("0*.npz"))


@pytest.mark.parametrize("name", ["job.json", "model/velocity.npy", "geometry.npz"])
@pytest.mark.parametrize("left", [None, b"", b"half"])
def test_what_a_machine_that_failed_has_left_of_new_inputs_is_made_again(finished, tmp_path, name, left):
    job = parse(TEXT, tmp_path)
    path = prepare.prepare(job).root / name
    if left is None:
        path.unlink()
    else:
        path.write_bytes(left * (path.stat().st_size // 8))
    survey = run_job(job)
    assert same_images(survey, finished)
    assert [path.name in sentence for sentence in survey.damage] == (
        [] if (name, left) == ("job.json", None) else [True]
    )
