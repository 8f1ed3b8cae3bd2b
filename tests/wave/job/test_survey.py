"""Many shots: resumed, retried and summed so that the image has the same bits whatever happened on the way."""

import io
import os
import re
import signal
import subprocess
import sys
import threading
import time
import warnings
from contextlib import nullcontext
from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console
from tests.wave.job.jobs import same_images

from forebay import planner
from forebay.cuda.available import gpu_count
from forebay.engine import array_memory
from forebay.errors import BudgetError, DiskFullError, WaveError
from forebay.tier.capacity import Capacity
from forebay.units import Budget
from forebay.wave import AcousticModel, Shot, WaveWarning, migrate, ricker, simulate
from forebay.wave.files.formats import read_field, write_shots
from forebay.wave.job import begin, checks, work
from forebay.wave.job.job import changed, parse
from forebay.wave.job.progress import ProgressBars
from forebay.wave.job.results import write_image, write_report
from forebay.wave.job.run import run_job
from forebay.wave.job.shots import attempt, here
from forebay.wave.job.tables import RunTable
from forebay.wave.job.workspace import Workspace
from forebay.wave.survey.geometry import part_of

SHOTS = 5
TEXT = f"""
[model]
name = "layers"
shape = [60, 120]
smooth = 80.0
[geometry]
shots = {SHOTS}
source_depth = 40.0
receiver_depth = 40.0
receiver_spacing = 80.0
[data]
dt = 0.008
length = 1.4
mute_velocity = 1500.0
[wavelet]
frequency = 3.4
[memory]
host = "600kB"
disk = "20MB"
[physics]
absorb = 20
[run]
device = "cpu"
[output]
directory = "out"
formats = ["npy", "png"]
"""


UNLIMITED = TEXT.replace('host = "600kB"\ndisk = "20MB"\n', "")
AMPLE = TEXT.replace('host = "600kB"\ndisk = "20MB"', 'host = "8MB"')
"""The same job, to the bit, whose plan is found soon."""


def job_in(folder, more="", text=AMPLE):
    folder.mkdir(exist_ok=True)
    (folder / "job.toml").write_text(text + more)
    return parse(text + more, folder)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Run the job once, without incidents, in little memory."""
    return run_job(job_in(tmp_path_factory.mktemp("whole"), text=TEXT))


def test_the_image_is_the_sum_of_its_shots(whole):
    assert len(whole.summaries) == SHOTS and not whole.failed and whole.resumed == 0
    images = [whole.workspace.part(shot).image for shot in range(SHOTS)]
    a, b, c, d, e = images
    assert np.array_equal(whole.stack.image, ((a + b) + (c + d)) + e)


def test_reflectors_are_where_they_are(whole):
    """At 1.5 to 1.9 km, the strongest of the image lies at one of the layers' boundaries."""
    velocity = whole.workspace.fields("true")["velocity"]
    boundaries = np.abs(np.diff(np.log(velocity[:, 60])))
    depth = 35 + np.abs(whole.image[35:48, 50:70]).mean(axis=1).argmax()
    assert min(abs(depth - place) for place in np.flatnonzero(boundaries > 0.05)) <= 2


@pytest.mark.slow
def test_what_might_be_better_is_said_once_for_all_shots(tmp_path):
    more, text = "[imaging]\nevery = 30\n", AMPLE.replace(f"shots = {SHOTS}", "shots = 2")
    with pytest.warns(WaveWarning) as told:
        run_job(job_in(tmp_path / "a", more, text))
    assert len([one for one in told if one.category is WaveWarning]) == 1
    console = Console(record=True, width=200, file=io.StringIO())
    with warnings.catch_warnings():
        warnings.simplefilter("error", WaveWarning)
        run_job(job_in(tmp_path / "b", more, text), console)
    text = console.export_text()
    assert text.count("take every of at most") == 1


def test_one_plan_serves_all_shots(whole):
    plan = whole.workspace.plan()
    assert plan.budget["host"] == 600_000
    for summary in whole.summaries:
        assert summary["steps"] == plan.steps and summary["peak"]["host"] <= 600_000
    shot, spans = whole.workspace.timeline()
    assert shot == 0 and {"forward", "backward"} <= {span.what for span in spans}


def test_a_shot_is_what_migrate_makes_of_it(whole):
    workspace = whole.workspace
    shot = work.shot_of(workspace, 2)
    data = simulate(
        Shot(shot.source, shot.receivers, shot.wavelet, shot.dt),
        AcousticModel(workspace.fields("true")["velocity"], workspace.described.grid),
        dt=workspace.described.step,
    )
    data = work.mute(data, shot, 1500.0)
    model = AcousticModel(workspace.fields("model")["velocity"], workspace.described.grid)
    alone = migrate(shot.with_data(data), model, dt=workspace.described.step, budget="64MB")
    assert np.array_equal(alone.image, workspace.part(2).image)


RUN = """
import sys
from pathlib import Path
from forebay.wave.job.job import read_job
from forebay.wave.job.run import run_job
run_job(read_job(Path(sys.argv[1])))
"""


def test_a_killed_run_goes_on_and_gives_the_same_bits(whole, tmp_path):
    job = job_in(tmp_path)
    process = subprocess.Popen([sys.executable, "-c", RUN, str(tmp_path / "job.toml")], start_new_session=True)
    workspace = Workspace(tmp_path / "out")
    try:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and process.poll() is None:
            if (tmp_path / "out" / "shots").exists() and len(workspace.finished()) >= 2:
                break
            time.sleep(0.005)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    before = workspace.finished()
    assert 0 < len(before) < SHOTS, "killed too late to tell anything"
    survey = run_job(job)
    assert survey.resumed == len(before) and same_images(survey, whole)


def test_what_a_dead_run_left_half_written_is_not_believed(whole, tmp_path):
    job = job_in(tmp_path)
    first = run_job(job)
    workspace = first.workspace
    broken = workspace.path(1).read_bytes()
    workspace.path(1).write_bytes(broken[: len(broken) // 2])
    changed_bit = bytearray(workspace.path(3).read_bytes())
    changed_bit[len(changed_bit) // 3] ^= 1
    workspace.path(3).write_bytes(bytes(changed_bit))
    leftover = workspace.root / "shots" / ".0123abcd.00004.npz"
    leftover.write_bytes(b"half")
    again = run_job(job)
    assert again.resumed == SHOTS - 2 and same_images(again, whole) and not leftover.exists()


def failing(monkeypatch, shot, times):
    """Have the migration of one shot fail a number of times."""
    left, real = [times], work._run

    def run(workspace, number, *about):
        if number == shot and left[0] > 0:
            left[0] -= 1
            raise MemoryError("no room for shot")
        return real(workspace, number, *about)

    monkeypatch.setattr(work, "_run", run)


def test_a_shot_that_keeps_failing_is_reported_and_loses_no_other(whole, tmp_path, monkeypatch):
    failing(monkeypatch, 2, times=99)
    job = job_in(tmp_path)
    survey = run_job(job)
    assert survey.failed == {2: "MemoryError: no room for shot"} and len(survey.summaries) == SHOTS - 1
    assert "no room for shot" in (survey.workspace.root / "shots" / "00002.error").read_text()
    a, b, _, d, e = (whole.workspace.part(shot).image for shot in range(SHOTS))
    assert np.array_equal(survey.stack.image, ((a + b) + d) + e)
    write_report(survey, tmp_path / "report.html", [], "title", "lead")
    assert "no room for shot" in (tmp_path / "report.html").read_text()
    monkeypatch.undo()
    assert same_images(run_job(job), whole)  # the same job again has what was missing


def test_where_no_shot_is_migrated_the_first_reason_is_told(tmp_path, monkeypatch):
    def run(workspace, number, *about):
        raise MemoryError(f"no room for shot {number}")

    monkeypatch.setattr(work, "_run", run)
    with pytest.raises(WaveError, match=r"none of the 5 shots could be migrated; .* MemoryError: no room for shot 0"):
        run_job(job_in(tmp_path))


@pytest.mark.slow
def test_what_is_wrong_with_a_shot_is_not_tried_again(whole, tmp_path, monkeypatch):
    tried, real = [], work._run

    def run(workspace, number, *about):
        tried.append(number)
        if number == 2:
            raise WaveError("a shot that makes no sense")
        return real(workspace, number, *about)

    monkeypatch.setattr(work, "_run", run)
    survey = run_job(job_in(tmp_path))
    assert list(survey.failed) == [2] and tried == [0, 1, 2, 3, 4]
    disk, budget = DiskFullError("no room left"), BudgetError("too small")
    assert attempt.hopeless(budget) and not attempt.hopeless(disk) and not attempt.hopeless(MemoryError())


@pytest.mark.slow
def test_a_folder_for_snapshots_is_made(whole, tmp_path):
    told = TEXT.replace('disk = "20MB"', 'disk = "20MB"\ndirectory = "scratch/below"')
    assert same_images(run_job(parse(told, tmp_path)), whole)
    assert (tmp_path / "scratch" / "below").is_dir() and not list((tmp_path / "scratch" / "below").iterdir())


def test_a_folder_for_snapshots_that_may_not_be_written_is_refused(tmp_path, monkeypatch):
    told = TEXT.replace('disk = "20MB"', 'disk = "20MB"\ndirectory = "scratch/below"')
    monkeypatch.setattr(checks.os, "access", lambda *about: False)
    with pytest.raises(WaveError, match=r"memory\.directory: .*below cannot be written, since .* cannot"):
        run_job(parse(told, tmp_path))


def test_a_budget_that_no_plan_fits_into_ends_the_run_at_the_first_shot(tmp_path, monkeypatch):
    tried = []

    def run(workspace, number, *about):
        tried.append(number)
        raise BudgetError("too small")

    monkeypatch.setattr(work, "_run", run)
    with pytest.raises(BudgetError, match="too small"):
        run_job(job_in(tmp_path))
    assert tried == [0]


@pytest.mark.slow
def test_a_shot_that_fails_is_tried_again_and_all_steps_and_the_time_left_are_told(whole, tmp_path, monkeypatch):
    failing(monkeypatch, 2, times=1)
    told, real = [], ProgressBars.steps
    monkeypatch.setattr(
        ProgressBars, "steps", lambda self, shot, done: (told.append((shot, done)), real(self, shot, done))
    )
    console = Console(width=200)
    with console.capture() as printed:
        survey = run_job(job_in(tmp_path), console)
    assert not survey.failed and same_images(survey, whole)
    assert not list((survey.workspace.root / "shots").glob("*.error"))
    steps = survey.summaries[0]["steps"]
    assert work.steps_of(survey.workspace) == (steps, 3 * steps)  # modelled, forward and back
    for shot in range(SHOTS):
        done = [number for which, number in told if which == shot]
        assert done[-1] == 3 * steps and {steps, 2 * steps} <= set(done) and len(done) > 10
        assert done[1:] == sorted(done[1:])
    lines = printed.get().splitlines()
    assert "shot 2 failed (MemoryError: no room for shot), again" in lines
    assert any(re.fullmatch(r"shot 1 in .*s: 2 of 5, .*s left", line) for line in lines)
    assert re.fullmatch(r"shot 4 in .*s: 5 of 5", lines[-1])


@pytest.mark.slow
def test_a_shot_is_tried_again_as_often_as_the_job_says(whole, tmp_path, monkeypatch):
    failing(monkeypatch, 2, times=2)
    job = job_in(tmp_path)
    assert not run_job(job.model_copy(update={"run": job.run.model_copy(update={"retries": 2})})).failed


@pytest.mark.slow
def test_a_plan_that_was_made_where_there_was_more_memory_is_made_anew(whole, tmp_path, monkeypatch):
    failing(monkeypatch, 3, times=99)
    first = run_job(parse(UNLIMITED, tmp_path))
    assert first.failed and first.workspace.plan().peak_bytes["host"] > 10**6
    monkeypatch.undo()
    monkeypatch.setattr(begin, "host_capacity", lambda: Capacity(10**6, 10**6))
    monkeypatch.setattr(array_memory, "host_capacity", lambda: Capacity(10**6, 10**6))
    console = Console(width=200)
    with console.capture() as printed:
        survey = run_job(parse(UNLIMITED, tmp_path), console)
    assert "where 1MB are left: another one is made" in printed.get()
    assert survey.workspace.plan().peak_bytes["host"] <= 10**6 and same_images(survey, whole)


@pytest.mark.parametrize(("left", "kept"), [("64kB", False), ("8MB", True)])
def test_a_plan_for_the_budget_of_the_job_is_made_anew_where_there_is_less(left, kept):
    told = Budget(host="4MB")
    plans = [planner.plan(100, 40960, told)]
    memory = SimpleNamespace(budget=told)
    space = SimpleNamespace(
        plan=lambda: plans[0], described=SimpleNamespace(job=SimpleNamespace(memory=memory)), forget_plan=plans.clear
    )
    begin._settle(space, Budget(host=left), Console(quiet=True))
    assert bool(plans) == kept


def test_a_finished_job_keeps_its_plan_however_little_memory_is_left(tmp_path, monkeypatch):
    told = UNLIMITED.replace(f"shots = {SHOTS}", "shots = 1")
    first = run_job(parse(told, tmp_path))
    monkeypatch.setattr(begin, "host_capacity", lambda: Capacity(10**5, 10**5))
    again = run_job(parse(told, tmp_path))
    assert again.resumed == 1 and again.workspace.plan() == first.workspace.plan() and same_images(again, first)
    write_report(again, tmp_path / "report.html", [], "title", "lead")
    assert "The plan" in (tmp_path / "report.html").read_text()
    again.workspace.forget_plan()
    write_report(again, tmp_path / "report.html", [], "title", "lead")  # the rest is told all the same
    page = (tmp_path / "report.html").read_text()
    assert "The plan" not in page and "Where the time of each shot went" in page


@pytest.mark.slow
def test_a_shot_migrates_in_its_part_of_the_model_whose_top_is_quiet_where_that_is_asked_for(whole, tmp_path):
    survey = run_job(job_in(tmp_path, "[imaging]\naperture = 100.0\nmute = 800.0\n").model_copy())
    assert np.array_equal(survey.stack.image, whole.stack.image)  # receivers are everywhere, so every part is the whole
    assert not survey.image[:10].any() and np.array_equal(survey.image[20:], whole.image[20:])
    told = AMPLE.replace("receiver_spacing = 80.0", "receiver_spacing = 80.0\nmax_offset = 800.0")
    narrow = run_job(parse(told + "[imaging]\naperture = 400.0\n", tmp_path / "narrow"))
    workspace = narrow.workspace
    box = workspace.boxes[0]
    assert box[1].stop - box[1].start < 0.6 * workspace.described.grid.shape[1]
    shot = work.shot_of(workspace, 0)
    model = AcousticModel(workspace.fields("model", box)["velocity"], part_of(workspace.described.grid, box))
    data = work.data_of(workspace, 0, shot)
    alone = migrate(shot.with_data(data), model, dt=workspace.described.step, budget="64MB")
    part, fading = workspace.part(0), int(200 / workspace.described.grid.spacing[1])
    assert part.box == box and box[1].start == 0
    assert np.array_equal(part.image[:, :-fading], alone.image[:, :-fading])
    assert not np.array_equal(part.image, alone.image)
    spread = part.spread(workspace.described.grid.shape).image
    assert np.array_equal(spread[box], part.image) and not spread[:, box[1].stop :].any()


@pytest.mark.slow
def test_recorded_shots_at_another_sampling_give_the_same_image(whole, tmp_path):
    workspace = whole.workspace
    gathers = []
    for number in range(SHOTS):
        shot = work.shot_of(workspace, number)
        fine = Shot(shot.source, shot.receivers, ricker(3.4, 0.002, 701), 0.002)
        model = AcousticModel(workspace.fields("true")["velocity"], workspace.described.grid)
        gathers.append(simulate(fine, model))
    write_shots(tmp_path / "shots.npy", workspace.geometry, gathers, 0.002)
    np.save(tmp_path / "v.npy", workspace.fields("model")["velocity"])
    told = AMPLE.replace('name = "layers"\nshape = [60, 120]\nsmooth = 80.0', 'velocity = "v.npy"\nspacing = 40.0')
    told = told.replace("dt = 0.008\nlength = 1.4", 'file = "shots.npy"\ndt = 0.002')
    survey = run_job(parse(told, tmp_path))
    assert survey.workspace.described.sampling == 0.002 and "true" not in os.listdir(tmp_path / "out")
    assert np.linalg.norm(survey.stack.image - whole.stack.image) < 0.03 * np.linalg.norm(whole.stack.image)


@pytest.mark.slow
def test_a_codec_serves_all_shots_and_hardly_shows(whole, tmp_path):
    survey = run_job(parse(TEXT.replace('disk = "20MB"', 'codec = "bounded:1e-4"'), tmp_path))
    assert survey.workspace.plan().codec.startswith("bounded")
    assert all(one["ratio"] > 1 and one["error"] <= 1.01e-4 for one in survey.summaries)
    below = slice(15, None)  # the sources, around which an image is of no use
    error = np.linalg.norm((survey.image - whole.image)[below]) / np.linalg.norm(whole.image[below])
    assert 0 < error < 0.01


def test_results_are_written_in_every_format(whole, tmp_path):
    formats = ["npy", "png"]
    formats += ["segy", *(["zarr"] if find_spec("zarr") else [])]
    written = write_image(whole, tmp_path, formats)
    assert {path.name for path in written} == {f"image.{name}" for name in formats} | {"stack.npy", "illumination.npy"}
    for name in set(formats) - {"png"}:
        assert np.array_equal(read_field(tmp_path / f"image.{name}").values, whole.image)


VOLUME = """
[model]
name = "salt"
shape = [25, 40, 40]
smooth = 300.0
[geometry]
shots = [1, 2]
source_depth = 300.0
receiver_depth = 300.0
receiver_spacing = 700.0
max_offset = 3000.0
[data]
dt = 0.03
length = 7.5
[wavelet]
frequency = 0.4
[physics]
absorb = 8
[imaging]
aperture = 500.0
[memory]
host = "3MB"
[run]
device = "cpu"
[output]
directory = "out"
"""


@pytest.mark.slow
def test_a_volume_is_migrated_in_parts(tmp_path):
    survey = run_job(parse(VOLUME, tmp_path))
    boxes = survey.workspace.boxes
    shapes = {tuple(one.stop - one.start for one in box) for box in boxes}
    assert len(shapes) == 1 and len({box[2].start for box in boxes}) == 2 and max(shapes)[2] < 30
    assert survey.image.shape == (25, 40, 40) and np.isfinite(survey.image).all()
    covered = np.zeros((25, 40, 40), bool)
    for box in boxes:
        covered[box] = True
    assert not survey.stack.image[~covered].any() and survey.stack.image[covered].any()
    write_image(survey, tmp_path, ["npy", "png"])
    assert (tmp_path / "image.png").read_bytes().startswith(b"\x89PNG")


ELASTIC = """
[model]
name = "layers"
shape = [120, 240]
smooth = 60.0
[geometry]
shots = 2
source_depth = 40.0
receiver_depth = 40.0
receiver_spacing = 40.0
[data]
dt = 0.004
length = 2.2
mute_velocity = 1500.0
[wavelet]
frequency = 4.0
[physics]
kind = "elastic"
absorb = 30
HEARS
[imaging]
image = "IMAGE"
[memory]
host = "50MB"
[run]
device = "cpu"
[output]
directory = "out"
"""


@pytest.mark.slow
@pytest.mark.parametrize(("image", "hears"), [("pp", ""), ("velocity", ""), ("pp", 'hears = "velocity z"')])
def test_elastic_shots_are_jobs_too_and_find_the_strongest_layer(tmp_path, image, hears):
    survey = run_job(parse(ELASTIC.replace("IMAGE", image).replace("HEARS", hears), tmp_path))
    assert not survey.failed
    velocity = survey.workspace.fields("true")["velocity"]
    sign = 1 if image == "pp" else -1  # what comes back moves the other way
    for columns in (slice(60, 90), slice(150, 180)):
        boundary = np.diff(velocity[60:80, columns.start + 15]).argmax() + 60
        found = (sign * survey.image[60:85, columns]).mean(axis=1).argmax() + 60
        assert abs(found - boundary) <= 3  # of the 25 of a wavelength


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["density", "vti", "visco"])
def test_shots_of_other_kinds_are_jobs_too_and_find_the_strongest_layer(tmp_path, kind):
    for name, value in {"e.npy": 0.05, "d.npy": 0.05}.items():  # waves are faster, and reflectors where they were
        np.save(tmp_path / name, value * np.linspace(0, 1, 120)[:, None] + np.zeros((120, 240)))
    np.save(tmp_path / "q.npy", np.full((120, 240), 80.0))
    files = {"vti": 'epsilon = "e.npy"\ndelta = "d.npy"', "visco": 'q = "q.npy"\nq_frequency = 8.0'}.get(kind, "")
    text = ELASTIC.replace('image = "IMAGE"', "zero_phase = true").replace(
        'kind = "elastic"', f'kind = "{kind}"\n{files}'
    )
    survey = run_job(parse(text.replace("HEARS", ""), tmp_path))
    assert not survey.failed
    velocity = survey.workspace.fields("true")["velocity"]
    for columns in (slice(60, 90), slice(150, 180)):
        boundary = np.diff(velocity[60:80, columns.start + 15]).argmax() + 60
        found = survey.image[60:85, columns].mean(axis=1).argmax() + 60
        assert abs(found - boundary) <= 3


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["density", "vti", "tti", "visco"])
def test_jobs_of_other_kinds_go_on_in_their_directory_and_in_no_others(tmp_path, kind):
    shale = ["epsilon", "delta"]
    names = {"density": ["density"], "vti": shale, "tti": ["tilt", *shale], "visco": ["q"]}[kind]
    for name, value in {"density": 2000.0, "epsilon": 0.1, "delta": 0.05, "tilt": 0.4, "q": 50.0}.items():
        np.save(tmp_path / f"{name}.npy", np.full((60, 120), value))
    physics = "\n".join([f'kind = "{kind}"', *(f'{name} = "{name}.npy"' for name in names)])
    physics += "\nq_frequency = 6.0" if kind == "visco" else ""
    text = AMPLE.replace("absorb = 20", f"absorb = 20\n{physics}").replace(f"shots = {SHOTS}", "shots = 2")
    text = text.replace("frequency = 3.4", "frequency = 2.7")  # TTI waves need more points
    first = run_job(job_in(tmp_path, text=text))
    console = Console(record=True, width=200, file=io.StringIO())
    again = run_job(job_in(tmp_path, text=text), console)
    assert (first.resumed, again.resumed) == (0, 2) and np.array_equal(first.image, again.image)
    assert "damaged" not in console.export_text()
    changed_field = np.load(tmp_path / f"{names[0]}.npy")
    changed_field[30:] *= 1.1
    np.save(tmp_path / f"{names[0]}.npy", changed_field)
    with pytest.raises(WaveError, match="holds a job with other"):
        run_job(job_in(tmp_path, text=text))


class TestOnDask:
    """The same on a cluster: in this process, which is quick, and in processes of its own."""

    @pytest.fixture
    def client(self):
        distributed = pytest.importorskip("distributed")
        with (
            # Without a limit: workers in this process would count all that other tests have left in it, and pause.
            distributed.LocalCluster(
                n_workers=2, threads_per_worker=2, processes=False, dashboard_address=None, memory_limit=0
            ) as cluster,
            distributed.Client(cluster) as client,
        ):
            yield client

    @pytest.mark.slow
    def test_it_gives_the_same_bits(self, whole, tmp_path, client, monkeypatch):
        failing(monkeypatch, 3, times=1)
        job = changed(job_in(tmp_path), scheduler=client.scheduler.address)
        assert same_images(run_job(job), whole)

    @pytest.mark.slow
    def test_what_fails_is_reported(self, whole, tmp_path, client, monkeypatch):
        failing(monkeypatch, 0, times=99)
        job = changed(job_in(tmp_path), scheduler=client.scheduler.address)
        survey = run_job(job)
        assert list(survey.failed) == [0] and len(survey.summaries) == SHOTS - 1
        monkeypatch.undo()
        assert same_images(run_job(job), whole)

    @pytest.mark.slow
    def test_workers_tell_their_steps(self, tmp_path, client, monkeypatch):
        from forebay.wave.job.shots import cluster

        monkeypatch.setattr(cluster, "OFTEN", 0.0)
        told = []
        monkeypatch.setattr(ProgressBars, "steps", lambda self, shot, done: told.append((shot, done)))
        survey = run_job(changed(job_in(tmp_path), scheduler=client.scheduler.address))
        steps = survey.summaries[0]["steps"]
        assert {(shot, steps) for shot in range(SHOTS)} <= set(told) and len(told) > 10 * SHOTS

    def test_a_worker_that_does_not_see_the_directory_is_named(self, tmp_path, client, monkeypatch):
        from forebay.wave.job.shots import cluster

        monkeypatch.setattr(cluster, "_sees", lambda root: False)
        with pytest.raises(WaveError, match=r"does not see .*out: choose an output\.directory"):
            run_job(changed(job_in(tmp_path), scheduler=client.scheduler.address))

    def test_too_little_memory_for_a_shot_is_said_first(self, tmp_path, client, monkeypatch):
        from forebay.dask.limits import WorkerLimits
        from forebay.wave.job.shots import cluster

        monkeypatch.setattr(cluster, "limits_of", lambda *about: WorkerLimits(10**6, 1, 2))
        with pytest.raises(BudgetError, match="a worker has 1MB for its tasks, and a shot works with"):
            run_job(changed(parse(UNLIMITED, tmp_path), scheduler=client.scheduler.address))

    def test_a_scheduler_that_does_not_answer_is_named(self, tmp_path, monkeypatch):
        from forebay.wave.job.shots import cluster

        monkeypatch.setattr(cluster, "PATIENCE", "1s")
        with pytest.raises(WaveError, match=r"run\.scheduler: no Dask scheduler answers at tcp://127\.0\.0\.1:9"):
            run_job(changed(job_in(tmp_path), scheduler="tcp://127.0.0.1:9"))

    def test_workers_share_the_processors_of_any_system(self, monkeypatch, tmp_path):
        pytest.importorskip("distributed")
        from forebay.wave.job.shots import cluster

        monkeypatch.delattr(os, "sched_getaffinity")
        monkeypatch.setattr(os, "cpu_count", lambda: 6)
        monkeypatch.setattr(cluster, "private_cluster", nullcontext)
        with cluster.local(RunTable(workers=2), "cpu", tmp_path) as shots:
            assert shots.threads == 3

    def test_a_scheduler_without_workers_is_named(self, tmp_path, monkeypatch):
        distributed = pytest.importorskip("distributed")
        from forebay.wave.job.shots import cluster

        monkeypatch.setattr(cluster, "PATIENCE", "1s")
        alone = distributed.LocalCluster(n_workers=0, processes=False, dashboard_address=None)
        with alone, pytest.raises(WaveError, match=r"run\.scheduler: nobody computes at .*: it has no workers: start"):
            run_job(changed(job_in(tmp_path), scheduler=alone.scheduler_address))

    def test_workers_that_are_out_of_memory_are_named(self, tmp_path, client, monkeypatch):
        from forebay.wave.job.shots import cluster

        monkeypatch.setattr(cluster, "PATIENCE", "1s")
        paused = type(next(iter(client.cluster.workers.values())).status).paused
        client.run(lambda dask_worker: setattr(dask_worker, "status", paused))
        with pytest.raises(WaveError, match="all of its 2 workers are paused, for their memory is nearly full: give"):
            run_job(changed(job_in(tmp_path), scheduler=client.scheduler.address))

    @pytest.mark.slow
    def test_a_worker_that_dies_loses_no_shot(self, whole, tmp_path):
        distributed = pytest.importorskip("distributed")
        with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
            pids = {worker.process.process.pid for worker in cluster.workers.values()}
            done = Workspace(tmp_path / "out")

            def kill():
                while not (done.root / "shots").exists() or not done.finished():
                    time.sleep(0.01)
                os.kill(min(pids), signal.SIGKILL)

            killer = threading.Thread(target=kill)
            killer.start()
            survey = run_job(changed(job_in(tmp_path), scheduler=cluster.scheduler_address))
            killer.join()
        assert not survey.failed and same_images(survey, whole)

    @pytest.mark.slow
    def test_workers_of_their_own_take_their_budget_from_their_limits(self, whole, tmp_path):
        pytest.importorskip("distributed")
        survey = run_job(changed(parse(UNLIMITED, tmp_path), workers=2))
        assert same_images(survey, whole)
        assert 10**6 < survey.workspace.plan().budget["host"] < os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.gpu
class TestOnAGpu:
    """The same where there is a GPU: its own bits, the same after an interruption, and the image of the CPU."""

    @pytest.fixture(autouse=True)
    def _there(self):
        if not gpu_count():
            pytest.skip("no GPU")

    TEXT = TEXT.replace('device = "cpu"', 'device = "gpu"').replace('host = "600kB"', 'device = "600kB"\nhost = "2MB"')

    def test_it_gives_the_image_of_the_cpu(self, whole, tmp_path):
        survey = run_job(parse(self.TEXT, tmp_path))
        assert survey.workspace.described.device == "gpu" and survey.workspace.plan().tiers[0] == "device"
        assert all(one["peak"]["device"] <= 600_000 for one in survey.summaries)
        for ours, cpu in ((survey.stack.image, whole.stack.image), (survey.image, whole.image)):
            assert np.linalg.norm(ours - cpu) < 1e-3 * np.linalg.norm(cpu)

    def test_a_shot_that_failed_is_made_up_for_with_the_same_bits(self, tmp_path, monkeypatch):
        whole = run_job(parse(self.TEXT, tmp_path / "whole"))
        failing(monkeypatch, 2, times=99)
        monkeypatch.setattr(here, "batch_of", lambda *about: 1)
        job = parse(self.TEXT, tmp_path / "other")
        assert list(run_job(job).failed) == [2]
        monkeypatch.undo()
        assert same_images(run_job(job), whole)

    def test_without_a_budget_half_of_what_is_free_is_planned_with(self, tmp_path):
        told = self.TEXT.replace('device = "600kB"\nhost = "2MB"\ndisk = "20MB"\n', "")
        survey = run_job(parse(told, tmp_path))
        assert not survey.failed and survey.workspace.plan().budget["device"] > 10**8

    def test_a_worker_of_its_own_computes_there(self, tmp_path):
        pytest.importorskip("distributed")
        survey = run_job(changed(parse(self.TEXT, tmp_path / "one"), workers=1))
        assert same_images(survey, run_job(parse(self.TEXT, tmp_path / "two")))
        with pytest.raises(WaveError, match=r"run\.workers: expected at most \d+, one for each GPU"):
            run_job(changed(parse(self.TEXT, tmp_path / "three"), workers=99))

    def test_workers_of_dask_cuda_compute_there(self, tmp_path, monkeypatch):
        pytest.importorskip("dask_cuda")
        # As a machine with several has them started.
        monkeypatch.setattr("forebay.wave.job.shots.cluster.gpu_count", lambda: 2)
        survey = run_job(changed(parse(self.TEXT, tmp_path / "one"), workers=1))
        assert same_images(survey, run_job(parse(self.TEXT, tmp_path / "two")))
