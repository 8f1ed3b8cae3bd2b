"""The order of lanes, proved on the virtual machine: right for every seed, wrong once any one wait is left out."""

import warnings

import pytest

from forebay.errors import ForebayError
from forebay.machine.virtual import VirtualPool
from forebay.memory.pool.thrash import ThrashWarning
from tests.memory.pool.programs import Trimmed, at_random, expected, run, sweeps

pytestmark = pytest.mark.filterwarnings("ignore::forebay.memory.pool.thrash.ThrashWarning")

KINDS = ("read", "write", "chain", "there and back", "pairs", "looked at", "looked at ahead", "renewed", "replaced")
ARRAY = 1024
"""Bytes that an array of 128 numbers takes."""
CODECS = (None, "raw", Trimmed())
"""Without, of a size known before, and of one that is not; all exact."""


def budget(slots, codec, seed):
    """Give bytes for some arrays, and for encodings on their way: one each way, or two where the seed is odd."""
    return (slots + (0 if codec is None else 6 if seed % 2 else 3)) * ARRAY


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("slots", [2, 3])
@pytest.mark.parametrize("codec", CODECS)
def test_right_for_many_interleavings(kind, slots, codec):
    program = sweeps(7, 128, 4, kind)
    wanted = expected(program)
    for seed in range(6 if codec is None else 3):
        *found, pool = run(program, budget(slots, codec, seed), seed, codec=codec)
        assert tuple(found) == wanted
        assert pool.metrics.peak_device <= budget(slots, codec, seed)


@pytest.mark.parametrize("codec", CODECS)
def test_right_for_programs_at_random(codec):
    for seed in range(24 if codec is None else 12):
        program = at_random(seed)
        *found, _ = run(program, budget(3, codec, seed), seed, codec=codec)
        assert tuple(found) == expected(program)


def goes_wrong(program, device, seed, without, codec, wanted):
    try:
        *found, _ = run(program, device, seed, without, codec)
        return tuple(found) != wanted
    except ForebayError as error:  # what a codec or the machine noticed; a standstill would prove nothing
        return "wait for each other" not in str(error)


PROGRAMS = [
    (program, codec, expected(program))
    for program in (*(sweeps(7, 128, 3, kind) for kind in KINDS), *map(at_random, range(12)))
    for codec in (*CODECS, (Trimmed(), "raw"))
]


WAITS = [
    "decode: fetched",
    "decode: room free",
    "encode: computed",
    "encode: staging free",
    "fetch: room free",
    "fetch: staging free",
    "fetch: stored",
    "get: computed",
    "get: encoded",
    "get: fetched",
    "get: stored",
    "put: host room free",
    "put: room free",
    "store: computed",
    "store: encoded",
    "store: encoding's room free",
    "store: host room free",
    "use: fetched",
    "use: room free",
]
"""The names of the waits that the pool makes."""


def test_the_waits_are_those_known_here():
    found = set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ThrashWarning)
        for program, codec, _ in PROGRAMS:
            machine = VirtualPool(0)
            run(program, budget(3, codec, 0), codec=codec, machine=machine)
            found |= machine.lanes.waits
    assert sorted(found) == WAITS


def likely_first(without):
    """List the programs, those first that do what the wait is for: with encodings, looks at values, or new arrays."""
    encoded, looks = any(word in without for word in ("cod", "staging")), without.startswith("get")
    renews = "room free" in without and ("put" in without or "store" in without)
    return sorted(
        PROGRAMS,
        key=lambda entry: (
            encoded and (entry[1] is None or entry[1] == "raw"),
            looks and all(step.get is None for step in entry[0].steps),
            renews and all(step.renew is step.replace is None for step in entry[0].steps),
        ),
    )


@pytest.mark.parametrize("without", WAITS)
def test_wrong_once_any_one_wait_is_left_out(without):
    assert any(
        goes_wrong(program, budget(slots, codec, seed), seed, without, codec, wanted)
        for program, codec, wanted in likely_first(without)
        for seed in range(4)
        for slots in (3, 4)
    )
