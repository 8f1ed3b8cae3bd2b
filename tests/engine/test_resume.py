"""Reversals that survive: killed at any moment, the same call goes on, bit-equal, and loses one segment at most."""

import json
import os
import re
import stat
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np
import pytest

import forebay as fb
from forebay.checksums import checksum_of
from forebay.engine.resume import segments
from forebay.engine.resume.files import MAGIC, read_arrays, write_arrays
from forebay.engine.resume.ledger import Ledger
from forebay.errors import CorruptionError, DiskError, StateError
from tests.engine.surviving import CASES
from tests.faults import figures

STEPS = 60
SLOW = fb.Costs(1.0, 1.0, 1e9)
SEGMENT = 10
"""Steps of the longest segment that the loops of `surviving` are cut into."""

MANY = 50
"""Kills of the long form."""
KILLED = [
    pytest.param("states", 3, 0, marks=pytest.mark.slow),
    ("lossy states", 3, 0),
    *(pytest.param(case, MANY, seed, marks=pytest.mark.slow) for case in CASES for seed in range(2)),
]


@pytest.mark.parametrize(("case", "kills", "seed"), KILLED)
def test_killed_at_random_moments_it_goes_on_bit_equal_and_loses_a_segment_at_most(case, kills, seed, tmp_path):
    begun = perf_counter()
    command = [sys.executable, "-m", "tests.engine.surviving", str(tmp_path), case, str(kills), str(seed)]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    told = json.loads(said.stdout)
    counted = {"kills": kills, "backward steps repeated": told["lost"][1], "wrong": int(not told["equal"])}
    name = f"reversals with resume killed, {case}, seed {seed}"
    if kills >= MANY:
        figures.record("faults", name, counted, perf_counter() - begun)
    assert told["equal"]
    forward, backward = told["lost"]
    assert forward <= kills * 2 * SEGMENT
    assert 0 <= backward <= kills * SEGMENT
    assert min(told["more"]) >= 0


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


@pytest.mark.parametrize("every", [1, 7])
def test_progress_is_shown_from_where_it_was(every, tmp_path, monkeypatch):
    shown = []

    @contextmanager
    def progress_bar(title, total, seconds, wanted, done=0):
        ticks = []
        yield lambda: ticks.append(title)
        shown.append((total, done + len(ticks)))

    monkeypatch.setattr(segments, "progress_bar", progress_bar)
    loop, coarse = Loop(), -(-STEPS // every)
    loop.interrupt(tmp_path, coarse // 2, every=every)
    loop.reverse(tmp_path, every=every)
    assert shown == [(coarse, coarse)]


@pytest.mark.parametrize("schedule", ["storeall", "revolve:6"])
def test_the_turn_is_taken_once_whatever_comes_after_it(schedule, expected, tmp_path):
    loop, finals = Loop(), []
    options = {"schedule": schedule, "turn": lambda final: finals.append(final[0].copy())}
    loop.interrupt(tmp_path, 0, **options)
    loop.reverse(tmp_path, **options)
    assert len(finals) == 1 and loop.image.tobytes() == expected.tobytes()


@pytest.mark.parametrize("after", [1, 30, 59])
def test_a_loop_that_memory_holds_is_run_forward_once(after, expected, tmp_path):
    loop, options = Loop(), {"schedule": "storeall", "codec": "lossless" if after == 30 else None}
    options["costs"] = replace(SLOW, codecs={"lossless": fb.CodecCost(2, 1e12, 1e12)})
    result = loop.reverse(tmp_path / "whole", **options)
    assert loop.image.tobytes() == expected.tobytes() and loop.forwards == STEPS == result.plan.steps
    loop.image[:] = 0
    loop.interrupt(tmp_path / "halves", after, **options)
    result = loop.reverse(tmp_path / "halves", **options)
    assert loop.image.tobytes() == expected.tobytes()
    assert result.steps <= STEPS - after + 4 and loop.forwards <= result.steps + 1


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"steps": STEPS + 1}, "steps was 60 and is 61"),
        ({"codec": "cast:float16"}, "codec"),
        ({"budget": "2MB"}, "budget"),
        ({"adjoint": {"picture": np.zeros(50)}}, "adjoint"),
        ({"record": (0,)}, "record"),
        ({"schedule": "storeall"}, "schedule"),
        ({"reversals": 3}, "reversals"),
        ({"turn": print}, "turn"),
    ],
)
def test_the_progress_of_another_reversal_is_refused_before_any_work(change, named, tmp_path):
    loop = Loop()
    loop.interrupt(tmp_path, 30)
    with pytest.raises(fb.PlanError, match=f"another reversal: its {named}"):
        loop.reverse(tmp_path, **change)
    assert not loop.forwards


def test_whatever_else_is_asked_for_makes_another_reversal(tmp_path):
    loop = Loop()
    loop.interrupt(tmp_path, 30)
    plan = fb.plan(STEPS, 8192, fb.Budget(host="1MB"), schedule="revolve:6", costs=SLOW)
    for name, changed in {
        "policy": "lru",
        "slots": 3,
        "every": 2,
        "costs": replace(SLOW, backward=2.0),
        "plan": plan,
    }.items():
        with pytest.raises(fb.PlanError, match=f"another reversal: its {name} was"):
            loop.reverse(tmp_path, **{name: changed})
    for name in ("forward", "backward"):
        other = Loop()
        setattr(other, name, lambda *about: None)
        with pytest.raises(fb.PlanError, match=f"another reversal: its {name} was Loop"):
            other.reverse(tmp_path)
    assert not loop.forwards


@pytest.mark.parametrize(
    ("forge", "said"),
    [
        (lambda data, size: data + b"x", "something follows its end"),
        (lambda data, size: data[:8] + (2**62).to_bytes(8, "little") + data[16:], "its header is damaged"),
        (lambda data, size: b"forebay0" + data[8:], "its header is damaged"),
        (lambda data, size: data[:-1], "its array 'a' is damaged"),
        (lambda data, size: sealed({"shape": [2**40]}), "its array 'a' cannot be in it"),
        (lambda data, size: sealed({"shape": [5], "type": "|O"}), "its array 'a' cannot be in it"),
        (lambda data, size: sealed({"shape": [size // 8 + 1]}), "its array 'a' cannot be in it"),
        (lambda data, size: sealed({"shape": [size // 8]}), "its array 'a' is damaged"),
    ],
)
def test_a_file_whose_sizes_are_wrong_is_refused_before_memory_is_taken(forge, said, tmp_path):
    path = tmp_path / "progress-1"
    write_arrays(path, {"step": 3}, {"a": np.arange(5.0)})
    header, arrays = read_arrays(path)
    assert header == {"step": 3} and arrays["a"].tolist() == [0, 1, 2, 3, 4]
    size = len(sealed({}))
    path.write_bytes(forge(path.read_bytes(), size))
    with pytest.raises(CorruptionError, match=said):
        read_arrays(path)


def sealed(change):
    """Return a file of progress with a sound header, whatever it says of its array."""
    text = {"shape": [10000], "type": "<f8", "checksum": "0" * 32} | change
    header = json.dumps({"step": 3, "arrays": [{"name": "a", **text}]}).ljust(200).encode()
    start = MAGIC + len(header).to_bytes(8, "little") + bytes.fromhex(checksum_of([header]))
    return start + header + bytes(40)


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


def test_records_on_the_disk_are_not_run_again_but_damaged_ones_are(expected, tmp_path):
    for is_damaged in (False, True):
        loop, options = Loop(), {"schedule": "storeall"}
        loop.interrupt(tmp_path, 30, **options)
        assert len(list(tmp_path.glob("record-*"))) > 25
        if is_damaged:
            damage(tmp_path / "record-29")
        result = loop.reverse(tmp_path, **options)
        assert loop.image.tobytes() == expected.tobytes() and not list(tmp_path.iterdir())
        assert ("cannot be read" in result.note) is is_damaged
        assert 1 + is_damaged <= loop.forwards <= (4 if is_damaged else 1)
        assert result.costs.forward > 1e-6


@pytest.mark.parametrize("names", [("manifest",), ("progress-*",)])
def test_without_whole_progress_it_starts_anew_and_says_so(names, expected, tmp_path):
    loop = Loop()
    loop.interrupt(tmp_path, 30)
    for name in names:
        for path in tmp_path.glob(name):
            damage(path)
    result = loop.reverse(tmp_path)
    assert loop.image.tobytes() == expected.tobytes()
    assert result.steps == STEPS and "cannot be read" in result.note


def test_what_a_dead_process_left_unfinished_is_in_nobodys_way(expected, tmp_path):
    loop = Loop()
    loop.interrupt(tmp_path, 30)
    unfinished = [tmp_path / f".0123abcd.{name}" for name in ("progress-99", "lock.owner")]
    for path in unfinished:
        path.write_bytes(b"half")
    loop.interrupt(tmp_path, 1)
    assert not any(path.exists() for path in unfinished)
    loop.reverse(tmp_path)
    assert loop.image.tobytes() == expected.tobytes()


def test_two_at_once_and_directories_of_others_are_refused(tmp_path):
    ledger = Ledger(tmp_path)
    with pytest.raises(DiskError, match="another run works in"):
        Loop().reverse(tmp_path)
    ledger.close(finished=True)
    (tmp_path / ".0a1b2c3d.lock.owner").write_text("")  # of a process that died before it had the lock
    Loop().reverse(tmp_path)
    assert not list(tmp_path.iterdir())
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


def test_what_is_timed_is_not_the_first_run(tmp_path):
    runs = np.zeros(40)

    def forward(state, start, stop, replay):
        runs[start:stop] += not replay
        return (state[0] + (stop - start),)

    for every in (1, 4):
        runs[:] = 0
        options = {"budget": "64kB", "every": every, "resume": tmp_path, "adjoint": {"runs": runs}}
        fb.reverse(forward, lambda state, step: None, (np.zeros(4),), np.int64(40), **options)
        assert (runs == 1).all()


@pytest.mark.parametrize("raised", [ValueError, KeyError, OSError])
def test_what_load_raises_is_the_callers_and_nothing_is_lost(raised, expected, tmp_path):
    loop, fails = Loop(), [True]

    def save(file):
        np.save(file, loop.image)

    def load(file):
        loop.image[:] = np.load(file)
        if fails:
            raise raised("as the caller says")

    loop.interrupt(tmp_path, 30, adjoint=(save, load))
    with pytest.raises(raised, match="as the caller says"):
        loop.reverse(tmp_path, adjoint=(save, load))
    assert not loop.forwards
    fails.clear()
    result = loop.reverse(tmp_path, adjoint=(save, load))
    assert loop.image.tobytes() == expected.tobytes() and result.steps < 35


READ_ONLY = np.broadcast_to(0.0, 50)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"adjoint": {"x": 1.0}}, r"adjoint\['x'\] is a float"),
        ({"adjoint": {"x": [1.0]}}, r"adjoint\['x'\] is a list"),
        ({"adjoint": {"x": np.float64(1)}}, r"adjoint\['x'\] is a float64"),
        ({"adjoint": {"x": np.ma.zeros(3)}}, r"adjoint\['x'\] is a MaskedArray"),
        ({"adjoint": {"x": READ_ONLY}}, r"adjoint\['x'\] cannot be written to"),
        ({"adjoint": {"x": np.array([None])}}, r"adjoint\['x'\]: an array of Python objects"),
        ({"adjoint": {("x", 1): np.zeros(3)}}, "the name .'x', 1.: names of its arrays are texts"),
        ({"adjoint": np.zeros(3)}, r"is a ndarray: give a dict of arrays by name.* or \(save, load\)"),
        ({"adjoint": (print,)}, "not of two functions"),
        ({"adjoint": (print, 3)}, "not of two functions"),
        ({"every": None}, "every must be a whole number"),
        ({"every": 0}, "every=0: it must be at least 1"),
        ({"step_costs": [1.0] * 59}, "step_costs has 59 numbers, but the loop has 60 steps"),
        ({"step_costs": ["dear"] * 60}, "step_costs= has to be a list of one number for each step"),
        ({"step_costs": iter([1.0] * 60)}, "step_costs= has to be a list of one number for each step"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_written(options, said, tmp_path):
    loop = Loop()
    with pytest.raises(fb.ForebayError, match=said):
        loop.reverse(tmp_path / "here", **options)
    assert not loop.forwards and not (tmp_path / "here").exists()


def test_an_adjoint_without_resume_is_refused():
    loop = Loop()
    with pytest.raises(fb.PlanError, match="name its directory with resume="):
        loop.reverse(None)
    assert not loop.forwards


@pytest.mark.parametrize("name", ["manifest", "progress-3", "lock"])
def test_a_folder_where_a_file_belongs_is_refused(name, tmp_path):
    (tmp_path / name).mkdir()
    with pytest.raises(DiskError, match=f"holds '{name}'.*for this reversal alone"):
        Loop().reverse(tmp_path)


@dataclass
class Dated:
    """A state with something that is no array."""

    u: np.ndarray
    interval: float


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"u": np.zeros((2, 2))}, {"v": np.zeros((2, 2))}),
        ({"u": np.zeros((2, 2))}, {"u": np.zeros((2, 2), order="F")}),
        (Dated(np.zeros(3), 0.5), Dated(np.zeros(3), 0.25)),
    ],
)
def test_a_state_of_another_kind_is_refused(before, after, tmp_path):
    def run(state):
        def backward(state, step):
            raise InterruptedLoopError

        fb.reverse(lambda s, a, b: s, backward, state, 20, budget="1MB", costs=SLOW, resume=tmp_path, adjoint={})

    for _ in range(2):
        with pytest.raises(InterruptedLoopError):
            run(before)
    with pytest.raises(fb.PlanError, match="another reversal: its state was"):
        run(after)


def test_progress_is_counted_in_a_budget_of_the_disk(tmp_path, monkeypatch):
    image, sizes, replace = np.zeros(2**20, np.uint8), [], os.replace

    def watched(part, path):
        sizes.append(sum(file.stat().st_size for file in tmp_path.iterdir()))
        replace(part, path)

    def run(disk):
        budget = fb.Budget(host="64kB", disk=disk)
        costs = fb.Costs(1.0, 1.0, 1e9, disk=fb.Link(1e9, 1e9))
        options = {"budget": budget, "costs": costs, "resume": tmp_path, "adjoint": {"image": image}}
        fb.reverse(lambda s, a, b: (s[0] + b - a,), lambda s, step: None, (np.zeros(4),), 40, **options)

    with pytest.raises(fb.BudgetError, match=r"disk budget is 2MB, and .* needs .* at least") as refused:
        run("2MB")
    assert not list(tmp_path.glob("progress-*"))
    least = int(re.search(r"(\d+) bytes", str(refused.value))[1])
    monkeypatch.setattr(os, "replace", watched)
    run(least)
    assert 3 * 2**20 < max(sizes) <= least


def test_steps_of_unequal_cost_are_planned_in_segments_too(expected, tmp_path):
    loop = Loop()
    options = {"step_costs": [1.0] * 30 + [9.0] * 15 + [0.0] * 15, "schedule": "auto", "budget": "20kB"}
    loop.interrupt(tmp_path, 30, **options)
    with pytest.raises(fb.PlanError, match="another reversal: its step_costs"):
        loop.reverse(tmp_path, **options | {"step_costs": [1.0] * 60})
    loop.reverse(tmp_path, **options)
    assert loop.image.tobytes() == expected.tobytes()
