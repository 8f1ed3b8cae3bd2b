"""Lanes of a timeline: the height of a colour is the share of the time, however short the spans are."""

import numpy as np
import pytest

from forebay.metrics import Span
from forebay.planner.drawn.lanes import HEIGHT, bands, lanes_of

EDGES = np.linspace(0, 10, 11)


def heights(spans, kinds=("forward", "save")):
    return {(band.lane, band.what): (band.top - band.base) / HEIGHT for band in bands(spans, EDGES, kinds)}


def test_spans_shorter_than_a_piece_share_it():
    spans = [Span("compute", "forward", n, n / 100, n / 100 + 0.0075) for n in range(1000)]
    spans += [Span("compute", "save", n, n / 100 + 0.0075, n / 100 + 0.0080) for n in range(1000)]
    drawn = heights(spans)
    assert drawn["compute", "forward"] == pytest.approx([0.75] * 10)
    assert drawn["compute", "save"] == pytest.approx([0.05] * 10)


def test_a_span_longer_than_a_piece_fills_what_it_covers():
    drawn = heights([Span("compute", "forward", 0, 2.5, 5.0), Span("up 1", "save", 0, 9.0, 10.0)])
    assert drawn["compute", "forward"].tolist() == pytest.approx([0, 0, 0.5, 1, 1, 0, 0, 0, 0, 0])
    assert drawn["up 1", "save"].tolist() == pytest.approx([0] * 9 + [1])


def test_kinds_of_one_lane_lie_one_on_the_other():
    spans = [Span("compute", "save", 0, 0.0, 0.5), Span("compute", "forward", 0, 0.5, 1.0)]
    lower, upper = bands(spans, EDGES, ("forward", "save"))
    assert (lower.what, upper.what) == ("forward", "save")
    assert (
        (upper.base == lower.top).all() and lower.base[0] == -HEIGHT / 2 and upper.top[0] == pytest.approx(HEIGHT / 2)
    )


def test_the_computation_is_the_highest_lane():
    spans = [Span(lane, "forward", 0, 0.0, 1.0) for lane in ("up 1", "compute", "down 1")]
    assert lanes_of(spans) == ["up 1", "down 1", "compute"]
