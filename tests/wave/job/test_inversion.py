"""Inversion jobs: the bits of `wave.invert`, resumed, on a cluster, damaged and repaired; and what is refused."""

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
from tests.wave.job.inversions import inversion_text, inverted_here, shots_of

from forebay.errors import WaveError
from forebay.wave import AcousticModel, WaveWarning, invert
from forebay.wave.job import changed, parse, read_job, run_job
from forebay.wave.job.checks import inspect
from forebay.wave.job.inputs import medium_of
from forebay.wave.job.inversion import passes, results
from forebay.wave.job.inversion.run import run_inversion
from forebay.wave.job.shots import here
from forebay.wave.job.verify import verify
from forebay.wave.job.workspace import Workspace

pytestmark = pytest.mark.filterwarnings("ignore::forebay.wave.WaveWarning")


def job_in(folder, search=None, **tables):
    return parse(inversion_text(*([] if search is None else [search]), **tables), folder, command="fwi")


@pytest.fixture(scope="module")
def inverted(tmp_path_factory):
    """Run an inversion without incidents."""
    return run_inversion(job_in(tmp_path_factory.mktemp("inverted")))


@pytest.fixture
def job(inverted, tmp_path):
    """Copy what it has left, whole."""
    shutil.copytree(inverted.workspace.root, tmp_path / "out")
    return job_in(tmp_path)


@pytest.fixture
def computed(monkeypatch):
    """List the shots whose gradients are computed, and stop before the one of a number."""
    real, numbers = passes.gradient, []

    def gradient(*about, **options):
        if len(numbers) == gradient.until:
            raise KeyboardInterrupt
        numbers.append(len(numbers))
        return real(*about, **options)

    gradient.until, gradient.numbers = None, numbers
    monkeypatch.setattr(passes, "gradient", gradient)
    return gradient


def flipped(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def same(one, other):
    return one.misfits == other.misfits and all(
        np.array_equal(one.model[name], other.model[name]) and one.model[name].dtype == other.model[name].dtype
        for name in one.model
    )


@pytest.mark.slow
def test_seconds_are_those_of_the_run_and_of_its_shots(inverted, job):
    begun = time.perf_counter()
    again = run_inversion(job)
    assert 0 < again.seconds <= time.perf_counter() - begun
    shots, reversals = inverted.last["seconds"], inverted.last["reversal"]
    assert (reversals > 0).all() and (reversals <= shots).all() and shots.sum() <= inverted.seconds


def test_pictures_are_of_the_model_its_start_and_what_was_changed(inverted, tmp_path, monkeypatch):
    drawn = {}
    monkeypatch.setattr(
        results, "draw_velocity", lambda values, grid, geometry, path: drawn.update({path.name: values})
    )
    monkeypatch.setattr(results, "panels_of", lambda values, grid, **about: values)
    monkeypatch.setattr(results, "draw_panels", lambda values, path: drawn.update({path.name: values}))
    monkeypatch.setattr(results, "draw_gathers", lambda *about: None, raising=False)
    results.draw_pictures(replace(inverted, gathers=[]), tmp_path)
    start, found = inverted.start["velocity"], inverted.model["velocity"]
    wanted = {"velocity.png": found, "start.png": start, "update.png": found - start}
    assert all(np.array_equal(drawn[name], values) for name, values in wanted.items())


def test_the_chart_of_misfits_ends_with_the_last_iteration(inverted):
    searches = [misfits for stage in inverted.misfits for misfits in stage]
    chart = results.misfit_chart(inverted)
    points = [point for mark in chart.panels[0].marks for line in mark.lines for point in line]
    assert chart.end == sum(len(misfits) - 1 for misfits in searches) == max(x for x, _ in points) > 1
    assert max(y for _, y in points) == 1.0 and min(y for _, y in points) == min(m[-1] / m[0] for m in searches)


def test_damage_is_told_where_the_run_was_called_for(job):
    flipped(job.output.directory / "wavelet.npy")
    with pytest.warns(WaveWarning, match="damaged") as told:
        run_inversion(job)
    assert told[0].filename == __file__


def test_it_has_the_bits_of_the_same_inversion_of_the_same_shots(inverted):
    found = inverted_here(inverted.workspace)
    assert np.array_equal(found.model.velocity, inverted.model["velocity"])
    assert [misfits for stage in inverted.misfits for misfits in stage] == list(found.misfits)
    assert inverted.evaluations == found.evaluations and inverted.damage == inverted.notes == []
    assert all(stage[0][-1] < stage[0][0] for stage in inverted.misfits)
    assert [gathers.shot for gathers in inverted.gathers] == [0, 1]
    for gathers in inverted.gathers:
        before, after = (np.linalg.norm(heard - gathers.observed) for heard in (gathers.before, gathers.after))
        assert after < before
    assert sorted(path.name for path in (inverted.workspace.root / "shots").iterdir()) == [
        "data",
        "gathers-found",
        "gathers-start",
    ]


def test_a_finished_one_computes_nothing_again(job, inverted, computed):
    computed.until = 0
    assert same(run_inversion(job), inverted)


@pytest.mark.slow
def test_it_goes_on_inside_of_an_evaluation_with_the_same_bits(tmp_path, inverted, computed):
    for until in (1, 5):
        computed.until = until
        with pytest.raises(KeyboardInterrupt):
            run_inversion(job_in(tmp_path))
    computed.until = None
    assert same(run_inversion(job_in(tmp_path)), inverted)
    assert len(computed.numbers) == 2 * inverted.evaluations  # no shot of any evaluation was computed twice


def test_what_is_damaged_is_told_and_computed_again(job, inverted):
    root = job.output.directory
    for name in ("shots/data/00001.npz", "inversion/stage-1.npz", "shots/gathers-found/00000.npz"):
        flipped(root / name)
    damage, there = verify(job)
    assert len(damage) == 3 and "of its passes are there and whole" in there
    again = run_inversion(job)
    assert same(again, inverted)
    told = " ".join([*again.damage, *again.notes])
    assert all(name in told for name in ("data/00001.npz is damaged", "stage-1.npz", "gathers-found/00000.npz"))
    assert verify(job)[0] == []


def test_another_inversion_is_refused_there(job, tmp_path):
    other = inversion_text('frequencies = [2.5, "all"]\niterations = 2\nbounds = [1400.0, 3400.0]')
    with pytest.raises(WaveError, match=r"holds a job with other inversion\.iterations"):
        run_inversion(parse(other, tmp_path, command="fwi"))
    with pytest.raises(WaveError, match=r"holds a job with other .*inversion"):
        run_job(parse(inversion_text(None), tmp_path))


def test_a_failing_shot_ends_the_run_and_the_others_are_kept(tmp_path, monkeypatch):
    real = passes.gradient

    def fail(shot, *about, **options):
        if float(shot.source[0, 1]) > 2500:
            raise RuntimeError("a bad disk")
        return real(shot, *about, **options)

    monkeypatch.setattr(passes, "gradient", fail)
    with pytest.raises(WaveError, match=r"1 of 2 shots failed, first shot 1: RuntimeError: a bad disk"):
        run_inversion(job_in(tmp_path))
    assert "a bad disk" in next((tmp_path / "out" / "shots").glob("stage-0-evaluation-00000/00001.error")).read_text()


@pytest.mark.slow
@pytest.mark.parametrize("processes", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_two_workers_give_the_same_bits(job, inverted, processes):
    distributed = pytest.importorskip("distributed")
    for folder in ("inversion", "shots"):
        shutil.rmtree(job.output.directory / folder)
    if processes:
        found = run_inversion(changed(job, workers=2))
    else:
        options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None, "memory_limit": 0}
        with distributed.LocalCluster(processes=False, **options) as cluster:
            found = run_inversion(changed(job, scheduler=cluster.scheduler_address))
    assert same(found, inverted)


@pytest.mark.slow
def test_shots_that_advance_together_as_a_gpu_takes_them_give_the_same_bits(tmp_path, inverted, monkeypatch):
    together, real = [], passes.Differentiating.together
    counted = lambda self, workspace, numbers, plan, tell: (  # noqa: E731
        together.append((list(numbers), plan is None)) or real(self, workspace, numbers, plan, tell)
    )
    monkeypatch.setattr(here, "batch_of", lambda *about: 2)
    monkeypatch.setattr(passes.Differentiating, "together", counted)
    assert same(run_inversion(job_in(tmp_path)), inverted)
    # In the first one the first shot makes the plan; and all later ones share that of two.
    assert together == [([0, 1], True)] + [([0, 1], False)] * (inverted.evaluations - 2)


@pytest.mark.slow
def test_mini_batches_are_those_of_invert(tmp_path):
    search = "iterations = 4\nmini_batch = 1\nseed = 5\nbounds = [1400.0, 3400.0]\nprecondition = false"
    survey = run_inversion(job_in(tmp_path, search))
    options = {"frequencies": (None,), "iterations": 4, "mini_batch": 1, "seed": 5, "precondition": False}
    found = inverted_here(survey.workspace, **options)
    assert np.array_equal(found.model.velocity, survey.model["velocity"]) and len(survey.misfits[0]) == 2
    assert survey.misfits[0] == list(found.misfits)


@pytest.mark.slow
def test_wavelets_are_found_as_invert_does(tmp_path):
    search = 'iterations = 1\nestimate_source = "each"\nbounds = [1400.0, 3400.0]\nfixed_depth = 300.0\nsmooth = 100.0'
    survey = run_inversion(job_in(tmp_path, search))
    known = np.zeros(survey.workspace.described.grid.shape, bool)
    known[:3] = True
    options = {"frequencies": (None,), "estimate_source": "each", "fixed": known, "smooth": 100.0}
    found = inverted_here(survey.workspace, **options)
    assert np.array_equal(found.model.velocity, survey.model["velocity"])
    assert np.array_equal(np.stack([shot.wavelet for shot in found.shots], axis=1), survey.sent)
    assert np.array_equal(survey.model["velocity"][:3], survey.start["velocity"][:3])


SINGLE = "iterations = 1\nbounds = [1400.0, 3400.0]\nprecondition = false"


def in_files(inverted, folder, spoilt=None, **tables):
    """Write data and model into files, one trace spoilt, and return the text of a job that reads them."""
    data = np.stack([shot.data for shot in shots_of(inverted.workspace)])
    data[:, :, [] if spoilt is None else [spoilt]] = np.nan
    np.save(folder / "data.npy", data)
    np.save(folder / "velocity.npy", inverted.workspace.fields("model")["velocity"])
    usual = {
        "model": 'velocity = "velocity.npy"\nspacing = 100.0',
        "data": 'file = "data.npy"\ndt = 0.014',
    }
    return inversion_text(SINGLE, **usual | tables)


@pytest.mark.slow
def test_traces_that_are_spoilt_in_files_do_not_count(inverted, tmp_path):
    survey = run_inversion(parse(in_files(inverted, tmp_path, spoilt=4), tmp_path, command="fwi"))
    shots = shots_of(inverted.workspace)
    rest = [index for index in range(len(shots[0].receivers)) if index != 4]
    without = [replace(s, receivers=s.receivers[rest], data=s.data[:, rest], hears="pressure") for s in shots]
    start = AcousticModel(survey.start["velocity"], survey.workspace.described.grid)
    options = {"iterations": 1, "bounds": (1400.0, 3400.0), "precondition": False, "budget": "8MB", "progress": False}
    found = invert(without, start, dt=survey.workspace.described.step, **options)
    assert survey.misfits[0][0] == pytest.approx(found.misfits[0], rel=1e-6)
    assert np.allclose(found.model.velocity, survey.model["velocity"], rtol=1e-5)


@pytest.mark.slow
def test_what_receivers_hear_in_models_is_muted_as_their_data_are(inverted, tmp_path):
    data = 'file = "data.npy"\ndt = 0.014'
    survey = run_inversion(parse(in_files(inverted, tmp_path), tmp_path, command="fwi"))
    muted = in_files(inverted, tmp_path, data=f"{data}\nmute_velocity = 2000.0", output="muted")
    silenced = run_inversion(parse(muted, tmp_path, command="fwi"))
    gathers = silenced.gathers[0]
    assert silenced.misfits[0][0][0] < survey.misfits[0][0][0]
    assert not gathers.before[:20, -1].any() and not gathers.observed[:20, -1].any() and gathers.before.any()


REFUSED = [
    ("iterations = 0", r"inversion\.iterations.*expected greater than or equal to 1, not 0"),
    ("iterations = [1, 2, 3]", "inversion: expected iterations of one number, or of 1, one for each of frequencies"),
    ("frequencies = []", r"inversion\.frequencies"),
    ('frequencies = ["some"]', r"inversion\.frequencies.*expected"),
    ('misfit = "cosine"', r"inversion\.misfit: expected 'least squares', 'correlation', 'envelope' or 'transport'"),
    ("bounds = [1.0]", r"inversion\.bounds"),
    ("smooth = -1.0", r"inversion\.smooth: expected greater than or equal to 0"),
    ('estimate_source = "some"', r"inversion\.estimate_source"),
    ("seed = 3", "inversion: expected mini_batch beside seed"),
    ("mini_batches = 3", r"inversion\.mini_batches: no such key; did you mean mini_batch\?"),
]


@pytest.mark.parametrize(("search", "said"), REFUSED)
def test_what_a_table_cannot_say_is_refused_at_once(search, said):
    with pytest.raises(WaveError, match=said):
        parse(inversion_text(search), command="fwi")


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"imaging": "zero_phase = true\nmute = 5.0"}, "imaging: expected no zero_phase, mute, which only a migration"),
        ({"memory": 'image_error = "1%"'}, "memory: expected no image_error, which only a migration asks for"),
        ({"memory": 'host = "8MB"\ncheckpoint = true'}, "memory: expected no checkpoint"),
        ({"lsrtm": "iterations = 3"}, r"has a table \[lsrtm\]: give it to forebay lsrtm, or leave the table out"),
    ],
)
def test_keys_of_other_jobs_are_refused(tables, said):
    with pytest.raises(WaveError, match=said):
        parse(inversion_text(**tables), command="fwi")


def test_tables_of_an_inversion_are_refused_by_other_commands(tmp_path):
    (tmp_path / "job.toml").write_text(inversion_text())
    with pytest.raises(WaveError, match=r"job\.toml has a table \[inversion\]: give it to forebay fwi"):
        read_job(tmp_path / "job.toml")
    job = parse(inversion_text(None, output="rtm"), tmp_path)
    with pytest.raises(WaveError, match=r"without the table \[inversion\]"):
        run_inversion(job)


@pytest.mark.parametrize(
    ("search", "said"),
    [
        ("frequencies = [40.0]", r"inversion\.frequencies: expected below 35\.7143 Hz, of data every 0\.014 s"),
        ("bounds = [2000.0, 3000.0]", r"inversion\.bounds: bounds of velocity from 2000 to 3000, where the model has"),
        ("bounds = [100.0, 3400.0]", r"inversion\.bounds: velocity of 100 m/s makes waves that are too short"),
        ("bounds = {vs = [100.0, 3400.0]}", r"inversion\.bounds: bounds of 'vs': this model has 'velocity'"),
        ("mini_batch = 4", r"inversion\.mini_batch: expected at most the 2 shots there are, not 4"),
        ("fixed_depth = 1e5", r"inversion\.fixed, inversion\.fixed_depth: expected something unknown; all is fixed"),
        ('fixed = "fixed.npy"', r"inversion\.fixed: expected the shape \(24, 48\) of the model; .* has \(3, 3\)"),
        ('fixed = "none.npy"', r"there is no .*none\.npy"),
    ],
)
def test_what_does_not_suit_model_and_shots_is_refused_before_any_shot(search, said, tmp_path):
    np.save(tmp_path / "fixed.npy", np.ones((3, 3)))
    with pytest.raises(WaveError, match=said):
        inspect(job_in(tmp_path, search))
    assert [path.name for path in tmp_path.iterdir()] == ["fixed.npy"]


def test_check_tells_what_will_be_done(tmp_path):
    told = inspect(job_in(tmp_path, 'frequencies = [2.5, "all"]\niterations = [1, 4]\nmini_batch = 1'))
    assert "iterations 1 up to 2.5 Hz, 4 of all, by least squares, of 1 shots at a time" in told
    assert "each shot is computed in 24 x 48 points" in told and "imaged every 1" in told


RUN = "import sys; from pathlib import Path; from forebay.wave.job import read_job\n"
RUN += "from forebay.wave.job.inversion.run import run_inversion\nrun_inversion(read_job(Path(sys.argv[1]), 'fwi'))"


@pytest.mark.slow
def test_runs_that_are_killed_leave_the_same_bits(tmp_path, inverted):
    rng, kills = np.random.default_rng(0), 0
    (tmp_path / "job.toml").write_text(inversion_text())
    for _ in range(12):
        process = subprocess.Popen([sys.executable, "-W", "ignore", "-c", RUN, str(tmp_path / "job.toml")])
        began = time.monotonic()
        while not (tmp_path / "out" / "shots").exists() and process.poll() is None:
            time.sleep(0.01)
        try:
            process.wait(float(rng.uniform(0.1, 3.0)))
            break
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            kills += 1
        assert time.monotonic() - began < 300
    assert kills
    assert same(run_inversion(job_in(tmp_path)), inverted)
    assert not list(Workspace(tmp_path / "out").root.glob("run-*"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["density", "vti", "tti", "visco"])
def test_all_arrays_of_other_models_are_found_as_invert_does(kind, tmp_path):
    for name, value in {"e.npy": 0.1, "d.npy": 0.05, "t.npy": 0.5}.items():
        np.save(tmp_path / name, value * np.linspace(0, 1, 24)[:, None] + np.zeros((24, 48)))
    np.save(tmp_path / "q.npy", np.linspace(200, 30, 24)[:, None] + np.zeros((24, 48)))
    shale, clay = 'epsilon = "e.npy"\ndelta = "d.npy"', 'q = "q.npy"\nq_frequency = 8.0'
    files = {"vti": shale, "tti": shale + '\ntilt = "t.npy"', "visco": clay}.get(kind, "")
    search = "iterations = 1\nbounds = [1400.0, 3500.0]\nprecondition = false"
    tables = {"physics": f'kind = "{kind}"\nabsorb = 8\n{files}', "wavelet": "frequency = 1.1"}
    survey = run_inversion(job_in(tmp_path, search, **tables))
    workspace = Workspace(survey.workspace.root)
    start = medium_of(workspace.described.job, workspace.fields("model"), workspace.described.grid)
    options = {"iterations": 1, "bounds": (1400.0, 3500.0), "precondition": False, "budget": "8MB"}
    found = invert(shots_of(workspace), start, dt=workspace.described.step, progress=False, **options)
    assert list(found.misfits) == survey.misfits[0] and len(survey.model) == (3 if kind in ("vti", "tti") else 2)
    assert all(np.array_equal(getattr(found.model, name), values) for name, values in survey.model.items())


@pytest.mark.slow
def test_all_arrays_of_an_elastic_model_are_found_as_invert_does(tmp_path):
    search = "iterations = 1\nbounds = {vp = [1400.0, 3500.0]}\nprecondition = false"
    tables = {"model": 'name = "layers"\nshape = [36, 72]\nsmooth = 300.0', "physics": 'kind = "elastic"\nabsorb = 8'}
    survey = run_inversion(job_in(tmp_path, search, **tables))
    workspace = Workspace(survey.workspace.root)
    start = medium_of(workspace.described.job, workspace.fields("model"), workspace.described.grid)
    options = {"iterations": 1, "bounds": {"vp": (1400.0, 3500.0)}, "precondition": False, "budget": "8MB"}
    found = invert(shots_of(workspace), start, dt=workspace.described.step, progress=False, **options)
    assert list(found.misfits) == survey.misfits[0] and list(survey.model) == ["vp", "vs", "rho"]
    assert all(np.array_equal(getattr(found.model, name), values) for name, values in survey.model.items())
