"""What is moved, lost and computed again where sizes turn out otherwise than planned is the same as ever.

`same_spills.json` holds what was counted. `python -m tests.engine.test_same_spills` writes it anew, where that is meant
to change: the difference shows what got better, or worse.
"""

import json
from itertools import product
from pathlib import Path
from random import Random

import pytest
from xxhash import xxh3_64_hexdigest

import forebay as fb
from forebay.codec import register, registry
from forebay.engine.spilling import room_making
from forebay.engine.spilling.thinning import SnapshotSizes, forward_steps, next_save, spares
from tests.engine.test_online_encoded import FILLINGS as ENDLESS
from tests.engine.test_online_encoded import reverse as endless
from tests.engine.test_replanning import FILLINGS as LONG_FILLINGS
from tests.engine.test_replanning import SIZE, reverse
from tests.engine.test_spilling import CONFIGURATIONS, FILLINGS, run
from tests.engine.thinning import Thin, ThinLoop

KNOWN = Path(__file__).with_name("same_spills.json")


def counted(metrics):
    """List what a reversal did."""
    names = ("advanced", "recomputed", "hits", "misses", "spilled", "lost", "replanned")
    ratios = [round(metrics.mean_ratio, 6), round(metrics.ratios.worst, 6)]
    return [
        *(getattr(metrics, name) for name in names),
        sorted(metrics.moved.items()),
        sorted(metrics.avoided.items()),
        sorted(metrics.peak.items()),
        ratios,
        order(metrics.timeline),
    ]


def order(timeline):
    """Return a digest of what was done of which step: in order where that is computed, and elsewhere in any."""
    computed = [(span.what, span.step) for span in timeline if span.lane == "compute" and span.what != "stall"]
    moved = sorted((span.lane, span.what, span.step) for span in timeline if span.lane != "compute")
    return xxh3_64_hexdigest(repr((computed, moved)).encode())[:8]


def long_run(filling, ratio, host, disk, record, slots):
    """Carry a long loop out on the host, with a ratio that was assumed."""
    register("thin", Thin)
    try:
        budget = fb.Budget(host=host * SIZE, disk=disk * SIZE if disk else None)
        options = {"record": record, "slots": slots, "progress": False}
        return counted(reverse(ThinLoop(LONG_FILLINGS[filling]), ratio, budget, **options).metrics)
    finally:
        del registry._registered["thin"]


def dear_moves(*arguments):
    """Do the same where snapshots are moved together for no more bytes than were saved twice."""
    freely, room_making.FREELY_MOVED = room_making.FREELY_MOVED, 0
    try:
        return long_run(*arguments)
    finally:
        room_making.FREELY_MOVED = freely


def sizes(seed):
    """What is expected of snapshots whose sizes differ."""
    random, known, told = Random(seed), SnapshotSizes(), []
    for _ in range(90):
        known.add(random.randint(0, 99), random.randint(1, 10**6))
        start = random.randint(0, 99)
        told.append([len(known), known.expected, known.typical(start, start + random.choice((0, 3, 90)))])
    return told[::6]


def places(seed):
    """Where snapshots are kept next, and which are given up."""
    random, told = Random(seed), []
    for _ in range(8):
        steps = random.randint(2, 300)
        slots, position = random.randint(0, 30), random.randint(0, steps - 1)
        kept = sorted({0, *(random.randint(1, steps) for _ in range(random.randint(1, 40)))})
        told.append([next_save(position, steps, free, slots) for free in (-1, 0, 1, 5)])
        told += [forward_steps(steps, slots), spares(kept, steps)]
    return told


def cases():
    """Yield the name of each case, and what makes it anew."""
    for number, ((schedule, slots, policy), filling) in enumerate(product(CONFIGURATIONS, FILLINGS)):
        if number % 2 == number // 8 % 2:
            keep = ("states", "records")[number // 2 % 2]
            arguments = (schedule, slots, policy, filling, number % 4, None, keep, (0.1, 0.3)[number // 4 % 2])
            yield f"virtual {arguments}", lambda arguments=arguments: counted(run(*arguments)[1])
    runs = (
        ("growing", 20.0, 6, 0, None, None),
        ("growing", 20.0, 5, 4, None, None),
        ("small at first", 20.0, 7, 0, (0, 1), None),
        ("small at last", 8.0, 5, 3, (0, 1), None),
        ("always small", 2.0, 7, 0, None, 3),
        ("never small", 20.0, 4, 0, (0, 1), None),
        ("never small", 3.0, 5, 6, None, None),
        ("small at first", 20.0, 12, 0, (0, 1), None),
        ("growing", 20.0, 7, 5, (0, 1), None),
        ("small at last", 1.5, 9, 0, None, None),
    )
    for arguments in runs:
        yield f"long {arguments}", lambda arguments=arguments: long_run(*arguments)
    for arguments in (runs[0], ("small at first", 20.0, 12, 0, (0, 1), None)):
        yield f"dear moves {arguments}", lambda arguments=arguments: dear_moves(*arguments)
    for number, (filling, tiers) in enumerate(product(ENDLESS, ((5,), (12,), (4, 5)))):
        arguments = (filling, 60 + number, tiers, (4.0, 8.0, 50.0)[number % 3])
        yield f"endless {arguments}", lambda arguments=arguments: counted(endless(*arguments).metrics)
    for seed in range(4):
        yield f"sizes {seed}", lambda seed=seed: sizes(seed)
        yield f"places {seed}", lambda seed=seed: places(seed)


@pytest.mark.parametrize(("name", "make"), list(cases()), ids=lambda value: value if isinstance(value, str) else "")
def test_the_same_is_counted_as_ever(name, make):
    assert json.loads(json.dumps(make())) == json.loads(KNOWN.read_text())[name]


if __name__ == "__main__":
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(make())}" for name, make in cases())
    KNOWN.write_text(f"{{\n{lines}\n}}\n")
