"""Whatever others have written is read, or refused by an error of ours: no crash, hang, huge allocation or traceback.

The short form tries a few inputs of each reader and all that once failed, which `corpus` keeps. The long form tries a
million, in processes of little memory with a clock.
"""

import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.faults import figures
from tests.fuzz.campaign import campaign, failure_of, input_of
from tests.fuzz.readers import READERS

CORPUS = Path(__file__).with_name("corpus")
EXAMPLES = {"command line": 8, "shape": 25, "zarr": 20, "segy": 30}
"""of the short form, where an input takes long"""
SLOW = {"workspace", "whole job"}
"""Readers that have a migration run before they begin."""
SHARE = {"command line": 0.02, "whole job": 0.3, "workspace": 0.1, "zarr": 0.05, "encoding": 0.5}
SHARE |= {"model": 0.3, "machine": 0.2, "name": 0.05, "plan arguments": 0.15}
"""Of the inputs that each reader has in the long form, where an input takes long."""
INPUTS, SEEDS = 1_000_000, 2
"""of the long form: processes of different seeds share the inputs of each reader"""
GUIDED = 20
"""Seconds of the processor for each reader where atheris chooses the inputs: it is in no extra, few systems have it."""

quick = pytest.mark.parametrize("name", sorted(set(READERS) - SLOW))


@quick
@settings(max_examples=60, derandomize=True, suppress_health_check=list(HealthCheck), deadline=None, database=None)
@given(random=st.randoms(use_true_random=False))
def test_no_input_raises_anything_but_our_errors(name, tmp_path, random):
    if random.randrange(60) >= EXAMPLES.get(name, 60):
        return
    data = input_of(READERS[name], random)
    assert not failure_of(READERS[name], data, tmp_path), data[:300]


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*/*")), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_what_once_failed_is_read_or_refused(path, tmp_path):
    assert not failure_of(READERS[path.parent.name], path.read_bytes(), tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory as Linux has them")
@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("name", sorted(READERS))
def test_a_million_inputs_raise_nothing_but_our_errors(name, seed):
    weights = {reader: SHARE.get(reader, 1.0) for reader in READERS}
    whole = int(os.environ.get("FOREBAY_FUZZ_INPUTS", INPUTS)) / SEEDS
    told = campaign(name, max(100, math.ceil(whole * weights[name] / sum(weights.values()))), seed)
    counted = {"inputs": told["inputs"], "refused": told["refused"], "wrong": sum(told["wrong"].values())}
    figures.record("fuzz", f"{name}, seed {seed}", counted, told["seconds"])
    assert told["wrong"] == {}, told


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", sorted(READERS))
def test_inputs_that_are_guided_by_the_code_raise_nothing_but_our_errors(name):
    pytest.importorskip("atheris")
    command = [sys.executable, "-m", "tests.fuzz.guided", name, str(GUIDED)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=CORPUS.parents[2], timeout=3600)
    assert run.returncode == 0, run.stderr[-4000:]
    told = json.loads(run.stdout.splitlines()[-1])
    counted = told | {"wrong": sum(told["wrong"].values())}
    figures.record("fuzz", f"{name}, guided by atheris", counted, GUIDED)
    assert told["wrong"] == {}, run.stderr[-4000:]


def test_the_campaign_notices_what_hangs_dies_and_raises(monkeypatch):
    assert input_of(READERS["amount"], Random(1)) != input_of(READERS["amount"], Random(2))
    reader = type(READERS["amount"])(lambda: [b"1"], lambda data, folder: [][1])
    assert failure_of(reader, b"1", None) == "IndexError in test_fuzz.py:<lambda>"


HANGING = {
    "busy in Python": ("while True: pass", 900.0),
    "busy elsewhere": ("sum(itertools.repeat(0))", 900.0),
    "idle": ("time.sleep(900)", 5.0),
}
HANG = """
import itertools, os, time
from tests.fuzz import campaign
from tests.fuzz.readers import READERS, Reader

def read(data, folder):
    if next(sound, False):
        return
    {how}

sound = iter([True])  # the first input
campaign.SECONDS, campaign.PATIENCE = 1.0, {patience}
READERS["amount"] = Reader(lambda: [b"1"], read)
os.dup2(os.open(os.devnull, os.O_WRONLY), 3)
campaign.work("amount", 0, 1, 0)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits of processor time as Linux has them")
@pytest.mark.parametrize("what", HANGING)
def test_what_hangs_is_ended_by_its_processor_time_and_what_is_idle_by_the_clock(what):
    how, patience = HANGING[what]
    command = [sys.executable, "-c", HANG.format(how=how, patience=patience)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=CORPUS.parents[2], timeout=600)
    ends = {"busy in Python": 0, "busy elsewhere": -signal.SIGXCPU, "idle": 1}
    assert run.returncode == ends[what], run.stderr[-2000:]
    assert ("Hangs in" in run.stdout) == (what == "busy in Python")
