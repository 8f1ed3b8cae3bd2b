"""Which arrays leave: least recently used at first, farthest next use once the order is known, as brute force has."""

from functools import cache
from itertools import combinations

import pytest
from bench.cases.traffic import traffic
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.memory.pool.eviction import Order
from forebay.memory.pool.sequence import NEVER, Use, UseHistory


def anyone(key):
    return True


def order_after(keys, resident):
    sequence = UseHistory()
    order = Order(sequence)
    for key in keys:
        sequence.add(Use((key,)))
        order.touch(key)
    for key in set(keys) - set(resident):
        order.remove(key)
    return order


def test_the_least_recently_used_leaves_while_nothing_is_foretold():
    order = order_after([1, 2, 3, 4], [1, 2, 3, 4])
    assert order.first(anyone) == (1, NEVER)
    order.touch(1)
    assert order.first(anyone).key == 2


def test_the_farthest_next_use_leaves_once_the_order_is_known():
    order = order_after([1, 2, 3, 4, 1, 2], [1, 2, 3, 4])
    assert order.first(anyone).key == 2
    assert order.first(lambda key: key != 2).key == 1
    order.remove(2)
    assert order.first(anyone).key == 1


def test_what_is_not_expected_again_leaves_before_all_others():
    order = order_after([8, 9, 1, 2, 3, 1, 2], [8, 9, 1, 2, 3])
    assert order.first(anyone) == (8, NEVER)


def test_none_leaves_where_all_are_in_use():
    assert order_after([1, 2], [1, 2]).first(lambda key: False) is None


def fewest_fetches(keys, slots):
    """Try every choice of what leaves."""

    @cache
    def fewest(index, resident):
        if index == len(keys):
            return 0
        key = keys[index]
        if key in resident:
            return fewest(index + 1, resident)
        if len(resident) < slots:
            return 1 + fewest(index + 1, resident | {key})
        return 1 + min(fewest(index + 1, frozenset(stay) | {key}) for stay in combinations(resident, slots - 1))

    return fewest(0, frozenset())


@settings(max_examples=200)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=14), st.integers(1, 4))
def test_farthest_next_use_moves_as_little_as_brute_force(keys, slots):
    uses = [Use((key,)) for key in keys]
    sizes = dict.fromkeys(range(6), 1)
    assert traffic(uses, sizes, slots, "min").up == fewest_fetches(tuple(keys), slots)
    assert traffic(uses, sizes, slots, "lru").up >= traffic(uses, sizes, slots, "min").up


def test_traffic_counts_what_is_written_back_and_leaves_out_the_warm_up():
    uses = [Use((), (key,)) for key in range(4)] * 3
    sizes = dict.fromkeys(range(4), 10)
    assert traffic(uses, sizes, 40, "lru") == (40, 0)
    assert traffic(uses, sizes, 20, "lru") == (120, 100)
    assert traffic(uses, sizes, 20, "lru", warm=4) == (80, 80)
    assert traffic([Use((), (), (key,)) for key in range(4)], sizes, 20, "lru") == (0, 20)


@pytest.mark.parametrize(("arrays", "slots"), [(12, 4), (96, 32), (9, 8)])
def test_in_a_sweep_farthest_next_use_keeps_all_but_one_slot(arrays, slots):
    rounds = 40
    uses = [Use((key,)) for key in range(arrays)] * rounds
    moved = traffic(uses, dict.fromkeys(range(arrays), 1), slots, "min", warm=2 * arrays).up
    assert moved == pytest.approx((rounds - 2) * arrays * (1 - (slots - 1) / (arrays - 1)), rel=0.02)
