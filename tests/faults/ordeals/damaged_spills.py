"""Spilled snapshots that are damaged while a reversal runs: it is told, or changes nothing."""

import os
import threading

from tests.faults.ordeals.loop import STEPS, SpillingLoop, expected
from tests.spills import spills

from forebay.errors import CorruptionError


class DamagedLoop(SpillingLoop):
    """A loop that damages its spilled snapshots once, at some call of forward or backward."""

    def __init__(self, directory, at, random):
        super().__init__()
        self.directory, self.at, self.random, self.damaged = directory, at, random, 0

    def tick(self):
        self.at -= 1
        if self.at >= 0 or self.damaged:
            return
        for entry in spills(self.directory):
            size = os.stat(entry).st_size
            if not size:
                return
            with open(entry, "r+b", buffering=0) as file:
                for _ in range(self.random.choice((1, 4, 40))):
                    place = self.random.randrange(size)
                    file.seek(place)
                    byte = file.read(1)
                    file.seek(place)
                    file.write(bytes([byte[0] ^ 1 << self.random.randrange(8)]))
            self.damaged = 1

    def forward(self, state, start, stop):
        self.tick()
        return super().forward(state, start, stop)

    def backward(self, state, step):
        self.tick()
        super().backward(state, step)


def undergo(folder, count, random):
    """Damage the file of so many reversals."""
    sound, told = expected(), {"damaged": 0, "told": 0, "without effect": 0, "wrong": []}
    before = threading.active_count()
    while told["damaged"] < count:
        loop = DamagedLoop(folder, random.randrange(STEPS // 3, 2 * STEPS), random)
        try:
            image = loop.reverse(folder)
        except CorruptionError as error:
            told["damaged"] += 1
            told["told"] += 1
            if "step" not in str(error):
                told["wrong"].append(str(error))
        else:
            told["damaged"] += loop.damaged
            told["without effect"] += loop.damaged
            if image != sound:
                told["wrong"].append("another image")
        if spills(folder) or threading.active_count() > before:
            told["wrong"].append(f"left {spills(folder)}, {threading.enumerate()}")
    return told
