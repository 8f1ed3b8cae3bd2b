"""The files of a job: whose they are, how often they are looked at, and what workers and runs leave of them."""

import os
import warnings
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from forebay.errors import CorruptionError, ForebayError, WaveError
from forebay.wave import WaveWarning
from forebay.wave.files.seal import sealed_text
from forebay.wave.job.shots import attempt
from forebay.wave.job.workspace import Workspace
from forebay.wave.job.workspace import workspace as workspaces
from forebay.wave.job.workspace.input_files import check_unchanged, content_of, files_of, marks_of
from forebay.wave.job.workspace.shot_progress import forget, hand_on, keep_data, kept_data, progress_of, rescue

RUN = "0123456789abcdef"


@pytest.fixture
def space(job):
    return Workspace(job.output.directory)


class TestOfItsInputs:
    """A process looks at the bytes of an input as often as it must."""

    @pytest.fixture
    def looked(self, monkeypatch):
        looked, real = [], workspaces.checksum_of_file
        monkeypatch.setattr(workspaces, "_SEEN", {})
        monkeypatch.setattr(workspaces, "checksum_of_file", lambda path: looked.append(path.name) or real(path))
        return looked

    @pytest.mark.parametrize(("age", "times"), [(1.9, 2), (2.1, 1), (-1.9, 2), (-2.1, 1)])
    def test_it_is_looked_at_again_while_its_date_is_too_young(self, space, looked, monkeypatch, age, times):
        changed = (space.root / "wavelet.npy").stat().st_ctime
        monkeypatch.setattr(workspaces, "time", SimpleNamespace(time=lambda: changed + age))
        for _ in range(2):
            assert replace(space, run=RUN).wavelet.shape == (126,)
        assert looked == ["wavelet.npy"] * times

    def test_without_a_run_it_is_looked_at_each_time(self, space, looked, monkeypatch):
        monkeypatch.setattr(workspaces, "SETTLED", -1.0)
        for _ in range(2):
            space.input("wavelet.npy")
        assert len(looked) == 2 and workspaces._SEEN == {}

    def test_what_another_run_has_seen_is_forgotten(self, space, looked, monkeypatch):
        monkeypatch.setattr(workspaces, "SETTLED", -1.0)
        for run in (RUN, "f" * 16):
            replace(space, run=run).input("wavelet.npy")
        assert {run for run, _ in workspaces._SEEN} == {"f" * 16}

    def test_one_that_is_gone_or_no_input_is_damaged(self, space):
        with pytest.raises(CorruptionError, match=r"plan\.json is damaged: its checksum does not match"):
            space.input("plan.json")
        (space.root / "wavelet.npy").unlink()
        with pytest.raises(CorruptionError, match=r"wavelet\.npy is damaged: it cannot be read \(No such file"):
            space.input("wavelet.npy")

    def test_parts_of_fields_are_arrays_of_their_own(self, space):
        box = (slice(3, 9), slice(0, 5))
        whole, part = (space.fields("model", each)["velocity"] for each in (None, box))
        assert np.array_equal(part, whole[box]) and part.flags["C_CONTIGUOUS"] and part.flags["WRITEABLE"]
        assert space.fields("true").keys() == {"velocity"} and space.fields("other") == {}


class TestOfItsShots:
    """What a shot's file is called, and what is taken for one."""

    def test_names_are_those_of_shots_of_this_job(self, space):
        assert space.path(7).name == "00007.npz" and space.path(123456).name == "123456.npz"
        for name in ("4.npz", "00004.npz", "x0001.npz", "00001.npz.old", "-0001.npz"):
            (space.folder / name).write_text("")
        assert space.finished() == {0, 1, 2, 3}
        assert [path.name for path in space.shot_files()] == [f"0000{shot}.npz" for shot in range(5)] + ["4.npz"]
        space.damaged.add(2)
        assert space.finished() == {0, 1, 3} and replace(space, damaged=set()) == space

    def test_a_part_has_the_shape_and_type_of_its_box(self, space):
        with space.running() as begun:
            sound = begun.part(1).arrays
            for change, why in (
                ({"image": sound["image"].astype(np.float64)}, "it has float64 of shape"),
                ({"illumination": sound["illumination"][1:]}, r"of shape \(47, 96\), not float32 of shape \(48, 96\)"),
                ({"image": np.full_like(sound["image"], np.inf)}, "it has NaN or infinity"),
            ):
                begun.keep(1, sound | change, space.told(1))
                begun.take(1)
                with pytest.raises(CorruptionError, match=why):
                    begun.part(1)
            begun.keep(1, sound, space.told(2))
            begun.take(1)
            with pytest.raises(CorruptionError, match="its summary is not that of shot 1"):
                begun.summary(1)

    def test_a_folder_in_the_place_of_a_shot_is_replaced(self, space):
        with space.running() as begun:
            kept = begun.part(1).arrays, begun.summary(1)
            begun.path(1).unlink()
            (begun.path(1) / "below").mkdir(parents=True)
            begun.keep(1, *kept)
            begun.take(1)
            assert np.array_equal(begun.part(1).image, kept[0]["image"])

    def test_only_what_this_run_wrote_is_taken(self, space):
        with space.running() as begun, space.running() as other:
            other.keep(1, begun.part(1).arrays, begun.summary(1))
            other._draft_of(1).replace(begun._draft_of(1))
            with pytest.raises(CorruptionError):
                begun.take(1)
        with pytest.raises(WaveError, match=r"this run in .* is over: another one has begun there"):
            begun.fail(1, "late")


class TestOfItsPlan:
    """A plan is taken once, with the timeline of the shot that made it."""

    def test_the_first_one_that_is_taken_stays(self, space):
        plan, (shot, spans) = space.plan(), space.timeline()
        assert shot == 0 and spans
        with space.running() as begun:
            begun.forget_plan()
            begun.forget_plan()  # which is gone
            assert begun.plan() is None and begun.timeline() is not None
            for number in (2, 3):
                begun.freeze(plan, SimpleNamespace(timeline=spans), number)
                begun.keep(number, begun.part(number).arrays, begun.summary(number))
                begun.take(number)
            assert begun.plan() == plan and begun.timeline()[0] == 2
            assert (begun.drafts / "plan.json").exists()
        (space.root / "timeline.json").unlink()
        assert space.timeline() is None

    def test_a_timeline_tells_of_no_tier_that_the_plan_has_not(self, space):
        path = space.root / "timeline.json"
        for lane, is_there in (("compute", True), ("up 1", False), ("down 2", False)):
            content = {"shot": 0, "spans": [[lane, "fetch", 0, 0.0, 1.0]]}
            path.write_text(sealed_text(content, file="timeline", job=space.identity))
            if is_there:
                assert space.timeline()[1][0].what == "fetch"
            else:
                with pytest.raises(CorruptionError, match="tiers that the plan has not"):
                    space.timeline()
        space.forget_plan()  # then as many as any plan may have
        for lane, is_there in (("up 2", True), ("up 3", False)):
            content = {"shot": 0, "spans": [[lane, "fetch", 0, 0.0, 1.0]]}
            path.write_text(sealed_text(content, file="timeline", job=space.identity))
            if is_there:
                assert space.timeline() is not None
            else:
                with pytest.raises(CorruptionError, match="tiers that the plan has not"):
                    space.timeline()


class TestOfDeadRuns:
    """What they left is removed, and the progress of their shots handed on."""

    def test_their_folders_are_removed_and_others_stay(self, space):
        for name in (f"run-{RUN}", "run-0123", f"run-{RUN}0", f"run-{RUN.upper()}"):
            (space.root / name).mkdir()
        space.sweep()
        assert {path.name for path in space.root.glob("run-*")} == {"run-0123", f"run-{RUN}0", f"run-{RUN.upper()}"}

    def test_progress_of_shots_to_do_goes_on(self, tmp_path):
        ours, theirs = "a" * 32, "b" * 32
        names = [f"{ours}-00001", f"{ours}-00002", f"{theirs}-00001", f"{ours}-123456", "notes"]
        for name in names:
            (tmp_path / "progress" / name).mkdir(parents=True)
        hand_on(tmp_path, tmp_path / "run-1", ours, {1, 123456})
        kept = tmp_path / "run-1" / "progress"
        assert {path.name for path in kept.iterdir()} == {names[0], names[3], names[4]}
        assert (tmp_path / "run-1").stat().st_mode & 0o777 == 0o700 and not (tmp_path / "progress").exists()
        rescue(tmp_path / "run-1", tmp_path)
        assert {path.name for path in (tmp_path / "progress").iterdir()} == {names[0], names[3]}
        assert (tmp_path / "progress").stat().st_mode & 0o777 == 0o700
        hand_on(tmp_path, tmp_path / "run-2", ours, set())
        assert not any((tmp_path / "run-2" / "progress").iterdir())
        rescue(tmp_path / "run-2", tmp_path)
        assert not (tmp_path / "progress").exists()
        hand_on(tmp_path, tmp_path / "run-3", ours, set())
        assert (tmp_path / "run-3" / "progress").stat().st_mode & 0o777 == 0o700
        rescue(tmp_path / "run-4", tmp_path)  # which is not there

    def test_newer_progress_takes_the_place_of_older(self, tmp_path):
        name = f"{'a' * 32}-00001"
        for run in ("run-1", "run-2"):
            (tmp_path / run / "progress" / name).mkdir(parents=True)
            (tmp_path / run / "progress" / name / run).write_text("")
            rescue(tmp_path / run, tmp_path)
        assert [path.name for path in (tmp_path / "progress" / name).iterdir()] == ["run-2"]

    def test_data_that_were_modelled_are_kept_with_it(self, tmp_path):
        progress = progress_of(tmp_path, "a" * 32, 12)
        assert progress == tmp_path / "progress" / f"{'a' * 32}-00012" and kept_data(progress) is None
        progress.mkdir(parents=True)
        keep_data(progress, np.arange(3.0))
        assert kept_data(progress).tolist() == [0, 1, 2]
        other = progress_of(tmp_path, "a" * 32, 13)
        progress.with_name(f"{progress.name}.npz").replace(other.with_name(f"{other.name}.npz"))
        assert kept_data(other) is None  # which is another shot's
        forget(other)
        forget(progress)
        assert not any((tmp_path / "progress").iterdir())


class TestOfFiles:
    """What a job reads is known by its content, and by its mark while it runs."""

    def test_a_change_of_size_or_date_is_seen(self, tmp_path):
        file, folder = tmp_path / "a.npy", tmp_path / "a.zarr"
        (folder / "below").mkdir(parents=True)
        for path in (file, folder / "below" / "0", folder / "1"):
            path.write_bytes(b"12345")
            os.utime(path, ns=(1, 7))
        marks = marks_of([file, folder])
        assert marks[str(file)] == [5, 7] and marks[str(folder)][0] == 10
        check_unchanged([file, folder], marks)
        contents = content_of(folder)
        for path in (folder / "below" / "0", file):
            os.utime(path, ns=(1, 8))
            with pytest.raises(WaveError, match="was changed after the job had begun to read it"):
                check_unchanged([file, folder], marks)
            os.utime(path, ns=(1, 7))
        check_unchanged([file, folder], marks)
        assert content_of(folder) == contents
        with pytest.raises(WaveError, match="was changed"):
            check_unchanged([tmp_path / "b.npy"], marks)
        file.unlink()
        with pytest.raises(WaveError, match=r"a\.npy was changed"):
            check_unchanged([file], marks)
        with pytest.raises(WaveError, match=r"a\.npy cannot be read: No such file"):
            content_of(file)

    def test_files_that_jobs_read_are_there(self, job, tmp_path):
        assert files_of(job) == []
        for name, table in (("velocity", "model"), ("true", "model"), ("vs", "physics"), ("density", "physics")):
            own = getattr(job, table).model_copy(update={name: tmp_path / "none.npy"})
            with pytest.raises(WaveError, match=r"there is no .*none\.npy"):
                files_of(job.model_copy(update={table: own}))


class TestOfAnAttempt:
    """A shot is computed alone in its process, and what goes wrong is written down."""

    @pytest.mark.parametrize(("threads", "told"), [(None, []), (1, [1]), (10**6, "all")])
    def test_its_loops_have_as_many_threads_as_there_are_at_most(self, monkeypatch, threads, told):
        import numba

        called = []
        monkeypatch.setattr(numba, "set_num_threads", called.append)
        with attempt.alone(threads), warnings.catch_warnings(record=True) as warned:
            warnings.warn("once for all shots", WaveWarning, stacklevel=1)
        assert called == ([numba.config.NUMBA_NUM_THREADS] if told == "all" else told) and warned == []

    def test_it_is_written_and_told(self, monkeypatch, space):
        wrote = []

        class Kind:
            def compute(self, workspace, number, budget, tell, ahead):
                tell(number, 3)
                assert (workspace.run, number, budget, ahead) == (RUN, 2, "budget", None)
                return SimpleNamespace(write=wrote.append, summary={"shot": 2})

        monkeypatch.setattr(attempt, "kind_of", lambda work: Kind())
        told = []
        for tell in (None, lambda *about: told.append(about)):
            found = attempt.try_shot(space.root, 2, RUN, "budget", tell=tell)
            assert found == {"shot": 2}
        assert told == [(2, 3)] and [each.run for each in wrote] == [RUN] * 2

    def test_what_goes_wrong_is_raised_and_kept_if_it_can_be(self, monkeypatch, space):
        monkeypatch.setattr(attempt, "kind_of", lambda work: None)
        with pytest.raises(AttributeError):  # of a run that is over
            attempt.try_shot(space.root, 2, RUN)
        with space.running() as begun:
            with pytest.raises(AttributeError):
                attempt.try_shot(begun.root, 2, begun.run)
            begun.take_failure(2)
        assert "AttributeError" in (space.folder / "00002.error").read_text()

    @pytest.mark.parametrize(
        ("error", "hopeless"),
        [(WaveError("a"), True), (ForebayError("a"), True), (OSError("a"), False), (ValueError("a"), False)],
    )
    def test_what_was_said_would_be_said_again(self, error, hopeless):
        assert attempt.hopeless(error) is hopeless
