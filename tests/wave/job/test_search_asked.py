"""What passes of a search are asked: tables and their limits, where a search begins, and what of the data counts."""

from dataclasses import replace

import numpy as np
import pytest
from tests.wave.job.inversions import inversion_text

from forebay.errors import CorruptionError, WaveError
from forebay.wave import AcousticModel
from forebay.wave.earth.grid import Grid
from forebay.wave.inversion.ledger import EvaluationLedger
from forebay.wave.inversion.sources import low_pass
from forebay.wave.job import parse
from forebay.wave.job.inversion import asked, start
from forebay.wave.job.inversion.asked import FOLDER, PassRequest, asked_name, asked_of, inputs_asked
from forebay.wave.job.prepare import prepare
from forebay.wave.job.work import recorded, shot_of
from forebay.wave.job.workspace import ShotWork
from forebay.wave.survey.traces import mute

SAMPLES = 172
"""Of the data of a job: 2.4 s every 0.014 s."""


def job_in(folder, search="iterations = 1", **tables):
    return parse(inversion_text(search, **tables), folder, command="fwi")


class TestOfTables:
    """Keys that jobs of one command alone have."""

    LIMITS = (
        ("fwi", "frequencies = [2.5, 5.0]", "iterations", ["1", "1000000", "[3, 4]"], ["0", "1000001", "[]", "[3, 0]"]),
        ("fwi", "", "frequencies", ["0.5", '"all"', '["all", 3.0]'], ["0", "-1.0", "inf", "[]", '"some"']),
        ("fwi", "", "bounds", ["[0, 1.5]", "{vp = [1.0, 2.0]}"], ["[0, 0]", "[-1.0, 2.0]", "[1.0]", "{vp = 3.0}"]),
        ("fwi", "", "fixed_depth", ["0", "0.5"], ["-0.5", "1e12"]),
        ("fwi", "", "smooth", ["0", "0.5"], ["-0.5", "1e12"]),
        ("fwi", "", "mini_batch", ["1", "1000000"], ["0", "1000001", "1.5"]),
        ("fwi", "mini_batch = 1", "seed", ["0", str(2**63 - 1)], ["-1", str(2**63)]),
        ("fwi", "", "estimate_source", ["true", '"each"'], ['"all"', "2"]),
        ("fwi", "", "precondition", ["true", "false"], ['"some"']),
        ("lsrtm", "", "iterations", ["1", "1000000"], ["0", "1000001"]),
        ("lsrtm", "", "precondition", ["false"], ['"some"']),
    )

    @pytest.mark.parametrize(("command", "beside", "key", "good", "bad"), LIMITS)
    def test_a_key_is_taken_up_to_its_limits_and_named_beyond(self, command, beside, key, good, bad):
        table = {"fwi": "inversion", "lsrtm": "lsrtm"}[command]
        for value in good:
            parse(inversion_text(None, **{table: f"{beside}\n{key} = {value}"}), command=command)
        for value in bad:
            with pytest.raises(WaveError, match=rf"{table}\.{key}.*: expected"):
                parse(inversion_text(None, **{table: f"{beside}\n{key} = {value}"}), command=command)

    def test_what_is_taken_where_a_table_says_nothing(self):
        assert parse(inversion_text(None), command="fwi").inversion.model_dump() == {
            "frequencies": ("all",),
            "iterations": (10,),
            "misfit": "least squares",
            "bounds": None,
            "fixed": None,
            "fixed_depth": 0.0,
            "smooth": 0.0,
            "precondition": True,
            "estimate_source": False,
            "mini_batch": None,
            "seed": 0,
        }
        assert parse(inversion_text(None), command="lsrtm").lsrtm.model_dump() == {
            "iterations": 10,
            "parameter": "velocity",
            "precondition": True,
        }

    @pytest.mark.parametrize(
        ("search", "stages"),
        [
            ('frequencies = [2.5, "all", 5]\niterations = 4', [(2.5, 4), (None, 4), (5.0, 4)]),
            ('frequencies = [2.5, "all"]\niterations = [1, 7]', [(2.5, 1), (None, 7)]),
            ("iterations = [1]", [(None, 1)]),
        ],
    )
    def test_each_stage_has_a_frequency_and_iterations(self, search, stages):
        assert parse(inversion_text(search), command="fwi").inversion.stages == stages

    @pytest.mark.parametrize("iterations", [[1, 2, 3], [2, 2, 2, 2]])
    def test_iterations_are_those_of_all_stages_or_of_each(self, iterations):
        with pytest.raises(WaveError, match="expected iterations of one number, or of 2, one for each of frequencies"):
            parse(inversion_text(f"frequencies = [2.5, 5.0]\niterations = {iterations}"), command="fwi")


class TestOfTheStart:
    """Where a search begins, what of the model is known, and what it may try."""

    GRID = Grid((6, 4), (50.0, 25.0))

    @pytest.mark.parametrize(("depth", "rows"), [(0.0, 0), (1.0, 1), (50.0, 1), (51.0, 2), (249.0, 5)])
    def test_a_depth_is_known_to_the_row_below_it(self, tmp_path, depth, rows):
        known = start.known_of(job_in(tmp_path, f"fixed_depth = {depth}"), self.GRID)
        assert (known is None) == (rows == 0)
        assert rows == 0 or (known[:rows].all() and not known[rows:].any())

    def test_a_file_says_where_the_model_is_known_beside_a_depth(self, tmp_path):
        values = np.zeros((6, 4))
        values[3, 2], values[5, 0] = 1, 0.5
        np.save(tmp_path / "fixed.npy", values)
        assert np.array_equal(start.known_of(job_in(tmp_path, 'fixed = "fixed.npy"'), self.GRID), values != 0)
        both = start.known_of(job_in(tmp_path, 'fixed = "fixed.npy"\nfixed_depth = 50'), self.GRID)
        values[0] = 1
        assert np.array_equal(both, values != 0)
        np.save(tmp_path / "fixed.npy", np.zeros((6, 4)))
        assert start.known_of(job_in(tmp_path, 'fixed = "fixed.npy"'), self.GRID) is None

    @pytest.mark.parametrize("shots", [2, 3])
    def test_as_many_shots_as_there_are_may_be_drawn(self, tmp_path, shots):
        start.check_inversion(job_in(tmp_path, f"mini_batch = {shots}"), self.GRID, shots)
        with pytest.raises(WaveError, match=f"expected at most the {shots - 1} shots there are, not {shots}"):
            start.check_inversion(job_in(tmp_path, f"mini_batch = {shots}"), self.GRID, shots - 1)

    def test_frequencies_lie_below_what_samples_hold(self, tmp_path):
        wavelet = np.zeros(64)
        wavelet[0] = 1  # which has all frequencies
        below, everything = start.stage_frequencies(job_in(tmp_path, 'frequencies = [4.99, "all"]'), wavelet, 0.1)
        assert 0 < below <= everything <= 5.0
        with pytest.raises(WaveError, match=r"expected below 5 Hz, of data every 0\.1 s, or 'all', not 5"):
            start.stage_frequencies(job_in(tmp_path, "frequencies = [1.0, 5.0]"), wavelet, 0.1)

    def test_bounds_suit_the_highest_frequency_of_all_stages(self, tmp_path):
        model = AcousticModel(np.full((6, 4), 2000.0, np.float32), self.GRID)
        wavelet = np.zeros(64)
        wavelet[0] = 1
        low, both = "frequencies = [2.0]", 'frequencies = [2.0, "all"]'
        begun, limits = start.start_of(job_in(tmp_path, low + "\nbounds = [1200, 2500]"), model, wavelet, 0.02)
        assert limits == {"velocity": (1200.0, 2500.0)} and begun.max_vel == pytest.approx(2500, rel=1e-4)
        with pytest.raises(WaveError, match=r"inversion\.bounds: velocity of 1200 m/s makes waves that are too short"):
            start.start_of(job_in(tmp_path, both + "\nbounds = [1200, 2500]"), model, wavelet, 0.02)

    @pytest.mark.parametrize(("fastest", "made_for"), [(1500.0, 2000.0), (2500.0, 2500.0)])
    def test_a_model_is_made_for_waves_as_fast_as_its_own_at_least(self, fastest, made_for):
        model = AcousticModel(np.full((6, 4), 2000.0, np.float32), self.GRID)
        assert start.at_most(model, fastest).max_vel == made_for


ARRAYS = {"velocity": np.arange(6.0).reshape(2, 3), "weight": np.ones(4, np.float32)}


class TestOfARequest:
    """What a pass is asked, as workers read it."""

    @pytest.mark.parametrize("limit", [None, 2.5])
    @pytest.mark.parametrize("sent", [None, np.arange(8.0).reshape(4, 2)])
    def test_it_comes_back_as_it_was(self, tmp_path, limit, sent):
        request = PassRequest(ARRAYS, 3000.0, limit, sent)
        workspace = replace(prepare(job_in(tmp_path)), work=ShotWork("gradient", "first", request.checksum))
        ledger = EvaluationLedger(workspace.root / FOLDER, workspace.identity)
        ledger.keep(asked_name(workspace.work), request.kept(), workspace.work.of)
        ledger.close()
        found = asked_of(workspace)
        assert (found.fastest, found.limit) == (3000.0, limit) and found.arrays.keys() == ARRAYS.keys()
        assert all(np.array_equal(found.arrays[name], values) for name, values in ARRAYS.items())
        assert (found.sent is None) if sent is None else np.array_equal(found.sent, sent)
        assert found.checksum == request.checksum
        with pytest.raises(CorruptionError, match="first-asked"):
            asked_of(replace(workspace, work=replace(workspace.work, of="another model")))

    def test_whatever_is_asked_makes_another_request(self):
        one = PassRequest(ARRAYS, 3000.0)
        others = [
            replace(one, fastest=3001.0),
            replace(one, limit=2.5),
            replace(one, sent=np.zeros((2, 2))),
            replace(one, arrays={"velocity": ARRAYS["velocity"]}),
            replace(one, arrays=ARRAYS | {"velocity": ARRAYS["velocity"] + 1}),
            replace(one, arrays=ARRAYS | {"velocity": ARRAYS["velocity"].T}),
            replace(one, arrays=ARRAYS | {"weight": np.ones(4, np.int32)}),
        ]
        assert len({one.checksum, *(other.checksum for other in others)}) == 8
        assert one.checksum == PassRequest(dict(reversed(ARRAYS.items())), 3000.0).checksum
        assert asked.arrays_asked(one) == ["velocity"]

    @pytest.mark.parametrize(
        ("search", "command", "last"),
        [('frequencies = [2.5, "all"]', "fwi", "stage-1"), (None, "lsrtm", "outcome")],
    )
    def test_a_search_has_ended_where_its_last_outcome_is_kept(self, tmp_path, search, command, last):
        job = parse(inversion_text(search), tmp_path, command=command)
        folder = tmp_path / "out" / FOLDER
        folder.mkdir(parents=True)
        for name in ("stage-0", "stage-2", "stage-1" if last == "outcome" else "outcome"):
            (folder / f"{name}.npz").write_text("")
        assert not asked.has_ended(job)
        (folder / f"{last}.npz").write_text("")
        assert asked.has_ended(job)


class TestOfData:
    """What is read of a shot: up to the frequency of a stage, and only what was heard."""

    @pytest.fixture
    def inputs(self, tmp_path, monkeypatch):
        """Return what is read of shot 1 of a job whose data are noise, a trace of it spoilt where that is asked for."""

        def inputs(data="", wavelet="frequency = 1.3", limit=None, sent=None, spoilt=False):
            noise = np.random.default_rng(0).normal(size=(2, SAMPLES, 24)).astype(np.float32)
            if spoilt:
                noise[1, 100, 3] = np.nan
            np.save(tmp_path / "data.npy", noise)
            told = f'file = "data.npy"\ndt = 0.014\n{data}'
            workspace = prepare(job_in(tmp_path, data=told, wavelet=wavelet))
            request = PassRequest({"velocity": workspace.fields("model")["velocity"]}, 3000.0, limit, sent)
            monkeypatch.setattr(asked, "asked_of", lambda workspace: request)
            found = inputs_asked(workspace, 1)
            assert found.asked is request
            return workspace, shot_of(workspace, 1), found

        return inputs

    def test_all_of_it_counts_unless_something_was_not_heard(self, inputs):
        workspace, sent, found = inputs()
        assert found.weight is None
        assert np.array_equal(found.shot.data, recorded(workspace, 1, sent))
        assert np.array_equal(found.shot.wavelet, sent.wavelet)

    def test_wavelet_and_data_are_filtered_alike_and_found_wavelets_are_taken(self, inputs):
        workspace, sent, found = inputs(limit=2.0)
        assert np.array_equal(found.shot.wavelet, low_pass(sent.wavelet, 0.014, 2.0))
        assert np.array_equal(found.shot.data, low_pass(recorded(workspace, 1, sent), 0.014, 2.0))
        wavelets = np.random.default_rng(1).normal(size=(SAMPLES, 2))
        _, _, found = inputs(limit=2.0, sent=wavelets)
        assert np.array_equal(found.shot.wavelet, wavelets[:, 1])

    def test_before_time_zero_nobody_listened(self, inputs):
        workspace, _, found = inputs(wavelet="frequency = 1.3\ndelay = 0.0")
        lead = workspace.described.lead
        assert lead == 83 and found.weight.shape == (SAMPLES + lead, 24)
        assert (found.weight[:lead] == 0).all() and (found.weight[lead:] == 1).all()

    def test_a_spoilt_trace_does_not_count_and_is_zero(self, inputs):
        _, _, found = inputs(spoilt=True)
        assert (found.weight[:, 3] == 0).all() and (np.delete(found.weight, 3, axis=1) == 1).all()
        assert not found.shot.data[:, 3].any() and found.shot.data[:, 4].any()

    def test_what_is_muted_counts_as_much_as_the_mute_leaves(self, inputs):
        _, sent, found = inputs("mute_velocity = 2000.0\nmute_delay = 0.3")
        weight = mute(np.ones((SAMPLES, 24), np.float32), sent, 2000.0, 0.3, 0.0)
        assert np.array_equal(found.weight, weight) and 0 < weight.mean() < 1

    def test_modelled_data_are_read_where_the_first_pass_left_them(self, tmp_path, monkeypatch):
        heard = np.random.default_rng(0).normal(size=(SAMPLES, 24)).astype(np.float32)
        with prepare(job_in(tmp_path, data="dt = 0.014\nlength = 2.4")).running() as begun:
            over = begun.doing(asked.DATA)
            over.keep(1, {"data": heard}, {"shot": 1})
            over.take(1)
            monkeypatch.setattr(asked, "asked_of", lambda workspace: PassRequest({}, 3000.0))
            for workspace in (begun, over):
                found = inputs_asked(workspace, 1)
                assert np.array_equal(found.shot.data, heard) and found.weight is None

    def test_traces_are_weighted_only_where_something_does_not_count(self):
        values = np.array([3.0, 4.0])
        assert asked.weighted(values, None) is values
        assert asked.weighted(values, np.array([0.0, 0.5])).tolist() == [0.0, 2.0]
