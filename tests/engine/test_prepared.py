"""What a reversal is prepared with follows from what was said, and from what was not."""

from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

import forebay as fb
from forebay.engine import costing, online
from forebay.engine.loop import TimeLoop
from forebay.engine.recorded import Request
from forebay.engine.resume.files import read_arrays
from forebay.engine.reversal import Phase
from forebay.errors import EngineError
from forebay.planner.settings import Problem
from tests.engine.loops import COSTS
from tests.engine.test_packing import Greedy

STATE = (np.zeros(3),)
PLAN = {"costs": COSTS, "budget": "1MB"}


def still(state, start, stop):
    """Advance nothing."""
    return state


@pytest.mark.parametrize(("steps", "known"), [(9, {}), (None, {}), (9, {"step_costs": "learn"})])
def test_callbacks_return_before_their_work_has_ended_unless_it_is_said(steps, known):
    def waits(forward, **options):
        return fb.prepare(forward, STATE, steps, **PLAN, **known, **options)._setup.machine.args[1]

    synchronous = partial(still)
    synchronous.synchronous = True
    assert [waits(still), waits(still, synchronous=True), waits(still, synchronous=False)] == [False, True, False]
    assert [waits(synchronous), waits(synchronous, synchronous=False)] == [True, False]


def test_an_unknown_end_has_slots_for_no_more_steps_than_a_loop_may_have():
    most = online.MOST
    assert most == 131_072
    for host, disk, schedule, slots in (
        (most - 1, 0, "auto", (most - 1,)),
        (most + 1, 0, "auto", (most,)),
        (9, most + 5, "auto", (9, most)),
        (9, most + 5, "online:12", (9, 3)),
    ):
        budget = fb.Budget(host=host * 4096, **({"disk": disk * 4096} if disk else {}))
        problem = Problem(1, 1, 4096, None, budget, COSTS, "min", None, 1)
        setting = online.OnlineReversal._setting_of(SimpleNamespace(), problem, schedule, ())
        assert setting.slots == slots


@pytest.mark.parametrize(("record", "worst", "scratch"), [(None, 1.0, 3000 / 8192), ((1,), 1.0, 1000 / 4096)])
def test_what_a_codec_takes_for_itself_is_known_of_states_and_of_records(record, worst, scratch):
    """Three kinds of arrays are in a state, and one in a record, for each of which it takes so many bytes."""
    state = (np.zeros(500), np.zeros(64, np.float32), np.zeros(64))
    loop = TimeLoop(still, state, 9, 1, record)
    loop.memory = SimpleNamespace(tier="device", current=nullcontext)
    known = fb.CodecCost(2.0, 1e9, 1e9)
    asked = fb.Costs(1.0, 1.0, 1e9, codecs={"greedy": known, "other": known})
    costs = costing.with_codecs(loop, asked, [Greedy(1000)], None)
    shares = [
        (layout.nbytes, 1000 * len(layout.leaves)) for layout in (loop.layout, loop.record_layout) if layout is not None
    ]
    told = costs.codecs["greedy"]
    assert told.scratch == max(taken / nbytes for nbytes, taken in shares)
    assert told.worst >= worst and costs.codecs["other"] is known and told.ratio == 2.0


def test_who_says_what_steps_cost_keeps_that(monkeypatch):
    signatures = []
    kept = lambda key, make: signatures.append(key[:2]) or make()  # noqa: E731
    monkeypatch.setattr(costing, "kept", kept)
    fb.prepare(still, STATE, 9, budget="1MB", signature="still")
    assert signatures[0] == ("loop", "still") and signatures[1][0] == "plan"
    signatures.clear()
    for options in ({"step_costs": [1.0] * 9}, {"costs": COSTS}, {"costs": COSTS, "step_costs": [1.0] * 9}):
        fb.prepare(still, STATE, 9, budget="1MB", signature="still", **options)
    assert signatures == []
    fb.prepare(still, STATE, 9, budget="1MB", signature="still", schedule=fb.Revolve(9, 3))
    assert signatures == [("loop", "still")]


def test_a_loop_that_others_record_is_prepared_as_its_plan_says(tmp_path):
    plan = fb.plan(8, 4096, fb.Budget(host="1MB"), every=4, costs=COSTS)
    request = Request("1MB", "auto", None, 4, None, None, tmp_path)
    prepared = request.prepare(still, STATE, 8, plan, "a note")
    assert prepared.note == "a note" and prepared.plan is plan and prepared._setup.machine.args[0] == tmp_path


def test_files_of_progress_are_those_of_the_first_version(tmp_path):
    """Another number would have all that was begun before refused."""

    def stop(state, step):
        raise ZeroDivisionError

    options = {"resume": tmp_path / "kept", "adjoint": {}, "progress": False}
    with pytest.raises(ZeroDivisionError):
        fb.reverse(still, stop, STATE, 9, **PLAN, **options)
    assert read_arrays(tmp_path / "kept" / "manifest")[0]["version"] == 1


def test_a_reversal_that_is_interrupted_in_its_own_thread_is_given_up():
    """Before anything was run, say: nothing else is to be told then."""
    own, other, told = (fb.prepare(still, STATE, 9, **PLAN) for _ in range(3))
    for reversal in (own, other, told):
        reversal.forward()
        reversal._phase = Phase.RUNNING
    other._runner = -1
    own.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert own._executor is None and own._phase is Phase.ENDED
    for reversal, error in ((other, KeyboardInterrupt), (told, None)):
        with pytest.raises(EngineError, match="is running"):
            reversal.__exit__(error, error, None)
        reversal._end()
