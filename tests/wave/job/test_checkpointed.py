"""Shots that are checkpointed: whatever kills a run, the next one goes on inside of the shot, to the same bits."""

import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.wave.job.jobs import count_steps, job_text, same_images

from forebay.engine.resume import decision
from forebay.errors import StateError, WaveError
from forebay.wave import AcousticModel, ElasticModel, Grid, Shot, migrate, ricker
from forebay.wave.job import parse, run_job
from forebay.wave.job.workspace import Workspace, shot_progress

pytestmark = pytest.mark.filterwarnings("ignore::forebay.wave.WaveWarning")

STEPS = 120
LONG = 1e9
"""Instead of a share of a shot's time: as if shots were long beside what it takes to keep progress."""


class Killed(BaseException):
    """What ends a shot here, in place of a signal."""


@pytest.fixture
def worked(monkeypatch):
    """Count steps, and end what works when there are none left; return the counter."""
    counter = {"done": 0, "left": 10**9}
    monkeypatch.setattr(decision, "SHARE", LONG)

    def count(steps):
        counter["done"] += steps
        counter["left"] -= steps
        if counter["left"] < 0:
            raise Killed

    count_steps(count, monkeypatch.setattr)
    return counter


GRID = Grid((24, 30), 10.0, absorb=6)
ACOUSTIC = AcousticModel(np.full((24, 30), 2000.0, np.float32), GRID)
ELASTIC = ElasticModel(*(np.full((24, 30), value, np.float32) for value in (2000.0, 1000.0, 2000.0)), GRID)


@pytest.mark.parametrize(
    ("model", "budget", "share"),
    [(ACOUSTIC, "20MB", 0.3), (ACOUSTIC, "20MB", 0.9), (ACOUSTIC, "60kB", 0.6), (ELASTIC, "20MB", 0.9)],
)
def test_a_shot_that_is_killed_goes_on_and_loses_a_segment(model, budget, share, worked, tmp_path):
    """Where memory held the history, what is left of the way back is run forward once more, too."""
    heard = np.random.default_rng(0).normal(size=(STEPS, 15)).cumsum(axis=0).astype(np.float32)
    shot = Shot((30, 150), [(30, x) for x in range(0, 300, 20)], ricker(8, 0.002, STEPS, 0.12), 0.002, heard)
    options = {"dt": 0.002, "every": 2, "budget": budget}
    whole = migrate(shot, model, **options)
    options["costs"], worked["done"] = whole.result.plan.costs, 0  # so that no steps are timed
    alone = migrate(shot, model, **options, resume=tmp_path / "alone")
    steps, worked["done"] = worked["done"], 0
    worked["left"] = int(share * steps)
    with pytest.raises(Killed):
        migrate(shot, model, **options, resume=tmp_path / "killed")
    worked["left"] = 10**9
    resumed = migrate(shot, model, **options, resume=tmp_path / "killed")
    assert "resumed" in resumed.result.note and not any((tmp_path / "killed").iterdir())
    for migration in (alone, resumed):
        assert np.array_equal(migration.image, whole.image)
        assert np.array_equal(migration.illumination, whole.illumination)
    in_memory = budget == "20MB"
    segment = 2 * STEPS // 30  # forward and back, of the 32 at most
    assert worked["done"] - steps <= segment + 1 + (min(STEPS, (1 - share) * steps) if in_memory else 0)


def test_progress_with_other_data_is_not_gone_on_with(worked, tmp_path):
    heard = np.random.default_rng(0).normal(size=(STEPS, 15)).cumsum(axis=0).astype(np.float32)
    shot = Shot((30, 150), [(30, x) for x in range(0, 300, 20)], ricker(8, 0.002, STEPS, 0.12), 0.002, heard)
    options = {"dt": 0.002, "every": 2, "budget": "20MB", "resume": tmp_path / "killed"}
    worked["left"] = int(1.8 * STEPS)  # on the way back
    with pytest.raises(Killed):
        migrate(shot, ACOUSTIC, **options)
    worked["left"] = 10**9
    for other in ({"shot": shot.with_data(2 * heard)}, {"shot": shot, "zero_phase": True}):
        with pytest.raises(StateError, match="the progress is of other data"):
            migrate(model=ACOUSTIC, **other, **options)
    assert "resumed" in migrate(shot, ACOUSTIC, **options).result.note


MEMORY = 'host = "4MB"\ncheckpoint = true'
TEXT = job_text(shots=1, physics="absorb = 10", imaging="every = 1", memory=MEMORY)
CHILD = f"""
import os, signal, sys, warnings
from pathlib import Path
from tests.wave.job.jobs import count_steps
from forebay.engine.resume import decision
from forebay.wave.job import read_job, run_job
warnings.simplefilter("ignore")
decision.SHARE, left = {LONG}, int(sys.argv[2])
def count(steps):
    global left
    left -= steps
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
count_steps(count)
run_job(read_job(Path(sys.argv[1])))
"""


def killed_after(steps, folder):
    """Run the job of a folder in a process that kills itself after so many steps; tell whether it came to that."""
    (folder / "job.toml").write_text(TEXT)
    command = [sys.executable, "-c", CHILD, str(folder / "job.toml"), str(steps)]
    ended = subprocess.run(command, check=False, cwd=Path(__file__).parents[3], env=os.environ, timeout=300)
    return ended.returncode == -signal.SIGKILL


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Run the same job without checkpoints."""
    return run_job(parse(TEXT.replace("checkpoint = true", ""), tmp_path_factory.mktemp("undisturbed")))


def test_a_killed_run_goes_on_inside_of_its_shot(undisturbed, tmp_path):
    assert killed_after(300, tmp_path)
    root = tmp_path / "out"
    (run,) = root.glob("run-*")
    kept = {path.name.partition("-")[2] for path in (run / "progress").iterdir()}
    assert kept == {"00000", "00000.npz"} and not Workspace(root).finished()
    survey = run_job(parse(TEXT, tmp_path))
    assert "resumed with" in survey.summaries[0]["note"] and same_images(survey, undisturbed)
    assert not (root / "progress").exists() and not list(root.glob("run-*"))


@pytest.mark.slow
def test_twenty_kills_at_random_moments_change_no_bit(undisturbed, tmp_path):
    rng, kills = random.Random(7), 0
    while kills < 20:
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        while killed_after(rng.randrange(600), tmp_path):
            kills += 1
        assert same_images(run_job(parse(TEXT, tmp_path)), undisturbed)


def test_progress_is_handed_on_and_that_of_others_is_removed(tmp_path):
    ours, theirs, root = "a" * 32, "b" * 32, tmp_path
    names = [f"{ours}-00001", f"{ours}-00002", f"{theirs}-00001"]
    for name in names:
        (root / "run-1" / "progress" / name).mkdir(parents=True)
        (root / "run-1" / "progress" / name / "lock").write_text("held")
        (root / "run-1" / "progress" / name / "state-7").write_text("state")
    progress = shot_progress.progress_of(root / "run-1", ours, 1)
    shot_progress.keep_data(progress, np.arange(6.0).reshape(2, 3))
    shot_progress.rescue(root / "run-1", root)
    assert {path.name for path in (root / "progress" / names[0]).iterdir()} == {"state-7"}
    shot_progress.hand_on(root, root / "run-2", ours, {1, 3})
    assert {path.name for path in (root / "run-2" / "progress").iterdir()} == {names[0], f"{names[0]}.npz"}
    progress = shot_progress.progress_of(root / "run-2", ours, 1)
    assert shot_progress.kept_data(progress).tolist() == [[0, 1, 2], [3, 4, 5]]
    data = bytearray((path := progress.with_name(f"{names[0]}.npz")).read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    assert shot_progress.kept_data(progress) is None
    shot_progress.forget(progress)
    assert not any((root / "run-2" / "progress").iterdir())


def test_progress_that_cannot_be_gone_on_with_is_begun_anew(undisturbed, worked, tmp_path):
    """Where the budget is another one, a shot starts from its beginning."""
    worked["left"] = 300
    with pytest.raises(Killed):
        run_job(parse(TEXT, tmp_path))
    worked["left"] = 10**9
    survey = run_job(parse(TEXT.replace("4MB", "5MB"), tmp_path))
    assert same_images(survey, undisturbed) and "resumed" not in survey.summaries[0]["note"]


def test_a_checkpoint_needs_a_budget(tmp_path):
    with pytest.raises(WaveError, match="memory: expected host or device beside checkpoint"):
        parse(TEXT.replace('host = "4MB"', ""), tmp_path)
