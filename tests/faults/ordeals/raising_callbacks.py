"""Callbacks that raise anything anywhere: the very exception comes out, and nothing is left open."""

import threading
from contextlib import suppress

from tests.faults.ordeals.loop import STEPS, SpillingLoop
from tests.spills import spills

ERRORS = (ValueError, StopIteration, KeyboardInterrupt, SystemExit, MemoryError, GeneratorExit, AssertionError, OSError)
WAYS = (
    {},
    {"codec": "lossless"},
    {"schedule": "revolve:6", "budget": "1MB"},
    {"schedule": "auto"},
    {"every": 3, "schedule": "storeall"},
)
MEASURED = (
    {"schedule": "auto", "costs": None},
    {"step_costs": "learn", "schedule": "auto", "costs": None, "budget": "600kB"},
)
"""Ways that time links and steps first, which takes a second."""


class RaisingLoop(SpillingLoop):
    """A loop whose callbacks raise an error at some call."""

    def __init__(self, which, at, error):
        super().__init__()
        self.which, self.at, self.error = which, at, error

    def tick(self, which):
        if which == self.which:
            self.at -= 1
            if self.at < 0:
                raise self.error

    def forward(self, state, start, stop):
        self.tick("forward")
        return super().forward(state, start, stop)

    def backward(self, state, step):
        self.tick("backward")
        super().backward(state, step)

    def turn(self, state):
        self.tick("turn")

    def record(self, state, step):
        self.tick("record")
        return state


def undergo(folder, count, random):
    """Have so many reversals end by an exception of a callback."""
    told, before = {"raised": 0, "wrong": []}, threading.active_count()
    while told["raised"] < count:
        which, way = (
            random.choice(("forward", "backward", "turn", "record")),
            random.choice(WAYS if random.random() < 0.99 else MEASURED),
        )
        error = random.choice(ERRORS)("of a callback")
        loop = RaisingLoop(which, 0 if which == "turn" else random.randrange(STEPS // 3), error)
        options = {"turn": loop.turn} | ({"record": loop.record} if which == "record" else {}) | way
        with suppress(StopIteration):
            try:
                loop.reverse(folder, **options)
            except BaseException as seen:
                told["raised"] += 1
                if seen is not error:
                    told["wrong"].append(f"{type(error).__name__} in {which} came out as {seen!r}, {way}")
        if spills(folder) or threading.active_count() > before:
            told["wrong"].append(f"left {spills(folder)}, {threading.enumerate()} after {error!r} in {which}, {way}")
        if told["wrong"]:
            break
    return told
