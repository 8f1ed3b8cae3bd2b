"""What a process measures once: links and disk for everybody, steps and plans for loops that have a signature."""

from pathlib import Path

import numpy as np
import pytest

import forebay as fb
from forebay import codec
from forebay.engine.loop import TimeLoop
from forebay.engine.timing import costing, measure
from forebay.tier import kept, links

STEPS = 20


@pytest.fixture(autouse=True)
def _nothing_kept():
    fb.forget_costs()
    yield
    fb.forget_costs()


class Loop:
    """A loop that counts its steps."""

    def __init__(self, size=8):
        self.state, self.advanced = (np.ones(size),), 0

    def forward(self, state, start, stop):
        self.advanced += stop - start
        return (state[0] * 0.5 ** (stop - start),)

    def reverse(self, **options):
        """Return the plan, and the steps that were run beside those of the reversal itself."""
        self.advanced, seen = 0, []
        options = {"budget": "1MB", "schedule": "storeall", "progress": False, **options}
        result = fb.reverse(self.forward, lambda s, t: seen.append(s[0][0]), self.state, STEPS, **options)
        assert seen == [0.5**step for step in reversed(range(STEPS))]
        return result.plan, self.advanced - result.metrics.advanced


def test_loops_of_one_signature_are_timed_and_planned_once():
    first, timed = Loop().reverse(signature="halving")
    again, timed_again = Loop().reverse(signature="halving")
    assert timed > 0 and timed_again == 0 and again is first
    other, timed_other = Loop().reverse(signature="another")
    assert timed_other == timed and other is not first


def test_another_budget_is_planned_for_without_timing_anew():
    first, _ = Loop().reverse(signature="halving")
    other, timed = Loop().reverse(signature="halving", budget="2MB")
    assert timed == 0 and other.costs is first.costs and other.budget == fb.Budget(host="2MB")


@pytest.mark.parametrize(
    "changed",
    [
        {"signature": None},
        {"every": 2},
        {"record": (0,)},
        pytest.param({"codec": "cast:float16"}, marks=pytest.mark.slow),
        {"budget": fb.Budget(host="1MB", disk="1MB")},
        {"synchronous": True},
    ],
    ids=str,
)
def test_whatever_costs_depend_on_is_timed_anew(changed):
    Loop().reverse(signature="halving")
    seen = Loop().reverse(signature="halving")[1]
    options = {"signature": "halving", "schedule": "auto", **changed}
    loop = Loop()
    fb.prepare(loop.forward, loop.state, STEPS, **{"budget": "1MB", **options}).close()
    assert seen == 0 and loop.advanced > 0


def test_a_forward_may_say_that_it_is_synchronous():
    class Door(Loop):
        def forward(self, state, start, stop):
            return super().forward(state, start, stop)

        forward.synchronous = True

    assert [Loop().reverse(signature="halving", synchronous=told)[1] > 0 for told in (None, False)] == [True, False]
    assert [Door().reverse(signature="halving", synchronous=told)[1] > 0 for told in (None, True)] == [True, False]
    assert Door().reverse(signature="halving", synchronous=False)[1] == 0


def test_arrays_of_another_size_are_timed_anew():
    Loop().reverse(signature="halving")
    assert Loop(size=9).reverse(signature="halving")[1] > 0


def test_costs_that_are_given_are_not_kept():
    costs = fb.Costs(forward=1e-3, backward=1e-3, copy=1e9)
    Loop().reverse(signature="halving", costs=costs)
    first, timed = Loop().reverse(signature="halving")
    assert timed > 0 and first.costs != costs
    assert Loop().reverse(signature="halving", costs=costs)[0].costs.forward == 1e-3


def test_what_was_measured_is_measured_anew_once_forgotten():
    first, timed = Loop().reverse(signature="halving")
    fb.forget_costs()
    again, timed_again = Loop().reverse(signature="halving")
    assert timed_again == timed and again is not first


def test_without_a_budget_a_little_memory_more_or_less_makes_no_other_plan():
    halves = [costing._rounded(nbytes) for nbytes in (10**9, 10**9 + 10**6, 10**9 - 10**6)]
    assert len(set(halves)) == 1 and 31 / 32 * 10**9 <= halves[0] <= 10**9
    assert [costing._rounded(nbytes) for nbytes in (0, 1, 63, 64, 65, 131)] == [0, 1, 63, 64, 64, 128]


def test_copies_of_the_host_are_timed_once_whoever_asks(monkeypatch):
    asked = []
    monkeypatch.setattr(measure, "host_copy", lambda nbytes: asked.append(nbytes) or 1e9)
    for _ in range(2):
        assert Loop().reverse()[1] > 0
    Loop(size=2000).reverse()
    assert asked == [4096, 16384]


def test_a_disk_is_timed_once_and_another_disk_anew(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(measure, "_disk", lambda nbytes, directory: asked.append(directory) or nbytes)
    (tmp_path / "beside").mkdir()
    for directory in (tmp_path, tmp_path / "beside", "/dev/shm"):
        assert measure._kept_disk(4096, Path(directory)) == 4096
    other = Path("/dev/shm").stat().st_dev != tmp_path.stat().st_dev
    assert len(asked) == 1 + other


def test_costs_are_kept_by_all_that_they_depend_on(monkeypatch, tmp_path):
    monkeypatch.setattr(costing, "kept", lambda key, make: key)
    loop = TimeLoop(lambda state, start, stop: state, Loop().state, 9, 3, (0,), True)

    def key(budget, codecs=((), None), synchronous=False):
        return costing.costs_of(loop, None, fb.Budget(**budget), tmp_path, synchronous, None, codecs, "halving")

    both = tuple((layout.leaves, (None,)) for layout in (loop.layout, loop.record_layout))
    alone = ("loop", "halving", 3, True, both, ((), None), "host", False, ("host",), None, 4096)
    assert key({"host": 10**6}) == alone
    device = tmp_path.stat().st_dev
    beside = (*alone[:-3], ("host", "disk"), device, 4096)
    assert key({"host": 10**6, "disk": 10**6}) == beside
    named = key({"host": 10**6}, ([codec.get("raw"), codec.get("lossless")], 0.1), synchronous=True)
    assert named == (*alone[:5], (("raw", "lossless"), 0.1), "host", True, *alone[-3:])


def test_only_the_latest_are_kept(monkeypatch):
    monkeypatch.setattr(kept, "MOST", 2)
    made = []
    for key in (1, 2, 1, 3, 1, 2):
        assert kept.kept(key, lambda key=key: made.append(key) or key) == key
    assert made == [1, 2, 3, 2]


class Probe:
    """A device whose copies take a second each, and both ways at once two."""

    nbytes, carried = 100, 20

    def __init__(self):
        self.inside = self.up = self.down = self.pin = lambda: 1.0
        self.both = lambda: 2.0


def test_links_of_a_device_are_those_of_its_copies():
    assert links._links_of(Probe()) == links.DeviceLinks(copy=100.0, up=20.0, down=20.0, both=10.0, pin=0.05)


@pytest.mark.gpu
def test_links_of_a_gpu_are_measured_once():
    cp = pytest.importorskip("cupy")
    cp.zeros(1)
    first = links.device_links(2**22)
    assert links.device_links(2**22) is first and links.device_links(2**23) is not first
    fb.forget_costs()
    assert links.device_links(2**22) is not first
