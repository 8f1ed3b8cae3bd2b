"""What notebooks show of plans, results, budgets, footprints and chunks, and the pages that runs write."""

import numpy as np
import pytest

import forebay as fb
from forebay.footprint.chunks.plan import plan_chunks
from forebay.footprint.estimate import Estimate
from forebay.planner.drawn.reversal import was_followed
from forebay.planner.plan import MOST_DRAWN

COSTS = fb.Costs(forward=1e-3, backward=1e-3, copy=1e9, disk=fb.Link(up=1e8, down=1e8))


@pytest.fixture
def plan():
    return fb.plan(100, 8192, fb.Budget(host=3 * 8192, disk=5 * 8192), costs=COSTS)


@pytest.fixture
def result(tmp_path):
    def forward(state, start, stop):
        return (state[0] + (stop - start),)

    budget = fb.Budget(host="33kB", disk="200kB")
    start = (np.zeros(1024),)
    return fb.reverse(forward, lambda state, step: None, start, 60, budget=budget, costs=COSTS, directory=tmp_path)


def test_a_plan_shows_its_reasons_and_its_timeline(plan):
    shown = plan._repr_html_()
    assert plan.explain().splitlines()[1].split(":")[0] in shown and shown.count('<svg class="fb"') == 1
    names = {series.name for subplot in plan.plot().panels for series in subplot.marks}
    assert {"forward", "forward again", "backward", "host", "disk", "fetch", "store"} <= names


def test_a_plan_of_very_many_actions_is_told_and_not_drawn():
    plan = fb.plan(MOST_DRAWN, 8192, fb.Budget(host=30 * 8192), costs=COSTS, schedule="revolve")
    assert "revolve" in plan._repr_html_() and "<svg" not in plan._repr_html_()


def test_a_result_shows_what_was_measured_beside_what_was_predicted(result, tmp_path):
    assert was_followed(result)
    shown = result._repr_html_()
    assert "<th>measured</th><th>predicted</th>" in shown and "host, at most" in shown
    result.plot().write(tmp_path / "chart.svg")
    assert "forward again" in (tmp_path / "chart.svg").read_text()
    result.report(tmp_path / "page.html", "A <page>")
    text = (tmp_path / "page.html").read_text()
    for part in ("A &lt;page&gt;", "What happened when", "As predicted", "Why this plan", "60 steps"):
        assert part in text


def test_a_reversal_that_left_its_plan_shows_the_plan(result):
    result.metrics.timeline.add("compute", "backward", 0, 0.0, 1.0)
    assert not was_followed(result) and result.plot().title == "predicted"


def test_a_budget_shows_its_tiers():
    budget = fb.Budget(device="8GB", host="64GB")
    assert "<td>device</td><td>8GB</td>" in budget._repr_html_()
    (subplot,) = budget.plot().panels
    assert [max(y for _, y in box) for box in subplot.marks[0].lines] == [8.0, 64.0]


class Tripled:
    """A function that needs three times its input."""

    ndim, dtype = 3, np.dtype("float32")

    def predict(self, shape):
        volume = int(np.prod(shape))
        return Estimate(12 * volume, 13 * volume, 0.01, shape, self.dtype, 1e-8 * volume)


def test_chunks_show_what_a_worker_needs_beside_the_budget():
    chunks = plan_chunks(Tripled(), (200, 200, 200), "40MB", halo=(2, 2, 2))
    shown = chunks._repr_html_()
    assert "chunks of at most" in shown and "<svg" in shown
    (subplot,) = chunks.plot().panels
    heights = {series.name: max(y for line in series.lines for _, y in line) for series in subplot.marks}
    assert heights["budget"] == 40 and max(heights.values()) <= 40 and {"input", "bound"} <= set(heights)
