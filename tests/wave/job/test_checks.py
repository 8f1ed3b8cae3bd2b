"""What is refused before any shot, to the last value: steps, points, budgets, folders; and what is told of a job."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from tests.wave.job.inversions import inversion_text
from tests.wave.job.jobs import job_text

from forebay.errors import BudgetError, WaveError
from forebay.wave.advice import advice
from forebay.wave.earth.grid import Grid
from forebay.wave.earth.stability import choose_dt
from forebay.wave.imaging import imaging_interval
from forebay.wave.job import changed, checks, parse
from forebay.wave.job.checks import CheckedInputs, checked_inputs, inspect
from forebay.wave.job.inputs import Acquisition, medium_of
from forebay.wave.job.inversion.start import at_most
from forebay.wave.job.wavelets import SentWavelet
from forebay.wave.survey.geometry import geometry_of

SLOW, FAST = np.full((24, 48), 2000, np.float32), np.full((24, 48), 3000, np.float32)


def job_in(folder, **tables):
    return parse(job_text(**{"memory": "", "run": "", **tables}), folder)


@pytest.fixture
def files(tmp_path):
    """Write a slow model, and a true one that is faster."""
    np.save(tmp_path / "v.npy", SLOW)
    np.save(tmp_path / "t.npy", FAST)
    return 'velocity = "v.npy"\nspacing = 100.0'


@pytest.mark.parametrize(
    ("samples", "dt", "step", "steps"), [(10, 1.0, 0.5, 20), (10, 1.0, 0.3, 34), (3, 0.1, 0.1, 3), (7, 0.25, 1.0, 2)]
)
def test_steps_go_to_the_end_of_the_data(samples, dt, step, steps):
    acquisition = Acquisition(geometry_of([(0.0, 0.0)], [(0.0, 0.0)]), dt, samples)
    inputs = CheckedInputs(None, {}, acquisition, SentWavelet(np.zeros(samples), 0), step, 1, [])
    assert inputs.steps == steps


class TestOfSteps:
    """The step that suits all models, and how often an image is added to."""

    SAMPLING = "dt = 0.02\nlength = 3.0"

    def job(self, folder, model, command="rtm", **tables):
        usual = {"data": self.SAMPLING, "wavelet": "frequency = 1.0", "model": model, "physics": "absorb = 4"}
        if command == "rtm":
            return parse(job_text(memory="", run="", **usual | tables), folder)
        search = tables.pop("search", None)
        return parse(inversion_text(search, **usual | tables), folder, command=command)

    def test_a_migration_suits_its_slow_model_and_its_fast_true_one(self, tmp_path, files):
        inputs = checked_inputs(self.job(tmp_path, files + '\ntrue = "t.npy"'))
        job = self.job(tmp_path, files)
        slow, fast = (medium_of(job, {"velocity": values}, inputs.grid) for values in (SLOW, FAST))
        frequency = inputs.frequency
        steps = [choose_dt(medium, 0.02, frequency, 8) for medium in (slow, fast)]
        assert steps[1] < steps[0] == checked_inputs(job).step and inputs.step == steps[1]
        assert inputs.every == imaging_interval(frequency, inputs.step) > 1
        assert inputs.media.keys() == {"model", "true"} and inputs.notes == []

    def test_the_interval_and_the_step_of_a_job_are_taken(self, tmp_path, files):
        inputs = checked_inputs(self.job(tmp_path, files, physics="absorb = 4\ndt = 0.01", imaging="every = 99"))
        assert (inputs.step, inputs.every, inputs.steps) == (0.01, 99, math.ceil(151 * 0.02 / 0.01))
        assert inputs.notes == advice(inputs.frequency, 0.01, 99) and len(inputs.notes) == 1
        with pytest.raises(WaveError, match="take dt of at most"):  # which the true model alone is too fast for
            checked_inputs(self.job(tmp_path, files + '\ntrue = "t.npy"', physics="absorb = 4\ndt = 0.02"))

    def test_each_model_has_waves_that_are_long_enough(self, tmp_path, files):
        np.save(tmp_path / "t.npy", np.full((24, 48), 300, np.float32))
        with pytest.raises(WaveError, match="take a spacing of at most"):
            checked_inputs(self.job(tmp_path, files + '\ntrue = "t.npy"'))
        checked_inputs(self.job(tmp_path, files))

    def test_attenuation_is_held_by_steps_or_refused_before_any_shot(self, tmp_path, files):
        np.save(tmp_path / "q.npy", np.full(SLOW.shape, 40.0))

        def steps_at(frequency, more=""):
            physics = f'absorb = 4\nkind = "visco"\nq = "q.npy"\nq_frequency = {frequency}{more}'
            return checked_inputs(self.job(tmp_path, files, physics=physics))

        assert steps_at(1.0).step == 0.02 and steps_at(5.0).step == pytest.approx(0.01)
        with pytest.raises(
            WaveError, match=r"reference frequency of 5 Hz.*more than 1% wrong: take dt of at most 0\.0110"
        ):
            steps_at(5.0, "\ndt = 0.02")
        for frequency in (40.0, 1000.0):
            with pytest.raises(WaveError, match=rf"reference frequency of {frequency:.0f} Hz"):
                steps_at(frequency)

    def test_a_least_squares_migration_models_shots_in_layers_for_its_fast_model(self, tmp_path, files):
        np.save(tmp_path / "v.npy", FAST)
        np.save(tmp_path / "t.npy", SLOW)
        job = self.job(tmp_path, files + '\ntrue = "t.npy"', "lsrtm", lsrtm="")
        inputs = checked_inputs(job)
        fast, slow = (medium_of(job, {"velocity": values}, inputs.grid) for values in (FAST, SLOW))
        made_for = choose_dt(at_most(slow, 3000.0), 0.02, inputs.frequency, 8)
        assert inputs.step == min(choose_dt(fast, 0.02, inputs.frequency, 8), made_for) and inputs.every == 1

    def test_an_inversion_suits_the_fastest_model_that_it_may_try(self, tmp_path, files):
        search = "frequencies = [1.0]\nbounds = [1500.0, 4000.0]"
        job = self.job(tmp_path, files + '\ntrue = "t.npy"', "fwi", search=search)
        inputs = checked_inputs(job)
        slow, fast = (medium_of(job, {"velocity": values}, inputs.grid) for values in (SLOW, FAST))
        highest = inputs.frequency  # with which shots are modelled, though the stage has less
        wanted = [choose_dt(at_most(medium, 4000.0 * (1 + 1e-6)), 0.02, highest, 8) for medium in (slow, fast)]
        assert inputs.step == pytest.approx(min(wanted), rel=1e-3) and inputs.every == 1
        np.save(tmp_path / "data.npy", np.zeros((2, 151, 24), np.float32))
        read = self.job(tmp_path, files, "fwi", search=search, data='file = "data.npy"\ndt = 0.02')
        assert checked_inputs(read).step >= inputs.step
        told = inspect(self.job(tmp_path, files, "fwi", search=search))
        assert "iterations 10 up to 1 Hz, by least squares\n" in told and "each shot is computed in" in told

    def test_an_inversion_of_modelled_shots_has_waves_long_enough_for_all_that_is_sent(self, tmp_path, files):
        search = "frequencies = [1.0]\nbounds = [1900.0, 4000.0]"
        sharp = {"wavelet": "frequency = 2.2", "search": search}
        with pytest.raises(WaveError, match="take a spacing of at most"):
            checked_inputs(self.job(tmp_path, files, "fwi", **sharp))
        np.save(tmp_path / "data.npy", np.zeros((2, 151, 24), np.float32))
        checked_inputs(self.job(tmp_path, files, "fwi", data='file = "data.npy"\ndt = 0.02', **sharp))


class TestOfPoints:
    """Sources and receivers lie in the model, and send and hear what it has."""

    GRID = Grid((6, 8), 10.0, (100.0, 1000.0))

    def check(self, folder, sources, receivers, grid=None, **tables):
        usual = {"geometry": "", "data": 'file = "d.npy"\ndt = 0.1'}
        job = job_in(folder, **usual | tables)
        acquisition = Acquisition(geometry_of(sources, receivers), 0.1, 9)
        checks._check_points(job, self.GRID if grid is None else grid, acquisition)

    @pytest.mark.parametrize("key", ["sends", "hears"])
    def test_a_section_has_no_y(self, tmp_path, key):
        kind = "force" if key == "sends" else "velocity"
        with pytest.raises(WaveError, match=rf"physics\.{key}: expected z or x of a section, .* not '{kind} y'"):
            self.check(tmp_path, [(110, 1010)], [(110, 1010)], physics=f'kind = "elastic"\n{key} = "{kind} y"')
        for axis in "zx":
            self.check(tmp_path, [(110, 1010)], [(110, 1010)], physics=f'kind = "elastic"\n{key} = "{kind} {axis}"')
        volume = Grid((6, 8, 8), 10.0)
        self.check(tmp_path, [(9, 9, 9)], [(9, 9, 9)], volume, physics=f'kind = "elastic"\n{key} = "{kind} y"')

    @pytest.mark.parametrize(
        ("sources", "receivers", "told"),
        [([(93.0, 1010)], [(99.0, 1010)], "7"), ([(99.0, 1010)], [(90.0, 1010)], "10")],
    )
    def test_what_lies_above_the_model_of_seg_y_has_another_datum(self, tmp_path, sources, receivers, told):
        for datum, least in ((None, float(told)), (25.0, 25 + float(told))):
            data = 'file = "d.sgy"' + (f"\ndatum = {datum}" if datum else "")
            with pytest.raises(WaveError, match=rf"data\.datum: expected {least:g} or more, .* up to {told} m above"):
                self.check(tmp_path, sources, receivers, data=data)
        with pytest.raises(WaveError, match=r"shot 0, (source|receivers): "):
            self.check(tmp_path, sources, receivers)

    @pytest.mark.parametrize(
        ("data", "model", "who", "hints"),
        [
            ('file = "d.npy"\ndt = 0.1', "", "source", ["geometry says"]),
            ('file = "d.npy"\ndt = 0.1', "", "receivers", ["geometry.max_offset leaves", "geometry says"]),
            ('file = "d.SGY"', "", "source", ["data.headers, data.units"]),
            (
                'file = "d.su"',
                'velocity = "v.npy"\nspacing = 10',
                "receivers",
                ["model.origin and model.spacing say", "geometry.max_offset leaves", "data.headers, data.units"],
            ),
        ],
    )
    def test_who_lies_beside_the_model_is_told_what_may_be_wrong(self, tmp_path, data, model, who, hints):
        places = {"source": [(110, 1010), (110, 1010)], "receivers": [(110, 1010), (110, 1020)]}
        places[who] = [(110, 1010), (110, 5000)]
        tables = {"data": data} | ({"model": model} if model else {})
        with pytest.raises(WaveError) as refused:
            self.check(tmp_path, places["source"], places["receivers"], **tables)
        said = str(refused.value)
        assert said.startswith(f"shot {1 if who == 'source' else 0}, {who}: 1 of ")
        assert [hint for hint in ALL_HINTS if hint in said] == hints

    def test_on_a_mirror_nothing_acoustic_is_heard(self, tmp_path):
        grid = Grid((6, 8), 10.0, free_surface=True)
        with pytest.raises(WaveError, match="a position on the free surface"):
            self.check(tmp_path, [(0, 30)], [(10, 30)], grid)
        self.check(tmp_path, [(0, 30)], [(10, 30)], grid, physics='kind = "elastic"')


ALL_HINTS = (
    *("model.origin and model.spacing say", "geometry.max_offset leaves", "data.headers, data.units", "geometry says"),
)


@pytest.mark.parametrize(("mute", "refused"), [(99.9, False), (100.0, True), (120.0, True), (0.0, False)])
def test_a_mute_leaves_something_of_the_image(tmp_path, mute, refused):
    grid = Grid((6, 30), 10.0, (100.0, 7.0))  # 50 m deep
    if refused:
        with pytest.raises(WaveError, match=rf"less than twice the model's depth of 50 m, not {mute:g} m"):
            checks._check_image(job_in(tmp_path, imaging=f"mute = {mute}"), grid)
    else:
        checks._check_image(job_in(tmp_path, imaging=f"mute = {mute}"), grid)


def test_only_what_is_written_as_seg_y_needs_a_grid_that_it_can_tell(tmp_path):
    grid = Grid((6, 30), 10.0, (100.0, 0.0))
    checks._check_image(job_in(tmp_path), grid)
    with pytest.raises(WaveError, match="SEG-Y in depth begins at 0 m"):
        checks._check_image(job_in(tmp_path, output='formats = ["segy"]'), grid)


@pytest.mark.parametrize(
    ("scheduler", "file", "nbytes"), [("", None, 9 * (8 + 3 * 4)), ("tcp://a:1", None, 9 * 8), ("", "d.npy", None)]
)
def test_a_shot_that_is_modelled_here_has_room_for_its_data(tmp_path, monkeypatch, scheduler, file, nbytes):
    asked = []
    monkeypatch.setattr(checks, "check_free", lambda nbytes, what: asked.append((nbytes, what)))
    geometry = geometry_of([(0, 0), (0, 0)], [(0, 0), (0, 1), (0, 2)])
    tables = {"run": f'scheduler = "{scheduler}"' if scheduler else ""}
    tables |= {"data": f'file = "{file}"', "geometry": ""} if file else {}
    checks._check_data(job_in(tmp_path, **tables), Acquisition(geometry, 0.1, 9))
    assert asked == ([] if nbytes is None else [(nbytes, "data.length: a shot of 9 samples")])


class TestOfBudgets:
    """A budget has room to reverse the waves of a shot in its part of the model."""

    ROWS, COLUMNS = 30, 40

    @pytest.fixture
    def asked(self, tmp_path, monkeypatch):
        """Return what a planner is asked of a job."""

        def asked(memory, command="rtm", **tables):
            told = []
            monkeypatch.setattr(checks.planner, "check_budget", lambda *about, **how: told.append((about, how)))
            monkeypatch.setattr(checks, "_kept", lambda shapes: sorted(map(tuple, shapes)))
            usual = {"memory": memory, "imaging": "aperture = 50.0"} | tables
            if command == "rtm":
                job = job_in(tmp_path, **usual)
            else:
                job = parse(inversion_text("iterations = 1", **usual), tmp_path, command=command)
            acquisition = Acquisition(geometry_of([(0, 100)], [(0, 150)]), 0.5, 10)
            grid = Grid((self.ROWS, self.COLUMNS), 10.0, absorb=3)
            inputs = CheckedInputs(grid, {}, acquisition, SentWavelet(np.zeros(10), 0), 0.25, 6, [])
            checks._check_budget(job, self.physics(), inputs)
            return told

        return asked

    def physics(self):
        fields = {"now": (36, 22), "before": (36, 22)}
        return SimpleNamespace(
            state_shapes=lambda part, order: {"part": part.shape, "order": (order,), **fields},
            record_fields=lambda ndim, images: {("pp",): ("div", "curl"), ("velocity",): ("now",)}[images],
        )

    def test_it_is_that_of_the_steps_states_and_records_of_a_part(self, asked):
        part = (self.ROWS, 16)
        (((steps, state, budget), how),) = asked('host = "1MB"\nschedule = "revolve:5"')
        assert steps == 20 and budget["host"] == 10**6
        assert state == sorted([part, (8,), (36, 22), (36, 22)])
        assert how == {"record_bytes": [part, part], "every": 6, "schedule": "revolve:5"}

    def test_gradients_keep_whole_fields(self, asked):
        ((_, how),) = asked('host = "1MB"', "fwi")
        assert how["record_bytes"] == [(36, 22)] and how["schedule"] == "auto"

    def test_a_pilot_keeps_histories_by_any_schedule(self, asked):
        ((_, how),) = asked('host = "1MB"\nschedule = "storeall"\nimage_error = 0.01')
        assert how["schedule"] == "auto"

    @pytest.mark.parametrize("memory", ["", 'host = "1MB"\ncodec = "bounded:1e-4"'])
    def test_what_a_codec_needs_is_seen_when_it_runs(self, asked, memory):
        assert asked(memory) == []

    def test_one_that_is_too_small_is_refused_with_what_to_do(self, tmp_path):
        with pytest.raises(BudgetError, match=r"^memory: .* Give more, or set imaging\.aperture$"):
            inspect(job_in(tmp_path, memory='host = "9kB"'))

    def test_snapshots_are_numbers_of_four_bytes_in_a_row(self):
        assert checks._kept([(2**20,), (2**10, 2**10)]) == 2**23


class TestOfFolders:
    """A folder for snapshots is there, or can be made."""

    MEMORY = 'host = "1MB"\ndirectory = "{}"'

    @pytest.mark.parametrize("inside", ["", "/new/below"])
    def test_one_that_may_be_written_is_taken(self, tmp_path, inside):
        (tmp_path / "there").mkdir()
        checks.check_directory(job_in(tmp_path, memory=self.MEMORY.format(f"there{inside}")))
        assert not any((tmp_path / "there").iterdir())

    def test_one_that_may_not_be_written_or_entered_is_named(self, tmp_path, monkeypatch):
        job = job_in(tmp_path, memory=self.MEMORY.format("there/below"))
        (tmp_path / "there").mkdir()
        asked = []
        monkeypatch.setattr(checks.os, "access", lambda folder, how: asked.append((folder, how)))
        with pytest.raises(WaveError, match=r"memory\.directory: .*below cannot be written, since .*there cannot"):
            checks.check_directory(job)
        assert asked == [(tmp_path / "there", checks.os.W_OK | checks.os.X_OK)]
        checks.check_directory(changed(job, scheduler="tcp://a:1"))  # whose workers have folders of their own
        checks.check_directory(job_in(tmp_path))
        assert len(asked) == 1

    def test_a_file_is_none(self, tmp_path):
        (tmp_path / "there").write_text("")
        with pytest.raises(WaveError, match=r"cannot be written, since .*there cannot"):
            checks.check_directory(job_in(tmp_path, memory=self.MEMORY.format("there")))


class TestOfWhatIsTold:
    """The lines of `--check`."""

    def test_receivers_are_those_of_a_shot_in_the_mean(self):
        geometry = geometry_of([(0, 0), (0, 50), (0, 99)], [(0, 10.0 * number) for number in range(10)]).within(50.0)
        assert [len(geometry.receivers_of(shot)) for shot in range(3)] == [6, 10, 5]
        assert checks.sampled(geometry, 7, 0.004) == "3, of 7 receivers on average, 7 samples of 4 ms"

    @pytest.mark.parametrize(
        ("shots", "which"), [(1, "shot 0"), (2, "shot 0, and then shot 1"), (3, "shot 1, and then shot 2")]
    )
    def test_a_pilot_is_of_the_middle_and_of_the_outermost_shot(self, tmp_path, shots, which):
        geometry = geometry_of([(0, 50.0 * shot) for shot in range(shots)], [(0, 10)])
        told = checks._piloted(job_in(tmp_path, memory='image_error = "1%"'), geometry)
        what = "migrated with an exact history, to find the bound that keeps the image within 0.01"
        assert told == [f"pilot     {which} {what}"] and checks._piloted(job_in(tmp_path), geometry) == []

    def test_stages_tell_frequency_iterations_and_draws(self, tmp_path):
        def told(search):
            return checks._stages(parse(inversion_text(search), tmp_path, command="fwi"))

        both = 'frequencies = [2.5, "all"]\niterations = [3, 4]\nmisfit = "envelope"'
        assert told(both) == ["iterations 3 up to 2.5 Hz, 4 of all, by envelope"]
        assert told(f"{both}\nmini_batch = 2") == [
            "iterations 3 up to 2.5 Hz, 4 of all, by envelope, of 2 shots at a time"
        ]
        assert checks._stages(job_in(tmp_path)) == []

    def test_all_that_is_asked_for_must_be_there(self, tmp_path, files):
        with pytest.raises(WaveError, match=r"there is no .*w\.npy"):
            inspect(job_in(tmp_path, wavelet='file = "w.npy"'))
        with pytest.raises(WaveError, match=r"memory\.host: expected beside memory\.disk"):
            inspect(job_in(tmp_path, memory='disk = "1MB"'))
        assert "on the GPU" in inspect(job_in(tmp_path), gpus=1) and "on the CPU" in inspect(job_in(tmp_path))
        np.save(tmp_path / "d.npy", np.zeros((2, 251, 48), np.float32))
        geometry = "shots = 2\nreceiver_spacing = 100.0"
        tables = {"model": files, "data": 'file = "d.npy"\ndt = 0.008', "geometry": geometry}
        told = inspect(job_in(tmp_path, **tables, wavelet="frequency = 1.8"))
        assert "shots     2, of 48 receivers on average, 251 samples of 8 ms\n" in told
        assert "model     24 x 48 points, 100 x 100 m, 2000 to 2000 m/s\n" in told
