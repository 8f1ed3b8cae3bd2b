"""Decoders on a GPU read damaged encodings: they notice, or decode garbage, and touch nothing that is not theirs."""

import json
import subprocess
import sys
from pathlib import Path
from time import perf_counter

import pytest
from tests.faults import figures

CASES = [
    ("bounded:1e-4", "float32", "21,37,53"),
    ("bounded:1e-4", "float32", "67,45"),
    ("bounded:1e-4", "float32", "5001"),
    ("bounded:1e-4", "float64", "12,20,68"),
    ("dense:1e-4", "float32", "21,37,53"),
    ("dense:1e-4", "float32", "67,145"),
    ("dense:1e-4", "float64", "12,20,68"),
]


def undergo(case, count):
    """Decode in a process of its own: what goes wrong there ends its context."""
    command = [sys.executable, "-m", "tests.codec.guarded_gpu", *case, str(count)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], timeout=600)
    assert run.returncode == 0, run.stderr[-3000:]
    told = json.loads(run.stdout)
    assert told["tried"] == count and told["wrong"] == [], told
    assert told["noticed"] > count / 4
    return told


@pytest.mark.gpu
@pytest.mark.parametrize("case", [CASES[0], CASES[4]], ids=" ".join)
def test_damaged_encodings_do_no_harm(case, cupy):
    undergo(case, 60)


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=" ".join)
def test_many_damaged_encodings_do_no_harm(case, cupy):
    begun = perf_counter()
    told = undergo(case, 3000)
    figures.record("fuzz", f"{' '.join(case)} on a GPU", told | {"wrong": 0}, perf_counter() - begun)
