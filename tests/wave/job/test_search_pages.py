"""What inversions and least-squares migrations leave behind: arrays, pictures, charts and pages, line by line."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tests.wave.job.inversions import inversion_text

from forebay.drawing.page import Text
from forebay.wave.earth.grid import Grid
from forebay.wave.files.formats import read_field
from forebay.wave.job import parse
from forebay.wave.job.inversion import change_results, results
from forebay.wave.job.inversion.leastsquares import ExplainedSurvey
from forebay.wave.job.inversion.run import Gathers, InvertedSurvey
from forebay.wave.survey.geometry import Geometry

GRID = Grid((4, 6), (50.0, 50.0), (0.0, 1000.0))
PLAN = SimpleNamespace(
    steps=10, state_bytes=1000, record_bytes=None, keep="states", schedule="revolve:3", codec=None, seconds=2.0
)
PLAN.peak_bytes, PLAN.explain = {"host": 3000, "disk": 9000}, lambda: "why this plan"
PLAN.budget = SimpleNamespace(tiers=())
LAST = {
    "shot": np.array([0, 3]),
    "seconds": np.array([4.0, 1.0]),
    "reversal": np.array([3.0, 2.0]),
    "peak host": np.array([2000, 2500]),
    "clock": np.array(5.0),
}
FACTS = [("history of a shot", "3kB of states"), ("schedule", "revolve:3"), ("codec", "none")]
MEASURED = [
    ("reversal of a shot, predicted and measured", "2 s, 2.5 s"),
    ("peak on the host, predicted and measured", "3kB, 2.5kB"),
    ("peak on the disk, predicted and measured", "9kB, 0B"),
]


def workspace_of(tmp_path, text, command, plan=PLAN):
    described = SimpleNamespace(
        grid=GRID, job=parse(text, tmp_path, command=command), sampling=0.02, step=0.0125, every=4
    )
    geometry = Geometry(np.zeros((5, 2)), np.zeros((10, 2)), np.arange(0, 11, 2), np.arange(10))
    return SimpleNamespace(described=described, geometry=geometry, plan=lambda: plan)


@pytest.fixture
def drawn(monkeypatch):
    """List what is drawn, by the names of its files."""
    drawn = {}

    def draw(what, *about, **how):
        path = next(each for each in (what, *about) if isinstance(each, Path))
        drawn[path.name] = (what, how)

    for module in (results, change_results):
        monkeypatch.setattr(module, "draw_panels", draw)
    monkeypatch.setattr(results, "draw_velocity", draw)
    monkeypatch.setattr(change_results, "draw_model", draw)
    return drawn


@pytest.fixture(autouse=True)
def in_time(monkeypatch):
    """Name the section that charts in time by its ratio alone."""
    for module in (results, change_results):
        monkeypatch.setattr(module, "shown_in_time", lambda workspace, ratio: [(f"in time, {ratio} times", [])])


class TestOfAnInversion:
    """A survey of two stages, the second of two searches, one of them from a misfit of zero."""

    @pytest.fixture
    def survey(self, tmp_path):
        text = inversion_text('frequencies = [2.5, "all"]\niterations = 2', output="Überall")
        start, found = np.full((4, 6), 2000.0), np.full((4, 6), 2100.0)
        observed = np.arange(12.0).reshape(4, 3)
        gathers = [
            Gathers(4, observed, observed + 2, observed - 0.5),
            Gathers(2, observed, observed.copy(), observed + 1),
        ]
        return InvertedSurvey(
            workspace_of(tmp_path, text, "fwi"),
            start={"velocity": start},
            model={"velocity": found},
            misfits=[[(8.0, 4.0, 2.0)], [(5.0, 1.0), (0.0, 3.0)]],
            evaluations=7,
            sent=None,
            gathers=gathers,
            last=LAST,
            damage=[],
            seconds=12.0,
        )

    def test_each_array_is_written_in_each_format_but_pictures(self, survey, tmp_path):
        survey = replace(survey, model={"vp": survey.model["velocity"], "vs": survey.start["velocity"]})
        written = results.write_models(survey, tmp_path, ["png", "npy", "segy"])
        assert [path.name for path in written] == ["vp.npy", "vp.segy", "vs.npy", "vs.segy"]
        for path in written:
            field = read_field(path)
            assert np.array_equal(field.values, survey.model[path.stem])
        assert read_field(written[1]).spacing == GRID.spacing and list(tmp_path.glob("*.png")) == []

    def test_gathers_are_drawn_on_one_scale_and_told_by_what_is_left(self, survey, drawn, tmp_path):
        pictures = results.draw_pictures(survey, tmp_path)
        assert [picture.path.name for picture in pictures] == [
            *("velocity.png", "start.png", "update.png", "gathers-00004.png", "gathers-00002.png")
        ]
        assert [picture.caption for picture in pictures[3:]] == [
            "Shot 4, on one scale: of what the first model leaves unexplained, 25.0% are left.",
            "Shot 2, on one scale: no echo.",
        ]
        (update,), _ = drawn["update.png"]
        assert update.signed and update.label == "m/s" and (update.values == 100).all()
        panels, how = drawn["gathers-00004.png"]
        assert how == {"columns": 4, "equal": False}
        observed = survey.gathers[0].observed
        assert [(panel.title, (panel.values - observed).max()) for panel in panels[:3]] == [
            *(("observed", 0.0), ("in the first model", 2.0), ("in the model found", -0.5))
        ]
        assert panels[3].title == "left" and (panels[3].values == 0.5).all()
        assert {panel.extent for panel in panels} == {(0.0, 3.0, 0.08, 0.0)} and all(panel.signed for panel in panels)
        assert {panel.limit for panel in panels} == {results.largest_shown(observed)}
        assert {(panel.down, panel.across) for panel in panels} == {("time, s", "receiver")}

    def test_misfits_are_shares_of_where_each_search_began(self, survey):
        chart = results.misfit_chart(survey)
        (panel,) = chart.panels
        assert [(series.name, series.lines) for series in panel.marks] == [
            ("stage 0, up to 2.5 Hz", [[(0.0, 1.0), (1.0, 0.5), (2.0, 0.25)]]),
            ("stage 1, all", [[(2.0, 1.0), (3.0, 0.2)], [(3.0, 0.0), (4.0, 3.0)]]),
        ]
        assert (chart.end, chart.across, panel.top, panel.bottom) == (4.0, "iteration", 1.05, 0.0)
        assert len({series.colour for series in panel.marks}) == 2
        assert results.misfit_chart(replace(survey, misfits=[[(8.0,)], []])).end == 1.0  # nothing was found

    def test_the_page_tells_of_every_search(self, survey, sections, tmp_path):
        results.write_report(survey, tmp_path / "page.html", ["picture"], "title", "lead")
        assert sections["page"] == (
            tmp_path / "page.html",
            "title",
            "lead",
            ["", "Pictures", "Misfit", "in time, 1.0 times", "The last pass over the shots", "The plan", "The job"],
        )
        assert sections[""][0].values == [
            ("shots", "5"),
            ("grid", "4 x 6 at 50 m"),
            ("step", "12.5 ms, the same in all models"),
            ("iterations", "4"),
            ("evaluations by all shots", "7"),
            ("this run", "12 s"),
            *FACTS,
            *MEASURED,
        ]
        table = sections["Misfit"][1]
        assert [list(row) for row in table.rows] == [
            ["stage 0, up to 2.5 Hz", "2", "8", "2", "25.0%"],
            ["stage 1, all", "1", "5", "1", "20.0%"],
            ["stage 1, all", "1", "0", "3", "300.0%"],
        ]
        assert len(table.headings) == 5 and sections["Pictures"] == ["picture"]
        assert sections["The plan"] == [Text("why this plan")]
        told = sections["The job"][0].text
        assert told.startswith('{\n  "') and "Überall" in told and "null" not in told
        assert json.loads(told)["inversion"]["frequencies"] == [2.5, "all"]

    def test_what_there_is_nothing_to_tell_of_has_no_section(self, survey, sections, tmp_path):
        survey = replace(survey, workspace=workspace_of(tmp_path, inversion_text("iterations = 1"), "fwi", plan=None))
        survey = replace(survey, damage=["a file", "another"], notes=["so it is"], last={}, misfits=[[(4.0, 1.0)]])
        results.write_report(survey, None, [], "title", "lead")
        assert sections["page"][3] == [
            *("", "Misfit", "What was damaged", "What the search tells", "in time, 1.0 times", "The job")
        ]
        assert sections["What was damaged"] == [Text("a file\nanother")]
        assert sections["What the search tells"] == [Text("so it is")]
        assert sections[""][0].values[-1] == ("this run", "12 s")

    @pytest.mark.parametrize(("plan", "last"), [(None, LAST), (PLAN, {})])
    def test_nothing_is_measured_without_a_plan_or_a_pass(self, plan, last):
        assert results.measured(SimpleNamespace(plan=lambda: plan), last) == []

    def test_the_last_pass_has_a_bar_and_a_row_for_each_shot(self):
        assert results.last_pass({}) == []
        ((title, (drawing, table)),) = results.last_pass(LAST)
        assert title == "The last pass over the shots"
        assert list(table.headings) == ["shot", "seconds", "reversal", "peak on the host"]
        assert [list(row) for row in table.rows] == [["0", "4.00", "3.00", "2kB"], ["3", "1.00", "2.00", "2.5kB"]]
        reversals, others = drawing.chart.panels[0].marks
        heights = [[box[1][1] - box[0][1] for box in series.lines] for series in (reversals, others)]
        assert heights == [[3.0, 2.0], [1.0]]  # what takes less than its reversal has no other bar
        assert (drawing.chart.across, drawing.chart.panels[0].up) == ("shot", "seconds")

    def test_a_program_is_told_what_the_page_tells(self, survey):
        told = replace(survey, damage=["a file"], notes=["so it is"]).told
        assert told == {
            "misfits": survey.misfits,
            "evaluations": 7,
            "seconds": 12.0,
            "damage": ["a file"],
            "notes": ["so it is"],
        }


class TestOfALeastSquaresMigration:
    """A survey of two iterations, of either parameter."""

    @pytest.fixture
    def survey(self, tmp_path):
        text = inversion_text(None, lsrtm='iterations = 2\nparameter = "squared slowness"')
        change = np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 6)
        return ExplainedSurvey(workspace_of(tmp_path, text, "lsrtm"), change, [1.0, 0.5, 0.25], LAST, [], 12.0)

    def test_the_image_is_written_in_each_format_but_pictures(self, survey, tmp_path):
        written = change_results.write_change(survey, tmp_path, ["png", "npy", "segy"])
        assert [path.name for path in written] == ["image.npy", "image.segy"]
        for path in written:
            assert np.array_equal(read_field(path).values, survey.change)
        assert read_field(written[1]).spacing == GRID.spacing

    @pytest.mark.parametrize(("parameter", "unit"), [("velocity", "m/s"), ("squared slowness", "s²/m²")])
    def test_image_and_model_are_drawn_and_told(self, survey, drawn, tmp_path, parameter, unit):
        text = inversion_text(None, lsrtm=f'parameter = "{parameter}"')
        survey = replace(survey, workspace=workspace_of(tmp_path, text, "lsrtm"))
        pictures = change_results.draw_pictures(survey, tmp_path)
        assert [(picture.path.name, picture.caption) for picture in pictures] == [
            ("image.png", f"The change of {parameter} that explains the echoes."),
            ("model.png", "The velocity that was migrated through, receivers and sources."),
        ]
        ((panel,), _), (workspace, _) = drawn["image.png"], drawn["model.png"]
        assert panel.signed and panel.label == unit and np.array_equal(panel.values, survey.change)
        assert workspace is survey.workspace

    def test_what_is_left_comes_down_from_all_of_it(self, survey):
        chart = change_results.residual_chart(survey)
        (panel,) = chart.panels
        (left,) = panel.marks
        assert left.lines == [[(0.0, 1.0), (1.0, 0.5), (2.0, 0.25)]] and left.colour == results.INKS[0]
        assert (chart.end, chart.across, panel.top) == (2.0, "iteration", 1.05)
        assert change_results.residual_chart(replace(survey, residuals=[1.0])).end == 1.0

    def test_the_page_tells_how_the_image_came_about(self, survey, sections, tmp_path):
        change_results.write_report(survey, tmp_path / "page.html", ["picture"], "title", "lead")
        assert sections["page"] == (
            tmp_path / "page.html",
            "title",
            "lead",
            ["", "Pictures", "Echoes", "in time, 1.0 times", "The last pass over the shots", "The plan", "The job"],
        )
        assert sections[""][0].values == [
            ("shots", "5"),
            ("grid", "4 x 6 at 50 m"),
            ("iterations", "2"),
            ("left of the echoes", "25.00% of their norm"),
            ("this run", "12 s"),
            *FACTS,
            *MEASURED,
        ]
        assert sections["Pictures"] == ["picture"]
        assert sections["Echoes"][0].chart == change_results.residual_chart(survey)

    def test_what_there_is_nothing_to_tell_of_has_no_section(self, survey, sections, tmp_path):
        text = inversion_text(None, lsrtm="iterations = 2")
        survey = replace(survey, workspace=workspace_of(tmp_path, text, "lsrtm", plan=None), damage=["a file"], last={})
        change_results.write_report(survey, None, [], "title", "lead")
        assert sections["page"][3] == ["", "Echoes", "What was damaged", "in time, 1.0 times", "The job"]
        assert sections["What was damaged"] == [Text("a file")]
        assert sections[""][0].values[-1] == ("this run", "12 s")

    def test_a_program_is_told_what_the_page_tells(self, survey):
        told = replace(survey, damage=["a file"]).told
        assert told == {"residuals": [1.0, 0.5, 0.25], "seconds": 12.0, "damage": ["a file"]}
