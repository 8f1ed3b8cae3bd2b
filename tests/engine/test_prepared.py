"""What a reversal is prepared with follows from what was said, and from what was not."""

from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import forebay as fb
from forebay.codec import get
from forebay.engine import online
from forebay.engine.layout import Layout
from forebay.engine.loop import TimeLoop
from forebay.engine.recorded import Request
from forebay.engine.resume import decision, segments
from forebay.engine.resume.files import read_arrays, write_arrays
from forebay.engine.resume.ledger import Ledger
from forebay.engine.resume.segments import _Survivor
from forebay.engine.reversal import Phase, Reversal
from forebay.engine.timing import costing
from forebay.engine.timing.measure import measure_codec
from forebay.engine.trees import flatten
from forebay.errors import CodecError, CorruptionError, EngineError, StateError
from forebay.machine.host import HostReversal
from forebay.metrics import Metrics
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


def test_a_codec_is_measured_on_a_machine_that_does_not_wait(monkeypatch):
    made = []
    monkeypatch.setattr(costing, "measure_codec", lambda *about: made.append(about[0]) or fb.CodecCost(2.0, 1e9, 1e9))
    loop = TimeLoop(still, STATE, 9, 1, None)
    loop.memory = SimpleNamespace(tier="host", current=nullcontext, machine=lambda *about: about)
    assert costing.with_codecs(loop, COSTS, [Greedy(0)], None).codecs["greedy"].ratio == 2.0
    assert made == [(Path(), False)]


def test_a_state_is_described_by_all_that_has_to_be_the_same():
    described = decision._description(Layout.of({"u": np.zeros(3), "v": np.zeros((2, 3), np.float32, order="F")}))
    assert described.startswith(
        "NumPy float64[3], NumPy float32[2, 3] with strides [4, 8] in PyTreeSpec({'u': *, 'v': *}"
    )
    layout = Layout.of(STATE)
    on_gpu = replace(layout, likenesses=(layout.likenesses[0]._replace(device=1),))
    assert decision._description(on_gpu).startswith("NumPy float64[3] on a GPU in ")


@pytest.mark.parametrize(("moved", "up", "down"), [(0, 30, 40), (29, 1, 11), (30, 0, 10), (40, 0, 0), (41, 0, 0)])
def test_what_was_not_moved_is_told_and_is_never_less_than_nothing(moved, up, down):
    """Against four saves and three restores of ten bytes."""
    metrics = Metrics(hits=1, misses=2)
    metrics.moved["up 1"] = metrics.moved["down 1"] = moved
    plan = SimpleNamespace(slots=(1, 9), schedule=SimpleNamespace(saves=4))
    reversal = SimpleNamespace(plan=plan, note="", _setup=SimpleNamespace(kept=SimpleNamespace(nbytes=10)))
    assert Reversal._result(reversal, metrics).metrics is metrics
    assert dict(metrics.avoided) == {"up 1": up, "down 1": down}
    plan.slots = (9,)
    assert not Reversal._result(reversal, Metrics()).metrics.avoided


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


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"forward": 1}, "forward=1: give a function"),
        ({"rehearse": 1}, "rehearse=1: give a function"),
        ({"costs": "dear"}, "costs='dear'"),
        ({"plan": "a plan"}, r"plan='a plan': give what plan\(...\)"),
        ({"directory": 7}, "directory=7: give the path of a folder"),
    ],
)
def test_what_is_of_another_kind_is_refused_before_anything_is_run(wrong, said):
    with pytest.raises(fb.ForebayError, match=said):
        fb.prepare(**{"forward": still, "state": STATE, "steps": 9} | PLAN | wrong)
    with pytest.raises(fb.ForebayError, match="backward=1: give a function"):
        fb.reverse(still, 1, STATE, 9, **PLAN)


class Broken(Greedy):
    """Does not work here."""

    def encode_host(self, array, out):
        raise CodecError("not here")


def test_a_codec_that_does_not_work_is_left_out_where_any_will_do():
    arrays = [np.zeros(4096)]
    measured = partial(measure_codec, layout=Layout.of(arrays), tier="host", codec=Broken(0), arrays=arrays)
    assert measured(HostReversal(Path()), error=0.1) is None
    with pytest.raises(CodecError, match="not here"):
        measured(HostReversal(Path()), error=None)


def test_what_a_machine_was_asked_for_has_ended_before_it_is_told(monkeypatch):
    """On a GPU its moments are known only then."""
    done = []
    for name in ("finish", "close"):
        before = getattr(HostReversal, name)
        monkeypatch.setattr(HostReversal, name, lambda m, name=name, act=before: done.append(name) or act(m))
    arrays = [np.zeros(4096)]
    measure_codec(HostReversal(Path()), Layout.of(arrays), "host", get("cast:float16"), arrays, None)
    assert done == ["finish", "close"]


def test_records_on_the_disk_are_gone_back_through_on_a_clock_of_their_own(monkeypatch):
    looks, seen = count(7000), []
    monkeypatch.setattr(segments, "perf_counter", lambda: float(next(looks)))
    survivor = SimpleNamespace(parts=[], tick=lambda: seen.append("tick"), _keep_reversed=lambda *about: about)
    survivor.history = SimpleNamespace(steps=lambda first, last: range(first, last), record=lambda step: -step)
    survivor.loop = SimpleNamespace(backward=lambda record, step: seen.append((record, step)))
    assert _Survivor._reverse_recorded(survivor, 4, SimpleNamespace(step=6)) == (4, SimpleNamespace(step=6))
    assert seen == [(-5, 5), "tick", (-4, 4), "tick"]
    ((start, metrics),) = survivor.parts
    assert (start, metrics.seconds) == (4, 5.0)
    spans = [(span.lane, span.what, span.step, span.start, span.stop) for span in metrics.timeline]
    assert spans == [("compute", "backward", 1, 1.0, 2.0), ("compute", "backward", 0, 3.0, 4.0)]


def test_progress_of_another_version_or_of_other_arrays_is_refused(tmp_path):
    ledger = Ledger(tmp_path / "kept")
    write_arrays(tmp_path / "kept" / "manifest", {"version": 2, "problem": {}, "decided": {}}, {})
    with pytest.raises(fb.PlanError, match="was written by another version"):
        ledger.open({}, dict)
    ledger.close(finished=True)
    survivor = SimpleNamespace(loop=SimpleNamespace(adjoint={"image": np.zeros(3)}))
    with pytest.raises(CorruptionError, match="holds other arrays than"):
        _Survivor._load(survivor, {"trace": np.ones(3)}, b"")
    _Survivor._load(survivor, {"image": np.ones(3)}, b"")
    assert survivor.loop.adjoint["image"].sum() == 3


def test_a_result_writes_its_page(tmp_path):
    result = fb.reverse(still, lambda state, step: None, STATE, 9, **PLAN)
    result.report(tmp_path / "page.html", "Nine steps")
    assert "Nine steps" in (tmp_path / "page.html").read_text()


@dataclass
class Numbered:
    """One that cannot be made without a number."""

    field: np.ndarray

    def __new__(cls, *numbers):
        if not numbers:
            raise TypeError("no number")
        return super().__new__(cls)


class Wrapped:
    """An array with a name."""

    def __init__(self, array, name):
        self.array, self.name = array, name


def test_structures_of_states_can_be_looked_up_and_say_what_cannot_be_made():
    fb.register_state(Wrapped, lambda w: ((w.array,), w.name), lambda name, arrays: Wrapped(arrays[0], name))
    assert len({flatten(Wrapped(np.zeros(3), "u"))[1], flatten(Wrapped(np.ones(3), "u"))[1]}) == 1
    leaves, structure = flatten(Numbered(np.zeros(3)))
    assert len({structure, flatten(Numbered(np.ones(3)))[1]}) == 1
    with pytest.raises(StateError, match="a Numbered cannot be made from its fields"):
        structure.unflatten(leaves)
    xarray = pytest.importorskip("xarray")
    labelled = (xarray.Dataset({"u": ("x", np.full(3, value))}) for value in (1.0, 2.0))
    assert len({flatten(each)[1] for each in labelled}) == 1
