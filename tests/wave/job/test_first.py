"""The data of a new job's first shots are modelled from memory, while its inputs are written."""

import gc
import threading
import weakref
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from tests.wave.job.jobs import TEXT, job_text, same_images

from forebay.cuda.available import gpu_count
from forebay.errors import DiskFullError
from forebay.tasks import Workers
from forebay.wave.job import parse, prepare, run_job, work
from forebay.wave.job.checks import checked_inputs
from forebay.wave.job.shots import first, here
from forebay.wave.job.shots.first import is_modelled_first

pytestmark = pytest.mark.filterwarnings("ignore::forebay.wave.WaveWarning")
LONG = 60.0
"""Seconds after which what never comes is not waited for any more."""
VOLUME = job_text(
    model='name = "salt"\nshape = [24, 40, 40]',
    geometry="shots = [1, 2]\nsource_depth = 200.0\nreceiver_depth = 200.0\nreceiver_spacing = 800.0",
    data="dt = 0.02\nlength = 8.0",
    wavelet="frequency = 0.35",
    memory='host = "40MB"',
)


@pytest.fixture
def begins(monkeypatch):
    """Have a CPU stand for a device that models the first shot."""
    monkeypatch.setattr(first, "is_modelled_first", lambda described: True)


def test_the_first_shot_is_modelled_while_inputs_are_written(finished, begins, tmp_path, monkeypatch):
    modelled, threads, real_data, real_whole = threading.Event(), [], work._modelled, prepare.whole

    def data_of(workspace, number, *about):
        threads.append((number, threading.current_thread().name))
        data = real_data(workspace, number, *about)
        modelled.set()
        return data

    def whole(*about, **more):
        assert modelled.wait(LONG)  # nothing is written yet
        return real_whole(*about, **more)

    monkeypatch.setattr(work, "_modelled", data_of)
    monkeypatch.setattr(prepare, "whole", whole)
    survey = run_job(parse(TEXT, tmp_path))
    assert same_images(survey, finished) and not survey.workspace.ahead
    assert sorted(number for number, _ in threads) == [0, 1, 2, 3]
    assert sorted(number for number, thread in threads if thread.startswith("forebay-first")) == [0, 1]


def test_steps_that_a_plan_is_made_by_are_timed_when_nothing_is_modelled_beside_them(begins, tmp_path, monkeypatch):
    happened, modelled, migrated, begun = [], work._modelled, work.migrate, threading.Event()

    def model(workspace, number, *about):
        begun.wait(0.5 if number else 0)
        data = modelled(workspace, number, *about)
        happened.append(f"modelled {number}")
        return data

    def migrating(shot, *about, **options):
        happened.append("migrated")
        begun.set()
        return migrated(shot, *about, **options)

    monkeypatch.setattr(work, "_modelled", model)
    monkeypatch.setattr(work, "migrate", migrating)
    assert not run_job(parse(TEXT, tmp_path)).failed
    assert sorted(happened[:2]) == ["modelled 0", "modelled 1"] and happened[2] == "migrated"


def test_what_is_modelled_from_memory_has_the_bits_of_what_is_read(finished, begins, tmp_path):
    job = parse(TEXT, tmp_path)
    with closing(Workers(2, "threads")) as threads:
        workspace = prepare.prepare(job, threads=threads)
        inputs = workspace.ahead[0].result()
        workspace.settled()
    read = work.inputs_of(finished.workspace, 0, models=True)
    assert np.array_equal(inputs.data, read.data) and inputs.data.dtype == read.data.dtype
    assert {medium: fields.keys() for medium, fields in inputs.media.items()} == {
        medium: fields.keys() for medium, fields in read.media.items()
    }
    for medium, fields in read.media.items():
        for name, values in fields.items():
            made = inputs.media[medium][name]
            assert np.array_equal(made, values) and made.dtype == values.dtype


def test_the_whole_model_is_let_go_when_the_first_shots_are_modelled(begins, tmp_path, monkeypatch):
    kept = []

    def checked(*about):
        inputs = checked_inputs(*about)
        kept.append(weakref.ref(inputs))
        return inputs

    monkeypatch.setattr(prepare, "checked_inputs", checked)
    with closing(Workers(2, "threads")) as threads:
        workspace = prepare.prepare(parse(TEXT, tmp_path), threads=threads)
        for shot in range(first.FIRST):
            workspace.ahead[shot].result()
        workspace.settled()
        gc.collect()
        assert kept[0]() is None


@pytest.mark.parametrize(
    ("error", "failed"), [(MemoryError("full"), {}), (OSError("out of order"), {0: "OSError: out of order"})]
)
def test_a_first_shot_that_cannot_be_modelled_is_told_as_any_other(
    finished, begins, tmp_path, monkeypatch, error, failed
):
    real, left = work._modelled, [error]

    def model(workspace, number, *about):
        if number == 0 and left:
            raise left.pop()
        return real(workspace, number, *about)

    monkeypatch.setattr(work, "_modelled", model)
    survey = run_job(parse(TEXT, tmp_path))
    assert survey.failed == failed and not left
    assert same_images(run_job(parse(TEXT, tmp_path)), finished)


def test_a_disk_that_does_not_take_inputs_is_told_when_the_first_shot_is_modelled(begins, tmp_path, monkeypatch):
    def replaced(*about, **more):
        raise DiskFullError("no room left")

    monkeypatch.setattr(prepare, "_replaced_inputs", replaced)
    with pytest.raises(DiskFullError, match="no room left"):
        run_job(parse(TEXT, tmp_path))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("forebay-first")]


@pytest.mark.parametrize(
    ("changes", "begun"),
    [
        ({}, True),
        ({"device": "cpu"}, False),
        ({"file": "data.npy"}, False),
        ({"image_error": 0.01}, False),
        ({"checkpoint": True}, False),
        ({"ndim": 2}, False),
    ],
)
def test_it_is_modelled_ahead_where_a_gpu_has_nothing_else_to_do(tmp_path, changes, begun):
    asked = parse(TEXT if "ndim" in changes else VOLUME, tmp_path)
    memory = {key: value for key, value in changes.items() if key in ("image_error", "checkpoint")}
    data = asked.data.model_copy(update={"file": changes.get("file")})
    job = asked.model_copy(update={"data": data, "memory": asked.memory.model_copy(update=memory)})
    described = replace(prepare.prepare(asked).described, job=job, device=changes.get("device", "gpu"))
    assert is_modelled_first(described) == begun


def test_it_is_not_modelled_where_shots_are_there_already(finished, job, begins, monkeypatch):
    monkeypatch.setattr(work, "_modelled", lambda *about: pytest.fail("it was modelled"))
    (job.output.directory / "job.json").unlink()
    assert same_images(run_job(job), finished)


def test_a_job_that_goes_on_begins_no_first_shot(begins, job, finished, monkeypatch):
    monkeypatch.setattr(prepare, "begin_first", lambda *about: pytest.fail("it was begun"))
    (job.output.directory / "shots" / "00000.npz").unlink()
    assert same_images(run_job(job), finished)


@pytest.mark.gpu
@pytest.mark.skipif(gpu_count() == 0, reason="no GPU")
def test_a_gpu_that_models_the_first_shot_meanwhile_gives_the_same_bits(tmp_path, monkeypatch):
    text = VOLUME.replace('host = "40MB"', 'device = "200MB"\nhost = "40MB"').replace('"cpu"', '"gpu"')
    threads, real = {}, work._modelled

    def model(workspace, number, *about):
        threads[number] = threading.current_thread().name
        return real(workspace, number, *about)

    monkeypatch.setattr(work, "_modelled", model)
    ahead = run_job(parse(text, tmp_path))
    assert not ahead.failed and all(threads[shot].startswith("forebay-first") for shot in (0, 1))
    monkeypatch.setattr(first, "is_modelled_first", lambda described: False)
    monkeypatch.setattr(here, "room_for_two", lambda workspace: False)
    assert same_images(run_job(parse(text.replace('"out"', '"alone"'), tmp_path)), ahead)
    assert threads[0] == "MainThread"
