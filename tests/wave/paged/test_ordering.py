"""The waits of passes: on lanes that a seed orders all bits are right, unless one wait is left out."""

from types import SimpleNamespace

import numpy as np
import pytest
from tests.wave.paged.setups import VirtualPlace, paged
from tests.wave.setups import random_model, random_shot

from forebay.machine.region import Region
from forebay.wave import Acoustic, Loop
from forebay.wave.paged.course import Planes
from forebay.wave.paged.door import field_bytes
from forebay.wave.paged.pages import FieldPage, Window
from forebay.wave.paged.passes import Passes

WAITS = {
    "arrive: its planes are home",
    "arrive: its room was left",
    "arrive: its room was moved from",
    "end: all planes are home",
    "leave: its planes are computed",
    "move: its room was left",
    "visit: its planes have arrived",
}
CASES, SEEDS = ((7, 8, 50), (10, 9, 63), (4, 8, 60)), range(8)
"""Steps of a pass, planes of a slab, and those that the window has room for: some find room, others are moved."""


def shot_in_depth():
    model = random_model((64, 9, 10), absorb=4)
    sent = np.random.default_rng(0).random((20, 7))
    return random_shot(model, sources=7, receivers=9, samples=20, wavelet=sent), model


@pytest.fixture(scope="module")
def whole():
    shot, model = shot_in_depth()
    loop = Loop(shot, Acoustic(model, shot.dt))
    return loop.forward(loop.propagator.zeros(), 0, loop.steps), loop.data()


def is_right(whole, case, seed, without=None, devices=1):
    """Tell whether a run on virtual lanes has all bits of one in memory, and which waits it made."""
    shot, model = shot_in_depth()
    place = VirtualPlace(seed, without, count=devices)
    loop = Loop(shot, paged(model, shot.dt, place, field_bytes(model.grid), case=case))
    state = loop.forward(loop.propagator.zeros(), 0, loop.steps)
    same = all(np.array_equal(state[name], values) for name, values in whole[0].items())
    return same and np.array_equal(loop.data(), whole[1]), place.queues.waits


def test_every_order_that_honours_the_waits_is_right(whole):
    waits = set()
    for case in CASES:
        for seed in SEEDS:
            right, made = is_right(whole, case, seed)
            assert right, (case, seed)
            waits |= made
    assert waits == WAITS


@pytest.mark.parametrize("without", sorted(WAITS))
def test_without_any_one_wait_some_order_is_wrong(whole, without):
    assert not all(is_right(whole, case, seed, without)[0] for case in CASES for seed in SEEDS)


@pytest.mark.parametrize("devices", [2, 3])
def test_devices_take_turns(whole, devices):
    for case in CASES:
        for seed in SEEDS:
            assert is_right(whole, case, seed, devices=devices)[0], (case, seed)
    needed = "arrive: its planes are home"
    assert not all(is_right(whole, case, seed, needed, devices)[0] for case in CASES for seed in SEEDS)


class Log:
    """Lanes that copy nothing, and know of each event which others are past before it begins."""

    memory = Region(0, 1 << 30, np.broadcast_to(np.zeros(1, np.uint8), 1 << 30))

    def __init__(self):
        self.last, self.home, self.late, self.all = {}, {}, [], []

    def add(self, lane, after):
        before = set().union(*(wait.event.before for wait in after), getattr(self.last.get(lane), "before", ()))
        event = SimpleNamespace(before=before)
        before.add(id(event))
        self.all.append(event)  # so that no two have one number
        self.last[lane] = event
        return event

    def copies(self, lane, pairs, after):
        event = self.add(lane, after)
        for target, source in pairs if lane != "compute" else ():
            at_home = source if lane == "up" else target
            for plane in range(at_home.pointer, at_home.pointer + at_home.nbytes):
                if lane == "down":
                    self.home[plane] = event
                elif plane in self.home and id(self.home[plane]) not in event.before:
                    self.late.append(plane)
        return event

    def compute(self, act, after):
        return self.add("compute", after)


def test_planes_of_a_pass_arrive_when_they_are_home_from_the_one_before():
    """What an event is past is known of every order at once, for windows of all sizes."""
    rng, looked_at = np.random.default_rng(0), 0
    for _ in range(400):
        count, ends = int(rng.integers(30, 150)), int(rng.integers(0, 12))
        planes = Planes(count, 2, 2, ends, ends)
        steps = [int(rng.integers(1, max(2, planes.most_steps + 1))) for _ in range(4)]
        slab = planes.thinnest + int(rng.integers(0, 9))
        least = planes.window(max(steps), slab)
        if planes.most_steps < 1 or least >= count:
            continue
        window = Window((FieldPage("p", 0, (count, 1)),), 1, int(rng.integers(least, count)))
        log, home = Log(), Region(1 << 20, count, np.zeros(count, np.uint8))
        looked_at += 1
        passes = Passes([log], window, {"p": home})
        for number in steps:
            passes.run(planes, number, slab, lambda visit: None, last=False)
        assert not log.late, (planes, steps, slab, window.room)
    assert looked_at > 100
