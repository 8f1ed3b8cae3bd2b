"""The predicted seconds of a step are those of a step that was run: under a clock that only the model moves."""

import pytest

torch = pytest.importorskip("torch")

from tests.torch.clocked import NAMES, Clock, Net, wait_for_copies  # noqa: E402
from tests.torch.models import AMPLE  # noqa: E402

from forebay.torch import fit, plan_of  # noqa: E402
from forebay.torch.fit import _of  # noqa: E402
from forebay.torch.fitting.profile import WHOLE_TIMINGS  # noqa: E402
from forebay.torch.fitting.record import BlockRecord, find_costly  # noqa: E402
from forebay.torch.fitting.replanning import REPLANNED_AFTER, SETTLED_AFTER  # noqa: E402
from forebay.torch.fitting.timings import read_first_iteration  # noqa: E402
from forebay.torch.gauge import HostGauge  # noqa: E402
from forebay.torch.mover import Mover  # noqa: E402
from forebay.torch.replay.costly_operations import CostlyOperation, Share, shares_of  # noqa: E402


@pytest.mark.parametrize("choice", ["keep", "recompute", "offload"])
def test_a_predicted_step_takes_as_long_as_whole_ones_do(choice, monkeypatch):
    clock = Clock()
    monkeypatch.setattr(HostGauge, "mark", lambda gauge: clock.now)
    model = Net(clock)
    fit(model, AMPLE, blocks=NAMES, choice=choice)
    taken = []
    for clock.step in range(SETTLED_AFTER + 2):
        start = clock.now
        model(torch.ones(8, 4)).sum().backward()
        taken.append(clock.now - start)
    plan = plan_of(model)
    assert set(plan.choices.values()) == {choice}
    assert plan.seconds == pytest.approx(taken[-1])
    assert plan.measured == pytest.approx(taken[-1])


def test_seconds_of_waiting_for_copies_are_none_of_the_blocks(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(HostGauge, "mark", lambda gauge: clock.now)
    wait_for_copies(monkeypatch, clock, 100)
    model = Net(clock)
    fit(model, AMPLE, blocks=NAMES, choice="offload")
    for _ in range(SETTLED_AFTER + 2):
        model(torch.ones(64, 4)).sum().backward()
    plan = plan_of(model)
    assert plan.metrics.moved["down 1"] and plan.measured is not None and plan.measured > 400
    assert plan.foreseen.seconds == pytest.approx(3 * (1 + 2 + 3 + 5 + 3 + 5))


def test_the_first_iteration_with_a_plan_teaches_nothing(monkeypatch):
    """It pins and allocates; and a device that has paused is faster at first."""
    clock = Clock()
    monkeypatch.setattr(HostGauge, "mark", lambda gauge: clock.now)
    model = Net(clock)
    for block in (model.stem, *model.blocks, model.head):
        block.seconds = [1.0, 100.0, 2.0, 2.0]  # measured, the first with the plan, and those after it
    fit(model, AMPLE, blocks=NAMES, choice="keep")
    for clock.step in range(3):
        model(torch.ones(8, 4)).sum().backward()
    assert plan_of(model).seconds == pytest.approx(3 * 2.0 * 6)


def test_the_time_that_timing_takes_is_not_predicted(monkeypatch):
    clock = Clock()

    def mark(gauge):
        clock.now += 1.0
        return clock.now

    monkeypatch.setattr(HostGauge, "mark", mark)
    model = Net(clock)
    fit(model, AMPLE, blocks=NAMES, choice="keep")
    for _ in range(REPLANNED_AFTER[-1]):
        model(torch.ones(8, 4)).sum().backward()
    timed = plan_of(model).seconds
    for _ in range(SETTLED_AFTER):
        model(torch.ones(8, 4)).sum().backward()
    plan = plan_of(model)
    work = 3 * (1 + 2 + 3 + 5 + 3 + 5)
    assert work < plan.seconds == plan.measured < work + 4 < timed
    assert {name: seconds for name, seconds, _ in plan.alternatives()}["keep"] == plan.seconds
    assert f"{plan.seconds:.0f} s a step predicted" in plan.explain() and "(1.00 times" in plan.explain()
    for _ in range(2):
        model(torch.ones(8, 4)).sum().backward()
    assert [len(taken) for taken in _of(model).session._iteration.profile.whole_seconds.values()] == [WHOLE_TIMINGS]


def test_the_first_encoding_of_all_which_may_be_compiled_is_not_timed(monkeypatch):
    clock, encode, calls = Clock(), Mover.encode, []

    def encoding(mover, codec, array):
        calls.append(array.shape)
        clock.now += 1.0 if len(calls) > 1 else 1000.0
        return encode(mover, codec, array)

    monkeypatch.setattr(HostGauge, "mark", lambda gauge: clock.now)
    monkeypatch.setattr(Mover, "encode", encoding)
    model = Net(clock)
    fit(model, AMPLE, codec="cast:float16", blocks=NAMES)
    for _ in range(2):
        model(torch.ones(64, 4)).sum().backward()
    spans = [end - start for record in _of(model).session._iteration.profile.records for start, end in record.encode]
    assert spans and set(spans) == {1.0} and len(calls) == len(spans) + 1


def test_all_passes_of_a_settled_step_are_measured(monkeypatch):
    class Local(Net):
        def forward(self, x):
            outputs = []
            for block in self.blocks:
                x = block(x.detach())
                outputs.append(x)
            return outputs

    clock = Clock()
    monkeypatch.setattr(HostGauge, "mark", lambda gauge: clock.now)
    model = Local(clock)
    fit(model, AMPLE, blocks=NAMES, choice="keep")
    for _ in range(SETTLED_AFTER + 2):
        for output in reversed(model(torch.ones(8, 4))):
            output.sum().backward()
    assert plan_of(model).measured == plan_of(model).seconds == pytest.approx(3 * (3 + 5 + 3 + 5))


def test_a_second_run_is_guessed_by_the_operations_that_run_again():
    record = BlockRecord("0", 0, (), False, forward=(0.0, 10.0), replay_spans=[(20.0, 30.0)], spans=[(20.0, 50.0)])
    record.operations = [CostlyOperation(0, 100), CostlyOperation(1, 100)]
    record.operation_spans = [(20.0, 26.0), (27.0, 29.0)]
    record.costly = {"costly": Share(frozenset({0, 1}), 200), "1/2 of costly": Share(frozenset({0}), 100)}
    (block,) = read_first_iteration([record], HostGauge(torch.device("cpu")), 0.0).blocks
    assert block.extra_seconds["recompute"] == pytest.approx((0.0, 10.0))
    assert block.extra_seconds["keep costly, recompute the rest"] == pytest.approx((0.0, 2.0))
    assert block.extra_seconds["keep 1/2 of costly, recompute the rest"] == pytest.approx((0.0, 4.0))
    assert "keep 1/4 of costly, recompute the rest" not in block.extra_seconds


def test_blocks_that_are_alike_keep_the_same_share_of_their_costly_outputs():
    def record(kind, *seconds):
        found = BlockRecord(
            "", 0, (), False, kind=(kind,), operations=[CostlyOperation(0, 100), CostlyOperation(1, 100)]
        )
        found.operation_spans = [(0.0, one) for one in seconds]
        return found

    records = [record("one", 9.0, 1.0), record("one", 1.0, 2.0), record("one", 1.0, 2.0), record("two", 2.0, 1.0)]
    find_costly(records, HostGauge(torch.device("cpu")))
    assert [sorted(one.costly["1/2 of costly"].numbers) for one in records] == [[1], [1], [1], [0]]


def test_operations_that_cannot_be_parted_are_kept_all_or_not():
    assert list(shares_of([CostlyOperation(0, 99), CostlyOperation(1, 1)], [1.0, 1.0])) == ["costly"]
    assert list(shares_of([CostlyOperation(0, 8), CostlyOperation(1, 1)], [8.0, 0.5])) == ["costly", "3/4 of costly"]
    assert shares_of([], []) == {}
