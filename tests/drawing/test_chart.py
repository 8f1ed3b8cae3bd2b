"""Charts: their markup holds what was given, is well formed, and is nobody's script."""

from xml.etree import ElementTree

import pytest

from forebay.drawing import Chart, Series, Subplot, Tip
from forebay.drawing.ticks import ticks

EVIL = """<script>"x" & 'y'</script>"""


@pytest.fixture
def chart():
    line = Series("a line", "#123456", [[(0, 0), (2, 10)]])
    area = Series(EVIL, "#654321", [[(0, 0), (0, 5), (1, 5), (1, 0)]], filled=True)
    limit = Series("limit", "#000000", [[(0, 8), (2, 8)]], dashed=True)
    return Chart([Subplot([line, area, limit], "MB", 10.0, tips=[Tip(0, 1, 0, 5, EVIL)])], "seconds", 2.0, EVIL)


def test_a_file_of_its_own_is_well_formed_and_has_the_points(chart, tmp_path):
    chart.write(tmp_path / "chart.svg")
    root = ElementTree.parse(tmp_path / "chart.svg").getroot()
    paths = {path.get("data-what"): path.get("d") for path in root.iter("{http://www.w3.org/2000/svg}path")}
    assert paths["a line"] == "M0.00 2000.00L2000.00 0.00"
    assert paths[EVIL] == "M0.00 2000.00L0.00 1000.00L1000.00 1000.00L1000.00 2000.00Z"
    texts = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "seconds" in texts and "MB" in texts and "a line" in texts and "limit" not in texts


def test_in_a_page_and_a_notebook_it_is_the_same_and_never_markup(chart, tmp_path):
    chart.write(tmp_path / "chart.html")
    assert chart._repr_html_() == chart.markup and chart.markup in (tmp_path / "chart.html").read_text()
    assert "<script" not in chart.markup and "&lt;script&gt;" in chart.markup


def test_lines_that_nobody_could_tell_apart_are_drawn_once(chart):
    lines = [[(0.0, n / 1e9), (1.0, n / 1e9)] for n in range(10_000)]
    dense = Chart([Subplot([Series("many", "#123456", lines)], "", 1.0)], "seconds", 1.0)
    assert dense.markup.count("M0.00") == 1


@pytest.mark.parametrize("high", [1e-9, 0.3, 1.0, 7.77, 4e12])
@pytest.mark.parametrize("most", [2, 5, 6])
def test_ticks_are_round_few_and_inside(high, most):
    found = ticks(0, high, most)
    assert 1 < len(found) <= most + 1 and found[0] == 0 and found[-1] <= high * (1 + 1e-9)
    assert all(f"{tick:.2g}" == f"{tick:.6g}" or float(f"{tick:.2g}") == pytest.approx(tick) for tick in found)
