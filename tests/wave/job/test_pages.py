"""What a migration leaves behind, figure by figure: files, pictures on their scales, and the sections of its page."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from forebay.drawing.page import Text
from forebay.wave.earth.grid import Grid
from forebay.wave.files.formats import read_field
from forebay.wave.job import results
from forebay.wave.job.pilot import ImageCheck
from forebay.wave.job.stack import PartialImage
from forebay.wave.job.workspace.pilot_files import PilotResult, TriedOnShot

GRID = Grid((3, 4), (50.0, 25.0), (0.0, 1000.0))


@pytest.fixture
def drawn(monkeypatch):
    """List what is drawn: panels and how."""
    drawn = []
    monkeypatch.setattr(results, "draw_panels", lambda panels, path, **how: drawn.append((list(panels), path, how)))
    return drawn


@pytest.fixture
def survey(finished):
    """Make the image of the finished job one of twelve points."""
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    box = (slice(0, 3), slice(0, 4))
    described = SimpleNamespace(grid=GRID, job=finished.workspace.described.job, device="cpu")
    workspace = SimpleNamespace(described=described)
    return replace(finished, workspace=workspace, image=values, stack=PartialImage(values + 20, values + 40, box))


@pytest.mark.parametrize(
    ("formats", "names"),
    [
        (["npy", "segy"], ["image.npy", "image.segy", "stack.npy", "illumination.npy"]),
        (["segy", "png"], ["image.segy", "image.png"]),
        (["zarr", "npy"], ["image.zarr", "image.npy", "stack.zarr", "illumination.zarr"]),
    ],
)
def test_sums_are_written_in_the_first_format_that_is_an_array(survey, drawn, tmp_path, formats, names):
    if "zarr" in formats:
        pytest.importorskip("zarr")
    written = results.write_image(survey, tmp_path, formats)
    assert [path.name for path in written] == names
    added = {"image": 0, "stack": 20, "illumination": 40}
    for path in written:
        if path.suffix != ".png":
            field = read_field(path)
            assert np.array_equal(field.values, survey.image + added[path.stem])
            assert path.suffix != ".segy" or field.spacing == GRID.spacing
    assert [path.name for _, path, _ in drawn] == [name for name in names if name.endswith("png")]


def test_a_volume_gets_stronger_with_depth_in_each_of_its_planes(drawn):
    grid = Grid((3, 4, 5), 50.0)
    results.draw_image(
        SimpleNamespace(workspace=SimpleNamespace(described=SimpleNamespace(grid=grid)), image=np.full((3, 4, 5), 2.0)),
        None,
    )
    ((along_y, along_x, flat), _, _) = drawn[0]
    for panel in (along_y, along_x):
        assert panel.values[:, 1].tolist() == pytest.approx([0.8, 1.4, 2.0])
    assert flat.values.tolist() == [[pytest.approx(1.4)] * 5] * 4
    assert [panel.title for panel in (along_y, along_x, flat)] == [
        *("at the middle of x", "at the middle of y", "at the middle of the depth")
    ]
    assert all(panel.signed and not panel.label for panel in (along_y, along_x, flat))


def test_every_eighth_receiver_of_the_first_shot_is_marked_on_the_first_plane(drawn):
    places = np.array([[10.0 + number, 100.0 * number] for number in range(20)])
    geometry = SimpleNamespace(
        sources=np.array([[5.0, 250.0], [6.0, 750.0]]), receivers_of=lambda shot: places + 1000 * shot
    )
    results.draw_velocity(np.zeros((3, 4, 5)), Grid((3, 4, 5), 50.0), geometry, "here")
    panels, path, how = drawn[0]
    assert (path, how, len(panels)) == ("here", {}, 3)
    assert not any(panel.signed for panel in panels) and {panel.label for panel in panels} == {"m/s"}
    assert [panel.title for panel in panels][1:] == ["at the middle of y", "at the middle of the depth"]
    receivers, sources = panels[0].points
    assert [list(receivers[0]), list(receivers[1]), receivers[2]] == [[0, 0.8, 1.6], [0.01, 0.018, 0.026], "wv"]
    assert [list(sources[0]), list(sources[1]), sources[2]] == [[0.25, 0.75], [0.005, 0.006], "r*"]
    assert not any(panel.points for panel in panels[1:])


class TestOfAPilot:
    """What a lossy codec has changed: the worst of the pilot's shots, on one scale, and how its bound was found."""

    @pytest.fixture
    def survey(self, monkeypatch, finished):
        exact, box = np.array([[0.0, 4.0], [-8.0, 2.0]]), (slice(0, 2), slice(0, 2))

        def part(values):
            return PartialImage(values, values, box)

        described = SimpleNamespace(grid=Grid((2, 2), 50.0), job=finished.workspace.described.job)
        described.job = SimpleNamespace(memory=SimpleNamespace(image_error=0.015))
        workspace = SimpleNamespace(described=described, part=lambda shot: part(exact + 0.5 * (shot == 2)))
        monkeypatch.setattr(results, "exact_parts", lambda workspace, shots: {shot: part(exact) for shot in shots})
        monkeypatch.setattr(results, "picture_of", lambda part, workspace: part.image)
        tried = [TriedOnShot(0, 1e-4, 0.005, 7.25), TriedOnShot(2, 5e-5, 0.0012, 6.0)]
        found = PilotResult("bounded:5e-05", tried)
        summaries = [{"shot": shot, "ratio": ratio} for shot, ratio in ((0, 9.0), (2, 3.5))]
        return SimpleNamespace(
            workspace=workspace, check=ImageCheck({0: 0.001, 2: 0.0125}, 0.02), pilot=found, summaries=summaries
        )

    def test_the_worst_shot_is_drawn_on_one_scale(self, survey, drawn):
        told = results.draw_difference(survey, "there")
        assert told == (
            "Shot 2 alone, with an exact history and as the job has it, with records 3.5 times smaller: off by 1.25%."
        )
        panels, path, how = drawn[0]
        assert (path, how) == ("there", {"columns": 1}) and all(panel.signed for panel in panels)
        exact = panels[0].values
        assert {panel.limit for panel in panels} == {results.largest_shown(exact)}
        assert [(panel.title, (panel.values - exact).tolist()) for panel in panels[:2]] == [
            *(("exact history", [[0, 0], [0, 0]]), ("as the job has it", [[0.5, 0.5], [0.5, 0.5]]))
        ]
        assert [(panel.title, panel.values.tolist()) for panel in panels[2:]] == [
            *(("difference", [[0.5, 0.5], [0.5, 0.5]]), ("difference, 10 times", [[5, 5], [5, 5]]))
        ]

    @pytest.mark.parametrize(("error", "times"), [(0.0, 1), (0.3, 1), (0.004, 100), (0.00021, 1000)])
    def test_a_difference_is_drawn_so_strong_that_it_is_seen(self, survey, drawn, error, times):
        survey.check = ImageCheck({2: error}, error)
        survey.summaries[1]["ratio"] = None
        assert results.draw_difference(survey, None).endswith(f"with no codec: off by {error:.2%}.")
        panel = drawn[0][0][3]
        assert panel.title == f"difference, {times} times" and (panel.values == 0.5 * times).all()

    def test_how_the_bound_was_found_is_told(self, survey):
        ((title, (facts, table)),) = results._found(survey)
        assert title == "How the bound was found" and facts.values == [
            ("image error allowed", "1.50%"),
            ("codec", "bounded:5e-05"),
            ("shot 0, as summed", "off by 0.10%"),
            ("shot 2, as summed", "off by 1.25%"),
            ("all shots, were each as far off", "at most 2.00%"),
        ]
        assert [list(row) for row in table.rows] == [["0", "0.0001", "0.50%", "7.25"], ["2", "5e-05", "0.12%", "6"]]
        survey.check, survey.pilot = None, PilotResult(None, survey.pilot.tried)
        ((_, (facts, _)),) = results._found(survey)
        assert facts.values == [("image error allowed", "1.50%"), ("codec", "none")]
        survey.pilot = None
        assert results._found(survey) == []


class TestOfAPage:
    """The sections that follow from what shots told, and from the plan and its timeline."""

    def test_phases_that_some_shot_had_have_bars(self, finished, sections):
        shots = [
            {**shot, "data": 0.5, "phases": {"forward": 1.0} | ({"stall": 2.0} if shot["shot"] == 3 else {})}
            for shot in finished.summaries
        ]
        results.write_report(replace(finished, summaries=shots), "page.html", [], "title", "lead")
        assert sections["page"][:3] == ("page.html", "title", "lead") and "Pictures" not in sections
        chart = sections["Where the time of each shot went"][0].chart
        bars = {bar.name: [box[1][1] - box[0][1] for box in bar.lines] for bar in chart.panels[0].marks}
        assert bars == {"data": [0.5] * 4, "forward": [1.0] * 4, "stall": [2.0]}
        assert [next(iter(row)) for row in sections["Each shot"][0].rows] == ["0", "1", "2", "3"]
        assert sections["The plan"] == [Text(finished.workspace.plan().explain())]

    def test_what_the_job_said_is_told_as_it_was_written(self, finished, sections):
        workspace = SimpleNamespace(**{name: getattr(finished.workspace, name) for name in ("geometry", "timeline")})
        output = finished.workspace.described.job.output.model_copy(update={"directory": "Überall"})
        job = finished.workspace.described.job.model_copy(update={"output": output})
        workspace.described = replace(finished.workspace.described, job=job)
        workspace.plan = lambda: None
        results.write_report(replace(finished, workspace=workspace), None, [], "title", "lead")
        told = sections["The job"][0].text
        assert told.startswith('{\n  "model"') and "Überall" in told and "null" not in told
        assert json.loads(told)["geometry"]["shots"] == [4]
        assert "The plan" not in sections and "schedule" not in dict(sections[""][0].values)

    @pytest.mark.parametrize(("ratios", "size"), [([None, 4.0, 2.0], 250.0), ([None], 1000.0)])
    def test_memory_over_time_is_that_of_snapshots_as_small_as_a_codec_makes_them(
        self, finished, sections, monkeypatch, ratios, size
    ):
        for name in ("memory_chart", "timeline_chart"):
            monkeypatch.setattr(results, name, lambda plan, spans, nbytes, name=name: (name, spans, nbytes))
        monkeypatch.setattr(results, "_kept", lambda plan: 1000)
        shots = [{**finished.summaries[0], "ratio": each, "worst": each, "error": None} for each in ratios]
        results.write_report(replace(finished, summaries=shots), None, [], "title", "lead")
        spans = finished.workspace.timeline()[1]
        assert sections["Memory over time, in shot 0"][0].chart == ("memory_chart", spans, size)
        assert sections["What happened when, in shot 0"][0].chart == ("timeline_chart", spans, size)

    @pytest.mark.parametrize(("plan", "timeline"), [(None, (0, [])), ("a plan", None), (None, None)])
    def test_without_plan_or_timeline_nothing_is_shown_in_time(self, plan, timeline):
        assert results.shown_in_time(SimpleNamespace(plan=lambda: plan, timeline=lambda: timeline), 1.0) == []

    @pytest.mark.parametrize(
        ("device", "timeline", "together", "seconds"),
        [
            ("cpu", (1, []), [1, 1, 1], 60.0),
            ("gpu", (1, []), [1, 1, 1], 60.0),  # each as the one that made the plan, of 20 s
            ("gpu", (0, []), [1, 1, 1], 30.0),
            ("gpu", (0, []), [1, 4, 1], 40.0),
            ("gpu", (7, []), [1, 1, 1], 60.0),  # which is not there any more
            ("gpu", None, [1, 1, 1], 60.0),
        ],
    )
    def test_kernels_of_shots_beside_each_other_count_as_those_of_the_first(self, device, timeline, together, seconds):
        shots = [
            {"shot": shot, "phases": {"forward": took, "stall": 99.0}, "together": count}
            for shot, (took, count) in enumerate(zip((10.0, 20.0, 30.0), together, strict=True))
        ]
        workspace = SimpleNamespace(described=SimpleNamespace(device=device), timeline=lambda: timeline)
        assert results.kernel_seconds(SimpleNamespace(summaries=shots, workspace=workspace)) == seconds

    def test_a_run_without_kernels_is_not_compared_with_them(self):
        workspace = SimpleNamespace(described=SimpleNamespace(device="cpu"))
        shot = {"shot": 0, "phases": {}, "seconds": 1.0, "data": 0.0}
        about = {"summaries": [shot], "workspace": workspace, "resumed": 0, "seconds": 3.0, "phases": {}}
        told = results.times_of(SimpleNamespace(**about))
        assert told[2] == ("this run", "3 s")
