"""One interpreter for every schedule (`forebay.schedule.check`), and what each schedule promises beyond it."""

import itertools
import pickle
from heapq import heappop, heappush

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.example_counts import fewer

from forebay.errors import ScheduleError
from forebay.schedule import (
    Backward,
    Drop,
    Foreign,
    Forward,
    Hierarchical,
    Level,
    Online,
    Restore,
    Revolve,
    Save,
    StoreAll,
    TwoLevel,
    Uniform,
    Weighted,
    ZCut,
    check,
    named,
)
from forebay.schedule.names import is_auto
from forebay.schedule.zcut import fewest_snapshots


@pytest.mark.parametrize("steps", range(1, 65))
def test_every_schedule_reverses_every_step_once_in_order(steps):
    assert check(StoreAll(steps)).peak_snapshots == steps and StoreAll(steps).inner == 0
    for snapshots in range(1, steps + 1):
        assert check(Revolve(steps, snapshots)).peak_snapshots == snapshots
        assert check(Uniform(steps, snapshots)).peak_snapshots <= snapshots
    for snapshots in range(fewest_snapshots(steps), steps + 2):
        assert check(ZCut(steps, snapshots)).peak_snapshots <= snapshots


@pytest.mark.parametrize("steps", [1, 2, 3, 7, 16, 33, 64])
def test_two_levels_hold_majors_and_inner_snapshots(steps):
    for interval in range(1, steps + 1):
        for inner in range(interval):
            schedule = check(TwoLevel(steps, interval, inner))
            assert schedule.peak_snapshots <= schedule.majors + inner


@pytest.mark.parametrize("steps", [1, 2, 3, 5, 8, 13, 30, 64])
@pytest.mark.parametrize("prices", [(), (0.0,), (0.4,), (7.0,), (60.0,), (2.0, 15.0)], ids=str)
def test_levels_hold_as_many_snapshots_as_they_say(steps, prices):
    for counts in itertools.product((1, 2, 5), repeat=len(prices) + 1):
        snapshots = [min(count, steps) for count in counts]
        schedule = check(Hierarchical(steps, tuple(map(Level, snapshots, (0.0, *prices)))))
        assert schedule.peak_snapshots <= sum(snapshots)


@pytest.mark.slow
@fewer(40)
@given(st.integers(65, 3000), st.data())
def test_the_same_holds_for_longer_loops(steps, data):
    interval = data.draw(st.integers(1, steps))
    check(TwoLevel(steps, interval, data.draw(st.integers(0, interval - 1))))
    check(Revolve(steps, data.draw(st.integers(4, steps))))
    check(Uniform(steps, data.draw(st.integers(steps // 20 + 1, steps))))
    check(ZCut(steps, data.draw(st.integers(fewest_snapshots(steps), steps + 1))))


def fewest_forward_steps_and_saves(steps, snapshots, kept=()):
    """Search all reversals there are, from snapshots kept at the turn where there are some, cheapest first."""
    # The step of the working state, the live snapshots, and the next state to be visited.
    start = (None, frozenset(kept), steps - 1) if kept else (0, frozenset(), steps)
    queue, best = [(0, 0, 0, start)], {}
    order = itertools.count(1)
    while queue:
        forward, saves, _, (position, alive, wanted) = heappop(queue)
        if wanted < 0:
            return forward, saves
        if best.get((position, alive, wanted), (forward + 1,)) <= (forward, saves):
            continue
        best[position, alive, wanted] = forward, saves
        moves = []
        if position == wanted:
            moves.append((0, 0, (None, frozenset(step for step in alive if step < wanted), wanted - 1)))
        if position is not None and position < wanted:
            moves.append((1, 0, (position + 1, alive, wanted)))
        if position is not None and position not in alive and len(alive) < snapshots:
            moves.append((0, 1, (position, alive | {position}, wanted)))
        moves += [(0, 0, (step, alive, wanted)) for step in alive]
        moves += [(0, 0, (position, alive - {step}, wanted)) for step in alive]
        for more_forward, more_saves, state in moves:
            heappush(queue, (forward + more_forward, saves + more_saves, next(order), state))
    raise AssertionError("no reversal found")


@pytest.mark.parametrize(("steps", "snapshots"), [(n, s) for n in range(1, 10) for s in range(1, min(n, 4) + 1)])
def test_revolve_is_the_best_of_all_reversals(steps, snapshots):
    schedule = Revolve(steps, snapshots)
    assert (schedule.forward_steps, schedule.saves) == fewest_forward_steps_and_saves(steps, snapshots)


def binomial_optimum(most_visits, most_snapshots):
    """Fewest (forward steps, saves) by dynamic programming over the first save: the oracle for longer loops."""
    best = {(1, s): (0, 1) for s in range(1, most_snapshots + 1)}
    for visits in range(2, most_visits + 1):
        best[visits, 1] = (visits * (visits - 1) // 2, 1)
        for s in range(2, most_snapshots + 1):
            best[visits, s] = min(
                (
                    m + best[m, s][0] + best[visits - m, s - 1][0],
                    best[m, s][1] + (best[visits - m, s - 1][1] if visits - m > 1 else 0),
                )
                for m in range(1, visits)
            )
    return best


def test_revolve_equals_the_binomial_optimum_with_the_fewest_saves():
    for (visits, snapshots), expected in binomial_optimum(130, 9).items():
        if snapshots < visits:
            schedule = Revolve(visits - 1, snapshots)
            assert (schedule.forward_steps, schedule.saves) == expected


def least_with_prices(most_visits, first, most_saves, price):
    """Fewest forward steps, and the price of each save, by dynamic programming over lengths, as H-Revolve does it."""
    binomial = binomial_optimum(most_visits, first)
    best = {}
    for saves in range(most_saves + 1):
        for visits in range(1, most_visits + 1):
            splits = [m + price + best[visits - m, saves - 1] + best[m, saves] for m in range(1, visits) if saves]
            best[visits, saves] = min([binomial[visits, first][0], *splits])
    return best


@pytest.mark.parametrize("price", [0.3, 2.2, 7.7, 30.0])
@pytest.mark.parametrize("first", [1, 3])
def test_levels_come_close_to_the_table_over_all_lengths(first, price):
    best = least_with_prices(70, first, 6, price)
    over = []
    for visits in range(8, 71):
        schedule = Hierarchical(visits - 1, (Level(first), Level(6, price)))
        taken = schedule.forward_steps + price * schedule.priced_saves
        over.append((taken + visits) / (best[visits, 6] + visits))
    assert max(over) < 1.04 and sum(over) / len(over) < 1.005
    assert min(over) > 1 - 1e-9


def test_levels_without_a_price_are_revolve():
    for steps, first, more in ((50, 1, 4), (300, 2, 3), (3751, 3, 5)):
        schedule = Hierarchical(steps, (Level(first), Level(more)))
        assert schedule.forward_steps == Revolve(steps, first + more).forward_steps


def test_counts_need_no_run():
    schedule = Revolve(10**9, 50)
    assert schedule.forward_steps == 8 * (10**9 + 1) - 300674088  # r (n + 1) - C(s + r, r - 1) with s = 50, r = 8
    assert len(schedule) == 3 * 10**9 + 2 * schedule.saves


def test_a_long_revolve_starts_at_once_and_streams():
    actions = iter(Revolve(1_000_000, 100))
    assert str(next(actions)) == "Save(step=0)"
    assert sum(1 for _ in itertools.islice(actions, 10_000)) == 10_000


def test_schedules_are_values():
    schedule = Revolve(20, 3)
    assert list(schedule) == list(schedule)
    assert schedule == Revolve(20, 3)
    assert pickle.loads(pickle.dumps(schedule)) == schedule
    with pytest.raises(AttributeError):
        schedule.steps = 3


def test_actions_read_like_a_specification():
    expected = [
        Save(0),
        Forward(0, 1),
        Save(1),
        Forward(1, 2),
        Restore(1),
        Drop(1),
        Backward(1),
        Restore(0),
        Drop(0),
        Backward(0),
    ]
    assert list(map(str, StoreAll(2))) == list(map(str, expected))


@pytest.mark.parametrize(
    "text",
    ["storeall", "uniform:25", "zcut:149", "revolve:20", "twolevel:32,31", "twolevel:32,8"],
)
def test_names_and_back(text):
    assert str(named(text, 1000)) == text


def test_schedules_show_what_they_are_made_from():
    levels = "(Level(snapshots=2, price=0.0), Level(snapshots=3, price=1.5))"
    assert repr(named("hierarchical:2,3@1.5", 9)) == f"Hierarchical(steps=9, levels={levels})"
    schedules = StoreAll(9), Revolve(9, 3), Uniform(9, 3), ZCut(9, 6), TwoLevel(9, 3, 2)
    assert [eval(repr(schedule)) for schedule in schedules] == list(schedules)


@pytest.mark.parametrize("text", ["hierarchical:3", "hierarchical:2,14@30", "hierarchical:2,14@0.25,40@1e-07"])
def test_names_of_levels_and_back(text):
    schedule = named(text, 1000)
    assert str(schedule) == text and named(str(schedule), 1000) == schedule


@pytest.mark.parametrize(("asked", "expected"), [(" Auto ", True), ("auto:3", False), (3, False), (None, False)])
def test_it_is_told_whether_the_planner_is_to_find_a_schedule(asked, expected):
    assert is_auto(asked) is expected


def test_names_may_leave_the_inner_snapshots_out():
    assert named("twolevel:32", 1000) == TwoLevel(1000, 32, 31)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: StoreAll(0), "at least one step"),
        (lambda: Revolve(2.5, 1), "whole number"),
        (lambda: Revolve(10, 0), "at least one snapshot"),
        (lambda: Revolve(10, 11), "give 10 or fewer"),
        (lambda: Uniform(10, 12), "give 10 or fewer"),
        (lambda: ZCut(100, 19), "20 for 100 steps"),
        (lambda: ZCut(3751, 0), "123 for 3751 steps"),
        (lambda: TwoLevel(10, 11), "give 1 to 10"),
        (lambda: TwoLevel(10, 5, 5), "give 0 to 4"),
        (lambda: named("revolve", 10), "revolve:20"),
        (lambda: named("revolve:1,2", 10), "one number"),
        (lambda: named("storeall:3", 10), "no number"),
        (lambda: named("griewank:3", 10), "revolve"),
        (lambda: named("uniform:x", 10), "one number"),
        (lambda: named("hierarchical", 10), "needs a number"),
        (lambda: named("hierarchical:2,3@4@5", 10), "levels"),
        (lambda: named("hierarchical:2,3@.", 10), "number of forward steps"),
        (lambda: named("hierarchical:2@3", 10), "the first level has none"),
        (lambda: named("hierarchical:2,0@3", 10), "give 1 to 10"),
        (lambda: Hierarchical(10, ()), "at least one level"),
        (lambda: Hierarchical(10, (Level(11),)), "give 1 to 10"),
        (lambda: Hierarchical(10, (Level(1), Level(2, -0.1))), "0 or more"),
        (lambda: ZCut(100, 102), "102 snapshots are more than zcut can use: give 101"),
        (lambda: TwoLevel(10, 0), "give 1 to 10"),
        (lambda: TwoLevel(10, 5, -2), "give 0 to 4"),
        (lambda: named("uniform:1,1", 10), "one number"),
        (lambda: named("zcut:8,1", 10), "one number"),
        (lambda: named("online:1,1", 10), "one number"),
        (lambda: named("weighted:1,1", 10, [1.0] * 10), "one number"),
        (lambda: named("weighted:1", 10), "say what they are"),
        (lambda: named("twolevel:3,2,1", 10), "two numbers"),
        (lambda: named("hierarchical:1,1,1,1,1", 10), "up to four levels"),
        (lambda: named(f"revolve:{'1' * 19}", 10), "cannot read"),
        (lambda: Hierarchical(10, (Level(1), Level(2, float("inf")))), "0 or more"),
    ],
)
def test_bad_input_is_refused_with_what_would_work(make, says):
    with pytest.raises(ScheduleError, match=says):
        make()


def test_what_just_fits_is_taken():
    schedules = ZCut(100, 20), ZCut(100, 101), TwoLevel(10, 10, 9), TwoLevel(10, 1, 0), Uniform(10, 10), Revolve(1, 1)
    levels = [Hierarchical(10, (Level(10), Level(1, 0.0))), named("hierarchical:1,1,1,1", 10)]
    for schedule in (*schedules, *levels, named("twolevel:3,2", 10), named("online:1", 10)):
        check(schedule)


@pytest.mark.parametrize(
    ("actions", "says"),
    [
        ([Save(0), Forward(0, 2), Restore(0), Backward(1)], "working state is at 0"),
        ([Forward(0, 2), Restore(0)], "no such snapshot"),
        ([Save(0), Forward(0, 1), Restore(0), Forward(0, 1), Backward(1)], "before the loop has reached its end"),
        ([Save(0), Forward(0, 2), Restore(0), Backward(0)], "the next is 1"),
        ([Save(0), Forward(0, 2)], "never reversed"),
        ([Save(0), Save(0)], "there already"),
        ([Save(0), Forward(1, 2)], "working state is at 0"),
        ([Save(0), Forward(0, 3)], "beyond the last step"),
        ([Save(1)], "working state is at 0"),
        ([Drop(0)], "no such snapshot"),
        (
            [Save(0), Forward(0, 2), Restore(0), Forward(0, 1), Backward(1), Restore(0), Backward(0)],
            "never dropped",
        ),
    ],
)
def test_the_interpreter_refuses_what_cannot_work(actions, says):
    with pytest.raises(ScheduleError, match=says):
        check(Foreign(2, tuple(actions)))


@pytest.mark.parametrize("small", [np.int8, np.uint8, np.uint64], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize(
    "make",
    [
        lambda n: StoreAll(n(120)),
        lambda n: ZCut(n(100), n(60)),
        lambda n: Revolve(n(100), n(3)),
        lambda n: Uniform(n(100), n(7)),
        lambda n: TwoLevel(n(120), n(11)),
        lambda n: TwoLevel(n(120), n(11), n(4)),
        lambda n: Online(n(120), n(3)),
        lambda n: Weighted(n(90), n(3), np.arange(90, dtype=np.uint8)),
        lambda n: Hierarchical(n(120), (Level(n(2)), Level(n(14), np.float32(2.5)))),
        lambda n: named("hierarchical:2,100@30", n(120)),
    ],
)
def test_small_numbers_of_numpy_are_as_any_others(make, small):
    schedule = check(make(small))
    assert schedule == make(int) and repr(schedule) == repr(make(int)) and list(schedule) == list(make(int))
    assert type(schedule.steps) is int and type(schedule.forward_steps) is int


def test_what_zcut_needs_is_told_of_small_numbers_too():
    with pytest.raises(ScheduleError, match="20 for 100 steps, not 3: give 20"):
        ZCut(np.int8(100), 3)


def test_the_interpreter_holds_a_schedule_to_its_word():
    class Boaster(StoreAll):
        forward_steps = 1

    with pytest.raises(ScheduleError, match="not as told"):
        check(Boaster(5))


@pytest.mark.parametrize(("make", "numbers"), [(StoreAll, [9]), (Revolve, [9, 4]), (Uniform, [9, 4]), (ZCut, [9, 7])])
def test_a_schedule_takes_its_own_numbers_alone(make, numbers):
    assert make(*numbers).steps == 9
    with pytest.raises(TypeError):
        make(*numbers, 3)
