"""Pictures of reversals: they show the steps, the lanes and the fields that they are given."""

import matplotlib
import numpy as np
import pytest

import forebay as fb
from forebay.report.timeline import draw_timeline, draw_timelines

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.collections import LineCollection

COSTS = fb.Costs(forward=1e-3, backward=1e-3, copy=1e9, disk=fb.Link(up=1e8, down=1e8))


@pytest.fixture
def plan():
    return fb.plan(100, 8192, fb.Budget(host=3 * 8192, disk=5 * 8192), costs=COSTS)


@pytest.fixture
def axes():
    figure, axes = pyplot.subplots(2, 1)
    yield axes
    pyplot.close(figure)


def run(state, start, stop):
    return (state[0] + (stop - start),)


@pytest.mark.slow
def test_forward_lines_cover_the_steps_that_forward_runs(plan, axes):
    draw_timeline(*axes, plan, "")
    *ahead, back = (part for part in axes[0].collections if isinstance(part, LineCollection))
    first, again = (np.array(lines.get_segments()) for lines in ahead)
    assert (first[:, 1, 1] - first[:, 0, 1]).sum() == 100 == first[..., 1].max()
    assert (again[:, 1, 1] - again[:, 0, 1]).sum() == plan.schedule.forward_steps - 100
    assert sorted(line[0][1] for line in back.get_segments()) == list(range(100))


@pytest.mark.slow
def test_a_coarse_schedule_is_drawn_in_steps_of_the_loop(axes):
    plan = fb.plan(99, 8192, fb.Budget(host=3 * 8192, disk=5 * 8192), costs=COSTS, every=4)
    draw_timeline(*axes, plan, "")
    ahead, _, back = (part for part in axes[0].collections if isinstance(part, LineCollection))
    assert np.array(ahead.get_segments())[..., 1].max() == 99
    assert sorted(line[0][1] for line in back.get_segments()) == list(range(0, 99, 4))


@pytest.mark.slow
def test_lanes_are_named_after_what_they_connect(plan, axes):
    draw_timeline(*axes, plan, "")
    names = [label.get_text() for label in axes[1].get_yticklabels()]
    assert names == ["disk to host", "host to disk", "compute"]
    assert axes[1].get_xlabel() == "predicted seconds"


@pytest.mark.slow
def test_the_legend_names_only_what_happened(plan, axes):
    draw_timeline(*axes, plan, "")
    shown = {text.get_text() for text in axes[0].get_legend().get_texts()}
    assert shown == {span.what for span in plan.timeline()} | {"forward again"}


@pytest.mark.slow
def test_plans_are_drawn_one_above_the_other(plan, tmp_path):
    draw_timelines({"one": plan}, tmp_path / "one.png")
    draw_timelines({"one": plan, "other": plan}, tmp_path / "two.png")
    one, two = (pyplot.imread(tmp_path / name) for name in ("one.png", "two.png"))
    assert two.shape[0] == 2 * one.shape[0] and two.shape[1] == one.shape[1]
