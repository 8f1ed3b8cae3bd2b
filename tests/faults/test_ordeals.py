"""A bad day, again and again: each ordeal in a short form and a long one, which writes its figures to docs/results."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import pytest
from tests.faults import figures

linux = pytest.mark.skipif(sys.platform != "linux", reason="what Linux alone does")


@dataclass(frozen=True)
class Ordeal:
    """What is done to reversals and jobs, how often, and what has to come of it at least."""

    module: str
    short: int
    long: int
    counts: str
    """the entry that says how often it was done"""
    often: tuple[str, ...] = ()
    """entries that must not be zero in the long form: else it tries nothing"""
    needs: str = ""


ORDEALS = {
    "jobs killed by KILL and TERM, and resumed": Ordeal("killed_jobs", 0, 100, "kills"),
    "Dask workers of jobs killed": Ordeal("killed_workers", 0, 24, "kills", needs="workers"),
    "disks full and read-only under a job": Ordeal("disks", 0, 20, "full", ("refused", "read-only"), needs="mounts"),
    "spilled snapshots damaged while a reversal runs": Ordeal("damaged_spills", 4, 300, "damaged", ("told",)),
    "progress damaged between two runs": Ordeal("damaged_progress", 4, 300, "damaged", ("told",)),
    "callbacks that raise": Ordeal("raising_callbacks", 15, 1000, "raised"),
    "less addresses than the budget (RLIMIT_AS)": Ordeal("memory_caps", 2, 60, "tried", ("refused",)),
    "less memory than the budget (control group)": Ordeal(
        "control_groups", 2, 40, "tried", ("planned smaller",), needs="groups"
    ),
    "several runs in one directory": Ordeal("two_runs", 0, 60, "runs", ("refused", "finished")),
    "reversals in threads": Ordeal("threads", 8, 400, "reversals"),
    "reversals in a row": Ordeal("leaks", 30, 2000, "reversals"),
}


def missing(needs):
    """Say what an ordeal needs and is not there."""
    if needs == "workers":
        pytest.importorskip("distributed")
        pytest.importorskip("psutil")
    if needs == "mounts" and (os.geteuid() or not shutil.which("mount")):
        return "only root can mount a disk"
    if needs == "groups":
        from tests.faults.ordeals.control_groups import group

        try:
            place, _ = group()
        except OSError as error:
            return str(error)
        place.rmdir()
    return ""


def undergo(counts, folder, seed=1):
    """Go through ordeals so often, in a process of their own; return what came of each, and the seconds."""
    ordeals = [f"{ORDEALS[name].module}:{count}" for name, count in counts.items()]
    command = [sys.executable, "-m", "tests.faults.ordeals", str(folder), str(seed), *ordeals]
    begun = perf_counter()
    run = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], timeout=850)
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-6000:]
    return [json.loads(line) for line in run.stdout.splitlines()], perf_counter() - begun


@linux
def test_nothing_is_lost_and_nothing_silently_wrong(tmp_path):
    counts = {name: ordeal.short for name, ordeal in ORDEALS.items() if ordeal.short and not missing(ordeal.needs)}
    for (name, count), told in zip(counts.items(), undergo(counts, tmp_path)[0], strict=True):
        assert told["wrong"] == [] and told[ORDEALS[name].counts] >= count, (name, told)


@linux
@pytest.mark.slow
@pytest.mark.parametrize("name", ORDEALS)
def test_nothing_is_lost_in_the_long_form(name, tmp_path):
    if lacking := missing(ORDEALS[name].needs):
        pytest.skip(lacking)
    (told,), seconds = undergo({name: ORDEALS[name].long}, tmp_path, seed=2)
    figures.record("faults", name, told | {"wrong": len(told["wrong"])}, seconds)
    assert told["wrong"] == [] and told[ORDEALS[name].counts] >= ORDEALS[name].long, told
    assert all(told[entry] for entry in ORDEALS[name].often), told


def test_the_page_of_results_tells_the_figures_that_were_counted():
    counted = json.loads((figures.RESULTS / "faults.json").read_text())
    assert (figures.RESULTS / "faults.md").read_text() == figures.page(counted)
