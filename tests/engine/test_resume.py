"""Reversals that survive: killed at any moment, the same call goes on, bit-equal, and loses one segment at most."""

import json
import os
import stat
import subprocess
import sys

import numpy as np
import pytest

import forebay as fb
from forebay.engine.resume.ledger import Ledger
from forebay.errors import DiskError, StateError
from tests.engine.surviving import CASES

STEPS = 60
SLOW = fb.Costs(1.0, 1.0, 1e9)
SEGMENT = 10
"""Steps of the longest segment that the loops of `surviving` are cut into."""

KILLED = [
    *(("states", 4, seed) for seed in range(1)),
    *(("lossy states", 4, seed) for seed in range(1)),
    *(pytest.param(case, 50, seed, marks=pytest.mark.slow) for case in CASES for seed in range(2)),
]


@pytest.mark.parametrize(("case", "kills", "seed"), KILLED)
def test_killed_at_random_moments_it_goes_on_bit_equal_and_loses_a_segment_at_most(case, kills, seed, tmp_path):
    command = [sys.executable, "-m", "tests.engine.surviving", str(tmp_path), case, str(kills), str(seed)]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    told = json.loads(said.stdout)
    assert told["equal"]
    forward, backward = told["lost"]
    assert 0 <= forward <= kills * 2 * SEGMENT
    assert 0 <= backward <= kills * SEGMENT


class InterruptedLoopError(Exception):
    """What stops a loop."""


class Loop:
    """A loop whose image tells all that went into it, and which can be stopped after some calls of backward."""

    def __init__(self):
        self.state = (np.linspace(0, 1, 50), np.zeros(3, np.int32))
        self.image = np.zeros(50)
        self.stop_after = None
        self.factor = 1.0
        self.forwards = 0

    def forward(self, state, start, stop):
        u, count = state[0].copy(), state[1] + 1
        for step in range(start, stop):
            self.forwards += 1
            u = self.factor * np.sin(u + step)
        return u, count - 1 + (stop - start)

    def backward(self, state, step):
        if self.stop_after is not None:
            self.stop_after -= 1
            if self.stop_after < 0:
                raise InterruptedLoopError
        self.image[:] += state[0] * (step + 1) + state[1][0]

    def reverse(self, resume, **options):
        options = {"budget": "1MB", "schedule": "revolve:6", "costs": SLOW, "adjoint": {"image": self.image}} | options
        return fb.reverse(
            self.forward, self.backward, self.state, options.pop("steps", STEPS), resume=resume, **options
        )

    def interrupt(self, resume, after, **options):
        """Stop it after some backward steps, as an exception of the caller would."""
        self.stop_after = after
        with pytest.raises(InterruptedLoopError):
            self.reverse(resume, **options)
        self.stop_after, self.forwards = None, 0
        self.image[:] = 0


@pytest.fixture
def expected():
    loop = Loop()
    fb.reverse(loop.forward, loop.backward, loop.state, STEPS, budget="1MB", costs=SLOW)
    return loop.image


def test_an_interrupted_reversal_goes_on_where_it_was_and_leaves_nothing(expected, tmp_path):
    loop = Loop()
    loop.interrupt(tmp_path / "here", 30)
    assert stat.S_IMODE((tmp_path / "here").stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "here").iterdir()} == {0o600}
    result = loop.reverse(tmp_path / "here")
    assert loop.image.tobytes() == expected.tobytes()
    assert "resumed with 3" in result.note and result.steps < 35
    assert loop.forwards < 35
    assert 0 < result.costs.backward < 1 and "resumed" in result.explain()
    assert not list((tmp_path / "here").iterdir())


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"steps": STEPS + 1}, "steps was 60 and is 61"),
        ({"codec": "cast:float16"}, "codec"),
        ({"budget": "2MB"}, "budget"),
        ({"adjoint": {"picture": np.zeros(50)}}, "adjoint"),
        ({"record": (0,)}, "record"),
        ({"schedule": "storeall"}, "schedule"),
    ],
)
def test_the_progress_of_another_reversal_is_refused_before_any_work(change, named, tmp_path):
    loop = Loop()
    loop.interrupt(tmp_path, 30)
    with pytest.raises(fb.PlanError, match=f"another reversal: its {named}"):
        loop.reverse(tmp_path, **change)
    assert not loop.forwards


def test_another_first_state_and_another_loop_are_refused(tmp_path):
    loop = Loop()
    loop.interrupt(tmp_path, 30)
    loop.state[0][7] += 1e-9
    with pytest.raises(fb.PlanError, match="checksum of the first state"):
        loop.reverse(tmp_path)
    loop.state[0][7] = np.linspace(0, 1, 50)[7]
    loop.factor = 0.5
    with pytest.raises(StateError, match="forward gives other bits for step 2"):
        loop.reverse(tmp_path)


def damage(path):
    data = bytearray(path.read_bytes())
    data[len(data) * 2 // 3] ^= 4
    path.write_bytes(data)


def newest(directory, name):
    return max(directory.glob(f"{name}-*"), key=lambda path: int(path.name.partition("-")[2]))


def test_damaged_files_are_named_and_the_last_whole_progress_is_used(expected, tmp_path):
    loop = Loop()
    loop.interrupt(tmp_path, 30)
    for name in ("progress", "state"):
        damage(newest(tmp_path, name))
    progress, state = newest(tmp_path, "progress").name, newest(tmp_path, "state").name
    result = loop.reverse(tmp_path)
    assert loop.image.tobytes() == expected.tobytes()
    assert f"{progress} cannot be read" in result.note and f"{state} cannot be read" in result.note
    assert result.steps < 40


@pytest.mark.parametrize("names", [("manifest.json",), ("progress-*",)])
def test_without_whole_progress_it_starts_anew_and_says_so(names, expected, tmp_path):
    loop = Loop()
    loop.interrupt(tmp_path, 30)
    for name in names:
        for path in tmp_path.glob(name):
            damage(path)
    result = loop.reverse(tmp_path)
    assert loop.image.tobytes() == expected.tobytes()
    assert result.steps == STEPS and "cannot be read" in result.note


def test_two_at_once_and_directories_of_others_are_refused(tmp_path):
    ledger = Ledger(tmp_path)
    with pytest.raises(DiskError, match="another process is at work"):
        Loop().reverse(tmp_path)
    ledger.close(finished=True)
    (tmp_path / "thesis.tex").write_text("all of it")
    with pytest.raises(DiskError, match=r"thesis\.tex.*for this reversal alone"):
        Loop().reverse(tmp_path)


def test_what_the_callbacks_write_has_to_be_named(tmp_path):
    with pytest.raises(fb.PlanError, match="resume= needs adjoint="):
        Loop().reverse(tmp_path, adjoint=None)


def test_a_plan_from_before_decides_budget_and_costs(expected, tmp_path):
    loop = Loop()
    plan = fb.reverse(loop.forward, loop.backward, loop.state, STEPS, budget="1MB", costs=SLOW).plan
    loop.image[:] = 0
    loop.interrupt(tmp_path, 10, plan=plan, costs=None, budget=None)
    result = loop.reverse(tmp_path, plan=plan, costs=None, budget=None)
    assert loop.image.tobytes() == expected.tobytes() and result.plan.budget == plan.budget


def test_tensors_too(tmp_path):
    torch = pytest.importorskip("torch")
    image = torch.zeros(20, dtype=torch.bfloat16)
    left = [25]

    def backward(state, step):
        left[0] -= 1
        if not left[0]:
            raise InterruptedLoopError
        image.add_(state["u"])

    def run(resume):
        state = {"u": torch.linspace(0, 1, 20).bfloat16()}
        options = {"resume": resume, "adjoint": {"image": image}} if resume else {}
        fb.reverse(
            lambda s, a, b: {"u": s["u"] * 0.9 ** (b - a)}, backward, state, 40, budget="1MB", costs=SLOW, **options
        )

    with pytest.raises(InterruptedLoopError):
        run(tmp_path)
    image.zero_()
    run(tmp_path)
    resumed = image.clone()
    image.zero_()
    run(tmp_path / "other")
    assert torch.equal(resumed, image) and resumed.any()
    assert os.listdir(tmp_path) == ["other"]
