"""A workspace is guarded: no run removes what it did not make, nor what a killed run still needs."""

import json
import shutil
import subprocess
import sys
from zipfile import ZipFile

import pytest

from forebay.errors import WaveError
from forebay.wave.job import parse, run_job, seal, work
from forebay.wave.job.prepare import verify

TEXT = """
[model]
name = "layers"
shape = [48, 96]
smooth = 80.0
[geometry]
shots = 3
source_depth = 50.0
receiver_depth = 50.0
receiver_spacing = 100.0
[data]
dt = 0.008
length = 1.0
[wavelet]
frequency = 2.5
[physics]
absorb = 10
[memory]
host = "4MB"
[run]
device = "cpu"
retries = 0
[output]
directory = "out"
formats = ["npy"]
"""

pytestmark = pytest.mark.filterwarnings("ignore::forebay.wave.WaveWarning")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Run a job once for all tests."""
    folder = tmp_path_factory.mktemp("finished")
    run_job(parse(TEXT, folder))
    return folder / "out"


@pytest.fixture
def job(finished, tmp_path):
    """Copy what it left behind."""
    shutil.copytree(finished, tmp_path / "out")
    (tmp_path / "job.toml").write_text(TEXT)
    return parse(TEXT, tmp_path)


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
    monkeypatch.setattr(seal, "FORMAT", 2)
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
    assert not survey.failed and survey.resumed == 1 and verify(job)[0] == []


def test_a_damaged_shot_that_cannot_be_computed_is_not_summed(job, monkeypatch):
    path = job.output.directory / "shots" / "00001.npz"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)

    def broken(*args, **options):
        raise WaveError("no")

    monkeypatch.setattr(work, "migrate", broken)
    survey = run_job(job, repair=True)
    assert survey.failed == {1: "WaveError: no"} and len(survey.summaries) == 2
