"""Jobs that say how far their images may be from exact ones: a pilot finds the bound, once, whatever happens."""

import io
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console
from tests.wave.job.jobs import job_text, same_images

from forebay.drawing.page import Picture
from forebay.errors import WaveError
from forebay.wave import picture_error
from forebay.wave.job import changed, parse, pilot, run, run_job
from forebay.wave.job.checks import inspect
from forebay.wave.job.results import draw_difference, write_report
from forebay.wave.job.verify import verify
from forebay.wave.job.workspace.pilot_files import pilot_of
from forebay.wave.pilot import TriedBound

SHOTS = 3
TABLES = {"physics": "absorb = 10", "imaging": "every = 2"}
MEMORY = 'host = "1MB"\nschedule = "storeall"\nimage_error = "1%"'
"""Less than half of a shot's records, all of which are to be kept: no plan does without a codec."""
TEXT = job_text(shots=SHOTS, memory=MEMORY, **TABLES)


@pytest.fixture(scope="module")
def piloted(tmp_path_factory):
    """Run the job once, and return it with what was said."""
    console = Console(file=io.StringIO(), width=200)
    return run_job(parse(TEXT, tmp_path_factory.mktemp("piloted")), console), console.file.getvalue()


@pytest.fixture
def job(piloted, tmp_path):
    """Copy what it has written."""
    shutil.copytree(piloted[0].workspace.root, tmp_path / "out")
    return parse(TEXT, tmp_path)


def forbidden(*args):
    raise AssertionError("there is no need to")


@pytest.mark.slow
def test_images_are_as_close_as_the_job_says(piloted, tmp_path):
    survey, _ = piloted
    exact = run_job(parse(job_text(shots=SHOTS, memory='host = "9MB"', **TABLES), tmp_path))
    plan = survey.workspace.plan()
    assert plan.keep == "records" and plan.codec == survey.pilot.codec and exact.workspace.plan().codec is None
    assert all(summary["ratio"] > 3 for summary in survey.summaries)
    assert 0 < picture_error(survey.image, exact.image) <= survey.check.stack
    assert set(survey.check.errors) == set(survey.pilot.shots) == {1, 2}
    for shot, error in survey.check.errors.items():
        pictures = [pilot.picture_of(one.workspace.part(shot), one.workspace) for one in (survey, exact)]
        assert error == pytest.approx(picture_error(*pictures), rel=1e-5) and 0.002 < error <= 0.01


def test_the_pilot_is_told(piloted):
    survey, said = piloted
    lines = [line for line in said.splitlines() if line.startswith("pilot:")]
    assert lines[0] == "pilot: shot 1, and then shot 2, with an exact history, to find a bound for all"
    assert [line.split(" is off")[0] for line in lines[1:3]] == [
        "pilot: the image of shot 1",
        "pilot: the image of shot 2",
    ]
    assert lines[3] == f"pilot: {survey.pilot.codec} keeps the image for all shots"
    assert "pilot     shot 1, and then shot 2 migrated with an exact history" in inspect(survey.workspace.described.job)


def test_a_job_that_goes_on_takes_the_same_bound_without_another_pilot(piloted, job, monkeypatch):
    monkeypatch.setattr(run, "run_pilot", forbidden)
    for shot in (0, 2):
        (job.output.directory / "shots" / f"{shot:05d}.npz").unlink()
    again = run_job(job)
    assert again.resumed == 1 and same_images(again, piloted[0]) and again.check == piloted[0].check


@pytest.mark.slow
def test_a_job_that_ended_in_its_pilot_gives_the_same_bits(piloted, tmp_path, monkeypatch):
    real, calls = pilot.try_bounds, []

    def ended(*args, **options):
        calls.append(args)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*args, **options)

    monkeypatch.setattr(pilot, "try_bounds", ended)
    with pytest.raises(KeyboardInterrupt):
        run_job(parse(TEXT, tmp_path))
    assert not list((tmp_path / "out").glob("pilot*")) and not list((tmp_path / "out" / "shots").iterdir())
    assert same_images(run_job(parse(TEXT, tmp_path)), piloted[0]) and len(calls) == 4


@pytest.mark.parametrize("name", ["pilot.json", pytest.param("pilot.npz", marks=pytest.mark.slow)])
def test_a_damaged_pilot_is_told_and_run_again(piloted, job, name):
    path = job.output.directory / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    assert any(name in sentence and "is damaged" in sentence for sentence in verify(job)[0])
    again = run_job(job, Console(file=io.StringIO()), repair=True)
    assert again.damage[0].endswith("the pilot is run again") and name in again.damage[0]
    assert pilot_of(again.workspace) == piloted[0].pilot and again.check == piloted[0].check
    assert not verify(job)[0] and again.resumed == SHOTS


@pytest.mark.parametrize("error", ["2%", 0.011, None])
def test_another_error_makes_another_job(job, error, tmp_path):
    memory = MEMORY.replace('"1%"', repr(error)) if error else 'schedule = "storeall"'
    with pytest.raises(
        WaveError, match=r"holds a job with other (memory\.host, )?memory\.image_error: choose another output"
    ):
        run_job(parse(job_text(shots=SHOTS, memory=memory.replace("'", '"'), **TABLES), tmp_path))


def test_one_percent_is_a_hundredth(job, tmp_path, monkeypatch):
    monkeypatch.setattr(run, "run_pilot", forbidden)
    same = parse(job_text(shots=SHOTS, memory=MEMORY.replace('"1%"', "0.01"), **TABLES), tmp_path)
    assert same == job and run_job(same).resumed == SHOTS


@pytest.mark.parametrize(
    ("memory", "complaint"),
    [
        ('codec = "bounded:1e-4"\nimage_error = 0.01', r"memory: expected either image_error, .*, or codec"),
        ('schedule = "revolve:5"\nimage_error = 0.01', r"memory: expected schedule = 'auto' or 'storeall' beside"),
        (
            'image_error = "a little"',
            r"memory\.image_error: expected a share between 1e-7 and 1, such as 0\.01 or '1%'",
        ),
        ("image_error = 1", r"memory\.image_error: expected a share between 1e-7 and 1, .*, not 1"),
        ("image_error = true", r"memory\.image_error: expected a share between 1e-7 and 1, .*, not True"),
    ],
)
def test_what_does_not_go_together_is_refused(memory, complaint):
    with pytest.raises(WaveError, match=complaint):
        parse(job_text(memory=memory))


@pytest.mark.parametrize("table", ["imaging", "run", None])
def test_who_says_it_elsewhere_is_told_where(table):
    text = f"[{table}]\nimage_error = 0.01\n" if table else ""
    with pytest.raises(WaveError, match=r"image_error: no such key; did you mean memory\.image_error\?"):
        parse(("" if table else "image_error = 0.01\n") + job_text(**({"run": None} if table == "run" else {})) + text)


def law(sensitive, monkeypatch, workspace):
    """Have pictures of shots err by so many times the bound, and return the bounds that each was looked at with."""
    looked, real = [], pilot.shot_of

    def shot_of(workspace, number):
        looked.append((number, []))
        return real(workspace, number)

    def try_bounds(shot, model, bounds, picture, **options):
        number, seen = looked[-1]
        seen += bounds
        image = np.ones([side.stop - side.start for side in workspace.boxes[number]], np.float32)
        image *= number in sensitive
        errors = [sensitive.get(number, lambda bound: 0.0)(bound) for bound in bounds]
        rows = [TriedBound(bound, error, 5.0) for bound, error in zip(bounds, errors, strict=True)]
        return SimpleNamespace(image=image, illumination=image), rows

    monkeypatch.setattr(pilot, "shot_of", shot_of)
    monkeypatch.setattr(pilot, "try_bounds", try_bounds)
    return looked


@pytest.mark.parametrize(
    ("sensitive", "codec", "shots"),
    [
        ({0: 1, 1: 100, 2: 100}, "bounded:7e-05", [1, 2]),
        ({0: 1, 1: 100, 2: 140}, "bounded:7e-05", [1, 2]),  # within what is allowed, if not within its share
        ({0: 1, 1: 100, 2: 200}, "bounded:3.5e-05", [1, 2]),  # tightened, between two that were looked at
        ({0: 1, 1: 100, 2: 1000}, "bounded:7e-06", [1, 2, 2]),  # and looked at once more
        ({0: 1, 1: 100}, "bounded:7e-05", [1, 2, 0]),  # a shot without an image tells nothing
        ({2: 100}, "bounded:7e-05", [1, 0, 2]),
        ({0: 1, 1: 1e9, 2: 1}, None, [1]),
    ],
)
def test_the_second_shot_has_its_say(piloted, monkeypatch, sensitive, codec, shots):
    workspace = piloted[0].workspace
    looked = law(
        {shot: (lambda bound, times=times: bound * times) for shot, times in sensitive.items()}, monkeypatch, workspace
    )
    searched = pilot._Pilot(workspace, None)
    assert searched.search() == codec
    assert [number for number, _ in looked] == shots
    assert {entry.shot for entry in searched.tried} <= set(sensitive)


def test_a_survey_without_images_has_no_bound(piloted, monkeypatch):
    law({}, monkeypatch, piloted[0].workspace)
    with pytest.raises(WaveError, match=r"memory\.image_error: no shot has an image to find a bound by"):
        pilot._Pilot(piloted[0].workspace, None).search()


def test_a_law_that_never_holds_ends_in_exact_histories(piloted, monkeypatch):
    looked = law({1: lambda bound: bound, 2: lambda bound: 0.5}, monkeypatch, piloted[0].workspace)
    assert pilot._Pilot(piloted[0].workspace, None).search() is None
    assert len(looked) <= 1 + pilot.MOST_CHECKS


def test_images_that_are_too_far_are_told(piloted, job, monkeypatch):
    monkeypatch.setattr(run, "check_images", lambda *args: pilot.ImageCheck({1: 0.02, 2: 0.009}, 0.05))
    with pytest.warns(
        match=r"the image of shot 1 is 2\.00% from the exact one, more than memory\.image_error allows"
    ) as told:
        run_job(job)
    assert len(told) == 1


@pytest.mark.slow
def test_the_report_shows_what_the_codec_changes(piloted, tmp_path):
    survey = piloted[0]
    shown = draw_difference(survey, tmp_path / "difference.png")
    worst = max(survey.check.errors, key=survey.check.errors.get)
    assert shown.startswith(f"Shot {worst} alone") and f"off by {survey.check.errors[worst]:.2%}" in shown
    write_report(survey, tmp_path / "report.html", [Picture(tmp_path / "difference.png", shown)], "title", "lead")
    page = (tmp_path / "report.html").read_text()
    assert "How the bound was found" in page and page.count(survey.pilot.codec) >= 2 and shown in page
    for entry in survey.pilot.tried:
        assert f"{entry.error:.2%}" in page


@pytest.mark.slow
def test_a_shot_that_keeps_its_progress_takes_the_bound_too(piloted, tmp_path):
    kept = run_job(parse(TEXT.replace("[memory]", "[memory]\ncheckpoint = true"), tmp_path))
    assert kept.pilot == piloted[0].pilot and all(error <= 0.01 for error in kept.check.errors.values())


@pytest.mark.slow
def test_workers_take_the_bound_that_one_of_them_found(piloted, tmp_path):
    there = run_job(changed(parse(TEXT, tmp_path), workers=2))
    assert same_images(there, piloted[0]) and there.pilot == piloted[0].pilot
