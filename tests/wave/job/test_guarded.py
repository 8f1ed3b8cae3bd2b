"""A workspace is guarded: no run removes what it did not make, nor what a killed run still needs."""

import json
import math
import os
import shutil
import subprocess
import sys
from zipfile import ZipFile

import numpy as np
import pytest
from tests.wave.job.jobs import MODEL, SAMPLING, SHOTS, TEXT
from typer.testing import CliRunner

from forebay.cli.main import app
from forebay.errors import CorruptionError, WaveError
from forebay.wave.files import seal
from forebay.wave.job import checks, parse, run_job, work
from forebay.wave.job.prepare import prepare
from forebay.wave.job.stack import outliers
from forebay.wave.job.verify import verify
from forebay.wave.job.workspace import Workspace
from forebay.wave.job.workspace import workspace as workspaces

pytestmark = pytest.mark.filterwarnings("ignore::forebay.wave.WaveWarning")


def contents(root):
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file() and path.name != "lock"}


def unsealed(root, monkeypatch=None):
    """Take the seals away, as an earlier version wrote none."""
    content = json.loads((root / "job.json").read_text())
    del content["seal"]
    (root / "job.json").write_text(json.dumps(content))
    for path in (root / "shots").glob("*.npz"):
        with ZipFile(path, "a") as archive:
            archive.comment = b""


def other_format(root, monkeypatch):
    content = json.loads((root / "job.json").read_text())
    del content["seal"]
    monkeypatch.setattr(seal, "FORMAT", seal.FORMAT + 1)
    (root / "job.json").write_text(seal.sealed_text(content, file="job"))
    monkeypatch.undo()


@pytest.mark.parametrize("age", [unsealed, other_format])
@pytest.mark.parametrize("text", [TEXT, TEXT.replace("frequency = 2.5", "frequency = 2.4")])
def test_what_another_version_wrote_is_refused_and_left_alone(job, age, text, monkeypatch):
    root = job.output.directory
    age(root, monkeypatch)
    before = contents(root)
    for act in (run_job, verify):
        with pytest.raises(WaveError, match="written by another version of Forebay: go on with that version"):
            act(parse(text, root.parent))
    assert contents(root) == before


def test_shots_without_seals_and_description_are_refused(job):
    root = job.output.directory
    unsealed(root)
    (root / "job.json").unlink()
    before = contents(root)
    with pytest.raises(WaveError, match="shots of another version of Forebay, and no"):
        run_job(job)
    assert contents(root) == before


def test_results_are_written_while_no_other_run_can_begin(job):
    heard = []

    def write(survey):
        begin = "import sys; from pathlib import Path; from forebay.wave.job.workspace import locked\n"
        begin += "with locked(Path(sys.argv[1])): pass"
        command = [sys.executable, "-c", begin, str(job.output.directory)]
        heard.append(subprocess.run(command, capture_output=True, text=True, check=False).stderr)

    run_job(job, write=write)
    assert "another run works in" in heard[0]


def test_a_repair_that_was_killed_goes_on(job, monkeypatch):
    root = job.output.directory
    for shot in (0, 2):
        path = root / "shots" / f"{shot:05d}.npz"
        path.write_bytes(path.read_bytes()[:-1])

    def killed(*args, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(work, "migrate", killed)
        with pytest.raises(KeyboardInterrupt):
            run_job(job, repair=True)
    survey = run_job(job, repair=True)
    assert not survey.failed and survey.resumed == SHOTS - 2 and verify(job)[0] == []


def test_a_damaged_shot_that_cannot_be_computed_is_not_summed(job, monkeypatch):
    path = job.output.directory / "shots" / "00001.npz"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)

    def broken(*args, **options):
        raise WaveError("no")

    monkeypatch.setattr(work, "migrate", broken)
    survey = run_job(job, repair=True)
    assert survey.failed == {1: "WaveError: no"} and len(survey.summaries) == SHOTS - 1


def test_a_model_that_changes_while_it_is_read_is_refused(job, tmp_path, monkeypatch):
    velocity = np.load(job.output.directory / "model" / "velocity.npy")
    np.save(tmp_path / "velocity.npy", velocity)
    text = TEXT.replace(MODEL, 'velocity = "velocity.npy"\ntrue = "velocity.npy"\nspacing = 50.0')
    real = checks.acquisition_of

    def later(*args):
        np.save(tmp_path / "velocity.npy", velocity[:, ::-1])
        os.utime(tmp_path / "velocity.npy", ns=(1, 1))
        return real(*args)

    monkeypatch.setattr(checks, "acquisition_of", later)
    with pytest.raises(WaveError, match=r"velocity\.npy was changed after the job had begun to read it"):
        run_job(parse(text.replace('"out"', '"new"'), tmp_path))


def test_data_that_change_between_shots_are_refused(job, tmp_path, monkeypatch):
    workspace = Workspace(job.output.directory)
    data = np.stack([work.data_of(workspace, shot, work.shot_of(workspace, shot)) for shot in range(SHOTS)])
    np.save(tmp_path / "data.npy", data)
    text = TEXT.replace(SAMPLING, 'file = "data.npy"\ndt = 0.008').replace('"out"', '"new"')
    real, read = work.read_shot, []

    def later(*args):
        read.append(args)
        if len(read) == 2:
            np.save(tmp_path / "data.npy", -data)
            os.utime(tmp_path / "data.npy", ns=(1, 1))
        return real(*args)

    monkeypatch.setattr(work, "read_shot", later)
    survey = run_job(parse(text, tmp_path))
    assert list(survey.failed) == [1, 2, 3] and "data.npy was changed after the job" in survey.failed[1]


def test_verify_tells_what_is_missing_and_leaves_nothing_behind(job, tmp_path):
    root = job.output.directory
    (root / "lock").unlink()
    assert CliRunner().invoke(app, ["rtm", str(tmp_path / "job.toml"), "--verify"]).exit_code == 0
    assert not (root / "lock").exists()
    (root / "shots" / "00001.npz").unlink()
    assert CliRunner().invoke(app, ["rtm", str(tmp_path / "job.toml"), "--verify"]).exit_code == 1
    assert verify(job)[0] == [f"1 of {SHOTS} shots are missing: run the job to compute them"]
    shutil.rmtree(root / "shots")
    (root / "shots").write_text("")
    assert "shots is no folder: move it away" in verify(job)[0][0]
    with pytest.raises(WaveError, match="shots is no folder: move it away"):
        run_job(job)


def test_a_pipe_in_the_place_of_a_file_is_named(job):
    for name in ("plan.json", "job.json", "wavelet.npy", "shots/00001.npz"):
        path = job.output.directory / name
        sound = path.read_bytes()
        path.unlink()
        os.mkfifo(path)
        assert f"{path} is damaged: it is no file" in verify(job)[0]
        path.unlink()
        path.write_bytes(sound)


def test_check_verify_and_repair_exclude_each_other(job, tmp_path):
    result = CliRunner().invoke(app, ["rtm", str(tmp_path / "job.toml"), "--verify", "--repair"])
    assert isinstance(result.exception, WaveError) and "give one of them" in str(result.exception)


@pytest.mark.parametrize(
    "change",
    [
        {"strength": "1"},
        {"strength": math.nan},
        {"strength": -5.0},
        {"strength": None},
        {"seconds": "x"},
        {"phases": [1]},
        {"peak": {"host": "x"}},
        {"every": 0},
        {"ratio": 1e-320},
    ],
)
def test_a_summary_that_no_shot_tells_is_damage(job, change):
    workspace = Workspace(job.output.directory)
    path = workspace.path(1)
    with np.load(path) as file:
        arrays = dict(file)
    told = json.loads(bytes(arrays["summary"])) | change
    np.savez(path, **(arrays | {"summary": np.frombuffer(json.dumps(told).encode(), np.uint8)}))
    seal.seal_archive(path, job=workspace.identity, shot=1, run="")
    assert verify(job)[0] == [f"{path} is damaged: its summary cannot be read"]


@pytest.mark.parametrize(
    "spans",
    [
        [],
        [["compute", "forward", "0", 0.0, 1.0]],
        [["compute", "forward", 0, 0.0, math.inf]],
        *([[lane, "fetch", 0, 0.0, 1.0]] for lane in ("sideways 1", "up", "up x", "up 0", "up 11", "down -1", "")),
    ],
)
def test_a_timeline_that_no_shot_tells_is_damage(job, spans):
    workspace = Workspace(job.output.directory)
    path = workspace.root / "timeline.json"
    path.write_text(seal.sealed_text({"shot": 0, "spans": spans}, file="timeline", job=workspace.identity))
    assert verify(job)[0] == [f"{path} is damaged: it tells of no timeline"]


def test_a_timeline_of_other_tiers_than_the_plans_is_damage(job):
    workspace = Workspace(job.output.directory)
    assert len(workspace.plan().tiers) == 1
    path, spans = workspace.root / "timeline.json", [["up 1", "fetch", 0, 0.0, 1.0]]
    path.write_text(seal.sealed_text({"shot": 0, "spans": spans}, file="timeline", job=workspace.identity))
    assert verify(job)[0] == [f"{path} is damaged: it tells of tiers that the plan has not"]


def test_a_process_looks_at_the_bytes_of_an_input_once_a_run_and_again_when_it_changes(job, monkeypatch):
    looked = []
    real = workspaces.checksum_of_file
    monkeypatch.setattr(workspaces, "checksum_of_file", lambda path, *about: looked.append(path.name) or real(path))
    monkeypatch.setattr(workspaces, "SETTLED", 0.0)
    velocity = job.output.directory / "model" / "velocity.npy"
    for _ in range(3):
        Workspace(job.output.directory, "1" * 16).fields("model")
    Workspace(job.output.directory, "2" * 16).fields("model")
    assert looked == ["velocity.npy"] * 2
    np.save(velocity, -np.load(velocity))
    os.utime(velocity, ns=(1, 1))
    with pytest.raises(CorruptionError, match=r"velocity\.npy is damaged: its checksum does not match"):
        Workspace(job.output.directory, "2" * 16).fields("model")


def test_a_model_that_changes_while_a_shot_reads_it_is_refused(job, monkeypatch):
    real = workspaces.load_array

    def later(path):
        np.save(path, -np.load(path))
        return real(path)

    monkeypatch.setattr(workspaces, "load_array", later)
    with pytest.raises(CorruptionError, match=r"velocity\.npy is damaged: it was changed while it was read"):
        Workspace(job.output.directory, "1" * 16).fields("model")


@pytest.mark.parametrize(
    "change",
    [{"step": 0.0}, {"step": math.nan}, {"inputs": {}}, {"device": "x"}, {"notes": [1]}, {"sampling": "1"}],
)
def test_a_description_of_no_job_is_made_again_and_shots_stay(job, change):
    path = job.output.directory / "job.json"
    content = json.loads(path.read_text()) | change
    del content["seal"]
    path.write_text(seal.sealed_text(content, file="job"))
    assert f"{path} is damaged: it " in verify(job)[0][0]
    workspace = prepare(job)
    assert verify(job)[0] == [] and len(workspace.finished()) == SHOTS


@pytest.mark.parametrize(
    ("shots", "spread", "times", "stands_out"),
    [
        (3, 0.1, 28, True),  # what one sample of a million times the peak made of a small shot
        (4, 0.1, 12, True),
        (4, 0.1, 6, False),
        (20, 0.3, 28, True),
        (200, 0.3, 9, False),
        (200, 0.5, 28, True),
        (200, 1.0, 28, False),  # such a survey has many shots that differ by that
        (200, 1.0, 200, True),
        (200, 3.0, 1100, True),
        (5, 0.3, 1e20, True),
    ],
)
def test_what_stands_out_is_learned_from_the_survey(shots, spread, times, stands_out):
    """Strengths with a log-normal spread, and one shot so many times the median of the others."""
    rng = np.random.default_rng(shots)
    strengths = dict(enumerate(np.clip(np.exp(spread * rng.standard_normal(shots)), 0, 9).tolist()))
    strengths[1] = times * float(np.median(list(strengths.values())))
    assert set(outliers(strengths)) == ({1} if stands_out else set())


@pytest.mark.parametrize("wrong", [1, 3, 9])
def test_several_wrong_shots_do_not_hide_each_other(wrong):
    strengths = {shot: 1 + shot / 20 for shot in range(20)} | {shot: 10.0 ** (3 + shot) for shot in range(wrong)}
    assert set(outliers(strengths)) == set(range(wrong))


def test_of_two_shots_the_stronger_stands_out():
    assert outliers({0: 1.0, 1: 1e6}) == {1: 1e6} and outliers({0: 1.0, 1: 2.0}) == {} == outliers({0: 1e30})
