"""A loop whose every bit depends on every step before, for comparisons with keeping everything."""

import numpy as np

import forebay as fb
from forebay.engine.layout import Layout

COSTS = fb.Costs(1e-3, 1e-3, 1e9, disk=fb.Link(1e9, 1e9))


class Loop:
    """Two float fields stepped in place with their roles swapped, and a counter of another type."""

    def __init__(self, points=7, functional=False):
        rng = np.random.default_rng(points)
        self.state = {
            "u": rng.standard_normal(points).astype(np.float32),
            "v": rng.standard_normal((points, 2)).astype(np.float64),
            "count": np.zeros(3, np.int16),
        }
        self.functional = functional
        self.seen = []
        self.turned = []
        self.first_times = []

    def forward(self, state, start, stop, replay):
        u, v, count = state["u"], state["v"], state["count"]
        if self.functional:
            u, v, count = u.copy(), v.copy(), count.copy()
        for step in range(start, stop):
            u += np.float32(0.1) * np.sin(v[:, 0] + step).astype(np.float32)
            v[:, 1] = v[:, 0] * 0.99 + u
            v[:, 0], v[:, 1] = v[:, 1].copy(), v[:, 0].copy()
            count += 1
        if not replay:
            self.first_times += range(start, stop)
        return {"u": u, "v": v, "count": count}

    def backward(self, state, step):
        self.seen.append((step, *(array.tobytes() for array in (state.values() if isinstance(state, dict) else state))))

    def turn(self, state):
        self.turned.append(state["u"].tobytes())

    def expect(self, steps, every=1, keys=("u", "v", "count")):
        """Run it without the engine."""
        states, state = [], {key: array.copy() for key, array in self.state.items()}
        for step in range(steps):
            if step % every == 0:
                states.append((step, *(state[key].tobytes() for key in keys)))
            state = Loop.forward(Loop(functional=True), state, step, step + 1, True)
        return states[::-1], state["u"].tobytes()


LOOP = Loop()
"""Never run itself: what others are compared with."""

SNAPSHOT = Layout.of(LOOP.state).nbytes


def budget_of(slots):
    """Return a budget of so many snapshots in the host's memory, and on disk where a second number is given."""
    return fb.Budget(**{tier: count * SNAPSHOT for tier, count in zip(("host", "disk"), slots, strict=False)})


def assert_within(slots, result):
    """Compare the most bytes that a reversal held with such a budget."""
    for tier, count in zip(("host", "disk"), slots, strict=False):
        assert result.metrics.peak[tier] <= count * SNAPSHOT
