"""Many small loops, drawn at random, are reversed by the same actions as ever.

`same_draws.json` holds what each came to. `python -m tests.schedule.test_same_draws` writes it anew, where a schedule
is meant to change: the difference shows which loops are reversed in another way, and in how many steps and saves.
"""

from pathlib import Path
from random import Random

import pytest
from tests.schedule.test_learning import learned
from tests.tables import differs, write
from xxhash import xxh3_64_hexdigest

from forebay.schedule import Hierarchical, Level, Online, Weighted, check, named
from forebay.schedule.levels.exact import MOST
from forebay.schedule.online import back, retainable

KNOWN = Path(__file__).with_name("same_draws.json")


def costs_of(draw, steps):
    """Costs of steps of one kind or another; hardly two are equal, so that no choice hangs on the last digit."""
    kind, dear, scale = draw.randrange(7), draw.randrange(steps), draw.choice((1e-4, 1.0, 3e5))
    slope, often = draw.choice((-0.9, 3.0)), draw.choice((0.05, 0.4))
    costs = {
        0: [1 / (0.02 + draw.random()) for _ in range(steps)],
        1: [1 + slope * step / steps for step in range(steps)],
        2: [25.0 if draw.random() < often else 1.0 for _ in range(steps)],
        3: [1.0 if step < dear else 10.0 for step in range(steps)],
        4: [1.0 if step == dear or draw.random() < often else 0.0 for step in range(steps)],
        5: [1.0 + 7.0 * (step // 9 % 3 == 1) for step in range(steps)],
        6: [1.0] * steps,
    }[kind]
    return [scale * (1 + 0.05 * draw.random()) * cost for cost in costs]


def few(draw):
    """A first sweep that learns, with few slots."""
    steps = draw.randint(9, 60)
    costs, snapshots, lap = costs_of(draw, steps), draw.randint(2, 6), draw.choice((1, 1, 1, 2, 3))
    return f"{snapshots} of {steps} by {lap}", learned(costs, snapshots, lap)


def many(draw):
    """The same with many."""
    steps = draw.randint(3, 99)
    snapshots = draw.choice((24, 25, 26, 40)) if steps > 40 else draw.randint(int((2 * steps) ** 0.5), steps)
    lap = draw.choice((1, 1, 1, 2, 3))
    return f"{snapshots} of {steps} by {lap}", learned(costs_of(draw, steps), snapshots, lap)


def weighted(draw):
    """Steps of unequal cost that are known."""
    steps = draw.randint(2, 130)
    return f"{steps}", Weighted(steps, draw.randint(1, min(steps, 9)), costs_of(draw, steps))


def gridded(draw):
    """The same where the loop is too long to be split exactly."""
    steps = draw.randint(513, 700)
    return f"{steps}", Weighted(steps, draw.randint(2, 5), costs_of(draw, steps))


def nearly_even(draw):
    """A long loop whose steps hardly differ: where a grid tells nothing, it is split as by Revolve."""
    noise = draw.choice((0.021, 0.03))
    return f"{noise}", Weighted(700, 2, [1 + noise * draw.random() for _ in range(700)])


def tabulated(draw):
    """Two levels with a price, of short loops."""
    steps = draw.randint(2, 70)
    first, other = draw.randint(1, min(steps, 5)), draw.randint(1, min(steps, 7))
    return f"{steps}", Hierarchical(steps, (Level(first), Level(other, draw.choice((0.2, 1, 2.5, 7, 30)))))


def worth(draw):
    """Levels with a price whose splits follow from the worth of a visit."""
    steps, levels = draw.randint(MOST + 1, 900), draw.choice((1, 2, 2, 3))
    prices = sorted(draw.choice((0.0, 0.3, 1, 4, 11.5, 60)) for _ in range(levels))
    others = [Level(draw.choice((1, 2, 5, MOST + 1)), price) for price in prices]
    return f"{steps}", Hierarchical(steps, (Level(draw.randint(1, 6)), *others))


def online(draw):
    """A loop whose end is not known."""
    steps = draw.randint(1, 150)
    return f"{steps}", Online(steps, draw.choice((1, 2, 3, 4, 7, 20)))


def segmented(draw):
    """Segments, each with snapshots of its own."""
    steps = draw.randint(2, 150)
    interval = draw.randint(1, steps)
    name = draw.choice((f"uniform:{interval}", f"revolve:{interval}", f"twolevel:{interval},{interval // 3}", "zcut:"))
    return f"{steps}", named(name + str(steps - interval // 2 + 1) * (name == "zcut:"), steps)


KINDS = {
    few: 50,
    many: 40,
    weighted: 40,
    gridded: 3,
    nearly_even: 2,
    tabulated: 25,
    worth: 40,
    online: 25,
    segmented: 25,
}


def told_of(kind, number):
    """Tell which loop is reversed, and by what."""
    about, schedule = kind(Random(f"{kind.__name__} {number}"))
    return [f"{schedule} {about}", *summary(schedule)]


def summary(schedule):
    """Tell a checksum of all actions, and how much a schedule does."""
    actions = xxh3_64_hexdigest(repr(list(check(schedule))).encode())
    return [actions, schedule.forward_steps, schedule.saves, schedule.peak_snapshots]


def ways_back(number):
    """Tell which snapshots a sweep may retain, the best choice first, and a way back with some of them."""
    draw = Random(f"retained {number}")
    schedule = online(draw)[1]
    steps, snapshots = schedule.steps, schedule.snapshots
    choices = retainable(schedule.kept, steps, snapshots)
    actions = [list(back(schedule.kept, steps, snapshots, retained)) for retained in choices]
    return [f"{schedule} {steps}", choices, xxh3_64_hexdigest(repr(actions).encode())]


def cases():
    """Yield the name of each case, and what makes it anew."""
    limits = (399, 63), (399, 64), (400, 64), (400, 65), (401, 64)
    yield "limits of tables", lambda: [summary(Hierarchical(n, (Level(2), Level(s, 3.5)))) for n, s in limits]
    yield "ways back", lambda: [ways_back(number) for number in range(12)]
    for kind, count in KINDS.items():
        yield kind.__name__, lambda kind=kind, count=count: [told_of(kind, number) for number in range(count)]


@pytest.mark.parametrize(("name", "make"), list(cases()), ids=lambda value: value if isinstance(value, str) else "")
def test_what_is_drawn_is_reversed_as_ever(name, make):
    assert not differs(KNOWN, name, make)


if __name__ == "__main__":
    write(KNOWN, cases())
