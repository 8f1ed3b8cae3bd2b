"""Many small problems, drawn at random, get the same plans as ever.

`same_draws.json` holds what each came to. `python -m tests.planner.test_same_draws` writes it anew, where a plan is
meant to change: the difference shows for whom it does, and whether it takes more seconds or fewer.
"""

import re
from pathlib import Path
from random import Random

import pytest
from tests.tables import differs, write

import forebay as fb
from forebay.planner.costs import HostCost

KNOWN = Path(__file__).with_name("same_draws.json")
RAW = 10**6
"""Bytes of a state."""
FAMILIES = ("auto", "auto", "auto", "hierarchical", "revolve", "uniform", "zcut", "twolevel", "storeall", "online:3")


def link(draw):
    up, down = (RAW / (0.2 + 6 * draw.random()) for _ in range(2))
    return fb.Link(up, down, draw.choice((1, 1, 0.6)), draw.choice((1, 1, 1.3)))


def costs_of(draw, steps):
    """Costs of a machine, in seconds of about one forward step."""
    codecs = {
        "small": fb.CodecCost(2 + 4 * draw.random(), 9e6, 12e6, scratch=draw.choice((0, 0.3))),
        "tiny": fb.CodecCost(9.5, 2e6, 1.5e6, worst=1.2, encode_host=0.1, decode_host=0.05),
    }
    host = HostCost()
    if draw.random() < 0.5:
        prices = {name: 0.3 * draw.random() for name in ("call", "save", "restore", "take", "drop", "move", "start")}
        host = HostCost(**prices, forward=0.2, backward=0.1, ahead=draw.random() < 0.5)
    uneven = [1 + 5 * draw.random() ** 2 for _ in range(steps)] if draw.random() < 0.2 else ()
    return fb.Costs(
        0.5 + draw.random(),
        2 * draw.random(),
        RAW / (0.01 + 0.2 * draw.random()),
        link(draw),
        link(draw),
        pin=draw.choice((0, 3e-7)),
        codecs=codecs,
        operations=host,
        steps=tuple(uneven),
    )


def problem(number):
    """What is asked of the planner."""
    draw = Random(f"problem {number}")
    steps, tiers = draw.choice((draw.randint(1, 12), draw.randint(9, 34))), draw.choice((1, 1, 2, 2, 2, 3))
    names = draw.choice((("device", "host", "disk"), ("host", "disk")))[:tiers]
    budget = {name: int(RAW * draw.choice((0.9, 1.4, 2.5, 4, 6, 9)) * 2.2**place) for place, name in enumerate(names)}
    family = draw.choice(FAMILIES)
    codecs = (None, None, "small", ["tiny", "small"])
    takes_long = steps > 16 and family in ("auto", "hierarchical")
    options = {
        "codec": draw.choice(codecs[: 2 if takes_long else 4]),
        "record_bytes": draw.choice((None, None, RAW // 3)),
        "every": draw.choice((1, 1, 1, 3)),
        "policy": draw.choice(("min", "min", "min", "lru")),
        "slots": draw.choice((None, None, None, 1, 3)),
        "reversals": draw.choice((1, 20)),
        "overhead": draw.choice((0, 0, RAW)),
        "encode_states": draw.random() < 0.8,
        "hurry": draw.random() < 0.2,
        "below": draw.choice((float("inf"), 4.0 * steps)),
    }
    return {
        **options,
        "steps": steps,
        "state_bytes": RAW,
        "budget": fb.Budget(**budget),
        "costs": costs_of(draw, steps),
        "schedule": family,
    }


def told_of(number):
    """Tell what is decided, what it takes and what moves; or what a refusal names."""
    try:
        made = fb.plan(**problem(number))
    except fb.ForebayError as error:
        return [type(error).__name__, *re.findall(r"\d+\.?\d*", str(error))]
    what = f"{made.schedule} of {made.keep}, {made.codec}, {made.slots}"
    said = made.prediction
    parts = [made.seconds, said.seconds, said.stall, said.host, said.slowed, said.save + said.restore]
    others = [[other.name, other.seconds, other.exact] for other in made.alternatives[:2]]
    return [what, *parts, said.fetched, said.stored, said.peak, others]


def cases():
    """Yield the name of each case, and what makes it anew."""
    for first in range(0, 160, 10):
        yield f"{first} to {first + 9}", lambda first=first: [told_of(first + more) for more in range(10)]


@pytest.mark.parametrize(("name", "make"), list(cases()), ids=lambda value: value if isinstance(value, str) else "")
def test_what_is_drawn_gets_the_same_plan(name, make):
    assert not differs(KNOWN, name, make)


if __name__ == "__main__":
    write(KNOWN, cases())
