"""Shots that are checkpointed: whatever kills a run, the next one goes on inside of the shot, to the same bits."""

import itertools
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
from forebay.planner import Costs
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


EVEN = Costs(1.0, 1.0, 1e9)
"""Of steps that take long, and as long forward as back."""
HELD, SCARCE = "20MB", {ACOUSTIC: "60kB", ELASTIC: "200kB"}
"""Budgets for all of the history, and for some of it."""


MANY = (0.05, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.98)
CASES = itertools.product([ACOUSTIC, ELASTIC], [True, False], [True, False])
KILLED = [
    (ACOUSTIC, True, True, [0.9]),
    pytest.param(ELASTIC, True, False, [0.4], marks=pytest.mark.slow),
    *(pytest.param(*case, MANY, marks=pytest.mark.slow) for case in CASES),
]


@pytest.mark.parametrize(("model", "held", "written", "moments"), KILLED)
def test_a_shot_killed_at_any_moment_loses_little(model, held, written, moments, worked, monkeypatch, tmp_path):
    """Steps run twice, forward or back: of a segment, and of a history that was in memory and not on the disk."""
    monkeypatch.setattr(decision, "HISTORY_SHARE", LONG if written else 0)
    heard = np.random.default_rng(0).normal(size=(STEPS, 15)).cumsum(axis=0).astype(np.float32)
    shot = Shot((30, 150), [(30, x) for x in range(0, 300, 20)], ricker(8, 0.002, STEPS, 0.12), 0.002, heard)
    options = {"dt": 0.002, "every": 2, "budget": HELD if held else SCARCE[model], "costs": EVEN}
    whole = migrate(shot, model, **options)
    worked["done"] = 0
    migrate(shot, model, **options, resume=tmp_path / "alone")
    steps = worked["done"]
    assert (steps == 2 * STEPS) is held
    for share in moments:
        worked["done"], worked["left"] = 0, int(share * steps)
        with pytest.raises(Killed):
            migrate(shot, model, **options, resume=tmp_path / "killed")
        worked["left"] = 10**9
        resumed = migrate(shot, model, **options, resume=tmp_path / "killed")
        assert "resumed" in resumed.result.note and not any((tmp_path / "killed").iterdir())
        assert np.array_equal(resumed.image, whole.image)
        assert np.array_equal(resumed.illumination, whole.illumination)
        lost = (worked["done"] - steps) / steps
        assert lost <= 0.05 + (min(share, 1 - share) if held and not written else 0), (share, lost)


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
