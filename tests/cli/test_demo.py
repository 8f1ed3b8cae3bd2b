"""The demo images the reflectors of its medium, inside its budget, and writes down how."""

import json

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from penstock.cli import demo, shot
from penstock.cli.main import app
from penstock.units import Budget

STEPS = 900
STATE = 2 * 220 * 300 * 4
TIGHT = Budget(host=4 * STATE, disk=20 * STATE)


def small_shot(velocity=None):
    return shot.Shot(shot.layers(220, 300) if velocity is None else velocity, STEPS)


@pytest.fixture(scope="module")
def imaged(tmp_path_factory):
    """Run the demo on a small problem; give its shot, result, folder and what it printed."""
    folder, console, one = tmp_path_factory.mktemp("demo"), Console(width=200), small_shot()
    with console.capture() as printed:
        result = demo.image(one, TIGHT, folder, console)
    return one, result, folder, printed.get()


def test_the_image_shows_the_reflector_where_it_is(imaged):
    one, *_ = imaged
    middle = one.velocity.shape[1] // 2
    rise = np.diff(one.velocity[:, middle - 20 : middle + 20], axis=0)
    reflector = np.argmax(rise > 100, axis=0)  # the upper of the two, which the small problem has the time to see
    seen = np.argmax(np.abs(one.image()[:, middle - 20 : middle + 20]), axis=0)
    assert np.abs(seen - reflector).max() <= 5  # of the 14 of a wavelength


def test_a_medium_without_reflectors_sends_nothing_back():
    one = small_shot(np.full((220, 300), 2000, np.float32))
    one.observe()
    one.turn(one.forward(one.start(), 0, STEPS, replay=False))
    assert one.recorded.any() and not one.residual.any()


def test_receivers_record_the_first_time_only():
    one = small_shot()
    one.forward(one.start(), 0, 200, replay=True)
    assert not one.recorded.any()


def test_the_image_is_that_of_keeping_every_state(imaged):
    one, *_ = imaged
    other = small_shot()
    other.observe()
    states, state = [], other.start()
    for step in range(STEPS):
        states.append({name: field.copy() for name, field in state.items()})
        state = other.forward(state, step, step + 1, replay=False)
    other.turn(state)
    for step in reversed(range(STEPS)):
        other.backward(states[step], step)
    assert np.array_equal(one.image(), other.image())


def test_memory_disk_and_recomputation_are_all_used(imaged):
    _, result, *_ = imaged
    assert 0 < result.metrics.peak["host"] <= TIGHT["host"]
    assert 0 < result.metrics.peak["disk"] <= TIGHT["disk"]
    assert result.plan.schedule.forward_steps > 1.5 * STEPS


def test_plan_and_measurement_are_printed_and_written(imaged):
    _, result, folder, printed = imaged
    report = (folder / "report.txt").read_text()
    for text in (printed, report):
        for line in (str(result.plan.schedule), "measured against predicted", "moved down 1", "peak disk"):
            assert line in text


def test_picture_and_trace_are_written_and_no_snapshot_is_left(imaged):
    *_, folder, _ = imaged
    assert (folder / "pulse.png").read_bytes().startswith(b"\x89PNG")
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    assert {"forward", "backward", "store", "fetch"} <= {event["name"] for event in events}
    assert {path.name for path in folder.iterdir()} == {"pulse.png", "report.txt", "trace.json"}


def test_the_command_runs_it(tmp_path, monkeypatch):
    monkeypatch.setattr(shot, "layers", lambda: np.full((120, 140), 2000, np.float32))
    monkeypatch.setattr(demo, "STEPS", 60)
    monkeypatch.setattr(demo, "BUDGET", Budget(host="600kB", disk="2MB"))
    result = CliRunner().invoke(app, ["demo", "--output", str(tmp_path / "new")])
    assert result.exit_code == 0
    assert {path.name for path in (tmp_path / "new").iterdir()} == {"pulse.png", "report.txt", "trace.json"}


def test_its_own_problem_needs_all_three_too():
    state = 2 * 4 * shot.layers().size
    kept = sum(demo.BUDGET[tier] // state for tier in demo.BUDGET.tiers)
    assert demo.BUDGET["host"] // state < kept < demo.STEPS / 10
    assert demo.BUDGET["disk"] <= 300e6
