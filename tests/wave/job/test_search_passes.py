"""Passes of a search over its shots: what is computed, kept, needed and swept, and what is added up of it."""

import io
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console
from tests.wave.job.inversions import inversion_text

from forebay.errors import EngineError, WaveError
from forebay.wave import AcousticModel
from forebay.wave.inversion.ledger import EvaluationLedger
from forebay.wave.inversion.misfits import MISFITS
from forebay.wave.inversion.shots import DONE, MISFIT, wavelet_of
from forebay.wave.inversion.sources import low_pass, wavelets_from
from forebay.wave.inversion.stage import EVALUATIONS, misfits_of
from forebay.wave.job import parse
from forebay.wave.job.inversion import echoes, leastsquares, passes, run, shots
from forebay.wave.job.inversion.asked import DATA, FOLDER, PassInputs, PassRequest, asked_name
from forebay.wave.job.inversion.leastsquares import EchoesOfJob, run_least_squares
from forebay.wave.job.inversion.shots import LAST, LostPassError, ShotPasses, ShotsOfJob
from forebay.wave.job.prepare import prepare
from forebay.wave.job.shots.kinds import kind_of
from forebay.wave.job.work import shot_of, steps_of
from forebay.wave.job.workspace import ShotWork

COUNT = 3
"""Shots of the job."""
EVERYONE = tuple(range(COUNT))
GEOMETRY = "shots = 3\nsource_depth = 100.0\nreceiver_depth = 100.0\nreceiver_spacing = 400.0\nmax_offset = 900.0"
REQUEST = PassRequest({"velocity": np.zeros((2, 2))}, 3000.0)


def job_in(folder, search="iterations = 1", **tables):
    usual = {"geometry": GEOMETRY, "imaging": "aperture = 600.0"}
    return parse(inversion_text(search, **usual | tables), folder, command="fwi" if search else "lsrtm")


@pytest.fixture
def over(tmp_path, monkeypatch):
    """Make passes over the shots of a job, whose work is to write what a function tells of each."""
    console = Console(file=io.StringIO(), width=400)
    with prepare(job_in(tmp_path)).running() as workspace:
        ledger = EvaluationLedger(workspace.root / FOLDER, workspace.identity)
        made = ShotPasses(workspace, None, console, ledger, [])

        def compute_shots(workspace, client, todo, bars, console):
            over.computed.append((workspace.work.name, list(todo)))
            for shot in todo:
                summary = {"shot": shot, "seconds": 2.0 + shot, "reversal": 1.0, "peak": over.peaks[shot]}
                workspace.keep(shot, over.arrays(shot), summary)
                workspace.take(shot)
            return over.failed

        class Bars:
            def __init__(self, *about, of):
                over.bars.append((*about[1:], of))

            def __enter__(self):
                return self

            def __exit__(self, *about):
                return None

        monkeypatch.setattr(shots, "compute_shots", compute_shots)
        monkeypatch.setattr(shots, "ProgressBars", Bars)
        over = SimpleNamespace(made=made, workspace=workspace, computed=[], bars=[], failed={}, console=console)
        over.peaks = [{"host": 10}, {"host": 20, "disk": 5}, {}]
        over.arrays = lambda shot: {name: np.full(3, shot) for name in ("crossed", "power", "light", "heard")}
        yield over
        ledger.close()


def flipped(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


class TestOfAPass:
    """What is done of it is not done again; what it needs must be there; what nobody needs any more goes."""

    LIGHT, SOURCES = ShotWork("light", "first", "a"), ShotWork("sources", "second", "b")

    def test_only_what_is_missing_is_computed(self, over):
        done = over.made.over(self.LIGHT, REQUEST, [0, 2])
        assert done.work == self.LIGHT and done.finished() == {0, 2}
        assert over.made.ledger.find("first-asked", "a").keys() == REQUEST.kept().keys()
        assert over.made.over(self.LIGHT, REQUEST, EVERYONE).arrays(1, "light")[0].tolist() == [1, 1, 1]
        assert over.computed == [("first", [0, 2]), ("first", [1])]
        steps = steps_of(over.workspace)[0]
        assert over.bars == [(2, 0, steps, "first"), (3, 2, steps, "first")]

    def test_what_is_damaged_is_told_once_and_computed_again(self, over):
        done = over.made.over(self.LIGHT, REQUEST, EVERYONE)
        for shot in (0, 2):
            flipped(done.path(shot))
        over.made.over(self.LIGHT, REQUEST, EVERYONE)
        assert over.computed[1] == ("first", [0, 2]) and len(over.made.damage) == 2
        said = over.console.file.getvalue().splitlines()
        assert said == over.made.damage and all(line.endswith("it is computed again") for line in said)
        assert "00000.npz is damaged" in said[0] and "00002.npz is damaged" in said[1]

    def test_shots_that_fail_end_it(self, over):
        over.failed = {1: "a bad disk", 2: "another"}
        with pytest.raises(WaveError, match="2 of 3 shots failed, first shot 1: a bad disk"):
            over.made.over(self.LIGHT, REQUEST, EVERYONE)

    def test_what_nobody_needs_any_more_is_removed(self, over):
        for name in ("gathers-start", "gathers-found"):
            over.made.over(ShotWork("gathers", name, "c"), REQUEST, [0])
        over.made.over(self.LIGHT, REQUEST, EVERYONE)
        over.made.over(DATA, REQUEST, EVERYONE)  # which comes first of all, and finds what an earlier run has left
        folder = over.workspace.root / "shots"
        lasting = {"data", "gathers-start", "gathers-found"}
        assert {path.name for path in folder.iterdir()} == {*lasting, "first"}
        over.made.over(self.SOURCES, REQUEST, [0], [self.LIGHT])
        assert {path.name for path in folder.iterdir()} == {*lasting, "first", "second"}
        over.made.over(ShotWork("light", "third", "d"), REQUEST, [0])
        assert {path.name for path in folder.iterdir()} == {*lasting, "third"}
        kept = {path.stem for path in (over.workspace.root / FOLDER).glob("*-asked.npz")}
        assert kept == {asked_name(ShotWork("", name)) for name in (*lasting, "third")}
        (folder / "notes.txt").write_text("mine")
        over.made.sweep()
        assert {path.name for path in folder.iterdir()} == {*lasting, "notes.txt"}

    def test_a_pass_whose_needs_are_lost_is_not_made(self, over):
        with pytest.raises(LostPassError, match=r"first/00000\.npz is missing"):
            over.made.over(self.SOURCES, REQUEST, EVERYONE, [self.LIGHT])
        done = over.made.over(self.LIGHT, REQUEST, [0, 2])
        with pytest.raises(LostPassError, match=r"first/00001\.npz is missing"):
            over.made.over(self.SOURCES, REQUEST, EVERYONE, [self.LIGHT])
        over.made.over(self.SOURCES, REQUEST, [0, 2], [self.LIGHT])
        flipped(done.path(2))
        with pytest.raises(LostPassError, match=r"first/00002\.npz is damaged"):
            over.made.over(self.SOURCES, REQUEST, [0, 2], [self.LIGHT])

    def test_the_last_one_is_remembered_with_its_seconds_and_peaks(self, over):
        done = over.made.over(self.LIGHT, REQUEST, EVERYONE)
        over.made.remember(done, EVERYONE, 9.0)
        told = over.made.ledger.find(LAST, "")
        assert {name: values.tolist() for name, values in told.items()} == {
            "shot": [0, 1, 2],
            "seconds": [2.0, 3.0, 4.0],
            "reversal": [1.0, 1.0, 1.0],
            "peak disk": [0, 5, 0],
            "peak host": [10, 20, 0],
            "clock": 9.0,
        }


class TestOfShots:
    """The shots of a job as an inversion sees them: what is added up of passes, each shot in its part of the model."""

    @pytest.fixture
    def model(self, over):
        return AcousticModel(over.workspace.fields("model")["velocity"], over.workspace.described.grid, max_vel=3500.0)

    @pytest.fixture
    def of_job(self, over):
        return ShotsOfJob(over.made, EVERYONE, None)

    def part(self, over, shot, value):
        return np.full([side.stop - side.start for side in over.workspace.boxes[shot]], value, np.float32)

    def test_some_of_them_are_others(self, of_job):
        some = of_job.only([2, 0])
        assert (len(of_job), len(some), some.numbers, some.only([1]).numbers) == (3, 2, (2, 0), (0,))

    def test_a_pass_is_asked_the_model_the_frequency_and_what_is_sent(self, of_job, over, model):
        sent = np.random.default_rng(0).normal(size=(4, COUNT))
        over.arrays = lambda shot: {"light": self.part(over, shot, 1.0)}
        replace(of_job, limit=2.5, sent=sent).light(model, "light")
        (path,) = (over.workspace.root / FOLDER).glob("light-asked.npz")
        with np.load(path) as kept:
            assert np.array_equal(kept["velocity"], model.velocity) and np.array_equal(kept["sent"], sent)
            assert (float(kept["fastest"]), float(kept["limit"])) == (3500.0, 2.5)

    def test_light_adds_up_where_shots_are_and_is_kept(self, of_job, over, model):
        over.arrays = lambda shot: {"light": self.part(over, shot, shot + 1.0)}
        light, wanted = of_job.light(model, "light"), np.zeros(model.grid.shape)
        for shot, box in enumerate(over.workspace.boxes):
            wanted[box] += shot + 1
        assert np.array_equal(light, wanted) and len({*wanted.ravel()}) > 3
        assert np.array_equal(of_job.light(model, "light"), wanted) and len(over.computed) == 1

    def test_misfits_and_slopes_add_up_and_what_the_pass_took_is_remembered(self, of_job, over, model, monkeypatch):
        over.arrays = lambda shot: {MISFIT: np.array(10.0**shot), "velocity": self.part(over, shot, shot + 1.0)}
        clock = iter([100.0, 107.0])
        monkeypatch.setattr(shots, "perf_counter", lambda: next(clock))
        total, wanted = of_job.evaluate(model, "evaluation", "a model"), np.zeros(model.grid.shape)
        for shot, box in enumerate(over.workspace.boxes):
            wanted[box] += shot + 1
        assert (float(total[MISFIT]), int(total[DONE])) == (111.0, 3) and np.array_equal(total["velocity"], wanted)
        assert float(over.made.ledger.find(LAST, "")["clock"]) == 7.0

    @pytest.mark.parametrize("each", [False, True])
    @pytest.mark.parametrize("own", [False, True])
    def test_wavelets_are_found_from_the_spectra_of_all(self, of_job, over, model, each, own):
        samples, rng = len(over.workspace.wavelet), np.random.default_rng(0)
        spectra = [(rng.normal(size=samples + 1) + 1j, 1.0 + rng.random(samples + 1)) for _ in EVERYONE]
        over.arrays = lambda shot: dict(zip(("crossed", "power"), spectra[shot], strict=True))
        sent = np.stack([over.workspace.wavelet * (1 + 2 * own * shot) for shot in EVERYONE], axis=1)
        if own:
            vars(over.workspace)["wavelet"] = sent
        found = replace(of_job, limit=2.5).with_wavelets_found(model, "sources", each=each)
        dt = over.workspace.described.sampling
        wanted = wavelets_from([low_pass(sent[:, shot], dt, 2.5) for shot in EVERYONE], spectra, each=each)
        assert np.array_equal(found.sent, np.stack(wanted, axis=1)) and of_job.sent is None
        assert of_job.wavelets() == {}
        told = found.only([0, 2]).wavelets()
        assert told.keys() == {wavelet_of(0), wavelet_of(2)}
        assert np.array_equal(told[wavelet_of(2)], wanted[2])
        again = replace(of_job, limit=2.5).with_wavelets_found(model, "sources", each=each)
        assert np.array_equal(again.sent, found.sent) and len(over.computed) == 1

    def test_gathers_are_of_the_shots_that_are_shown(self, of_job, over, model):
        over.arrays = lambda shot: {"heard": np.full(2, shot), "observed": np.full(2, -shot)}
        pairs = of_job.gathers(model, "gathers-start", [2, 1])
        assert [[values.tolist() for values in pair] for pair in pairs] == [[[2, 2], [-2, -2]], [[1, 1], [-1, -1]]]
        assert over.computed == [("gathers-start", [2, 1])]


class TestOfEchoes:
    """What is left of echoes after each step is said to the next pass by where it lies, and how much of it goes."""

    def test_each_pass_is_told_what_the_ones_before_have_left(self):
        made, asked = [], PassRequest({"velocity": np.ones((2, 4))}, 3000.0)
        boxes = [(slice(0, 2), slice(0, 3)), (slice(0, 2), slice(1, 4))]

        class Passes:
            ledger = EvaluationLedger(None, "")

            def over(self, work, request, numbers, needs=()):
                made.append((work, request, list(needs)))
                told = {"squared": 10.0 + len(made), "along": 20.0 + len(made), "slope": np.ones((2, 3))}
                arrays = lambda shot, *names: [told[name] * (shot + 1) for name in names]  # noqa: E731
                described = SimpleNamespace(grid=SimpleNamespace(shape=(2, 4)))
                return SimpleNamespace(boxes=boxes, arrays=arrays, described=described)

            def remember(self, over, numbers, seconds):
                made.append(("remembered", numbers, seconds >= 0))

        found = EchoesOfJob(Passes(), asked, (0, 1))
        assert found.squared() == 33.0  # 11 and 22
        assert found.back().tolist() == [[1, 3, 3, 2]] * 2
        assert found.scatter(np.full((2, 4), 0.5)) == (42.0, 72.0)
        found.take(0.25)
        found.back()
        found.scatter(np.ones((2, 4)))
        works, requests = [each[0] for each in made], [each[1] for each in made]
        assert works[2] == works[5] == "remembered" and made[2][1:] == made[5][1:] == ((0, 1), True)
        echo, back, scatter, again, last = (works[number] for number in (0, 1, 3, 4, 6))
        assert [(work.kind, work.name) for work in (echo, back, scatter, again, last)] == [
            *(("echoes", "echoes"), ("back", "back-0000"), ("scatter", "scatter-0001"), ("back", "back-0001")),
            ("scatter", "scatter-0002"),
        ]
        assert all(work.of == request.checksum for work, request in ((back, requests[1]), (again, requests[4])))
        assert [made[number][2] for number in (0, 1, 3, 4, 6)] == [[], [echo], [back], [back, scatter], [again]]

        def told(number):
            arrays = dict(requests[number].arrays)
            assert (arrays.pop("velocity") == 1).all() and requests[number].fastest == 3000.0
            return {
                name: echoes._work_told(values) if values.dtype == np.uint8 else values.tolist()
                for name, values in arrays.items()
            }

        assert told(0) == {} and told(1) == {"left": echo}
        assert told(3) == {"left": back, "direction": [[0.5] * 4] * 2}
        assert told(4) == {"left": back, "scattered": scatter, "step": 0.25}
        assert told(6) == {"left": again, "direction": [[1.0] * 4] * 2}

    def test_echoes_of_nothing_are_refused(self):
        silent = SimpleNamespace(arrays=lambda number, name: [np.zeros(())])
        passes = SimpleNamespace(ledger=EvaluationLedger(None, ""), over=lambda *about: silent)
        with pytest.raises(WaveError, match="there is no echo to explain"):
            EchoesOfJob(passes, REQUEST, (0, 1)).squared()

    def test_so_many_times_what_was_scattered_goes(self, over):
        left, scattered = np.arange(6.0).reshape(2, 3), np.ones((2, 3))
        works = ShotWork("back", "back-0000", "a"), ShotWork("scatter", "scatter-0001", "b")
        for work, name, values in zip(works, ("left", "scattered"), (left, scattered), strict=True):
            over.arrays = lambda shot, name=name, values=values: {name: values * (shot + 1), "slope": left}
            over.made.over(work, REQUEST, EVERYONE, works[: name == "scattered"])
        request = PassRequest({"left": echoes.told_of(works[0])}, 3000.0)
        assert np.array_equal(echoes._left_of(over.workspace, 1, request), 2 * left)
        more = {"scattered": echoes.told_of(works[1]), "step": np.array(0.25)}
        request = replace(request, arrays=request.arrays | more)
        assert np.array_equal(echoes._left_of(over.workspace, 1, request), 2 * left - 0.5)

    def test_a_search_whose_needs_are_lost_begins_again(self, tmp_path, monkeypatch):
        tried = []

        def searched(job, made):
            tried.append({path.stem for path in (made.workspace.root / FOLDER).glob("*.npz")})
            if len(tried) == 1:
                for name in ("echoes", "back-0000", "scatter-0001", "light"):
                    made.ledger.keep(name, {}, "")
                made.ledger.keep(LAST, {"seconds": np.ones(1)}, "")
                (made.workspace.root / "shots" / "back-0000").mkdir()
                raise LostPassError("what was there is lost")
            assert not any((made.workspace.root / "shots").iterdir())
            made.ledger.keep("back-0001", {}, "")
            (made.workspace.root / "shots" / "echoes").mkdir()
            return {"change": np.ones((2, 2)), "residuals": np.array([1.0, 0.5])}

        monkeypatch.setattr(leastsquares, "_searched", searched)
        console = Console(file=io.StringIO(), width=400)
        survey = run_least_squares(job_in(tmp_path, None, lsrtm=""), console)
        assert tried == [{"inversion"}, {"inversion", "light", LAST}]
        assert survey.damage == ["what was there is lost: the search begins again"]
        assert console.file.getvalue().count("the search begins again") == 1
        assert survey.change.dtype == np.float32 and survey.residuals == [1.0, 0.5] and survey.last["seconds"] == 1
        left = {path.stem for path in (tmp_path / "out" / FOLDER).glob("*.npz")}
        assert left == {"inversion", "outcome", LAST} and not any((tmp_path / "out" / "shots").iterdir())
        monkeypatch.setattr(leastsquares, "_searched", None)  # what has ended is found
        assert run_least_squares(job_in(tmp_path, None, lsrtm="")).residuals == [1.0, 0.5]


class TestOfStages:
    """What an inversion makes of its job: stages, wavelets that were found, and the gathers that are shown."""

    @pytest.fixture
    def stages(self, monkeypatch, tmp_path):
        """Run a job whose stages find at once what they are told, and return the survey, the stages and passes."""
        monkeypatch.setattr(ShotPasses, "over", lambda self, work, *about: stages.over.append((work, *about)))

        def gathers(self, model, name, shown):
            stages.gathers.append((self, name, shown))
            return [(np.full(1, shot) + model.max_vel * 0, np.full(1, 10 * shot)) for shot in shown]

        def run_stages(made, counts, start, ledger, after):
            stages.made, stages.counts = made, counts
            after(start, 3, 0.125)
            outcomes = [
                {
                    misfits_of(0): np.array([4.0, 2.0]),
                    misfits_of(1): np.array([3.0]),
                    EVALUATIONS: np.array(5),
                    **{wavelet_of(shot): np.array([number, shot]) for shot in range(5)},
                }
                for number in range(len(made))
            ]
            return replace(start, velocity=start.velocity + 1), outcomes

        clock = iter(float(second) for second in range(100, 1000))
        monkeypatch.setattr(ShotsOfJob, "gathers", gathers)
        monkeypatch.setattr(run, "run_stages", run_stages)
        monkeypatch.setattr(run, "perf_counter", lambda: next(clock))

        def inverted(search, **tables):
            stages.console = Console(file=io.StringIO(), width=400)
            tables = {"geometry": "shots = 5\nreceiver_spacing = 400.0"} | tables
            return run.run_inversion(job_in(tmp_path, search, imaging="", **tables), stages.console)

        stages = SimpleNamespace(over=[], gathers=[], inverted=inverted)
        return stages

    def test_a_job_says_all_of_its_stages(self, stages):
        search = 'frequencies = [2.5, "all"]\niterations = [3, 4]\nmini_batch = 2\nseed = 9\nsmooth = 50\n'
        search += 'fixed_depth = 150\nprecondition = false\nestimate_source = "each"\nbounds = [1400, 3400]'
        survey = stages.inverted(search)
        assert stages.counts == [3, 4] and [stage.number for stage in stages.made] == [0, 1]
        for stage, limit in zip(stages.made, (2.5, None), strict=True):
            assert (stage.shots.numbers, stage.shots.limit, stage.shots.sent) == ((0, 1, 2, 3, 4), limit, None)
            assert (stage.smooth, stage.precondition, stage.sources) == (50.0, False, "each")
            assert stage.bounds == {"velocity": (1400.0, 3400.0)}
            assert (stage.mini_batches.size, stage.mini_batches.seed) == (2, 9)
            assert stage.fixed[:2].all() and not stage.fixed[2:].any()
        (work, request, numbers) = stages.over[0]
        assert work == DATA and numbers == (0, 1, 2, 3, 4) and request.arrays == {}
        assert request.fastest == pytest.approx(3400, rel=1e-4) and len(stages.over) == 1
        assert survey.sent.tolist() == [[1] * 5, [0, 1, 2, 3, 4]]
        assert [(name, shown) for _, name, shown in stages.gathers] == [
            *(("gathers-start", [0, 2, 4]), ("gathers-found", [0, 2, 4]))
        ]
        assert {own.limit for own, *_ in stages.gathers} == {None}
        assert all(np.array_equal(own.sent, survey.sent) for own, *_ in stages.gathers)
        assert [(each.shot, each.observed[0]) for each in survey.gathers] == [(0, 0), (2, 20), (4, 40)]
        assert [(each.before[0], each.after[0]) for each in survey.gathers] == [(0, 0), (2, 2), (4, 4)]
        assert survey.misfits == [[(4.0, 2.0), (3.0,)]] * 2 and survey.evaluations == 10
        assert (survey.model["velocity"] == survey.start["velocity"] + 1).all()
        # The clock ticks by seconds: at the beginning, where stages begin, at an iteration and at the end.
        assert survey.seconds == 3.0 and survey.last == {} and survey.notes == survey.damage == []
        assert "iteration 3 of 7: misfit 0.125, after 1 s\n" in stages.console.file.getvalue()

    def test_what_a_job_does_not_ask_for_is_left_out(self, stages):
        survey = stages.inverted("frequencies = [2.5]")
        (stage,) = stages.made
        assert stage.mini_batches is None and stage.fixed is None and stage.sources is False
        assert survey.sent is None and {own.limit for own, *_ in stages.gathers} == {2.5}

    def test_recorded_shots_are_not_modelled(self, stages, tmp_path):
        np.save(tmp_path / "data.npy", np.zeros((5, 172, 12), np.float32))
        stages.inverted("iterations = 1", data='file = "data.npy"\ndt = 0.014')
        assert stages.over == []


class TestOfReversals:
    """What a pass of reversals tells `gradient`, and what it keeps of a shot."""

    @pytest.fixture
    def reversed_shots(self, monkeypatch):
        """Have a gradient compare what was heard with nothing, and note what it is told."""
        told = []

        def gradient(shot, model, *, misfit, **options):
            told.append(options)
            together = shot if isinstance(shot, list) else [shot]
            compare = misfit if isinstance(misfit, list) else [misfit]
            owed = []
            for number, (own, each) in enumerate(zip(together, compare, strict=True)):
                value, _ = each(np.ones_like(own.data), np.asarray(own.data))
                metrics = SimpleNamespace(seconds=1.5, peak={"host": 7})
                result = SimpleNamespace(plan=f"plan {len(told)} of {number}", metrics=metrics)
                owed.append(SimpleNamespace(misfit=value, gradient=np.full(2, value), result=result))
            return owed if isinstance(shot, list) else owed[0]

        clock = iter(float(second) for second in range(100, 1000, 6))
        monkeypatch.setattr(passes, "gradient", gradient)
        monkeypatch.setattr(passes, "perf_counter", lambda: next(clock))
        return told

    @pytest.fixture
    def workspace(self, tmp_path, monkeypatch):
        """Prepare a job of noise, whose second trace does not count."""
        memory = 'host = "8MB"\ndirectory = "scratch/below"\nschedule = "storeall"'
        workspace = prepare(job_in(tmp_path, memory=memory))
        frozen = []
        monkeypatch.setattr(type(workspace), "freeze", lambda self, *about: frozen.append(about))

        def inputs(workspace, number):
            shot = shot_of(workspace, number)
            data = np.full((shot.samples, len(shot.receivers)), 3.0 + number, np.float32)
            weight = np.ones_like(data)
            weight[:, 1] = 0
            return PassInputs(shot.with_data(data), weight, REQUEST)

        monkeypatch.setattr(passes, "inputs_asked", inputs)
        monkeypatch.setattr(passes, "model_asked", lambda *about: None)
        vars(workspace)["frozen"] = frozen
        return workspace

    def test_the_first_makes_the_plan_and_each_tells_its_steps(self, workspace, reversed_shots, tmp_path):
        kind, told = kind_of(ShotWork("gradient")), []
        steps = steps_of(workspace)[0]
        assert kind.reverses and kind.steps(workspace) == 2 * steps
        done = kind.compute(workspace, 1, None, lambda *about: told.append(about), None)
        assert told == [(1, steps)] and done.number == 1
        assert done.summary == {"shot": 1, "seconds": 6.0, "reversal": 1.5, "peak": {"host": 7}}
        data = np.delete(np.asarray(passes.inputs_asked(workspace, 1).shot.data), 1, axis=1)
        value, _ = MISFITS["least squares"](np.ones_like(data), data)
        assert float(done.arrays[MISFIT]) == pytest.approx(float(value)) and value > 0
        assert workspace.frozen[0][0] == "plan 1 of 0" and workspace.frozen[0][2] == 1
        options = reversed_shots[0]
        assert options["plan"] is None and options["budget"]["host"] == 8_000_000
        assert (options["schedule"], options["codec"], options["every"]) == ("storeall", None, 1)
        assert (options["reversals"], options["progress"], options["dtype"]) == (COUNT, False, np.float32)
        assert (options["dt"], options["order"]) == (workspace.described.step, 8)
        kind.compute(workspace, 0, None, lambda *about: None, None)  # in a folder that is there
        scratch = tmp_path / "scratch" / "below"
        assert options["directory"] == scratch and scratch.stat().st_mode & 0o777 == 0o700

    def test_a_shot_by_the_plan_of_all_has_no_budget_and_takes_what_is_read_ahead(
        self, workspace, reversed_shots, monkeypatch
    ):
        kind, ahead = kind_of(ShotWork("gradient")), passes.inputs_asked(workspace, 2)
        monkeypatch.setattr(type(workspace), "plan", lambda self: "a plan")
        monkeypatch.setattr(passes, "inputs_asked", None)
        kind.compute(workspace, 2, None, lambda *about: None, SimpleNamespace(result=lambda: ahead))
        assert (reversed_shots[0]["plan"], reversed_shots[0]["budget"]) == ("a plan", None)
        assert workspace.frozen == []

    def test_shots_that_advance_together_share_plan_and_seconds(self, workspace, reversed_shots):
        kind, told = kind_of(ShotWork("gradient")), []
        done, plan = kind.together(workspace, [2, 0], None, lambda *about: told.append(about))
        assert plan == "plan 1 of 0" and [each.number for each in done] == [2, 0]
        assert [each.summary["seconds"] for each in done] == [3.0, 3.0]
        assert [shot for shot, _ in told] == [2, 0] and done[0].arrays[MISFIT] > done[1].arrays[MISFIT]

    def test_what_does_not_count_has_no_part_in_the_misfit(self, workspace):
        kind, inputs = kind_of(ShotWork("gradient")), passes.inputs_asked(workspace, 0)
        misfit = kind.misfit_of(workspace, 0, inputs, lambda *about: None)
        data = np.asarray(inputs.shot.data)
        value, slope = misfit(data, data + np.eye(1, data.shape[1], 1))  # they differ where nothing counts
        assert value == 0 and not slope.any()
        value, slope = misfit(data, data + 1.0)
        assert value > 0 and not slope[:, 1].any() and slope[:, 0].all()

    def test_forward_passes_take_shots_one_by_one(self, workspace, monkeypatch):
        kind = kind_of(ShotWork("light"))
        assert not kind.reverses and kind.steps(workspace) == steps_of(workspace)[0]
        with pytest.raises(EngineError, match="advance one by one"):
            kind.together(workspace, [0, 1], None, lambda *about: None)
        clock = iter([100.0, 104.5])
        monkeypatch.setattr(passes, "perf_counter", lambda: next(clock))
        monkeypatch.setattr(type(kind), "run", lambda self, workspace, number, inputs: {"light": inputs})
        done = kind.compute(workspace, 1, None, lambda *about: None, SimpleNamespace(result=lambda: "read ahead"))
        assert done.arrays == {"light": "read ahead"} and done.summary == {"shot": 1, "seconds": 4.5}

    def test_what_sends_echoes_back_tells_its_steps(self, workspace):
        told, inputs = [], passes.inputs_asked(workspace, 0)
        misfit = kind_of(ShotWork("back")).misfit_of(workspace, 0, inputs, lambda *about: told.append(about))
        left = np.ones_like(np.asarray(inputs.shot.data))
        assert np.array_equal(misfit(left, left)[1], inputs.weight) and told == [(0, steps_of(workspace)[0])]

    def test_a_shot_whose_arrays_are_not_those_of_its_pass_is_damaged(self, over):
        for kind, name in (("gradient", "velocity"), ("light", "light"), ("back", "slope")):
            work = ShotWork(kind, f"{kind}-0", "a")
            over.arrays = lambda shot: {"other": np.zeros(1)}
            done = over.made.over(work, REQUEST, [0])
            assert set(shots.damaged_shots(done)) == {0}, name
