"""The loop that most ordeals reverse: its image tells all that went into it, and half of its states are spilled."""

import numpy as np

import forebay as fb

STEPS = 60
SIZE = 10_000
"""doubles of a state"""
SNAPSHOT = 82_000
COSTS = fb.Costs(1e-3, 1e-3, 1e9, disk=fb.Link(1e9, 1e9), codecs={"lossless": fb.CodecCost(1.5, 1e9, 1e9)})
SPILLED = {"budget": fb.Budget(host=4 * SNAPSHOT, disk="8MB"), "schedule": "storeall", "costs": COSTS}


class SpillingLoop:
    """A loop, and the image that its reversal makes."""

    def __init__(self):
        self.state = (np.linspace(0, 1, SIZE),)
        self.image = np.zeros(SIZE)

    def forward(self, state, start, stop):
        (values,) = state
        for step in range(start, stop):
            values = 0.99 * values + step
        return (values,)

    def backward(self, state, step):
        self.image += state[0] * (step + 1)

    def reverse(self, directory, **options):
        """Reverse it, and return the bytes of its image."""
        self.image[:] = 0
        fb.reverse(self.forward, self.backward, self.state, STEPS, directory=directory, **(SPILLED | options))
        return self.image.tobytes()


def expected():
    """Return the bytes of the image of a loop that is kept in memory whole."""
    return SpillingLoop().reverse(None, budget="8MB", costs=COSTS)
