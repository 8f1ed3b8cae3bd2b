"""Pages in a real browser, without a network: what is drawn, pointed at and zoomed is what was measured."""

from collections import Counter

import numpy as np
import pytest
from tests.browser import needs_browser, read

import forebay as fb
from forebay.planner.drawn.timeline import COLOURS

pytestmark = [pytest.mark.slow, needs_browser]

AREAS = """
    const [chart] = document.querySelectorAll("svg.fb");
    const fields = [...chart.querySelectorAll(".fb-data")];
    const found = {};
    for (const path of fields[1].querySelectorAll("path")) {
        const box = path.getScreenCTM(), kind = path.dataset.what;
        for (const part of path.getAttribute("d").split("Z").filter(Boolean)) {
            const points = part.slice(1).split("L").map(pair => pair.split(" ").map(Number));
            let area = 0;
            points.forEach(([x, y], n) => { const [a, b] = points[(n + 1) % points.length]; area += x * b - a * y; });
            found[kind] = (found[kind] || 0) + Math.abs(area) / 2 * box.a * box.d;
        }
    }
    const lane = fields[1].getBoundingClientRect();
    return { found, width: lane.width, height: lane.height, end: +chart.dataset.end,
        colours: Object.fromEntries([...fields[1].querySelectorAll("path")].map(
            path => [path.dataset.what, path.getAttribute("fill")])) };
"""
POINT = """
    const chart = document.querySelector("svg.fb"), tip = document.querySelector("#tip");
    const fields = [...chart.querySelectorAll(".fb-data")], texts = new Set();
    const at = (field, kind, x, y) => {
        const box = field.getBoundingClientRect();
        field.firstElementChild.dispatchEvent(new PointerEvent(kind, { bubbles: true, pointerType: "mouse",
            clientX: box.left + x * box.width, clientY: box.top + y * box.height }));
    };
    const box = fields[1].getBoundingClientRect();
    for (let x = 0.002; x < 1; x += 0.004)
        for (const y of [1 / 6, 3 / 6, 5 / 6]) {
            at(fields[1], "pointermove", x, y);
            if (tip.style.display === "block") texts.add(tip.textContent.replace(/\\nat .*/, ""));
        }
    const ticks = () => [...chart.querySelectorAll(".fb-ticks text")].map(text => +text.textContent);
    const before = ticks();
    at(fields[0], "pointerdown", 0.25, 0.5); at(fields[0], "pointerup", 0.5, 0.5);
    const zoomed = ticks(), seen = fields[0].getAttribute("viewBox");
    at(fields[0], "dblclick", 0.5, 0.5);
    return { texts: [...texts], before, zoomed, seen, after: ticks() };
"""


@pytest.fixture(scope="module")
def reversal(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")

    def forward(state, start, stop):
        (x,) = state
        for _ in range(start, stop):
            x = x + 0.01 * np.sin(x)
        return (x,)

    budget = fb.Budget(host="1MB", disk="2MB")
    result = fb.reverse(forward, lambda state, step: None, (np.linspace(0, 3, 25_000),), 60, budget=budget)
    result.report(folder / "page.html", "A <reversal>")
    return result, folder


def test_the_pixels_of_a_lane_are_true_to_its_seconds_within_two_percent(reversal):
    result, folder = reversal
    seen, complaints = read(folder / "page.html", AREAS, folder / "profile")
    assert not complaints and seen["width"] > 900
    seconds = Counter()
    for span in result.metrics.timeline:
        seconds[span.what] += span.stop - span.start
    lanes = len({span.lane for span in result.metrics.timeline})
    whole = seen["width"] * seen["height"] / lanes * 0.8  # pixels of a lane that is busy all the time
    drawn = Counter()
    for what, pixels in seen["found"].items():
        assert seen["colours"][what] == COLOURS[what]
        drawn[what.removesuffix(" again")] += pixels / whole * seen["end"]
    for what, spent in seconds.items():
        assert abs(drawn[what] - spent) <= 0.02 * max(spent, 0.01 * seen["end"])


def test_who_points_is_told_and_who_drags_sees_more(reversal):
    _, folder = reversal
    seen, complaints = read(folder / "page.html", POINT, folder / "profile")
    assert not complaints
    assert any("save: step" in text and "201kB" in text for text in seen["texts"])
    assert any("store: step" in text and "s" in text for text in seen["texts"])
    end = float(seen["seen"].split()[2]) / 2000
    assert end == pytest.approx(0.25, abs=0.01) and seen["after"] == seen["before"]
    assert seen["zoomed"][0] >= 0.2 * max(seen["before"]) and seen["zoomed"] != seen["before"]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1400])
def test_a_page_needs_no_scrolling_sideways_and_is_dark_where_that_is_wished(reversal, width, dark):
    _, folder = reversal
    script = """return { inner: innerWidth, wide: document.documentElement.scrollWidth,
        back: getComputedStyle(document.body).backgroundColor, title: document.querySelector("h1").textContent }"""
    seen, complaints = read(folder / "page.html", script, folder / "profile", width, dark)
    assert not complaints and seen["inner"] <= max(width, 500) and seen["wide"] <= seen["inner"]
    assert seen["back"] == ("rgb(20, 23, 28)" if dark else "rgb(246, 247, 249)") and seen["title"] == "A <reversal>"
