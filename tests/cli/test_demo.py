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
from forebay.units import Budget
from forebay.wave import normalise
from forebay.wave.demo import JOB, Strategy, record, ways_of
from forebay.wave.demo.page import rows_of
from forebay.wave.demo.ways import CODEC, off_by
from forebay.wave.earth.builtin import SALT, make
from forebay.wave.job.checks import checked_inputs, inspect
from forebay.wave.job.job import parse

pytest.importorskip("matplotlib")

FILES = {"model.png", "image.png", "snapshots.png", "report.html", "trace.json", "job.toml", "image.npy"}
SMALL = (
    JOB.replace("[217, 473]", "[124, 270]")
    .replace("frequency = 4.9", "frequency = 2.8")
    .replace("shots = 6", "shots = 3")
    .replace("depth = 30.0", "depth = 50.0")
    .replace("length = 5.5", "length = 3.0")
    .replace("dt = 0.005", "dt = 0.01")
    .replace("receiver_spacing = 60.0", "receiver_spacing = 100.0")
)


@pytest.fixture(scope="module", params=[pytest.param("small", marks=pytest.mark.slow)])
def imaged(request, tmp_path_factory):
    """Run the demo at half its resolution with three shots; give what it migrated, its folder and what it printed."""
    folder, console = tmp_path_factory.mktemp("demo"), Console(width=200)
    with console.capture() as printed:
        line, ways = demo.run(SMALL, folder, console)
    return line, ways, folder, printed.get()


def roof_and_image_of(survey):
    """Return, for columns over the salt's roof, the row of its top and the row where the image has it.

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
    *_, folder, _ = imaged
    top, seen = roof_and_image_of(seen_in(folder, (124, 270)))
    assert np.median(np.abs(seen - top)) <= 3  # of the 16 of a wavelength


def test_sediments_are_imaged_on_both_sides(imaged):
    *_, folder, _ = imaged
    seen = seen_in(folder, (124, 270))
    for box in ((slice(28, 60), slice(48, 72)), (slice(28, 60), slice(200, 232))):
        assert likeness(seen.image, seen.true, 12.5, box) > 0.5


def test_everything_is_written_and_nothing_else_is_left(imaged):
    *_, folder, printed = imaged
    assert {path.name for path in folder.iterdir()} == FILES
    assert str(folder / "report.html") in printed.replace("\n", "")
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    assert {"forward", "backward", "save", "restore"} <= {event["name"] for event in events}


def test_a_tenth_of_the_memory_gives_the_same_bits_and_says_what_it_cost(imaged):
    line, (kept, tenth, coded), folder, _ = imaged
    assert kept.passes == 1 and kept.results[0].plan.keep == "records" and line.history <= kept.peak
    assert 0 < tenth.peak <= line.history / 10 and tenth.passes > 1.5
    assert 0 < coded.peak <= line.history / 10
    assert np.array_equal(tenth.image(line), kept.image(line))
    rows = rows_of(line, (kept, tenth, coded))
    assert rows[1][4] == "the same bits" and rows[0][3] == "1.00"
    text = (folder / "report.html").read_text()
    assert all(word in text for row in rows for word in row)


def test_with_room_for_it_the_codec_keeps_what_was_computed_again_and_changes_little(imaged):
    line, (kept, tenth, _), *_ = imaged
    pilot = Strategy("pilot", Budget(host=line.history // 2), CODEC, schedule="storeall")
    pilot.migrate(line, 0)
    coded = Strategy("", Budget(host=line.history // 7), CODEC, pilot.results[0].costs, "storeall")
    coded.migrate(line, 0)
    assert coded.passes == 1 and coded.peak <= line.history / 7 and tenth.passes > 1
    exact, lossy = (normalise(way.parts[0].image, way.parts[0].illumination) for way in (kept, coded))
    assert 0 < off_by(lossy, exact) < 0.01


def test_the_page_names_no_folder_of_the_run(imaged):
    *_, folder, _ = imaged
    text = (folder / "report.html").read_text()
    assert str(folder) not in text and text.count('<img alt="') == 3 and 'src="http' not in text
    for part in ("Memory over time", "What happened when", "loading and compiling", "forward again"):
        assert part in text


def test_its_own_job_can_be_run(tmp_path):
    job = parse(JOB, tmp_path)
    told = inspect(job)
    assert "217 x 473 points" in told and "shots     6" in told
    inputs = checked_inputs(job)
    history = 4 * 217 * 473 * -(-inputs.steps // inputs.every)
    assert job.memory.budget.host == pytest.approx(history / 10, rel=0.02)


TINY = (
    SMALL.replace("[124, 270]", "[62, 135]")
    .replace("length = 3.0", "length = 4.0")
    .replace("frequency = 2.8", "frequency = 1.4")
    .replace("depth = 50.0", "depth = 100.0")
    .replace("shots = 3", "shots = 1")
    .replace("[imaging]", "[physics]\nabsorb = 5\n\n[imaging]")
)


@pytest.mark.slow
def test_the_same_shot_has_the_same_bits_in_a_tenth_of_the_memory(tmp_path):
    said = []
    line = record(TINY, tmp_path, said.append)
    kept, tenth, coded = ways_of(line, said.append)
    assert said[0] == 0 and "everything kept" in said[2] and "dense" in said[-1]
    assert kept.passes == 1 < tenth.passes and tenth.peak <= line.history / 10 < line.history <= kept.peak
    assert np.array_equal(kept.image(line), tenth.image(line)) and kept.image(line).any()
    rows = rows_of(line, (kept, tenth, coded))
    assert rows[1][4] == "the same bits" and rows[1][3] == f"{tenth.passes:.2f}" and not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_command_runs_it(tmp_path, monkeypatch):
    monkeypatch.setattr("forebay.wave.demo.JOB", TINY)
    (tmp_path / "image.npy").write_bytes(b"of an earlier run")
    result = CliRunner().invoke(app, ["demo", "--output", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert {path.name for path in tmp_path.iterdir()} == FILES
    assert np.load(tmp_path / "image.npy").shape == (62, 135)


def test_without_what_draws_it_does_not_begin(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = CliRunner().invoke(app, ["demo", "--output", str(tmp_path / "demo")])
    assert isinstance(result.exception, ForebayError)
    assert str(result.exception) == "the demo needs matplotlib: install Forebay with its extra plots"
    assert not (tmp_path / "demo").exists()


@pytest.mark.slow
def test_the_real_one_images_roof_and_sediments_and_its_codec_computes_nothing_again(tmp_path):
    line, (_, tenth, coded) = demo.run(None, tmp_path, Console(quiet=True))
    assert coded.passes == 1 < tenth.passes and coded.peak <= line.history / 10
    seen = seen_in(tmp_path, (217, 473))
    top, found = roof_and_image_of(seen)
    assert np.median(np.abs(found - top)) <= 3
    for box in ((slice(49, 105), slice(70, 126)), (slice(49, 161), slice(350, 420))):
        assert likeness(seen.image, seen.true, 12.5, box) > 0.6
