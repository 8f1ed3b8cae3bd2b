"""How close sweeps come to the bound of the link, on a machine whose clock is arithmetic: nothing is really timed."""

import numpy as np
import pytest
from bench.cases.traffic import traffic

import forebay as fb
from forebay.machine.machine import Encoding
from forebay.machine.virtual import VirtualPool
from forebay.memory import Pool
from forebay.memory.pool.sequence import Use

pytestmark = pytest.mark.filterwarnings("ignore::forebay.memory.pool.thrash.ThrashWarning")

ARRAY = 1024
LINK = 1.0
"""Bytes per unit of time, each way."""


class Moment:
    """The end of something, known as soon as it is asked for."""

    done = True

    def __init__(self, time):
        self.time = time


class TimedMachine(VirtualPool):
    """Lanes that know how long each copy takes; the values are of no interest."""

    def __init__(self, kernel, ratio=1.0, codec_speed=8.0):
        super().__init__()
        self.kernel, self.ratio, self.codec_speed = kernel, ratio, codec_speed
        self.ends = dict.fromkeys(("compute", "up 1", "down 1", "codec"), 0.0)

    def spend(self, lane, after, time):
        start = max([self.ends[lane], *(wait.event.time for wait in after)])
        self.ends[lane] = start + time
        return Moment(start + time)

    def copies(self, lane, what, step, pairs, after):
        return self.spend(lane, after, sum(source.nbytes for _, source in pairs) / LINK)

    def encode(self, lane, step, coded, after):
        nbytes = coded[0].spec.nbytes
        event = self.spend(lane, after, nbytes / self.codec_speed)
        return Encoding(event, lambda: [int(nbytes / self.ratio)], lambda: True)

    def decode(self, lane, step, coded, after):
        return self.spend(lane, after, coded[0].spec.nbytes / self.codec_speed)

    def fill(self, target, array, after):
        return self.spend("compute", after, 0)

    def enter(self, index, after, regions):
        self.spend("compute", after, 0)

    def leave(self, index):
        return self.spend("compute", [], self.kernel)

    def array(self, block, form, writable):
        return None

    def sync(self, after):
        pass

    def passed(self, event):
        return True


def sweep_time(count, slots, role, kernel, rounds=10, codec=None, **machine):
    """Give the time of a round in the long run."""
    timed = TimedMachine(kernel, **machine)
    pool = Pool(fb.Budget(device=slots * ARRAY, host=4 * count * ARRAY), codec, timed)
    arrays = [pool.put(np.zeros(ARRAY // 8)) for _ in range(count)]

    def one_round():
        for array in arrays:
            with pool.use(**{role: [array]}):
                pass

    for _ in range(3):
        one_round()
    start = max(timed.ends.values())
    for _ in range(rounds):
        one_round()
    return (max(timed.ends.values()) - start) / rounds


def bound(count, slots, role):
    """Give the time of a round at the least traffic that there can be."""
    uses = [Use((key,)) if role == "reads" else Use((), (key,)) for key in range(count)] * 40
    return max(traffic(uses, dict.fromkeys(range(count), ARRAY), slots * ARRAY, "min", warm=2 * count)) / 38 / LINK


@pytest.mark.parametrize("kernel", [0.0, 0.02, 0.1])
@pytest.mark.parametrize("role", ["reads", "writes"])
def test_a_sweep_over_three_times_the_budget_runs_at_nine_tenths_of_the_bound(role, kernel):
    assert bound(96, 32, role) / sweep_time(96, 32, role, kernel * ARRAY) > 0.9


@pytest.mark.parametrize("role", ["reads", "writes"])
def test_with_few_slots_it_is_still_better_than_the_least_recently_used(role):
    least_recently = 12 * ARRAY / LINK  # each array comes, and where it was changed goes at the same time
    assert sweep_time(12, 4, role, 0.02 * ARRAY) <= 1.01 * least_recently


def test_copies_both_ways_go_on_at_once():
    one_after_the_other = 2 * (96 - 32) * ARRAY / LINK
    assert sweep_time(96, 32, "writes", 0.02 * ARRAY) < 0.6 * one_after_the_other


@pytest.mark.parametrize("role", ["reads", "writes"])
def test_a_codec_takes_it_beyond_the_raw_link(role):
    time = sweep_time(96, 32, role, 0.02 * ARRAY, codec="raw", ratio=4.0)
    assert bound(96, 32, role) / time > 2
