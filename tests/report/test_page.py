"""Pages: one file with everything in it, that asks nobody for anything."""

import re
import sys
from collections import Counter
from html.parser import HTMLParser

import numpy as np
import pytest

import forebay as fb
from forebay.report.page import Chart, Facts, Picture, Text, TextTable, write_page
from forebay.report.pictures import Panel, draw_panels
from forebay.report.timeline import draw_timelines

charts = pytest.importorskip("forebay.report.charts")
pytest.importorskip("plotly")

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
            ("Charts", [Chart(charts.memory_chart(plan, spans, 8192.0)), Chart(charts.timeline_chart(plan, spans))]),
        ],
    )
    text = (tmp_path / "page.html").read_text()
    found = Elements()
    found.feed(text)
    assert not found.open  # every element is closed
    assert found.headings == ["A <title>", "Pictures", "Numbers", "Charts"]
    assert all(reference.startswith("data:image/png;base64,") for reference in found.references) and found.references
    assert "8 & more" in found.texts and "<2>" in found.texts and "x < y" in found.texts
    assert text.count("Plotly.newPlot(") >= 2 and "plotly.js v" in text
    assert not re.search(r"<script[^>]+src=", text) and "@import" not in text


def test_a_page_without_charts_carries_no_code(tmp_path):
    write_page(tmp_path / "page.html", "t", "l", [("", [Text("x")])])
    assert "<script" not in (tmp_path / "page.html").read_text()


def test_memory_is_drawn_in_bytes_below_its_budget(plan):
    figure = charts.memory_chart(plan, plan.timeline(), 8192.0)
    assert [trace.name for trace in figure.data] == ["host", "disk"]
    for trace, tier, peak in zip(figure.data, plan.tiers, plan.prediction.peak, strict=True):
        assert max(trace.y) == pytest.approx(peak * 8192 / 1e6, rel=0.35)
        assert max(trace.y) * 1e6 <= plan.budget[tier]
    assert sorted(shape.y0 for shape in figure.layout.shapes) == [3 * 8192 / 1e6, 5 * 8192 / 1e6]


def test_the_timeline_covers_all_steps_and_names_its_lanes(plan):
    figure = charts.timeline_chart(plan, plan.timeline())
    lines = {trace.name: trace for trace in figure.data if trace.type == "scatter"}
    assert max(y for y in lines["forward"].y if y is not None) == 100
    assert min(y for y in lines["backward"].y if y is not None) == 0
    assert list(figure.layout.yaxis2.ticktext) == ["disk to host", "host to disk", "compute"]


def test_colours_of_a_chart_take_the_seconds_of_what_happened(plan):
    spans = plan.timeline()
    seconds = Counter()
    for span in spans:
        seconds[span.what] += span.stop - span.start
    drawn = Counter()
    for bars in (trace for trace in charts.timeline_chart(plan, spans).data if trace.type == "bar"):
        drawn[bars.name] += sum(bars.customdata) * bars.width
    assert drawn == pytest.approx(seconds)


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


MISSING = {
    "jinja2": ("a page", lambda path, plan: write_page(path, "title", "lead", [])),
    "plotly": ("a chart", lambda path, plan: charts.memory_chart(plan, plan.timeline(), 8192.0)),
    "matplotlib": ("a picture", lambda path, plan: draw_timelines({"": plan}, path)),
}


@pytest.mark.parametrize("library", MISSING)
def test_a_library_that_is_missing_is_named_with_its_extra(library, tmp_path, monkeypatch, plan):
    what, make = MISSING[library]
    for name in [name for name in sys.modules if name.partition(".")[0] == library]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(fb.ForebayError, match=rf"{what} needs {library}: install Forebay with its extra plots"):
        make(tmp_path / "made", plan)


def test_what_a_page_is_given_is_never_markup(tmp_path, picture):
    evil = """<script>"x" & 'y'</script>{{ 1 }}"""
    elements = [Facts([(evil, evil)]), Picture(picture, evil), TextTable([evil], [[evil]]), Text(evil)]
    write_page(tmp_path / "page.html", evil, evil, [(evil, elements)])
    text = (tmp_path / "page.html").read_text()
    assert "<script" not in text and "{{ 1 }}" in text
    parsed = Elements()
    parsed.feed(text)
    assert parsed.texts.count(evil) == 10  # title twice, lead, heading, and in the elements
