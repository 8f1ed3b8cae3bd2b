"""For pytest: runs chosen tests in a given order, and writes what each takes and which places it passes."""

import builtins
import json
import os
from collections import defaultdict
from pathlib import Path

from hypothesis import Phase, settings

CHOSEN, WRITTEN = (os.environ.get(f"FOREBAY_MUTATION_{name}") for name in ("CHOSEN", "WRITTEN"))
passed: set[int] = set()
"""Numbers of the places that were passed since the test began."""
seconds: dict[str, float] = {}
"""Of a processor, which are about the same however busy the machine is."""
failed: set[str] = set()
skipped: set[str] = set()
places: dict[str, set[int]] = {}
shared: dict[str, set[int]] = defaultdict(set)
"""What fixtures pass, which may be those of a whole file."""


def worked():
    """Return the seconds of a processor that this process has taken so far, and children that have ended."""
    return sum(os.times()[:4])


builtins.forebay_passed = passed.add  # what is written into the sources calls it


def pytest_configure():
    """Have Hypothesis try the same examples each time, and look for no smaller one when one fails."""
    phases = (Phase.explicit, Phase.generate)
    settings.register_profile("mutation", settings.default, phases=phases, derandomize=True, database=None)
    settings.load_profile("mutation")


def pytest_collection_modifyitems(items):
    if CHOSEN:
        ranks = {name: rank for rank, name in enumerate(json.loads(Path(CHOSEN).read_text()))}
        items[:] = sorted((item for item in items if item.nodeid in ranks), key=lambda item: ranks[item.nodeid])


def pytest_runtest_logstart(nodeid):
    passed.clear()
    seconds[nodeid] = -worked()


def pytest_runtest_logreport(report):
    if report.outcome != "passed":
        (failed if report.outcome == "failed" else skipped).add(report.nodeid)
    if report.when == "setup":
        shared[report.nodeid.partition("::")[0]] |= passed


def pytest_runtest_logfinish(nodeid):
    seconds[nodeid] += worked()
    places[nodeid] = passed.copy()


def pytest_sessionfinish():
    if WRITTEN:
        good = seconds.keys() - failed - skipped
        figures = {test: [seconds[test], sorted(places[test] | shared[test.partition("::")[0]])] for test in good}
        Path(WRITTEN).write_text(json.dumps({"passed": figures, "failed": sorted(failed)}))
