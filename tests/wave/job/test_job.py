"""Jobs: what is wrong is said before anything runs, by its key and with what was expected."""

import os
import re
from pathlib import Path

import numpy as np
import pytest
from tests.wave.job.jobs import job_text

from forebay.errors import BudgetError, WaveError
from forebay.tier.capacity import Capacity
from forebay.units import Budget
from forebay.wave.job import place
from forebay.wave.job.checks import inspect
from forebay.wave.job.inputs import media_of, medium_of
from forebay.wave.job.job import changed, parse, read_job
from forebay.wave.job.prepare import prepare
from forebay.wave.job.run import run_job
from forebay.wave.job.workspace import Workspace, locked


def text(**tables):
    """Write a job of the tables that it needs, and of those that are given."""
    return job_text(**{"memory": None, "run": None, "output": None, **tables})


def test_a_good_job_is_read_with_its_paths_from_its_folder(tmp_path):
    (tmp_path / "job.toml").write_text(text(output='directory = "out"', memory='host = "4MB"\ndisk = "1GB"'))
    job = read_job(tmp_path / "job.toml")
    assert job.output.directory == tmp_path / "out"
    assert job.memory.budget["disk"] == 10**9 and job.physics.order == 8
    assert changed(job, workers=3).run.workers == 3
    assert changed(changed(job, workers=3), scheduler="tcp://a:1").run.workers == 0


@pytest.mark.parametrize(
    ("tables", "complaint"),
    [
        ({"model": 'name = "salty"'}, r"model\.name: expected 'layers', 'marmousi', .*, not 'salty'"),
        ({"model": ""}, r"model: expected either name, one of layers.*, or velocity, a file"),
        ({"model": 'name = "salt"\nsmoth = 3'}, r"model\.smoth: no such key; did you mean smooth\?"),
        ({"physics": "order = 7"}, r"physics\.order: expected an even number of at least 2, not 7"),
        (
            {"physics": 'kind = "magnetic"'},
            r"physics\.kind: expected 'acoustic', 'density', 'vti', 'tti', 'visco' or 'elastic', not 'magnetic'",
        ),
        ({"wavelet": None}, r"wavelet: expected a table of this name"),
        ({"wavelet": ""}, r"wavelet: expected either frequency, in Hz, or file"),
        ({"wavelet": "frequency = -3"}, r"wavelet\.frequency: expected greater than 0, not -3"),
        ({"memory": 'host = "8XB"'}, r"memory\.host: expected bytes, as in '8GB' or a number, not '8XB'"),
        ({"memory": 'codec = "nope"'}, r"memory\.codec: expected a codec such as 'bounded:1e-4' .*, not 'nope'"),
        ({"geometry": 'shots = "many"'}, r"geometry\.shots\.0: expected a whole number, not 'many'"),
        ({"geometry": "shots = 0"}, r"geometry\.shots\.0: expected greater than or equal to 1, not 0"),
        ({"geometry": 'sources = "s.npy"'}, r"geometry: expected sources and receivers together, or neither"),
        ({"model": 'name = "layers"\nspacing = 5.0'}, r"model: expected no spacing beside name"),
        ({"model": 'velocity = "v.npy"\nshape = [5, 5]'}, r"model: expected no shape beside velocity"),
        ({"model": 'velocity = "v.npy"\nsize = "full"\nseed = 0'}, r"model: expected no size, seed beside velocity"),
        (
            {"data": 'file = "d.segy"', "geometry": "source_depth = 5.0\nreceiver_spacing = 9.0"},
            r"geometry: expected no source_depth, receiver_spacing without shots: files tell",
        ),
        ({"data": "dt = 0.008\nlength = 1.0\nmute_delay = 0.1"}, r"data: expected mute_velocity beside mute_delay"),
        ({"wavelet": 'file = "w.npy"\ndelay = 0.1'}, r"wavelet: expected no delay beside file"),
        ({"wavelet": "frequency = 3.0\ndt = 0.1"}, r"wavelet: expected no dt beside frequency"),
        ({"wavelet": "frequency = 3.0\ntime_zero = 0.1"}, r"wavelet: expected no time_zero beside frequency"),
        ({"wavelet": "frequency = inf"}, r"wavelet\.frequency: expected a finite number, not inf"),
        ({"model": 'name = "layers"\nsmooth = nan'}, r"model\.smooth: expected a finite number, not nan"),
        ({"memory": "host = inf"}, r"memory\.host: expected bytes, .*, not inf"),
        ({"physics": 'sends = "force z"'}, r"physics: expected kind = 'elastic' beside sends"),
        ({"physics": 'vs = "vs.npy"'}, r"physics: expected kind = 'elastic' beside vs"),
        ({"physics": 'density = "d.npy"'}, r"physics: expected kind = 'density' or 'elastic' beside density"),
        ({"physics": 'kind = "density"\ndelta = "d.npy"'}, r"physics: expected kind = 'vti' or 'tti' beside delta"),
        ({"physics": 'kind = "vti"\nepsilon = "e.npy"\ndelta = "d.npy"\ntilt = "t.npy"'}, r"kind = 'tti' beside tilt"),
        ({"physics": 'kind = "tti"\nepsilon = "e.npy"\ndelta = "d.npy"'}, r"the files epsilon, delta and tilt beside"),
        ({"physics": 'kind = "vti"\nhears = "velocity z"'}, r"physics: expected kind = 'elastic' beside hears"),
        ({"physics": 'kind = "vti"\nepsilon = "e.npy"'}, r"physics: expected the files epsilon and delta beside kind"),
        ({"physics": 'kind = "vti"\nq = "q.npy"'}, r"physics: expected kind = 'visco' beside q"),
        (
            {"physics": 'kind = "visco"\nq = "q.npy"'},
            r"physics: expected the file q, and q_frequency in Hz, beside kind",
        ),
        (
            {"physics": 'kind = "visco"\nq = 50.0\nq_frequency = 5.0'},
            r"physics\.q: expected the name of a file, not 50\.0",
        ),
        (
            {"physics": 'kind = "density"', "imaging": 'image = "velocity"'},
            r"imaging\.image: expected only beside physics\.kind = 'elastic'",
        ),
        ({"imaging": 'image = "velocity"'}, r"imaging\.image: expected only beside physics\.kind = 'elastic'"),
        ({"memory": 'schedule = "nope"'}, r"memory\.schedule: expected one of auto, .*, not 'nope'"),
        ({"memory": 'schedule = "revolve:x"'}, r"memory\.schedule: expected .*one number.*, not 'revolve:x'"),
        ({"run": 'scheduler = "localhost"'}, r"run\.scheduler: expected an address with its port.*, not 'localhost'"),
        ({"data": 'file = "d.npy"\nlength = 3.0'}, r"data: expected no length beside file"),
        ({"data": 'file = "d.npy"\ndatum = 3.0'}, r"data: expected no datum without a file of SEG-Y or SU"),
        (
            {"data": 'file = "d.su"\nunits = "yards"'},
            r"data\.units: expected 'metres', 'feet', or how many metres, not",
        ),
        ({"data": 'file = "d.su"\nline = [[1, 2], [1, 2]]'}, r"data\.line: expected two positions that differ, not"),
        ({"data": 'file = "d.sgy"\nheaders = {sorce_x = 181}'}, r"data\.headers\.sorce_x: expected source_x, not"),
        (
            {"data": 'file = "d.sgy"\nheaders = {source_x = 300}'},
            r"data\.headers\.source_x\.0: expected less than .* 240",
        ),
        ({"data": 'file = "d.sgy"\nheaders = 73'}, r"data\.headers: expected a table, not 73"),
        ({"geometry": ""}, r"geometry: expected shots, a number, or the files sources and receivers"),
        ({"data": ""}, r"data: expected dt and length, in seconds, of the shots to model, or a file"),
        ({"imaging": "every = 0"}, r"imaging\.every: expected greater than or equal to 1, not 0"),
        ({"run": 'workers = 2\nscheduler = "tcp://a:1"'}, r"run: expected either workers, .*, or scheduler"),
        ({"output": 'formats = ["gif"]'}, r"output\.formats\.0: expected 'npy', 'zarr', 'segy' or 'png', not 'gif'"),
        ({"output": "directory = 5"}, r"output\.directory: expected the name of a folder, not 5"),
        ({"outputs": ""}, r"outputs: no such key; did you mean output\?"),
    ],
)
def test_a_complaint_names_the_key_and_what_was_expected(tables, complaint):
    with pytest.raises(WaveError, match=complaint):
        parse(text(**tables))


def test_a_word_where_a_table_belongs_is_answered_with_the_table():
    with pytest.raises(WaveError, match=r"physics: expected a table, \[physics\] with its keys below, not 'elastic'"):
        parse('physics = "elastic"\n' + text())


def test_all_complaints_come_at_once():
    with pytest.raises(WaveError) as caught:
        parse(text(model='name = "salty"', physics="order = 7"))
    assert "model.name" in str(caught.value) and "physics.order" in str(caught.value)


def test_what_is_not_toml_or_not_there_is_said(tmp_path):
    with pytest.raises(WaveError, match="is not TOML"):
        parse("model = ")
    with pytest.raises(WaveError, match="no job can be read"):
        read_job(tmp_path / "job.toml")


@pytest.mark.parametrize(
    ("tables", "complaint"),
    [
        ({"wavelet": "frequency = 20.0"}, "take a spacing of at most"),
        ({"wavelet": "frequency = 25.0"}, r"samples of 0\.008 s hold 62\.5: take dt of at most"),
        ({"wavelet": "frequency = 1.0"}, r"that is over with the data, which are 1.008 s long; .* middle at 1.5 s"),
        ({"physics": "dt = 0.05"}, "take dt of at most"),
        ({"geometry": "shots = 2\nsource_depth = 9000.0"}, r"shot 0, source: 1 of 1 positions are outside the model"),
        (
            {"geometry": 'sources = "s.npy"\nreceivers = "r.npy"'},
            r"shot 1, receivers: 2 of 4 positions are outside the model, first number 1 at \(50\.0, -75\.0\): the "
            r"grid .*\. geometry\.max_offset leaves receivers out that are farther",
        ),
        ({"geometry": "shots = [2, 2]"}, "along each of the 1 horizontal axes"),
        ({"model": 'velocity = "v.npy"'}, r"model\.spacing: expected metres along each axis"),
        ({"model": 'velocity = "v.npy"\nspacing = [10, 10, 10]'}, "expected a number for each axis"),
        ({"model": 'velocity = "w.npy"\nspacing = 10'}, r"there is no .*w\.npy"),
        ({"data": "dt = 0.008\nlength = 0.001"}, r"data\.length: expected more than data\.dt"),
        (
            {"imaging": "mute = 5000.0"},
            r"imaging\.mute: expected less than twice the model's depth of 2350 m, not 5000",
        ),
        ({"data": 'file = "d.npy"'}, r"data\.dt: expected seconds between samples"),
        ({"data": 'file = "d.npy"\ndt = 0.004'}, r"data\.file: expected 2 shots of \d+ receivers.*it has 3 of 5"),
    ],
)
def test_physics_and_files_are_checked_before_the_first_shot(tmp_path, tables, complaint):
    np.save(tmp_path / "v.npy", np.full((48, 96), 2000, np.float32))
    np.save(tmp_path / "d.npy", np.zeros((3, 100, 5), np.float32))
    np.save(tmp_path / "s.npy", np.full((2, 2), 50.0))
    np.save(tmp_path / "r.npy", np.array([[[50.0, 50.0]] * 4, [[50, 50], [50, -75], [50, 60], [50, 9e9]]]))
    for check in (inspect, prepare):
        with pytest.raises(WaveError, match=complaint):
            check(parse(text(**tables, output='directory = "out"'), tmp_path))
    assert not (tmp_path / "out" / "job.json").exists()


@pytest.mark.parametrize(
    ("name", "values", "complaint"),
    [
        ("v", np.full((48, 96), 2000 + 1j), r"model\.velocity: expected real numbers; .*v\.npy has complex128"),
        ("v", np.full((48, 96), "fast"), r"model\.velocity: expected real numbers; .*v\.npy has <U4"),
        ("v", np.full((48, 96), np.nan), r"model\.velocity: expected finite numbers"),
        ("w", np.array([0.0, np.inf, 0.0]), r"wavelet\.file: expected finite numbers; .*w\.npy has NaN or infinity"),
    ],
)
def test_files_hold_finite_real_numbers(tmp_path, name, values, complaint):
    np.save(tmp_path / "v.npy", np.full((48, 96), 2000.0))
    np.save(tmp_path / "w.npy", np.hanning(41))
    np.save(tmp_path / f"{name}.npy", values)
    with pytest.raises(WaveError, match=complaint):
        inspect(parse(text(model='velocity = "v.npy"\nspacing = 50.0', wavelet='file = "w.npy"'), tmp_path))


def test_a_job_that_is_not_text_is_refused(tmp_path):
    (tmp_path / "job.toml").write_bytes(b"model = \xff\xfe")
    with pytest.raises(WaveError, match=r"job\.toml is not TOML, which is text in UTF-8"):
        read_job(tmp_path / "job.toml")


@pytest.mark.parametrize(
    "memory",
    [
        'host = "10kB"',
        'host = "10kB"\ndisk = "1GB"',  # what is on the disk passes through the host
        'host = "60kB"\ndisk = "1GB"\nschedule = "revolve"',  # which keeps states
    ],
)
def test_a_budget_without_room_for_a_snapshot_is_refused_before_a_shot_is_modelled(tmp_path, memory):
    for look in (inspect, prepare):
        with pytest.raises(BudgetError, match=r"memory: the budget does not hold .* host has \d+kB and needs .*kB"):
            look(parse(text(memory=memory, output='directory = "out"'), tmp_path))
    assert "shots" in inspect(parse(text(memory='host = "1MB"'), tmp_path))
    assert "shots" in inspect(parse(text(memory='host = "60kB"\ndisk = "10MB"'), tmp_path))  # all records


def test_the_budget_that_is_named_is_the_smallest_with_which_a_shot_is_migrated(tmp_path):
    def told(nbytes):
        memory = f'host = {nbytes}\ndisk = "20MB"'
        return parse(text(memory=memory, output=f'directory = "{nbytes}"', run="retries = 0"), tmp_path)

    with pytest.raises(BudgetError) as refused:
        inspect(told(10_000))
    least = int(re.search(r"\((\d+) bytes\) at least", str(refused.value)).group(1))
    with pytest.raises(BudgetError):
        inspect(told(least - 1))
    assert "shots" in inspect(told(least))
    survey = run_job(told(least))
    assert not survey.failed and survey.summaries[0]["peak"]["host"] <= least


def test_a_folder_for_snapshots_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    memory = 'host = "1MB"\ndisk = "1MB"\ndirectory = "{}"'
    with pytest.raises(WaveError, match=r"memory\.directory: .* cannot be written, since .*file cannot"):
        inspect(parse(text(memory=memory.format("file/below")), tmp_path))
    assert "shots" in inspect(parse(text(memory=memory.format("new/below")), tmp_path))
    assert not (tmp_path / "new").exists()


def test_inspection_tells_what_will_be_done(tmp_path):
    told = inspect(parse(text(imaging="every = 7\naperture = 0.0"), tmp_path))
    for line in ("48 x 96 points", "2, of 48 receivers", "126 samples of 8 ms, modelled", "imaged every 7"):
        assert line in told
    assert not list(tmp_path.iterdir())


def test_models_data_and_wavelets_come_from_files(tmp_path):
    velocity = np.linspace(2000, 3000, 40 * 60).reshape(40, 60).astype(np.float32)
    np.save(tmp_path / "v.npy", velocity)
    np.save(tmp_path / "s.npy", [(20.0, 100.0), (20.0, 400.0)])
    np.save(tmp_path / "r.npy", [(20.0, 10.0 * n) for n in range(50)])
    np.save(tmp_path / "d.npy", np.zeros((2, 101, 50), np.float32))
    np.save(tmp_path / "w.npy", np.hanning(41))
    job = parse(
        text(
            model='velocity = "v.npy"\nspacing = 10',
            geometry='sources = "s.npy"\nreceivers = "r.npy"\nmax_offset = 200.0',
            data='file = "d.npy"\ndt = 0.004',
            wavelet='file = "w.npy"\ndt = 0.002',
            output='directory = "out"',
        ),
        tmp_path,
    )
    workspace = prepare(job)
    assert np.array_equal(workspace.fields("model")["velocity"], velocity)
    assert not (tmp_path / "out" / "true").exists()
    assert len(workspace.geometry.receivers_of(0)) == 31 and len(workspace.geometry.receivers_of(1)) == 30
    assert len(workspace.wavelet) == 101 and workspace.described.sampling == 0.004
    assert workspace.wavelet.argmax() == 10 and workspace.wavelet[30:].max() < 0.01  # resampled from 2 to 4 ms
    assert 0.004 / workspace.described.step == pytest.approx(round(0.004 / workspace.described.step))


def test_elastic_media_get_shear_and_density_from_the_velocity(tmp_path):
    job = parse(text(physics='kind = "elastic"'), tmp_path)
    grid, media = media_of(job)
    medium = medium_of(job, media["true"], grid)
    velocity = media["true"]["velocity"]
    assert (medium.vs[velocity == 1500] == 0).all() and (medium.rho[velocity == 1500] == 1000).all()
    rock = velocity > 1600
    assert np.allclose(medium.vs[rock], velocity[rock] / 3**0.5) and medium.rho[rock].min() > 1900


def test_smoothing_does_not_move_the_sea_floor(tmp_path):
    smoothed = 'name = "layers"\nshape = [48, 96]\nsmooth = 300.0'
    job = parse(text(model=smoothed, physics='kind = "elastic"'), tmp_path)
    grid, media = media_of(job)
    model, true = (medium_of(job, media[name], grid) for name in ("model", "true"))
    assert np.array_equal(model.vs == 0, true.vs == 0)  # though the smoothed velocity is that of water nowhere
    assert (model.vp > 1510).all() and model.vs[model.vs > 0].min() > 880
    assert np.ptp(model.rho) < np.ptp(true.rho) and np.ptp(model.vs) < np.ptp(true.vs)


def test_smoothing_keeps_the_water_of_a_file_of_shear_velocity(tmp_path):
    vs = np.full((48, 96), 1000, np.float32)
    vs[:10] = 0
    np.save(tmp_path / "vs.npy", vs)
    job = parse(text(physics='kind = "elastic"\nvs = "vs.npy"'), tmp_path)
    found = media_of(job)[1]["model"]["vs"]
    assert np.array_equal(found == 0, vs == 0) and 400 < found[10].min() < found[20].max() <= 1000.1


def test_layers_have_twenty_points_unless_told(tmp_path):
    def absorb(folder, **more):
        told = {"data": "dt = 0.008\nlength = 2.0", "output": f'directory = "{folder}"'} | more
        return prepare(parse(text(**told), tmp_path)).described.grid.absorb

    assert absorb("a") == 20 and absorb("b", physics="absorb = 30") == 30
    assert absorb("c", physics='kind = "elastic"', wavelet="frequency = 1.4") == 20


def test_what_might_be_better_is_said_once(tmp_path):
    assert "note" not in inspect(parse(text(), tmp_path))
    job = parse(text(imaging="every = 40", output='directory = "out"'), tmp_path)
    (seldom,) = (line for line in inspect(job).split("\n") if line.startswith("note"))
    assert "every of at most" in seldom
    assert (
        [f"note      {one}" for one in prepare(job).described.notes]
        == [seldom]
        == [f"note      {one}" for one in prepare(job).described.notes]
    )


def test_complex_data_are_refused_before_the_first_shot(tmp_path):
    np.save(tmp_path / "d.npy", np.ones((2, 126, 49), complex))
    with pytest.raises(WaveError, match=r"d\.npy: values of type complex128"):
        prepare(parse(text(data='file = "d.npy"\ndt = 0.008', output='directory = "out"'), tmp_path))


def test_a_step_too_coarse_for_the_wavelet_is_refused(tmp_path):
    told = text(wavelet="frequency = 2.7", physics="dt = 0.008", output='directory = "out"')
    with pytest.raises(WaveError, match=r"too fast, and 0\.5% is allowed: take dt of at most"):
        prepare(parse(told, tmp_path))


def test_going_on_removes_what_a_dead_run_left_and_nothing_else(tmp_path):
    job = parse(text(output='directory = "out"'), tmp_path)
    root = prepare(job).root
    ours = [root / ".0123abcd.image.npy", root / "model" / ".89abcdef.vs.npy", root / "shots" / ".0123abcd.00001.npz"]
    others = [root / ".coverage.host.1", root / "notes" / ".0123abcd.txt", root / "shots" / ".settings.json"]
    (root / "notes").mkdir()
    for path in ours + others:
        path.write_text("x")
    prepare(job)
    assert [path.exists() for path in ours] == [False] * 3 and [path.exists() for path in others] == [True] * 3


def test_a_directory_serves_one_job(tmp_path):
    first = parse(text(output='directory = "out"'), tmp_path)
    prepare(first)
    prepare(changed(first, workers=2))  # where it runs may change
    assert Workspace(tmp_path / "out").described.job.run.workers == 2
    other = parse(text(output='directory = "out"', physics="absorb = 30", wavelet="frequency = 2.0"), tmp_path)
    with pytest.raises(WaveError, match=r"holds a job with other physics\.absorb, wavelet\.frequency"):
        prepare(other)


def test_a_file_that_has_changed_makes_another_job(tmp_path):
    told = text(model='velocity = "v.npy"\nspacing = 50.0', output='directory = "out"')
    np.save(tmp_path / "v.npy", np.full((48, 96), 2000, np.float32))
    prepare(parse(told, tmp_path))
    np.save(tmp_path / "v.npy", np.full((48, 97), 2000, np.float32))
    with pytest.raises(WaveError, match=r"with other model\.velocity:"):
        prepare(parse(told, tmp_path))


def test_a_job_goes_on_with_files_that_were_copied_and_is_refused_with_others_of_the_same_date(tmp_path):
    told = text(model='velocity = "v.npy"\nspacing = 50.0', output='directory = "../out"')
    for folder in ("here", "there"):
        (tmp_path / folder).mkdir()
        np.save(tmp_path / folder / "v.npy", np.full((48, 96), 2000, np.float32))
        os.utime(tmp_path / folder / "v.npy", (len(folder), len(folder)))
    first = prepare(parse(told, tmp_path / "here"))
    second = prepare(parse(told, tmp_path / "there"))
    assert second.identity == first.identity and list(second.described.marks) == [str(tmp_path / "there" / "v.npy")]
    np.save(tmp_path / "there" / "v.npy", np.full((48, 96), 2001, np.float32))
    os.utime(tmp_path / "there" / "v.npy", (5, 5))
    with pytest.raises(WaveError, match=r"with other model\.velocity:"):
        prepare(parse(told, tmp_path / "there"))


def test_a_chunk_of_a_zarr_array_that_has_changed_makes_another_job(tmp_path):
    zarr = pytest.importorskip("zarr")
    array = zarr.create_array(str(tmp_path / "v.zarr"), shape=(48, 96), chunks=(24, 48), dtype="float32")
    array[:] = np.random.default_rng(0).normal(2000, 10, (48, 96))
    told = text(model='velocity = "v.zarr"\nspacing = 50.0', output='directory = "out"')
    prepare(parse(told, tmp_path))
    prepare(parse(told, tmp_path))
    array[30:, 60:] = np.random.default_rng(1).normal(2000, 10, (18, 36))
    with pytest.raises(WaveError, match=r"with other model\.velocity:"):
        prepare(parse(told, tmp_path))


def test_a_new_job_takes_nothing_over_from_an_old_one(tmp_path):
    job = parse(text(output='directory = "out"'), tmp_path)
    root = prepare(job).root
    (root / "job.json").unlink()
    np.save(root / "model" / "vs.npy", np.zeros((48, 96), np.float32))
    kept = [root / "shots" / "notes.npz", root / "model" / "mine.txt"]
    for path in (root / "plan.json", root / "shots" / "00000.npz", root / "shots" / "00001.error", *kept):
        path.write_text("old")
    workspace = prepare(job)
    assert workspace.plan() is None and not workspace.finished() and list(workspace.fields("model")) == ["velocity"]
    assert not (root / "shots" / "00001.error").exists() and all(path.exists() for path in kept)


def test_a_job_does_not_write_over_what_it_reads(tmp_path):
    np.save(tmp_path / "wavelet.npy", np.hanning(41))
    with pytest.raises(WaveError, match=r"output\.directory: .*wavelet\.npy would be overwritten"):
        prepare(parse(text(wavelet='file = "wavelet.npy"', output='directory = "."'), tmp_path))


def test_elastic_sources_and_receivers_may_lie_on_a_free_surface(tmp_path):
    on_it = "shots = 2\nsource_depth = 0.0\nreceiver_depth = 0.0\nreceiver_spacing = 100.0"
    elastic = text(geometry=on_it, wavelet="frequency = 1.8", physics='kind = "elastic"\nfree_surface = true')
    assert "shots" in inspect(parse(elastic.replace("length = 1.0", "length = 2.0"), tmp_path))
    with pytest.raises(WaveError, match="a position on the free surface, where the pressure is zero"):
        inspect(parse(text(geometry=on_it, physics="free_surface = true"), tmp_path))


def test_two_runs_do_not_share_a_directory(tmp_path):
    with locked(tmp_path), pytest.raises(WaveError, match="another run works in"), locked(tmp_path):
        pass
    with locked(tmp_path):
        pass


@pytest.mark.parametrize(
    "path", sorted((Path(__file__).parents[3] / "examples").glob("*.toml")), ids=lambda path: path.name
)
def test_the_examples_are_jobs(path):
    job = read_job(path, "fwi" if path.stem.endswith("_fwi") else "rtm")
    assert job.output.directory.parent == path.parent
    if job.model.dims == 2:
        assert "shots" in inspect(job)


@pytest.mark.slow
def test_the_example_in_three_dimensions_can_be_run():
    job = read_job(Path(__file__).parents[3] / "examples" / "salt3d.toml")
    assert "steps     2403 of" in inspect(job, gpus=1)


def test_a_gpu_is_used_where_one_is_and_its_kernels_are(tmp_path, monkeypatch):
    def on(device, physics="", gpus=1):
        return place.device_of(parse(text(run=f'device = "{device}"', physics=physics), tmp_path), gpus)

    assert on("auto") == on("gpu") == "gpu" and on("cpu") == on("auto", gpus=0) == "cpu"
    assert on("auto", "order = 12") == "cpu"
    for physics, gpus, complaint in (("order = 12", 1, "at most 8 there"), ("", 0, "take 'cpu'")):
        with pytest.raises(WaveError, match=rf"run\.device: a GPU cannot be used.*{complaint}"):
            on("gpu", physics, gpus)


def test_the_budget_begins_where_waves_are_computed(tmp_path, monkeypatch):
    monkeypatch.setattr(place, "device_capacity", lambda: Capacity(10**10, 8 * 10**9))
    job = parse(text(), tmp_path)
    assert place.budget_of(job, "gpu", Budget(host="1GB")) == Budget(device="4GB", host="1GB")
    assert place.budget_of(job, "cpu", Budget(host="1GB")) == Budget(host="1GB")
    assert place.budget_of(job, "gpu", None) is None
    for memory, complaint in (('device = "1GB"', r"memory\.device: waves are"), ('disk = "1GB"', r"memory\.host: exp")):
        with pytest.raises(WaveError, match=complaint):
            prepare(parse(text(memory=memory), tmp_path))


def test_shots_begun_on_a_gpu_are_not_finished_on_a_cpu(tmp_path):
    job = parse(text(output='directory = "out"'), tmp_path)
    assert prepare(job, gpus=1).described.device == "gpu"
    with pytest.raises(WaveError, match="were begun on a GPU, and a CPU rounds differently"):
        prepare(job, gpus=0)
    assert prepare(job, gpus=2).described.device == "gpu"


@pytest.mark.parametrize(
    ("library", "tables", "complaint"),
    [
        (
            "zarr",
            {"output": 'formats = ["npy", "zarr"]'},
            r"output\.formats: zarr needs zarr: install Forebay with its extra wave",
        ),
        ("distributed", {"run": "workers = 2"}, r"run\.workers, .*need Dask: install Forebay with its extra dask"),
        ("numba", {}, r"computing waves needs numba: install Forebay with its extra wave"),
        ("scipy", {}, r"model\.smooth: it needs scipy: install Forebay with its extra wave, or leave it out"),
    ],
)
def test_a_library_that_is_missing_is_named_with_its_extra(tmp_path, monkeypatch, library, tables, complaint):
    monkeypatch.setattr(place, "find_spec", lambda name: None if name == library else True)
    job = parse(text(**tables), tmp_path / "out")
    for begin in (inspect, run_job):
        with pytest.raises(WaveError, match=complaint):
            begin(job)
    assert not list(tmp_path.iterdir())  # nothing was begun


def test_nothing_is_asked_for_that_a_job_does_not_use(tmp_path, monkeypatch):
    monkeypatch.setattr(place, "find_spec", lambda name: None if name in ("scipy", "distributed") else True)
    inspect(parse(text(model='name = "layers"\nshape = [48, 96]'), tmp_path))
    # What the workers of a cluster have is not known here.
    monkeypatch.setattr(place, "find_spec", lambda name: None if name == "numba" else True)
    inspect(parse(text(run='scheduler = "tcp://127.0.0.1:1"'), tmp_path))
