"""What is shown of a job: bars and lines while it runs, and the table of its shots in the report."""

import io
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

from forebay.wave.job import progress, results, run
from forebay.wave.job.progress import ProgressBars
from forebay.wave.job.results import _kept, _table, panels_of, planned, times_of


@pytest.fixture
def shown(monkeypatch):
    """Bars of a job of four shots, one of them done before, and a clock that ticks by seconds."""
    clock = iter(range(100, 200))
    monkeypatch.setattr(progress, "perf_counter", lambda: next(clock))
    text = io.StringIO()
    bars = ProgressBars(Console(file=text, width=200, force_terminal=False), 4, 1, 50)
    return bars, text


def figures(bars):
    return [(task.completed, task.total) for task in bars._bars.tasks]


def test_steps_of_all_shots_add_up_and_what_comes_late_is_left_out(shown):
    bars, text = shown
    with bars:
        assert figures(bars) == [(1, 4), (0, 150)]
        bars.steps(1, 20)
        bars.steps(2, 7)
        assert figures(bars) == [(1, 4), (27, 150)]
        bars.failed(2, "no luck", again=True)
        assert figures(bars) == [(1, 4), (20, 150)]
        bars.finished(1, 2.5)
        bars.steps(1, 3)  # a word that was long on its way
        assert figures(bars) == [(2, 4), (50, 150)]
        bars.failed(2, "no luck", again=False)
        bars.finished(3, 1.0)
        assert figures(bars) == [(4, 4), (150, 150)]
    # A second passes with each look at the clock: one shot took 1 s, two take 1 s each, and there is none left.
    assert text.getvalue().splitlines() == [
        "shot 2 failed (no luck), again",
        "shot 1 in 2.5 s: 2 of 4, 2 s left",
        "shot 2 failed (no luck): 3 of 4, 1 s left",
        "shot 3 in 1 s: 4 of 4",
    ]


@pytest.mark.parametrize(("terminal", "done", "live"), [(True, 1, True), (True, 4, False), (False, 1, False)])
def test_bars_are_live_on_a_terminal_while_there_is_something_to_do(terminal, done, live):
    bars = ProgressBars(Console(file=io.StringIO(), force_terminal=terminal), 4, done, 50)
    with bars:
        assert bars._bars.live.is_started is live
    assert not bars._bars.live.is_started


def test_shots_of_a_pass_have_bars_and_no_lines():
    text = io.StringIO()
    bars = ProgressBars(Console(file=text, width=200, force_terminal=False), 4, 1, 50, of="stage-0")
    assert [task.description for task in bars._bars.tasks] == ["stage-0", "steps"] and bars._bars.live.transient
    bars.finished(1, 2.5)
    bars.failed(2, "no luck", again=False)
    assert figures(bars) == [(3, 4), (100, 150)] and text.getvalue() == ""
    bars.failed(3, "no luck", again=True)
    assert text.getvalue() == "shot 3 failed (no luck), again\n"


SHOT = {"seconds": 3.5, "data": 1.25, "reversal": 2.0, "moved": {"down 1": 2000, "up 1": 3000}}


def test_the_table_of_shots_tells_of_tiers_and_codecs_that_were_used():
    plain = {**SHOT, "shot": 0, "peak": {"host": 4000}, "ratio": None, "worst": None, "error": None}
    coded = {**SHOT, "shot": 1, "peak": {"host": 1, "disk": 9000}, "ratio": 4.0, "worst": 2.5, "error": 0.00125}
    table = _table(SimpleNamespace(summaries=[plain]))
    assert list(table.headings) == ["shot", "seconds", "of which data", "reversal", "peak on the host", "moved"]
    assert [list(row) for row in table.rows] == [["0", "3.50", "1.25", "2.00", "4kB", "5kB"]]
    table = _table(SimpleNamespace(summaries=[plain, coded]))
    assert list(table.headings)[4:] == [
        *("peak on the disk", "peak on the host", "moved", "smaller by", "at worst", "largest error")
    ]
    assert [list(row)[4:] for row in table.rows] == [
        ["0B", "4kB", "5kB", "", "", ""],
        ["9kB", "1B", "5kB", "4", "2.5", "0.00125"],
    ]


@pytest.mark.parametrize(("resumed", "run"), [(0, "12 s, 1.5 times that of its kernels"), (1, "12 s")])
@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_the_time_of_kernels_is_told_beside_the_clock(device, resumed, run):
    first, second = (
        {**SHOT, "shot": shot, "phases": {"forward": 1.0, "backward": 2.0, "stall": 9.0}} for shot in (0, 1)
    )
    first["phases"]["modelled"] = 1.0
    # A GPU computes two shots at a time, and all count as the one that made the plan; a CPU one after the other.
    second["phases"] |= {"modelled": 3.0, "forward": 3.0} if device == "gpu" else {"modelled": 1.0}
    workspace = SimpleNamespace(described=SimpleNamespace(device=device), timeline=lambda: (0, []))
    survey = SimpleNamespace(summaries=[first, second], resumed=resumed, seconds=12.0, workspace=workspace, phases={})
    assert times_of(survey) == [
        (f"kernels on the {device.upper()}", "8 s of steps, modelled, forward and back"),
        ("seconds of all shots", "7 s, of which 2.5 s for data"),
        ("this run", run),
    ]
    for shot in (first, second):
        shot["phases"] = {"forward": 0.25}
    assert times_of(survey)[2] == ("this run", run.replace("1.5", "24"))
    survey.phases = {"model": 3.0, "shots": 8.5}
    phases = "model 3 s, shots 8.5 s; shot 0, which made the plan, 3.5 s, of which 1.25 s for data"
    assert times_of(survey)[3:] == [("its phases", phases)]
    workspace.timeline, survey.phases = lambda: None, survey.phases | {"files": 2.0, "pictures": 1.0}
    phases = "model 3 s, shots 8.5 s; and then files 2 s, pictures 1 s"
    assert times_of(survey)[3:] == [("its phases", phases)]


def test_phases_end_where_the_next_ones_begin(monkeypatch):
    ticks = iter([10.0, 12.0, 12.5])
    monkeypatch.setattr(progress, "perf_counter", lambda: next(ticks))
    clock = progress.PhaseClock()
    clock.end("model")
    clock.end("shots")
    assert clock.phases == {"model": 2.0, "shots": 0.5} and clock.seconds == 2.5


def test_facts_of_a_plan_count_whole_snapshots():
    budget = {"host": 10**6, "disk": 10**9}
    plan = SimpleNamespace(
        steps=10, state_bytes=1000, record_bytes=250, keep="records", schedule="revolve:3", codec=None
    )
    plan.budget = type("Amounts", (dict,), {"tiers": tuple(budget)})(budget)
    assert _kept(plan) == 250
    assert planned(plan, 3) == [
        ("history of a shot", "1kB of records"),
        ("host budget", "1MB"),
        ("disk budget", "1GB"),
        ("schedule", "revolve:3"),
        ("codec", "none"),
    ]
    plan.keep = "states"
    assert _kept(plan) == 1000
    plan.keep, plan.record_bytes = "records", None
    assert _kept(plan) == 0


def workspace_of(shape, origin, end):
    grid = SimpleNamespace(shape=shape, ndim=len(shape), origin=origin, end=end)
    geometry = SimpleNamespace(
        sources=np.array([[10.0, 1500.0], [20.0, 2500.0]]),
        receivers_of=lambda shot: np.full((17, 2), [30.0, 3000.0 + shot]),
    )
    fields = {"velocity": np.zeros(shape)}
    return SimpleNamespace(
        described=SimpleNamespace(grid=grid), geometry=geometry, fields=lambda medium, box=None: fields
    )


def test_sections_and_planes_are_drawn_in_kilometres():
    (panel,) = panels_of(
        np.zeros((4, 6)), workspace_of((4, 6), (100.0, 1000.0), (500.0, 3000.0)).described.grid, signed=True
    )
    assert panel.extent == (1.0, 3.0, 0.5, 0.1) and (panel.down, panel.across) == ("depth, km", "x, km")
    volume = np.arange(4 * 6 * 8).reshape(4, 6, 8)
    panels = panels_of(
        volume, workspace_of(volume.shape, (0.0, 1000.0, 2000.0), (500.0, 3000.0, 7000.0)).described.grid
    )
    assert [panel.extent for panel in panels] == [(1, 3, 0.5, 0), (2, 7, 0.5, 0), (2, 7, 3, 1)]
    assert [panel.values.tolist() for panel in panels] == [
        each.tolist() for each in (volume[:, :, 4], volume[:, 3], volume[2])
    ]
    assert [(panel.down, panel.across) for panel in panels][2] == ("y, km", "x, km")


def test_an_image_is_drawn_stronger_with_depth_and_a_model_with_its_sources(monkeypatch):
    drawn = []
    monkeypatch.setattr(results, "draw_panels", lambda panels, path: drawn.append(panels[0]))
    workspace = workspace_of((3, 5), (0.0, 0.0), (200.0, 400.0))
    results.draw_image(SimpleNamespace(workspace=workspace, image=np.ones((3, 5))), None)
    strong = results.STRONG
    assert drawn[0].values[:, 0].tolist() == pytest.approx([strong, (1 + strong) / 2, 1]) and drawn[0].signed
    results.draw_model(workspace, None)
    receivers, sources = drawn[1].points
    assert (sources[0].tolist(), sources[1].tolist()) == ([1.5, 2.5], [0.01, 0.02])
    assert len(receivers[0]) == 3 and (receivers[0][0], receivers[1][0]) == (3.0, 0.03) and drawn[1].label == "m/s"


@pytest.mark.parametrize(("count", "told"), [(2, "0, 1"), (10, "0, 1, 2, 3, 4, 5, 6, 7, 8, 9"), (11, "8, 9, ...")])
def test_of_many_shots_ten_are_named(count, told):
    empty = {shot: {"strength": 0.0} for shot in range(count)}
    assert run._empty(empty)[0].endswith(told)
