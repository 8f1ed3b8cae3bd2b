"""Images of shots are summed while others are computed, and the sum has the bits that it has afterwards."""

import threading
from types import SimpleNamespace

import pytest
from tests.wave.job.jobs import SHOTS, TEXT, same_images

from forebay.errors import CorruptionError
from forebay.units import Budget
from forebay.wave.job import parse, run, run_job, work
from forebay.wave.job.shots import summing
from forebay.wave.job.shots.here import held_beside
from forebay.wave.job.shots.summing import RunningSum, room_for_sums
from forebay.wave.job.stack import tree_sum
from forebay.wave.job.workspace import Workspace

pytestmark = pytest.mark.filterwarnings("ignore::forebay.wave.WaveWarning")
LONG = 60.0
"""Seconds after which what never comes is not waited for any more."""


@pytest.fixture
def readings(monkeypatch):
    """Tell which thread took which image, and have an event for each that is summed meanwhile."""
    read, real = {shot: threading.Event() for shot in range(SHOTS)}, RunningSum._image
    by = list[tuple[str, int]]()

    def image_of(self, shot):
        image = real(self, shot)
        thread = threading.current_thread().name.rpartition("-")[0]
        by.append((thread, shot))
        if thread == "forebay-sum":
            read[shot].set()
        return image

    monkeypatch.setattr(RunningSum, "_image", image_of)
    return read, by


def threads_left():
    return [thread for thread in threading.enumerate() if thread.name.startswith(("forebay-sum", "forebay-stack"))]


def computing(monkeypatch, before):
    """Have something called before each shot is computed."""
    real = work._run

    def computed(workspace, number, *about):
        before(number)
        return real(workspace, number, *about)

    monkeypatch.setattr(work, "_run", computed)


def test_images_are_summed_while_later_shots_are_computed(finished, readings, tmp_path, monkeypatch):
    read, by = readings
    computing(monkeypatch, lambda shot: shot < 2 or read[shot - 2].wait(LONG))
    survey = run_job(parse(TEXT, tmp_path))
    assert not survey.failed and same_images(survey, finished) and not threads_left()
    assert sorted(shot for _, shot in by) == list(range(SHOTS))  # none of them twice
    assert {shot for thread, shot in by if thread == "forebay-sum"} >= set(range(SHOTS - 2))


def test_an_image_that_was_written_just_now_is_not_read_for_its_sum(finished, readings, tmp_path, monkeypatch):
    read, _ = readings
    real, from_disk = Workspace.part, list[int]()
    monkeypatch.setattr(Workspace, "part", lambda self, shot: from_disk.append(shot) or real(self, shot))
    computing(monkeypatch, lambda shot: shot < 2 or read[shot - 2].wait(LONG))
    survey = run_job(parse(TEXT, tmp_path))
    assert same_images(survey, finished)
    assert set(from_disk) <= {SHOTS - 1}  # for which nobody has waited


def test_one_image_waits_at_most_for_its_sum(finished, job):
    workspace = Workspace(job.output.directory, damaged={0})  # so that none is added
    images = [workspace.part(shot) for shot in range(SHOTS)]
    with RunningSum(workspace) as sums:
        for shot in range(1, SHOTS):
            sums.advance(shot, images[shot])
            assert list(sums._near) == [1] and sums._near[1] is images[1]
        workspace.damaged.discard(0)
        total = sums.total(set(range(SHOTS)), {})
        assert not sums._near
    assert (total.spread(finished.stack.image.shape).image == finished.stack.image).all()


def test_a_sum_goes_on_from_what_an_earlier_run_has_left(finished, job, readings, monkeypatch):
    read, by = readings
    Workspace(job.output.directory).path(SHOTS - 1).unlink()
    computing(monkeypatch, lambda shot: read[SHOTS - 2].wait(LONG))
    survey = run_job(job)
    assert survey.resumed == SHOTS - 1 and same_images(survey, finished)
    # Each was looked at for damage first, and then read once for the sum.
    assert [shot for thread, shot in by if thread == "forebay-sum"][: SHOTS - 1] == list(range(SHOTS - 1))


def test_shots_that_stand_out_at_the_end_are_left_out_of_what_was_summed(finished, readings, tmp_path, monkeypatch):
    read, _ = readings
    computing(monkeypatch, lambda shot: shot < 2 or read[shot - 2].wait(LONG))
    monkeypatch.setattr(run, "_aside", lambda summaries: {0: "it stands out"})
    survey = run_job(parse(TEXT, tmp_path))
    others = tree_sum(survey.workspace.part(shot) if shot else None for shot in range(SHOTS))
    assert (survey.stack.image == others.spread(survey.stack.image.shape).image).all()
    assert not same_images(survey, finished)


@pytest.mark.parametrize("again", [False, True])
def test_an_image_that_cannot_be_read_meanwhile_is_read_again_and_told(finished, tmp_path, monkeypatch, again):
    real, refused = RunningSum._image, threading.Event()

    def image_of(self, shot):
        if shot == 1 and (again or not refused.is_set()):
            refused.set()
            raise CorruptionError("00001.npz is damaged: its checksum does not match")
        return real(self, shot)

    monkeypatch.setattr(RunningSum, "_image", image_of)
    computing(monkeypatch, lambda shot: shot < 3 or refused.wait(LONG))
    survey = run_job(parse(TEXT, tmp_path))
    assert survey.failed == ({1: "00001.npz is damaged: its checksum does not match"} if again else {})
    assert same_images(survey, finished) != again and not threads_left()


def test_what_ends_a_run_ends_its_sum(readings, tmp_path, monkeypatch):
    def interrupt(shot):
        if shot == 2:
            assert readings[0][0].wait(LONG)
            raise KeyboardInterrupt

    computing(monkeypatch, interrupt)
    with pytest.raises(KeyboardInterrupt):
        run_job(parse(TEXT, tmp_path))
    assert not threads_left() and not list((tmp_path / "out").glob("run-*"))


def test_images_are_summed_at_the_end_where_they_have_no_room_beside_shots(finished, readings, tmp_path, monkeypatch):
    monkeypatch.setattr(summing, "room_for_sums", lambda workspace: False)
    assert same_images(run_job(parse(TEXT, tmp_path)), finished)
    assert {thread for thread, _ in readings[1]} == {"forebay-stack"}


def test_a_shot_that_is_damaged_is_not_summed_before_it_is_computed_again(finished, job, readings):
    workspace = Workspace(job.output.directory, damaged={1})
    with RunningSum(workspace) as sums:
        sums.advance()
        assert readings[0][0].wait(LONG)
        workspace.damaged.discard(1)
        sums.advance()
        assert readings[0][SHOTS - 1].wait(LONG)
        total = sums.total(set(range(SHOTS)), {})
    assert (total.spread(finished.stack.image.shape).image == finished.stack.image).all()
    assert [shot for _, shot in readings[1]] == list(range(SHOTS))


@pytest.mark.parametrize(("spare", "fits"), [(0, True), (-1, False)])
def test_sums_beside_shots_have_room_in_the_budget(job, monkeypatch, spare, fits):
    workspace = Workspace(job.output.directory)
    sums = 4 * 2 * 48 * 96 * (3 + 3)  # two arrays, of three heights, of two more that are added, and of one that waits
    budget = Budget(host=1000 + held_beside(workspace) + sums + spare)
    plan = SimpleNamespace(codec=None, budget=budget, peak_bytes={"host": 1000})
    monkeypatch.setattr(Workspace, "plan", lambda self: plan)
    assert room_for_sums(workspace) == fits
    monkeypatch.setattr(Workspace, "plan", lambda self: None)
    assert not room_for_sums(workspace)
