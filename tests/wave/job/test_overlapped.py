"""Shots overlap: the next one is read, and the last one's image is written, while one is computed."""

import threading
from types import SimpleNamespace

import numpy as np
import pytest
from tests.wave.job.jobs import SAMPLING, SHOTS, TEXT, same_images

from forebay.cuda.available import gpu_count
from forebay.units import Budget
from forebay.wave.job import parse, run_job, work
from forebay.wave.job.shots import here
from forebay.wave.job.shots.here import models_ahead, room_for_two
from forebay.wave.job.workspace import Workspace
from forebay.wave.survey.geometry import Geometry

pytestmark = pytest.mark.filterwarnings("ignore::forebay.wave.WaveWarning")
LONG = 60.0
"""Seconds after which what never comes is not waited for any more."""


@pytest.fixture
def recorded(job, tmp_path):
    """Write what the shots of the finished job heard, and return a job that reads it."""
    workspace = Workspace(job.output.directory)
    data = np.stack([work.data_of(workspace, shot, work.shot_of(workspace, shot)) for shot in range(SHOTS)])
    np.save(tmp_path / "data.npy", data)
    return parse(TEXT.replace(SAMPLING, 'file = "data.npy"\ndt = 0.008').replace('"out"', '"new"'), tmp_path)


def test_shots_are_read_ahead_and_written_behind(recorded, finished, monkeypatch):
    read = [threading.Event() for _ in range(SHOTS)]
    computing = [threading.Event() for _ in range(SHOTS)]
    met, real_read, real_run, real_keep = [], work.read_shot, work._run, Workspace.keep

    def read_shot(path, number, *about):
        read[number].set()
        return real_read(path, number, *about)

    def run(workspace, number, *about):
        computing[number].set()
        if 0 < number < SHOTS - 1:
            for coming in range(number + 1, min(number + 3, SHOTS)):
                met.append(("read", coming, read[coming].wait(LONG)))
        return real_run(workspace, number, *about)

    def keep(self, shot, part, summary):
        if shot < SHOTS - 1:
            met.append(("written", shot, computing[shot + 1].wait(LONG)))
        return real_keep(self, shot, part, summary)

    monkeypatch.setattr(work, "read_shot", read_shot)
    monkeypatch.setattr(work, "_run", run)
    monkeypatch.setattr(Workspace, "keep", keep)
    survey = run_job(recorded)
    assert not survey.failed and same_images(survey, finished)
    assert set(met) == {("read", shot, True) for shot in (2, 3)} | {("written", shot, True) for shot in (0, 1, 2)}


def test_a_shot_that_cannot_be_written_is_tried_again_or_told(recorded, finished, monkeypatch):
    left, real = [1], Workspace.keep

    def keep(self, shot, part, summary):
        if shot == 2 and left[0] > 0:
            left[0] -= 1
            raise OSError("no room left")
        return real(self, shot, part, summary)

    monkeypatch.setattr(Workspace, "keep", keep)
    told = run_job(recorded)
    assert told.failed == {2: "OSError: no room left"}
    assert "no room left" in (told.workspace.root / "shots" / "00002.error").read_text()
    left[0] = 1
    again = run_job(recorded.model_copy(update={"run": recorded.run.model_copy(update={"retries": 1})}))
    assert left == [0] and not again.failed and same_images(again, finished)


def test_ctrl_c_waits_until_the_shot_before_is_written(recorded, monkeypatch):
    computing, real_run, real_keep = threading.Event(), work._run, Workspace.keep

    def run(workspace, number, *about):
        if number == 2:
            computing.set()
            raise KeyboardInterrupt
        return real_run(workspace, number, *about)

    def keep(self, shot, part, summary):
        if shot == 1:
            assert computing.wait(LONG)
        return real_keep(self, shot, part, summary)

    monkeypatch.setattr(work, "_run", run)
    monkeypatch.setattr(Workspace, "keep", keep)
    with pytest.raises(KeyboardInterrupt):
        run_job(recorded)
    assert Workspace(recorded.output.directory).finished() == {0, 1}
    assert not list(recorded.output.directory.glob("run-*"))


KEPT = 1000
HELD = 4 * (6 * 50 + 2 * (2 * 50 + 3 * 7 * 30))
"""Bytes: image and illumination with two fades of each; of two shots fields, and 7 traces of 30 steps, three times."""
MODELLED = 2 * (2 * 500 + 4 * 7 * 30)
"""Bytes of a GPU: of each of two shots two states, and what is heard."""


def workspace_with(budget, codec=None, **described):
    """Return as much of a workspace as tells what has room in the budget of its plan."""
    plan = SimpleNamespace(codec=codec, budget=budget, peak_bytes=dict.fromkeys(budget.tiers, KEPT), state_bytes=500)
    told = {"inputs": ["model/velocity.npy", "true/velocity.npy"], "sampling": 1.5, "step": 1.0, **described}
    return SimpleNamespace(
        plan=lambda: plan,
        described=SimpleNamespace(job=SimpleNamespace(data=SimpleNamespace(file=told.pop("file", None))), **told),
        boxes=[(slice(0, 5), slice(10, 20))],
        geometry=Geometry(np.zeros((2, 2)), np.zeros((10, 2)), np.array([0, 3, 10]), np.arange(10)),
        wavelet=np.zeros(20),
    )


@pytest.mark.parametrize(
    ("budget", "codec", "fits"),
    [
        (Budget(host=KEPT + HELD), None, True),
        (Budget(host=KEPT + HELD - 1), None, False),
        (Budget(host=3 * KEPT // 2 + HELD - 1), "bounded:1e-4", False),  # snapshots may grow
        (Budget(device=KEPT), None, True),  # nothing is said of the host
    ],
)
def test_what_is_read_and_written_meanwhile_has_room_in_the_budget(budget, codec, fits):
    assert room_for_two(workspace_with(budget, codec)) == fits


@pytest.mark.parametrize(
    ("device", "file", "left", "ahead"),
    [
        ("gpu", None, MODELLED, True),
        ("gpu", None, MODELLED - 1, False),
        ("gpu", "shots.npy", MODELLED, False),
        ("cpu", None, MODELLED, False),
    ],
)
def test_a_gpu_with_room_models_the_next_shot(device, file, left, ahead):
    budget = Budget(device=KEPT + left, host=10**6)
    assert models_ahead(workspace_with(budget, device=device, file=file)) == ahead


def test_nothing_overlaps_before_there_is_a_plan():
    assert not room_for_two(SimpleNamespace(plan=lambda: None))


@pytest.mark.gpu
@pytest.mark.skipif(gpu_count() == 0, reason="no GPU")
def test_a_gpu_that_models_the_next_shot_beside_this_one_gives_the_same_bits(tmp_path, monkeypatch):
    text = TEXT.replace('device = "cpu"', 'device = "gpu"').replace('host = "4MB"', 'device = "40MB"\nhost = "40MB"')
    modelled, real = [], work._modelled

    def model(workspace, number, *about):
        modelled.append((number, threading.current_thread().name))
        return real(workspace, number, *about)

    monkeypatch.setattr(work, "_modelled", model)
    monkeypatch.setattr(here, "batch_of", lambda *about: 1)
    both = run_job(parse(text, tmp_path))
    assert {shot for shot, thread in modelled if thread.startswith("forebay-read")} == set(range(2, SHOTS))
    monkeypatch.setattr(here, "room_for_two", lambda workspace: False)
    assert same_images(run_job(parse(text.replace('"out"', '"alone"'), tmp_path)), both)
