"""The same plans and runs are drawn and told the same, to the last point and word.

`same_drawings.json` holds what is drawn of a few. `python -m tests.planner.drawn.test_same_drawings` writes it anew,
where a drawing is meant to change: the difference shows what changed in which.
"""

import tempfile
from html.parser import HTMLParser
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.tables import differs, write

import forebay as fb
from forebay.metrics import Metrics, Span
from forebay.planner.drawn.counters import busy_chart, explained, write_counters
from forebay.planner.drawn.memory import occupancy
from forebay.planner.drawn.reversal import measured_chart, was_followed, write_plan, write_report
from forebay.planner.drawn.timeline import COLOURS, TIERS, memory_chart, memory_curves, run_chart, timeline_chart

KNOWN = Path(__file__).with_name("same_drawings.json")
HOST = fb.Costs(forward=1.0, backward=1.5, copy=1e9, disk=fb.Link(up=5e3, down=4e3))
THREE = fb.Costs(0.25, 0.5, 1e9, host=fb.Link(9e3, 8e3), disk=fb.Link(3e3, 2e3), codecs={"zz": fb.CodecCost(2, 1, 1)})
PLANS = {
    "two tiers": fb.plan(30, 8192, fb.Budget(host=3 * 8192, disk=5 * 8192), costs=HOST, schedule="revolve:7"),
    "four steps at once": fb.plan(
        30, 8192, fb.Budget(device=2 * 8192, host=8192, disk=9 * 8192), costs=THREE, every=4, schedule="storeall"
    ),
    "one tier": fb.plan(9, 10**9, fb.Budget(device="3GB"), schedule="uniform:3"),
    "records": fb.plan(
        9, 8192, fb.Budget(host=12 * 4096), costs=HOST, record_bytes=4096, schedule="storeall", reversals=3
    ),
}


def spans_of(plan):
    """What may have been measured: some of the plan comes later."""
    spans = plan.timeline()
    return [
        span._replace(start=span.start + more, stop=span.stop + more)
        for span, more in zip(spans, cycle((0, 0.25, 0.5)))
    ]


def corners(lines):
    """Count lines, and add up their points, each as often as its place says."""
    points = [point for line in lines for point in line]
    return [len(lines), *(sum(n * float(point[axis]) for n, point in enumerate(points, 1)) for axis in (0, 1))]


def areas(lines):
    """Count areas, and add up what they go around, each as often as its place says, and where they begin."""
    turned = [[*line[1:], line[0]] for line in lines]
    around = [[x * b - a * y for (x, y), (a, b) in zip(*each, strict=True)] for each in zip(lines, turned, strict=True)]
    return [len(lines), sum(n * sum(each) for n, each in enumerate(around, 1)), sum(sum(line[0]) for line in lines)]


def looks(chart):
    """All that there is to see of a chart."""
    panels = []
    for panel in chart.panels:
        marks = [
            [mark.name, mark.colour, mark.width, mark.filled, mark.dashed, mark.about, measured(mark.lines)]
            for mark, measured in ((mark, areas if mark.filled else corners) for mark in panel.marks)
        ]
        axis = [panel.up, float(panel.top), panel.bottom, panel.height, panel.names]
        places = [[tip.left, tip.low] for tip in panel.tips], [[tip.right, tip.high] for tip in panel.tips]
        tips = [[tip.text for tip in panel.tips[:: max(1, len(panel.tips) // 6)]], corners(places)]
        panels.append([axis, marks, tips])
    return [chart.title, chart.across, float(chart.end), panels]


class Texts(HTMLParser):
    """Lists what a page says, but for its charts."""

    def __init__(self):
        super().__init__()
        self.said, self.inside = [], []

    def handle_starttag(self, tag, attributes):
        self.inside.append(tag)

    def handle_endtag(self, tag):
        while self.inside and self.inside.pop() != tag:
            pass

    def handle_data(self, data):
        if data.strip() and not {"svg", "style", "script", "figure"} & {*self.inside}:
            self.said.append(data.strip())


def said(write_page, *arguments):
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "page.html")
        write_page(arguments[0], page, *arguments[1:])
        text = page.read_text()
    parser = Texts()
    parser.feed(text)
    return [parser.said, text.count('<svg class="fb"')]


def ran(plan, spans, steps=None, counts=None, ratio=1):
    """What a reversal gives back that had such spans."""
    metrics = Metrics(**counts or {})
    for span in spans:
        metrics.add(*span)
    metrics.seconds = max(span.stop for span in spans)
    metrics.peak.update({"host": 20_000, "device": 7})
    metrics.ratios.add(8000 * ratio, 8000)
    return SimpleNamespace(plan=plan, metrics=metrics, steps=steps, explain=lambda: "because")


def counted():
    """Counters of something that is no reversal."""
    metrics = Metrics(hits=3, misses=2, late=1)
    metrics.moved.update({"up 1": 4000, "down 1": 3000})
    metrics.avoided.update({"up 1": 500})
    metrics.peak.update({"device": 12_345})
    for number in range(4):
        metrics.add("compute", "use", number, number, number + 0.5 + 0.125 * number)
        metrics.add("up 1", "fetch", number, number + 0.5, number + 0.625)
    metrics.add("compute", "stall", 0, 9.0, 9.25)
    return metrics


def short():
    """A run that ended sooner than its plan, with a stall, forwards that were not planned, and tiny pieces."""
    spans = [Span("compute", "forward", 3 * n, n / 64, (n + 1) / 64) for n in range(40)]
    spans += [Span("down 1", "store", 8 - n, 0.1 * n, 0.1 * n + 0.05) for n in range(5)]
    spans += [Span("compute", "stall", 5, 0.7, 0.9), Span("compute", "backward", 29, 0.9, 0.95)]
    return [*spans, Span("compute", "other", 1, 0.95, 1.0)]


def cases():
    """Yield the name of each drawing or page, and what draws it."""
    for name, plan in PLANS.items():
        yield f"{name} as predicted", lambda plan=plan: looks(run_chart(plan, plan.timeline()))
        yield f"{name} as measured", lambda plan=plan: looks(run_chart(plan, spans_of(plan), 5000.4, 99.0, "T"))
        yield f"{name} in memory", lambda plan=plan: asdict_curves(occupancy(plan, spans_of(plan)))
        yield f"{name} told", lambda plan=plan: said(write_plan, plan)
        yield f"{name} run", lambda plan=plan: said(write_report, ran(plan, spans_of(plan), ratio=3), "a run")
        yield f"{name} drawn", lambda plan=plan: looks(measured_chart(ran(plan, spans_of(plan), ratio=3), 9.0, "x"))
    plan, once = PLANS["two tiers"], PLANS["records"]
    yield "ended sooner", lambda: looks(run_chart(plan, short()))
    yield "ended sooner, alone", lambda: looks(timeline_chart(plan, short(), 0.0, 0.5))
    yield "ended sooner, in memory", lambda: looks(memory_chart(plan, short(), None, 0.5, "m"))
    yield "nothing", lambda: looks(run_chart(plan, []))
    yield "left its plan", lambda: looks(measured_chart(ran(plan, short())))
    yield "many times", lambda: said(write_report, ran(once, spans_of(once), 45, {"advanced": 77}), "b")
    yield (
        "followed",
        lambda: [was_followed(ran(plan, spans, n)) for spans in (spans_of(plan), short()) for n in (9, None)],
    )
    yield (
        "counted",
        lambda: [said(write_counters, counted(), "t", "l", [explained("why")]), looks(busy_chart(counted()))],
    )
    yield "nothing counted", lambda: said(write_counters, Metrics(), "t", "l")
    curves = {"a": [(0.0, 0.0), (1.0, 1999.0), (1.5, 1999.0), (2.0, 7.0)], "b": [(0.0, 0.0)]}
    for most in (999.0, 1e3, 1e12):
        yield (
            f"curves {most}",
            lambda most=most: looks(memory_curves(curves, {"a": "red", "b": "blue"}, {"b": most}, 3.0)),
        )
    yield "colours", lambda: [COLOURS, TIERS]


def asdict_curves(curves):
    return {name: [list(point) for point in curve] for name, curve in curves.items()}


@pytest.mark.parametrize(("name", "make"), list(cases()), ids=lambda value: value if isinstance(value, str) else "")
def test_the_same_is_drawn_of_the_same(name, make):
    assert not differs(KNOWN, name, make)


if __name__ == "__main__":
    write(KNOWN, cases())
