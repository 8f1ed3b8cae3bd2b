"""The order of lanes, proved on the virtual machine: right for every seed, wrong once any one wait is left out."""

import ast
import inspect

import numpy as np
import pytest

from forebay.engine import executor as executor_module
from forebay.engine.executor import Callbacks, Executor
from forebay.engine.layout import Layout
from forebay.errors import EngineError
from forebay.machine.virtual import VirtualReversal
from forebay.planner.choose import operations_of
from forebay.planner.operations import Evict, Fetch, Store
from forebay.planner.simulate import BOUNDLESS, Work, simulate
from forebay.schedule import Drop, Restore, Save, named
from tests.engine.loops import Loop

STEPS = 24
WORK = Work(1, 1, 1, 1, 0, (1, 1), (1, 1))
CONFIGURATIONS = [
    (schedule, slots, policy)
    for schedule in ("storeall", "uniform:6", "zcut:11", "revolve:4", "twolevel:6,3")
    for slots in ((3, 99), (1, 99), (2, 3, 99), (3, 1, 99))
    for policy in ("min", "lru")
]


def run(schedule, slots, policy, seed, without=None, keep="states"):
    loop = Loop()
    schedule = named(schedule, STEPS)
    operations = operations_of(schedule, slots, policy)
    peak = simulate(operations, (*slots[:-1], BOUNDLESS), WORK).peak
    take = (lambda state, step: state) if keep == "states" else (lambda state, step: {"u": state["u"]})
    layout = Layout.of(take(loop.state, 0))
    machine = VirtualReversal(seed, without)
    callbacks = Callbacks(
        forward=lambda state, start, stop: loop.forward(state, start, stop, False),
        backward=loop.backward,
        snapshot=take,
        keeps=keep == "states",
    )
    initial = {key: array.copy() for key, array in loop.state.items()}
    rooms = [count * layout.nbytes for count in peak]
    executor = Executor(machine, layout, ("first", "second", "third")[: len(slots)], rooms, callbacks)
    executor.run(operations, initial)
    machine.finish()
    return loop.seen


EXPECTED, _ = Loop().expect(STEPS)
EXPECTED_RECORDS, _ = Loop().expect(STEPS, keys=("u",))


SEEDS = [range(12), pytest.param(range(12, 100), marks=pytest.mark.slow)]


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize(("schedule", "slots", "policy"), CONFIGURATIONS, ids=str)
def test_right_for_many_interleavings(schedule, slots, policy, seeds):
    for seed in seeds:
        assert run(schedule, slots, policy, seed) == EXPECTED


@pytest.mark.parametrize("slots", [(3, 99), (1, 99), (2, 2, 99)], ids=str)
@pytest.mark.parametrize("policy", ["min", "lru"])
@pytest.mark.parametrize("seeds", SEEDS)
def test_right_for_records_too(slots, policy, seeds):
    for seed in seeds:
        assert run("storeall", slots, policy, seed, keep="records") == EXPECTED_RECORDS


def all_waits():
    """Read the names of all waits out of the executor's source, so that none can be forgotten here."""
    strings = [
        node.value
        for node in ast.walk(ast.parse(inspect.getsource(executor_module)))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    return sorted({text for text in strings if text.startswith(("save: ", "store: ", "fetch: ", "restore: "))})


def test_the_waits_are_those_known_here():
    assert len(all_waits()) == 6


@pytest.mark.parametrize("without", all_waits())
def test_wrong_once_any_one_wait_is_left_out(without):
    def goes_wrong(configuration, seed):
        try:
            return run(*configuration, seed, without) != EXPECTED
        except EngineError:
            return False  # a standstill would prove nothing of the data

    assert any(goes_wrong(configuration, seed) for seed in range(10) for configuration in CONFIGURATIONS)


def test_unfinished_copies_hold_nan():
    machine = VirtualReversal(seed=0)
    machine.reserve(0, 16)
    target, source = machine.region(0, 0, 8), machine.region(0, 8, 8)
    source.array[:] = 0
    machine.copies("up 1", "fetch", 0, [(target, source)], [])
    assert np.isnan(target.array.view(np.float64)[0]) or not target.array.any()
    machine.finish()
    assert not target.array.any()


@pytest.mark.parametrize(
    ("operations", "said"),
    [
        ([Save(0), Save(0)], "puts step 0 into the first tier, which holds it already"),
        ([Save(0), Store(0, 1), Store(0, 1)], "puts step 0 into the second tier, which holds it already"),
        ([Save(0), Store(0, 1), Fetch(0, 1)], "puts step 0 into the first tier, which holds it already"),
        ([Save(0), Save(1), Save(2)], "puts a snapshot into the first tier, which has no room for it"),
        ([Restore(0)], "reads step 0 from the first tier, which does not hold it"),
        ([Save(0), Drop(0), Restore(0)], "reads step 0 from the first tier, which does not hold it"),
        ([Save(0), Store(1, 1)], "reads step 1 from the first tier, which does not hold it"),
        ([Save(0), Fetch(0, 1)], "reads step 0 from the second tier, which does not hold it"),
        ([Save(0), Evict(0, 1)], "reads step 0 from the second tier, which does not hold it"),
    ],
    ids=str,
)
def test_operations_that_no_slot_suits_are_refused(operations, said):
    loop = Loop()
    layout = Layout.of(loop.state)
    callbacks = Callbacks(forward=loop.forward, backward=loop.backward, snapshot=lambda state, step: state)
    executor = Executor(VirtualReversal(0), layout, ("first", "second"), [2 * layout.nbytes] * 2, callbacks)
    with pytest.raises(EngineError, match=said):
        executor.run(operations, loop.state)
