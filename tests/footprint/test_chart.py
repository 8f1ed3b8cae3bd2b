"""The chart of a footprint: what was measured, what is estimated, and the bound, up to the shape that matters."""

import numpy as np
import pytest
from tests.footprint.test_model_file import model_of


def double(x):
    return x + x


def test_samples_estimate_and_bound_lie_where_the_model_has_them():
    model = model_of(double)
    chart = model.plot((100, 100, 100))
    (subplot,) = chart.panels
    bound, estimate, measured = (series.lines for series in subplot.marks)
    x, y = estimate[0][-1]
    run = model.predict((100, 100, 100))
    unit = {"MB": 1e6, "kB": 1e3}[subplot.up.removeprefix("peak, ")]
    assert x == 100**3 == chart.end and y == run.bytes / unit
    assert max(y for _, y in bound[0]) == run.upper / unit <= subplot.top
    inside = [sample for sample in model.samples if np.prod(sample.lengths) <= chart.end]
    assert len(measured) == len(inside)
    for dot, sample in zip(measured, inside, strict=True):
        assert np.mean([y for _, y in dot]) * unit == pytest.approx(sample.peak)
    assert "at most" in subplot.tips[-1].text


def test_a_notebook_sees_terms_and_chart():
    shown = model_of(double)._repr_html_()
    assert "bytes x" in shown and "<svg" in shown and "measured" in shown
