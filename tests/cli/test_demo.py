"""The demo images the salt body of its model, inside its budget, and writes down how."""

import json
import sys
from dataclasses import dataclass

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from forebay.cli import demo
from forebay.cli.main import app
from forebay.errors import ForebayError
from forebay.wave.earth.builtin import SALT, make
from forebay.wave.job.checks import inspect
from forebay.wave.job.job import parse

pytest.importorskip("matplotlib")

FILES = {"model.png", "image.png", "gather.png", "snapshots.png", "report.html", "trace.json", "job.toml"}
FILES |= {"image.npy", "stack.npy", "illumination.npy"}
SMALL = (
    demo.JOB.replace("[310, 676]", "[124, 270]")
    .replace("frequency = 7.0", "frequency = 2.8")
    .replace("shots = 8", "shots = 3")
    .replace("depth = 20.0", "depth = 50.0")
    .replace("length = 5.5", "length = 3.0")
    .replace("dt = 0.004", "dt = 0.01")
    .replace("receiver_spacing = 40.0", "receiver_spacing = 100.0")
    .replace('host = "32MB"', 'host = "8MB"')
)


@pytest.fixture(scope="module", params=[pytest.param("small", marks=pytest.mark.slow)])
def imaged(request, tmp_path_factory):
    """Run the demo at less than half its resolution with three shots; give its survey, folder and what it printed."""
    folder, console = tmp_path_factory.mktemp("demo"), Console(width=200)
    with console.capture() as printed:
        survey = demo.run(SMALL, folder, console, (0.6, 1.2))
    return survey, folder, printed.get()


def roof_and_image_of(survey):
    """Give, for columns over the salt's roof, the row of its top and the row where the image has it.

    The image is that of the adjoint: where the velocity steps up, it falls through zero.
    """
    salt = survey.true == SALT
    columns = np.arange(int(0.34 * salt.shape[1]), int(0.6 * salt.shape[1]))
    top = salt[:, columns].argmax(axis=0)
    image = survey.image[: salt.shape[0] // 2, columns]
    peak = image.argmax(axis=0)
    falls = (image < 0) & (np.arange(len(image))[:, None] > peak)
    return top, falls.argmax(axis=0)


def likeness(image, velocity, wavelength, box):
    """Correlate an image with the steps of the velocity, limited to a band in depth and turned by 90 degrees."""
    steps = np.diff(np.log(velocity), axis=0, prepend=np.log(velocity[:1]))
    number = np.fft.rfftfreq(len(steps)) * wavelength
    band = 1j * number**2 * np.exp(1 - number**2)
    wanted = np.fft.irfft(np.fft.rfft(steps, axis=0) * band[:, None], len(steps), axis=0)
    return np.corrcoef(wanted[box].ravel(), image[box].ravel())[0, 1]


@dataclass(frozen=True)
class Seen:
    """What a demo's folder holds for the eye."""

    image: np.ndarray
    true: np.ndarray


def seen_in(folder, shape):
    return Seen(np.load(folder / "image.npy"), make("salt", shape=shape).values)


def test_the_top_of_the_salt_is_imaged_where_it_is(imaged):
    _, folder, _ = imaged
    top, seen = roof_and_image_of(seen_in(folder, (124, 270)))
    assert np.median(np.abs(seen - top)) <= 3  # of the 16 of a wavelength


def test_sediments_are_imaged_on_both_sides(imaged):
    _, folder, _ = imaged
    seen = seen_in(folder, (124, 270))
    for box in ((slice(28, 60), slice(48, 72)), (slice(28, 60), slice(200, 232))):
        assert likeness(seen.image, seen.true, 12.5, box) > 0.5


def test_everything_is_written_and_nothing_else_is_left(imaged):
    _, folder, printed = imaged
    assert {path.name for path in folder.iterdir()} == FILES
    assert str(folder / "report.html") in printed.replace("\n", "")
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    assert {"forward", "backward", "store", "fetch"} <= {event["name"] for event in events}


def test_the_report_shows_pictures_and_plan_without_the_network(imaged):
    survey, folder, _ = imaged
    text = (folder / "report.html").read_text()
    assert text.count('<img alt="') == 4 and 'src="http' not in text
    steps = str(survey.summaries[0]["steps"])
    for part in ("Memory over time", "What happened when", "Where the time of each shot went", steps):
        assert part in text


def test_memory_and_disk_are_both_used_and_kept(imaged):
    survey, *_ = imaged
    assert all(0 < one["peak"]["host"] <= 8e6 and 0 < one["peak"]["disk"] <= 400e6 for one in survey.summaries)


def test_its_own_job_can_be_run(tmp_path):
    told = inspect(parse(demo.JOB, tmp_path))
    assert "310 x 676 points" in told and "shots     8" in told


def test_the_command_runs_it(tmp_path, monkeypatch):
    tiny = (
        SMALL.replace("[124, 270]", "[78, 169]")
        .replace("length = 3.0", "length = 2.0")
        .replace("frequency = 2.8", "frequency = 1.7")
    )
    monkeypatch.setattr(demo, "JOB", tiny.replace("shots = 3", "shots = 1").replace("depth = 50.0", "depth = 80.0"))
    monkeypatch.setattr(demo, "MOMENTS", (0.8,))
    (tmp_path / "image.npy").write_bytes(b"of an earlier run")
    result = CliRunner().invoke(app, ["demo", "--output", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert {path.name for path in tmp_path.iterdir()} == FILES
    assert np.load(tmp_path / "image.npy").shape == (78, 169)


@pytest.mark.parametrize("library", ["matplotlib"])
def test_without_what_draws_it_does_not_begin(tmp_path, monkeypatch, library):
    monkeypatch.setitem(sys.modules, library, None)
    result = CliRunner().invoke(app, ["demo", "--output", str(tmp_path / "demo")])
    assert isinstance(result.exception, ForebayError)
    assert str(result.exception) == f"the demo needs {library}: install Forebay with its extra plots"
    assert not (tmp_path / "demo").exists()


@pytest.mark.slow
def test_the_real_one_images_roof_flanks_and_sediments(tmp_path):
    demo.run(demo.JOB, tmp_path, Console(quiet=True), demo.MOMENTS)
    seen = seen_in(tmp_path, (310, 676))
    top, found = roof_and_image_of(seen)
    assert np.median(np.abs(found - top)) <= 3
    left, right, deep = (
        (slice(70, 150), slice(100, 180)),
        (slice(70, 230), slice(500, 600)),
        (slice(245, 300), slice(80, 600)),
    )
    for box in (left, right, deep):
        assert likeness(seen.image, seen.true, 12.5, box) > 0.7
    salt = seen.true == SALT
    for rows in (range(100, 135), range(180, 225)):  # under the overhang, and above the foot
        for side in (0, -1):
            away = []
            for row in rows:
                edge = np.flatnonzero(salt[row])[side]
                away.append(np.abs(np.diff(seen.image[row, edge - 30 : edge + 30])).argmax() - 29)
            assert np.median(np.abs(away)) <= 4
