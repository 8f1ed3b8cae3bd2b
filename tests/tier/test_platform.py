"""What is Linux's alone is asked for when it is used, and says so."""

import subprocess
import sys

import pytest

from forebay.errors import BudgetError, DiskError
from forebay.tier.capacity import host_capacity
from forebay.tier.disk import Disk

WITHOUT = """
import sys

sys.modules["fcntl"] = sys.modules["resource"] = None
import os

for name in ("O_DIRECT", "posix_fallocate", "posix_fadvise", "sched_getaffinity"):
    delattr(os, name)
import numpy as np

import forebay as fb

total = np.zeros(3)


def step(state, start, stop):
    return (state[0] * 0.5 ** (stop - start),)


def add(state, step):
    total[:] += state[0]


fb.reverse(step, add, (np.ones(3),), steps=10, budget="64kB", schedule="revolve:3")
print(total[0])
"""


@pytest.mark.slow
def test_reversals_in_memory_need_nothing_of_linux():
    ended = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    assert float(ended.stdout) == pytest.approx(2 - 2**-9)


def test_a_disk_elsewhere_says_what_it_needs(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(DiskError, match="needs Linux"):
        Disk(tmp_path, 10_000)
    assert not list(tmp_path.iterdir())


def test_free_memory_that_nobody_tells_asks_for_a_budget(tmp_path):
    with pytest.raises(BudgetError, match="budget="):
        host_capacity(tmp_path)
