"""The order of uses: recognised when it repeats, foretold from then on, doubted after it broke."""

import random

from hypothesis import given
from hypothesis import strategies as st

from forebay.memory.pool import sequence as sequence_module
from forebay.memory.pool.sequence import NEVER, Use, UseHistory


def after(keys):
    sequence = UseHistory()
    for key in keys:
        sequence.add(Use((key,)))
    return sequence


def foretold(sequence, count):
    return [sequence.expected(sequence.now + 1 + step).reads[0] for step in range(count)]


def test_nothing_is_foretold_before_something_repeats():
    sequence = after("abcd")
    assert not sequence.believed and sequence.period == 0 and sequence.next_use("a") == NEVER


def test_two_uses_as_before_are_believed():
    assert not after("abcda").believed
    sequence = after("abcdab")
    assert sequence.believed and sequence.period == 4
    assert foretold(sequence, 4) == list("cdab")


def test_the_next_use_is_within_the_round():
    sequence = after("abcdab")
    distances = [sequence.next_use(key) - sequence.now for key in "cdab"]
    assert distances == [1, 2, 3, 4]
    assert sequence.next_use("z") == NEVER


def test_what_was_used_only_before_the_round_is_not_expected():
    sequence = after("xyabcabc")
    assert sequence.believed and sequence.next_use("x") == NEVER


def test_the_same_arrays_in_another_role_are_another_use():
    sequence = UseHistory()
    for use in (Use((1,)), Use((), (1,)), Use((1,)), Use((1,))):
        sequence.add(use)
    assert not sequence.believed


def test_the_longest_likeness_decides():
    # "a" was followed by "b" last, but by "c" when "x" stood before it.
    sequence = after("yxacyaby" + "xa")
    assert sequence.believed and foretold(sequence, 1) == ["c"]


def test_a_broken_order_is_doubted_for_longer_and_trusted_again_once_it_holds():
    sequence = after("abcdabcd")
    version = sequence.version
    sequence.add(Use(("z",)))
    assert not sequence.believed and sequence.version > version
    for key in "ab":
        sequence.add(Use((key,)))
    assert not sequence.believed
    for key in "cd" + 4 * "abcd" + "ab":
        sequence.add(Use((key,)))
    assert sequence.believed and foretold(sequence, 2) == list("cd")


def test_uses_at_random_are_hardly_ever_foretold():
    generator = random.Random(0)
    sequence = UseHistory()
    believed = 0
    for _ in range(4000):
        sequence.add(Use((generator.randrange(6),)))
        believed += sequence.believed
    assert believed < 0.02 * 4000


@given(st.lists(st.integers(0, 5), min_size=1, max_size=12), st.integers(3, 5))
def test_a_repeating_sequence_is_foretold_right(keys, rounds):
    sequence = after(keys * rounds)
    assert sequence.believed
    coming = foretold(sequence, sequence.period)
    endless = keys * (len(coming) // len(keys) + 2)
    assert coming == endless[: len(coming)]
    for key in set(keys):
        assert sequence.next_use(key) - sequence.now == 1 + endless.index(key)


def test_only_so_much_is_remembered(monkeypatch):
    monkeypatch.setattr(sequence_module, "MEMORY", 100)
    keys = [f"{number}" for number in range(7)]
    sequence = after(keys * 100)
    assert sequence.believed and foretold(sequence, 7) == keys
    assert len(sequence._uses) <= 101 and all(len(places) <= 101 for places in sequence._positions.values())
    once = after([f"{number}" for number in range(1000)])
    assert len(once._uses) <= 101 and len(once._positions) <= 101
