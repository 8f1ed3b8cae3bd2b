"""Less memory than the budget allows, by a limit on addresses: a smaller plan, or an error of ours, and no crash."""

import os
import resource
from pathlib import Path

import numpy as np
from tests.faults.ordeals.jobs import ended

import forebay as fb
from forebay.errors import ForebayError

STEPS, SIZE = 40, 1_000_000
NEED = STEPS * 8 * SIZE
"""Bytes of all states."""
FULFILLED, SMALLER, REFUSED, WRONG = 0, 3, 4, 5
"""How a child ends."""


def reversal():
    """Reverse a loop that would take all of the budget; return its image and what was said of the budget."""
    image = np.zeros(SIZE)

    def forward(state, start, stop):
        values = state[0]
        for step in range(start, stop):
            values = 0.5 * values + step
        return (values,)

    def backward(state, step):
        np.add(image, state[0] * (step + 1), out=image)

    costs = fb.Costs(1e-3, 1e-3, 1e9)
    result = fb.reverse(forward, backward, (np.linspace(0, 1, SIZE),), STEPS, budget=2 * NEED, costs=costs)
    return image.tobytes(), result.note


def outcome(sound):
    """Reverse it under a limit; return how that ended."""
    try:
        image, note = reversal()
    except (ForebayError, MemoryError):
        return REFUSED
    if image != sound:
        return WRONG
    return SMALLER if "taking those" in note else FULFILLED


def limited(share):
    """Take away all addresses but some."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    most = used + int(share * NEED)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def undergo(folder, count, random, limit=limited):
    """Give so many reversals 0.3 to 1.3 of what they need."""
    sound, _ = reversal()
    names = {FULFILLED: "enough", SMALLER: "planned smaller", REFUSED: "refused"}
    told = {"tried": 0, **dict.fromkeys(names.values(), 0), "wrong": []}
    for number in range(count):
        share = 0.3 + number / count
        child = os.fork()
        if not child:
            try:
                limit(share)
                os._exit(outcome(sound))
            except BaseException as error:
                os.write(2, f"{error!r}\n".encode())
            finally:
                os._exit(99)
        code = ended(child)
        told["tried"] += 1
        if code in names:
            told[names[code]] += 1
        else:
            told["wrong"].append(f"with {share:.2f} of the need it ended with {code}")
    return told
