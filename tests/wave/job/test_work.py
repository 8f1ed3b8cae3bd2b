"""One shot of a job, from its directory to its image: what is read, what `migrate` is told, and what a shot tells."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from tests.wave.job.jobs import job_text

from forebay.errors import PlanError, WaveError
from forebay.units import Budget
from forebay.wave.job import parse, work
from forebay.wave.job.prepare import prepare
from forebay.wave.job.stack import PartialImage, check_finite
from forebay.wave.survey.traces import mute, without_spoilt

COUNT, SAMPLES = 3, 126
METRICS = {"seconds": 2.0, "phases": {"forward": 1.0}, "peak": {"host": 7}, "moved": {"up 1": 9}, "ratios": None}


def prepared(folder, **tables):
    usual = {"physics": "absorb = 8\norder = 10", "memory": 'host = "4MB"'}
    return prepare(parse(job_text(shots=COUNT, **usual | tables), folder))


@pytest.fixture
def noise(tmp_path):
    """Write shots of noise, one trace of the second spoilt, and return them with the table that names them."""
    data = np.random.default_rng(0).normal(size=(COUNT, SAMPLES, 48)).astype(np.float32)
    data[1, 50, 7] = np.nan
    np.save(tmp_path / "data.npy", data)
    return data, 'file = "data.npy"\ndt = 0.008'


@pytest.fixture
def migrated(monkeypatch):
    """Have nothing migrated, and note what is asked; images tell the number of the call."""
    asked, clock = [], iter(float(second) for second in range(100, 9999, 4))

    def migrate(shot, model, *, condition, turn=None, **options):
        asked.append(SimpleNamespace(shot=shot, model=model, **options))
        condition(None, None, 5)
        if turn is not None:
            turn(None)
        plan = options["plan"] or SimpleNamespace(steps=126, schedule=SimpleNamespace(steps=18))
        metrics = SimpleNamespace(**METRICS, advanced=36, samples=[])
        together = shot if isinstance(shot, list) else [shot]
        done = [
            SimpleNamespace(
                image=np.full((48, 96), number + 1.0, np.float32),
                illumination=np.ones((48, 96), np.float32),
                every=7,
                result=SimpleNamespace(plan=plan, metrics=metrics, note=""),
            )
            for number, _ in enumerate(together)
        ]
        return done if isinstance(shot, list) else done[0]

    monkeypatch.setattr(work, "migrate", migrate)
    monkeypatch.setattr(work, "perf_counter", lambda: next(clock))
    return asked


@pytest.fixture
def modelled(monkeypatch):
    """Have shots hear ones, and note what is simulated."""
    asked = []

    def simulate(shot, model, **options):
        asked.append((shot, model, options))
        heard = [np.ones((each.samples, len(each.receivers)), np.float32) for each in np.atleast_1d(shot)]
        return heard if isinstance(shot, list) else heard[0]

    monkeypatch.setattr(work, "simulate", simulate)
    return asked


class TestOfWhatIsRead:
    """A shot's data and its part of the model."""

    def test_recorded_shots_are_read_without_what_is_spoilt(self, tmp_path, noise):
        data, table = noise
        workspace = prepared(tmp_path, data=table)
        for models in (False, True):
            inputs = work.inputs_of(workspace, 1, models=models)
            wanted, dropped = without_spoilt(data[1])
            assert np.array_equal(inputs.data, wanted) and inputs.dropped == dropped == 1
        assert inputs.media["model"].keys() == {"velocity"} and inputs.media["true"] == {}
        assert work.inputs_of(workspace, 0).dropped == 0

    def test_shots_to_model_have_data_only_where_that_is_asked_for(self, tmp_path, modelled):
        workspace = prepared(tmp_path)
        inputs = work.inputs_of(workspace, 1)
        assert inputs.data is None and inputs.dropped == 0 and modelled == []
        inputs = work.inputs_of(workspace, 1, models=True)
        assert (inputs.data == 1).all() and inputs.dropped == 0
        shot, model, options = modelled[0]
        assert options == {"dt": workspace.described.step, "order": 10}
        assert np.array_equal(model.velocity, workspace.fields("true")["velocity"])
        assert np.array_equal(shot.source[0], workspace.geometry.sources[1])

    def test_nothing_is_heard_before_time_zero_and_what_is_muted_is_silent(self, tmp_path, noise):
        data, table = noise
        tables = {
            "wavelet": "frequency = 2.5\ndelay = 0.1",
            "data": f"{table}\nmute_velocity = 1500.0\nmute_delay = 0.2",
        }
        workspace = prepared(tmp_path, **tables)
        lead, shot = workspace.described.lead, work.shot_of(workspace, 0)
        read = work.recorded(workspace, 0, shot)
        assert lead == 63 and read.shape == (SAMPLES + lead, 48)
        assert not read[:lead].any() and np.array_equal(read[lead:], data[0])
        wanted = mute(read, shot, 1500.0, 0.2, lead * 0.008)
        assert np.array_equal(work.data_of(workspace, 0, shot), wanted) and not np.array_equal(wanted, read)

    def test_each_shot_sends_and_hears_what_the_job_says(self, tmp_path):
        np.save(tmp_path / "w.npy", [np.hanning(SAMPLES) * (1 + shot) for shot in range(COUNT)])
        physics = 'absorb = 8\nkind = "elastic"\nsends = "force z"\nhears = "velocity x"'
        sampling = {"data": "dt = 0.008\nlength = 1.0", "wavelet": 'file = "w.npy"', "physics": physics}
        workspace = prepared(tmp_path, **sampling)
        shot = work.shot_of(workspace, 2)
        assert (set(shot.sends), set(shot.hears), shot.dt) == ({"force z"}, {"velocity x"}, 0.008)
        assert shot.wavelet == pytest.approx(3 * np.hanning(SAMPLES), abs=1e-6)
        assert np.array_equal(shot.receivers, workspace.geometry.receivers_of(2))

    def test_the_other_half_of_an_aperture_fades_out(self, tmp_path):
        workspace = prepared(tmp_path, imaging="aperture = 400.0")
        box = (slice(0, 48), slice(10, 60))
        part = PartialImage(np.ones((48, 50)), np.ones((48, 50)), box)
        found = work.faded(part, workspace).image
        assert np.array_equal(found, part.faded([0, 4], (48, 96)).image)  # of 50 m
        assert (found[:, 3] < 1).all() and (found[:, 4] == 1).all() and (found[:, :46] == found[:1, :46]).all()
        workspace = prepared(tmp_path, imaging="", output='directory = "whole"')
        assert np.array_equal(work.faded(part, workspace).image, part.image)

    @pytest.mark.parametrize("which", ["image", "illumination"])
    @pytest.mark.parametrize("value", [np.nan, np.inf])
    def test_what_would_spoil_the_sum_is_set_aside(self, which, value):
        arrays = {"image": np.ones((2, 2)), "illumination": np.ones((2, 2))}
        shot = SimpleNamespace(data=np.array([[1.0, -7.0]]))
        check_finite(PartialImage(**arrays, box=()), shot)
        arrays[which] = np.array([[1.0, value], [1.0, 1.0]])
        with pytest.raises(WaveError, match=r"not finite, and is set aside: .* whose largest sample is 7"):
            check_finite(PartialImage(**arrays, box=()), shot)


class TestOfOneShot:
    """A migration of one shot, by the plan of all or by its own."""

    def compute(self, workspace, number=1, budget=None, ahead=None):
        told = []
        with workspace.running() as begun:
            done = work.Migrating().compute(begun, number, budget, lambda *about: told.append(about), ahead)
            plans = sorted(path.name for path in begun.drafts.glob("*.json"))
        return done, told, plans

    @pytest.fixture(autouse=True)
    def _frozen(self, monkeypatch):
        self.frozen = []
        monkeypatch.setattr(work.Workspace, "freeze", lambda workspace, *about: self.frozen.append(about))

    @pytest.mark.parametrize("recorded", [False, True])
    def test_it_tells_its_steps_its_seconds_and_its_phases(self, tmp_path, migrated, modelled, noise, recorded):
        workspace = prepared(tmp_path, **({"data": noise[1]} if recorded else {}))
        done, told, _ = self.compute(workspace)
        ways = 2 if recorded else 3
        assert told == [(1, (ways - 2) * 126), (1, ways * 126 - 5), (1, (ways - 1) * 126)]
        assert done.summary == {
            "shot": 1,
            "seconds": 8.0,
            "data": 4.0,
            "steps": 126,
            "dropped": int(recorded),
            "together": 1,
            "reversal": 2.0,
            "every": 7,
            "peak": {"host": 7},
            "moved": {"up 1": 9},
            "note": "",
            "ratio": None,
            "worst": None,
            "error": None,
            # Of 36 steps that were run, 18 are those of modelling.
            "phases": {"forward": 1.0} | ({} if recorded else {"modelled": 0.5}),
        }
        assert (done.part.image == 1).all() and done.part.box == workspace.boxes[1] and done.number == 1
        assert len(modelled) == (0 if recorded else 1)
        assert [about[2] for about in self.frozen] == [1] and self.frozen[0][0].steps == 126

    def test_it_is_migrated_as_the_job_says(self, tmp_path, migrated, modelled):
        memory = 'host = "4MB"\ndirectory = "scratch/below"\nschedule = "storeall"\ncodec = "bounded:1e-4"'
        workspace = prepared(tmp_path, memory=memory, imaging="every = 3\nzero_phase = true")
        self.compute(workspace)
        (asked,) = migrated
        scratch = tmp_path / "scratch" / "below"
        assert asked.directory == scratch and scratch.stat().st_mode & 0o777 == 0o700
        assert (asked.dt, asked.order, asked.every, asked.images) == (workspace.described.step, 10, 3, ("pp",))
        assert (asked.zero_phase, asked.progress, asked.codec, asked.schedule) == (
            True,
            False,
            "bounded:1e-4",
            "storeall",
        )
        assert (asked.plan, asked.budget["host"], asked.reversals, asked.encode_states) == (
            None,
            4 * 10**6,
            COUNT,
            True,
        )
        assert np.array_equal(asked.model.velocity, workspace.fields("model")["velocity"])
        assert (asked.shot.data == 1).all()
        self.compute(workspace, 2)  # in a folder that is there
        assert len(migrated) == 2

    def test_the_plan_of_all_is_taken_and_not_made_again(self, tmp_path, migrated, modelled, monkeypatch):
        plan = SimpleNamespace(steps=126, schedule=SimpleNamespace(steps=18))
        monkeypatch.setattr(work.Workspace, "plan", lambda workspace: plan)
        self.compute(prepared(tmp_path))
        assert migrated[0].plan is plan and migrated[0].budget is None and self.frozen == []

    def test_the_plan_of_a_segment_serves_nobody_else(self, tmp_path, migrated, modelled, monkeypatch):
        real = work.migrate

        def segment(*about, **options):
            done = real(*about, **options)
            done.result.plan.steps = 50
            return done

        monkeypatch.setattr(work, "migrate", segment)
        self.compute(prepared(tmp_path))
        assert self.frozen == []

    def test_what_is_read_ahead_is_taken_and_where_there_was_no_room_it_is_read_again(
        self, tmp_path, migrated, modelled, monkeypatch
    ):
        workspace = prepared(tmp_path)
        inputs = replace(work.inputs_of(workspace, 1), data=np.full((SAMPLES, 48), 3.0), dropped=2)
        done, _, _ = self.compute(workspace, ahead=SimpleNamespace(result=lambda: inputs))
        assert done.summary["dropped"] == 2 and (migrated[0].shot.data == 3).all() and modelled == []

        def full():
            raise MemoryError

        self.compute(workspace, ahead=SimpleNamespace(result=full))
        assert (migrated[1].shot.data == 1).all() and len(modelled) == 1

    def test_without_a_budget_it_has_that_of_its_worker(self, tmp_path, migrated, modelled):
        self.compute(prepared(tmp_path, memory=""), budget=Budget(host=7))
        assert migrated[0].budget == Budget(host=7)

    def test_a_pilots_codec_is_for_records_alone(self, tmp_path, migrated, modelled, monkeypatch):
        workspace = prepared(tmp_path, memory='host = "4MB"\nimage_error = "1%"')
        for found, codec in ((SimpleNamespace(codec="bounded:2e-5"), "bounded:2e-5"), (None, None)):
            monkeypatch.setattr(work, "pilot_of", lambda workspace, found=found: found)
            self.compute(workspace)
            assert migrated[-1].codec == codec and migrated[-1].encode_states is False

    def test_its_progress_is_kept_where_the_job_says_so(self, tmp_path, migrated, modelled, monkeypatch):
        plan = SimpleNamespace(steps=126, schedule=SimpleNamespace(steps=18))
        monkeypatch.setattr(work.Workspace, "plan", lambda workspace: plan)
        workspace = prepared(tmp_path, memory='host = "4MB"\ncheckpoint = true')
        with workspace.running() as begun:
            for _ in range(2):
                work.Migrating().compute(begun, 1, None, lambda *about: None, None)
            assert begun.progress(1).with_name(f"{begun.progress(1).name}.npz").exists()
            assert migrated[0].resume == begun.progress(1)
        assert len(modelled) == 1  # data are modelled once
        assert migrated[0].plan is None and migrated[0].budget["host"] == 4 * 10**6


class TestOfProgress:
    """A shot goes on where it was, unless what was kept cannot be gone on with."""

    def resumed(self, progress, fails):
        tried = []

        def migrated(*, resume):
            tried.append(resume.exists())
            if fails(len(tried)):
                raise PlanError("of another budget")
            return "an image"

        return tried, lambda: work._resumed(migrated, progress)

    def test_it_begins_anew_where_it_cannot_go_on(self, tmp_path):
        (tmp_path / "kept").mkdir()
        (tmp_path / "kept" / "state").write_text("")
        tried, run = self.resumed(tmp_path / "kept", lambda number: number == 1)
        assert run() == "an image" and tried == [True, False]

    def test_what_is_wrong_at_its_beginning_is_raised(self, tmp_path):
        tried, run = self.resumed(tmp_path / "kept", lambda number: True)
        with pytest.raises(PlanError, match="of another budget"):
            run()
        assert len(tried) == 1


class TestOfShotsTogether:
    """Shots that advance together share seconds, bytes and phases."""

    @pytest.mark.parametrize("recorded", [False, True])
    def test_each_tells_its_share(self, tmp_path, migrated, modelled, noise, recorded):
        workspace, told = prepared(tmp_path, **({"data": noise[1]} if recorded else {})), []
        done, plan = work.Migrating().together(workspace, [2, 1], None, lambda *about: told.append(about))
        ways = 2 if recorded else 3
        assert told == [(2, 2 * (ways * 126 - 5))]  # of the first, for both
        assert [each.number for each in done] == [2, 1] and [each.part.image[0, 0] for each in done] == [1, 2]
        for each, dropped in zip(done, (0, int(recorded)), strict=True):
            summary = each.summary
            assert (summary["seconds"], summary["data"], summary["reversal"]) == (4.0, 2.0, 1.0)
            assert (summary["together"], summary["dropped"], summary["moved"]) == (2, dropped, {"up 1": 4})
            assert summary["phases"] == {"forward": 0.5} | ({} if recorded else {"modelled": 0.25})
        (asked,) = migrated
        assert asked.plan is None and asked.budget["host"] == 4 * 10**6 and asked.reversals == 2
        assert plan.steps == 126 and len(asked.model) == 2 and len(modelled) == (0 if recorded else 1)
        assert [each.source[0, 1] for each in asked.shot] == [workspace.geometry.sources[shot][1] for shot in (2, 1)]

    def test_a_plan_of_as_many_is_taken(self, tmp_path, migrated, modelled):
        workspace = prepared(tmp_path, data="dt = 0.008\nlength = 1.0\nmute_velocity = 1500.0")
        plan = SimpleNamespace(steps=126, schedule=SimpleNamespace(steps=18))
        _, found = work.Migrating().together(workspace, [0, 1, 2], plan, lambda *about: None)
        assert found is plan and migrated[0].plan is plan and migrated[0].budget is None and migrated[0].reversals == 1
        shot = work.shot_of(workspace, 1)
        assert np.array_equal(migrated[0].shot[1].data, work.muted(workspace, np.ones((126, 48), np.float32), shot))


def test_an_image_is_kept_with_its_strength_and_its_faded_sides(tmp_path):
    with prepared(tmp_path, imaging="aperture = 100.0").running() as begun:
        box = begun.boxes[1]
        shape = [side.stop - side.start for side in box]
        image = np.random.default_rng(0).normal(size=shape).astype(np.float32)
        shot = work.shot_of(begun, 1).with_data(np.zeros((len(begun.wavelet), begun.geometry.receivers_of(1).shape[0])))
        done = work.MigratedShot(1, PartialImage(image, image**2, box), {"shot": 1, "seconds": 1.0}, shot)
        spoilt = replace(done, part=PartialImage(image * np.inf, image**2, box))
        with pytest.raises(WaveError, match="its image is not finite"):
            spoilt.write(begun)
        assert not list(begun.drafts.glob("*.npz"))
        done.write(begun)
        begun.take(1)
        assert begun.told(1) == {"shot": 1, "seconds": 1.0, "strength": done.part.strength}
        assert np.array_equal(begun.part(1).image, work.faded(done.part, begun).image)
