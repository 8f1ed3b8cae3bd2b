"""Pages: one file with everything in it, that asks nobody for anything."""

import re
import sys
from collections import Counter
from html.parser import HTMLParser

import numpy as np
import pytest

import forebay as fb
from forebay.drawing.bars import bars_chart
from forebay.drawing.page import Drawn, Facts, Picture, Text, TextTable, write_page
from forebay.metrics import Span
from forebay.planner.drawn.lanes import HEIGHT
from forebay.planner.drawn.timeline import COLOURS, memory_chart, timeline_chart
from forebay.report.pictures import Panel, draw_panels
from forebay.report.timeline import draw_timelines
from forebay.schedule import Forward

COSTS = fb.Costs(forward=1e-3, backward=1e-3, copy=1e9, disk=fb.Link(up=1e8, down=1e8))


@pytest.fixture
def plan():
    return fb.plan(100, 8192, fb.Budget(host=3 * 8192, disk=5 * 8192), costs=COSTS)


@pytest.fixture
def picture(tmp_path):
    values = np.random.default_rng(0).normal(size=(20, 40))
    draw_panels([Panel(values, (0.0, 4.0, 2.0, 0.0), "depth", "x", signed=True)], tmp_path / "p.png")
    return tmp_path / "p.png"


class Elements(HTMLParser):
    """Collects what a page refers to, and which elements are open at its end."""

    def __init__(self):
        super().__init__()
        self.references, self.open, self.headings, self.texts = [], [], [], []

    def handle_starttag(self, tag, attributes):
        self.references += [value for name, value in attributes if name in ("src", "href")]
        if tag not in ("meta", "img", "link", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("h1", "h2"):
            self.headings.append(data)
        self.texts.append(data)


@pytest.mark.slow
def test_a_page_holds_everything_and_asks_for_nothing(tmp_path, plan, picture):
    spans = plan.timeline()
    write_page(
        tmp_path / "page.html",
        "A <title>",
        "lead",
        [
            ("", [Facts([("shots", "8 & more")])]),
            ("Pictures", [Picture(picture, "a caption")]),
            ("Numbers", [TextTable(("a", "b"), [("1", "<2>")]), Text("x < y")]),
            ("Charts", [Drawn(memory_chart(plan, spans)), Drawn(timeline_chart(plan, spans), "a < b")]),
        ],
    )
    text = (tmp_path / "page.html").read_text()
    found = Elements()
    found.feed(text)
    assert not found.open  # every element is closed
    assert found.headings == ["A <title>", "Pictures", "Numbers", "Charts"]
    assert all(reference.startswith("data:image/png;base64,") for reference in found.references) and found.references
    assert "8 & more" in found.texts and "<2>" in found.texts and "x < y" in found.texts
    assert text.count('<svg class="fb"') == 2 and text.count("<script>") == 1 and "a < b" in found.texts
    assert not re.search(r"<script[^>]+src=", text) and "@import" not in text


def test_a_page_without_charts_carries_no_code(tmp_path):
    write_page(tmp_path / "page.html", "t", "l", [("", [Text("x")])])
    assert "<script" not in (tmp_path / "page.html").read_text()


def test_memory_is_drawn_in_bytes_below_its_budget(plan):
    chart = memory_chart(plan, plan.timeline())
    (panel,) = chart.panels
    marks = {mark.name: mark for mark in panel.marks}
    assert list(marks) == ["host", "disk", "host budget", "disk budget"] and panel.up == "snapshots, kB"
    for tier, peak in zip(plan.tiers, plan.prediction.peak, strict=True):
        (curve,) = marks[tier].lines
        assert max(y for _, y in curve) == pytest.approx(peak * 8.192, rel=0.35)
        assert max(y for _, y in curve) * 1e3 <= plan.budget[tier]
        (line,) = marks[f"{tier} budget"].lines
        assert {y for _, y in line} == {plan.budget[tier] / 1e3}


def test_the_timeline_covers_all_steps_and_names_its_lanes(plan):
    steps, lanes = timeline_chart(plan, plan.timeline()).panels
    lines = {mark.name: mark.lines for mark in steps.marks}
    assert list(lines) == ["forward", "forward again", "backward"]
    assert sum(last[1] - first[1] for first, last in lines["forward"]) == 100
    once = sum(last[1] - first[1] for name in ("forward", "forward again") for first, last in lines[name])
    assert once == plan.schedule.forward_steps
    assert sorted(first[1] for first, _ in lines["backward"]) == list(range(1, 101))
    assert [name for _, name in lanes.names] == ["disk to host", "host to disk", "compute"]


def area(line):
    """Return what a closed line goes around, by its corners."""
    turned = [*line[1:], line[0]]
    return abs(sum(x * b - a * y for (x, y), (a, b) in zip(line, turned, strict=True))) / 2


@pytest.mark.slow
def test_colours_of_a_chart_take_the_seconds_of_what_happened(plan):
    spans = plan.timeline()
    seconds, drawn = Counter(), Counter()
    for span in spans:
        seconds[span.what] += span.stop - span.start
    for mark in timeline_chart(plan, spans).panels[1].marks:
        drawn[mark.name.replace(" again", "")] += sum(map(area, mark.lines)) / HEIGHT
    assert drawn == pytest.approx(seconds, rel=0.02)


def test_what_is_pointed_at_is_told_with_its_steps_bytes_and_seconds(plan):
    spans = [
        Span("compute", "forward", 0, 0.0, 2.0),
        Span("compute", "save", 3, 2.0, 2.5),
        *(Span("down 1", "store", number, 3 + number / 1e4, 3 + (number + 1) / 1e4) for number in range(10)),
        Span("compute", "backward", 99, 9.0, 10.0),
    ]
    tips = [tip.text for tip in timeline_chart(plan, spans).panels[1].tips]
    run = next(operation for operation in plan if isinstance(operation, Forward))
    assert f"compute\nforward: steps 0 to {run.stop}, 2 s" in tips
    assert "compute\nsave: step 3, 8.19kB, 500 ms" in tips
    assert "host to disk\nstore: steps 0 to 9, 10 times, 8.19kB each, 1 ms" in tips
    assert "compute\nbackward: steps 99 to 100, 1 s" in tips


def test_bars_lie_one_on_the_other():
    (panel,) = bars_chart({"forward": [1.0, 2.0], "save": [0.5, 0.0]}, ["0", "1"], "shot", "seconds", COLOURS).panels
    forward, save = panel.marks
    assert [area(box) for box in forward.lines] == pytest.approx([0.8, 1.6])
    assert [area(box) for box in save.lines] == pytest.approx([0.4]) and min(y for _, y in save.lines[0]) == 1.0
    assert "shot 0, seconds: 1.5" in panel.tips[0].text and "save" not in panel.tips[1].text


@pytest.mark.slow
def test_a_picture_shows_what_it_is_given(tmp_path):
    from matplotlib import pyplot

    values = np.zeros((20, 40))
    edge = values.copy()
    edge[10] = 1
    wave = np.zeros((20, 40))
    wave[5, 5:15] = 1
    drawn = []
    for number, (signed, field, over) in enumerate([(True, values, None), (True, edge, None), (False, edge, wave)]):
        panel = Panel(field, (0.0, 4.0, 2.0, 0.0), "depth", "x", signed=signed, wave=over)
        draw_panels([panel, panel], tmp_path / f"{number}.png", columns=2)
        drawn.append(pyplot.imread(tmp_path / f"{number}.png"))
    assert (drawn[0] != drawn[1]).any() and (drawn[1] != drawn[2]).any()


def test_a_library_that_is_missing_is_named_with_its_extra(tmp_path, monkeypatch, plan):
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(fb.ForebayError, match="a picture needs matplotlib: install Forebay with its extra plots"):
        draw_timelines({"": plan}, tmp_path / "made.png")


def test_what_a_page_is_given_is_never_markup(tmp_path, picture):
    evil = """<script>"x" & 'y'</script>{{ 1 }}"""
    elements = [Facts([(evil, evil)]), Picture(picture, evil), TextTable([evil], [[evil]]), Text(evil)]
    write_page(tmp_path / "page.html", evil, evil, [(evil, elements)])
    text = (tmp_path / "page.html").read_text()
    assert "<script" not in text and "{{ 1 }}" in text
    parsed = Elements()
    parsed.feed(text)
    assert parsed.texts.count(evil) == 10  # title twice, lead, heading, and in the elements
