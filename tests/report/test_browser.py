"""Pages in a real browser, without a network: charts are drawn, and nothing goes wrong."""

import shutil
import subprocess

import pytest

import forebay as fb
from forebay.report.charts import bars_chart, memory_chart, timeline_chart
from forebay.report.page import Chart, Facts, Text, write_page

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
COSTS = fb.Costs(forward=1e-3, backward=1e-3, copy=1e9, disk=fb.Link(up=1e8, down=1e8))


def opened(page, profile):
    """Open a page as a user would, and give its elements once its scripts have run, and what they complained of."""
    found = subprocess.run(
        [
            *(BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"),
            *("--disable-background-networking", "--disable-component-update", "--host-resolver-rules=MAP * ~NOTFOUND"),
            *("--enable-logging=stderr", f"--user-data-dir={profile}", "--virtual-time-budget=10000", "--dump-dom"),
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return found.stdout, [line for line in found.stderr.splitlines() if "CONSOLE" in line]


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no browser")
def test_a_browser_draws_the_charts_from_the_file_alone(tmp_path):
    plan = fb.plan(100, 8192, fb.Budget(host=3 * 8192, disk=5 * 8192), costs=COSTS)
    spans = plan.timeline()
    figures = [
        memory_chart(plan, spans, 8192.0),
        timeline_chart(plan, spans),
        bars_chart({"forward": [1.0, 2.0]}, ["0", "1"], "shot", "seconds"),
    ]
    write_page(
        tmp_path / "page.html",
        "A page",
        "lead",
        [("", [Facts([("a", "b")]), Text("x < y")]), ("Charts", [Chart(figure) for figure in figures])],
    )
    elements, complaints = opened(tmp_path / "page.html", tmp_path / "profile")
    assert not complaints
    assert elements.count('class="plot-container') == 3
    assert "disk budget</text>" in elements and "host to disk</text>" in elements
    assert "x &lt; y" in elements
