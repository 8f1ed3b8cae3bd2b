"""For pytest: runs chosen tests in a given order, and writes what each takes and which lines of ours it runs.

Lines are known where Python has `sys.monitoring`, which 3.12 brought.
"""

import json
import os
import sys
from collections import defaultdict
from pathlib import Path

from hypothesis import Phase, settings

CHOSEN, WRITTEN = (os.environ.get(f"FOREBAY_MUTATION_{name}") for name in ("CHOSEN", "WRITTEN"))
ROOMS = f"{os.sep}src{os.sep}forebay{os.sep}"
monitoring = getattr(sys, "monitoring", None) if WRITTEN else None
seen: set[tuple[str, int]] = set()
seconds: dict[str, float] = defaultdict(float)
failed: set[str] = set()
lines: dict[str, set[tuple[str, int]]] = {}
shared: dict[str, set[tuple[str, int]]] = defaultdict(set)
"""What fixtures run, which may be those of a whole file."""


def _see(code, line):
    if ROOMS in code.co_filename:
        seen.add((code.co_filename.rpartition(ROOMS)[2], line))
    return monitoring.DISABLE


if monitoring:
    monitoring.use_tool_id(monitoring.COVERAGE_ID, "forebay")
    monitoring.register_callback(monitoring.COVERAGE_ID, monitoring.events.LINE, _see)
    monitoring.set_events(monitoring.COVERAGE_ID, monitoring.events.LINE)


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
    seen.clear()
    if monitoring:
        monitoring.restart_events()


def pytest_runtest_logreport(report):
    seconds[report.nodeid] += report.duration
    if report.outcome != "passed":
        failed.add(report.nodeid)
    if report.when == "setup":
        shared[report.nodeid.partition("::")[0]] |= seen


def pytest_runtest_logfinish(nodeid):
    lines[nodeid] = seen.copy()


def _by_file(test):
    by_file = defaultdict(list)
    for file, line in sorted(lines[test] | shared[test.partition("::")[0]]):
        by_file[file].append(line)
    return by_file


def pytest_sessionfinish():
    if WRITTEN:
        passed = [test for test in seconds if test not in failed]
        figures = {test: [seconds[test], _by_file(test) if monitoring else None] for test in passed}
        Path(WRITTEN).write_text(json.dumps({"passed": figures, "failed": sorted(failed)}))
