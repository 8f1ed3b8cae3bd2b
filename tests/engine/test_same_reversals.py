"""Reversals of all kinds do the same as ever, call by call: of known and unknown ends, encoded, sampled, repeated.

`same_reversals.json` holds what is known. `python -m tests.engine.test_same_reversals` writes it anew, where that is
meant to change.
"""

import json
from itertools import count
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from xxhash import xxh3_64_hexdigest

import forebay as fb
from forebay.codec import register, registry
from forebay.machine.host import HostReversal
from tests.engine.loops import LOOP, Loop, budget_of
from tests.engine.test_same_spills import counted
from tests.engine.thinning import Thin, ThinLoop

KNOWN = Path(__file__).with_name("same_reversals.json")
CODECS = {"cast:float16": fb.CodecCost(3, 1e9, 1e9), "thin": fb.CodecCost(20, 1e12, 1e12)}
COSTS = fb.Costs(1.0, 1.0, 1e9, disk=fb.Link(1e9, 1e9), codecs=CODECS)
STEPS = 29
TWICE = {"reversals": 2, "schedule": "revolve"}
KINDS = {
    "ends": ({"end": 29}, (3,)),
    "ends, disk": ({"end": 30}, (2, 3)),
    "ends, in threes": ({"end": 29, "every": 3}, (4,)),
    "ends, by name": ({"end": 17, "schedule": "online:4"}, (2, 9)),
    "ends at once": ({"end": 1}, (1,)),
    "learns": ({"step_costs": "learn"}, (4,)),
    "learns, disk": ({"step_costs": "learn", "schedule": "weighted:4"}, (3, 4)),
    "learns, in fours": ({"step_costs": "learn", "every": 4}, (3,)),
    "uneven": ({"step_costs": [1.0 + step % 4 for step in range(STEPS)]}, (3, 2)),
    "slots": ({"slots": 3, "schedule": "revolve"}, (9,)),
    "twice": (TWICE, (6,)),
    "twice, disk": (TWICE, (3, 6)),
    "twice, all": ({"reversals": 2, "schedule": "storeall"}, (99,)),
    "twice, records": ({"reversals": 2, "record": ("u",)}, (99,)),
    "twice, ends": ({"reversals": 2, "end": 20}, (6,)),
    "record of steps": ({"record": lambda state, step: (state["u"] + step,), "every": 5}, (40,)),
}
LOSSY = {
    "states": ({"schedule": "revolve:9"}, 400_000),
    "states, disk": ({"schedule": "revolve:9"}, fb.Budget(host=250_000, disk="600kB")),
    "records": ({"record": ("u",)}, 420_000),
    "records of three": ({"record": ("u", "v"), "every": 3}, 400_000),
}


def digest(told):
    return xxh3_64_hexdigest(repr(told).encode())[:8]


class Called(Loop):
    """A loop that notes what it was asked for, and may be over sooner than it was asked for."""

    def __init__(self, end=None):
        super().__init__()
        self.end, self.asked = end, []

    def forward(self, state, start, stop, replay):
        self.asked.append((start, stop, replay))
        over = self.end is not None and stop >= self.end
        state = super().forward(state, start, min(stop, self.end) if over else stop, replay)
        return fb.Ended(state, self.end) if over else state


def told(loop, result):
    """List what was asked for and what was done."""
    metrics = result.metrics
    plan = [str(result.plan.schedule), result.plan.steps, result.plan.every, list(result.plan.slots)]
    costs = result.plan.costs
    plan += [f"{result.plan.seconds:.6g}", f"{costs.forward:.6g}", digest([f"{each:.6g}" for each in costs.steps])]
    return [
        len(loop.asked),
        digest(loop.asked),
        plan,
        result.steps,
        metrics.generations,
        result.note,
        *counted(metrics),
    ]


def reversal(options, slots):
    """Reverse a loop, exactly, once or twice."""
    options = dict(options)
    end, twice, every = options.pop("end", None), options.get("reversals", 1) > 1, options.get("every", 1)
    loop, now = Called(end), count()
    steps = None if end else STEPS
    keys = options.get("record") if isinstance(options.get("record"), tuple) else ("u", "v", "count")
    with (
        patch.object(HostReversal, "moment", lambda machine: float(next(now) ** 2 % 37)),
        fb.prepare(loop.forward, loop.state, steps, budget=budget_of(slots), costs=COSTS, **options) as prepared,
    ):
        prepared.forward(loop.turn)
        retained = [True, False] if twice else [False]
        results = [prepared.backward(loop.backward, progress=False, retain=again) for again in retained]
    assert not any(result.metrics.samples for result in results)  # what is exact has no errors to be told
    if not callable(options.get("record")):
        expected = LOOP.expect(end or STEPS, every, keys)
        assert loop.seen == expected[0] * len(results) and loop.turned == [expected[1]]
    return [told(loop, result) for result in results]


class Waves(Called):
    """One whose bits are those of any machine: no sines."""

    def __init__(self):
        super().__init__()
        points = (np.arange(96 * 80) * 37 % 101 / 64).astype(np.float32).reshape(96, 80)
        self.state = {"u": points, "v": points[::-1].copy()}

    def forward(self, state, start, stop, replay):
        self.asked.append((start, stop, replay))
        u, v = state["u"], state["v"]
        for step in range(start, stop):
            u, v = v * np.float32(0.5) + u, u * np.float32(0.25) + step
        return {"u": u, "v": v}

    def backward(self, seen, step):
        self.seen.append((step, sorted(seen)))


def lossy(options, budget):
    """Reverse a loop with a codec whose errors are sampled."""
    loop = Waves()
    options = {"codec": "cast:float16", "costs": COSTS, "progress": False} | options
    result = fb.reverse(loop.forward, loop.backward, loop.state, STEPS, budget=budget, **options)
    samples = [[f"{value:.3g}" for value in sample] for sample in result.metrics.samples]
    return [*told(loop, result), digest(loop.seen), samples]


def without_states(filling, record, host):
    """Reverse a loop whose records turn out too large for the budget, which has no room for a state beside them."""
    loop = ThinLoop(filling)
    loop.asked = []
    register("thin", Thin)
    try:
        options = {"codec": "thin", "record": record, "progress": False, "costs": COSTS}
        result = fb.reverse(loop.forward, loop.backward, loop.state, 40, budget=host, **options)
    finally:
        del registry._registered["thin"]
    assert loop.seen == loop.expect(40, lambda state: tuple(state[key] for key in record))
    return told(loop, result)


def cases():
    """Yield the name of each case, and what makes it anew."""
    for name, (options, slots) in KINDS.items():
        yield name, lambda options=options, slots=slots: reversal(options, slots)
    for name, (options, budget) in LOSSY.items():
        yield f"lossy {name}", lambda options=options, budget=budget: lossy(options, budget)
    for host in (330_000, 400_000, 480_000):
        for name, filling in (("full", lambda step: 1.0), ("growing", lambda step: step / 40)):
            yield f"records alone, {name}, {host}", lambda a=(filling, (0,), host): without_states(*a)


@pytest.mark.parametrize(("name", "make"), list(cases()), ids=lambda value: value if isinstance(value, str) else "")
def test_it_is_done_as_ever(name, make):
    assert json.loads(json.dumps(make())) == json.loads(KNOWN.read_text())[name]


if __name__ == "__main__":
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(make())}" for name, make in cases())
    KNOWN.write_text(f"{{\n{lines}\n}}\n")
