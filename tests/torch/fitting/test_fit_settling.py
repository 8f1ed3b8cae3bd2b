"""How a fitted model comes to the plan that stays, and what is told of it: under a clock that only the model moves."""

from collections import Counter

import pytest
import torch
from tests.torch.clocked import NAMES, Clock, Net, wait_for_copies
from tests.torch.models import AMPLE, MLP, equal, pair
from tests.torch.models import deterministic as deterministic
from tests.torch.models import step as train
from torch import nn

from forebay import Budget
from forebay.torch import fit, plan_of
from forebay.torch.fitting import tools
from forebay.torch.fitting.planning import SETTLED_AFTER
from forebay.torch.storage.gauge import HostGauge


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(HostGauge, "clock", staticmethod(lambda: clock.now))
    return clock


def step(model, clock, rows=8):
    start = clock.now
    model(torch.ones(rows, 4)).sum().backward()
    return clock.now - start


def test_a_plan_stays_by_step_eight(clock):
    assert SETTLED_AFTER == 8
    model, marks = Net(clock), []
    fit(model, Budget(device="2300B", host="1MB"), blocks=NAMES)
    for _ in range(SETTLED_AFTER):
        step(model, clock, 64)
    model(torch.ones(64, 4)).sum().backward()
    plan = plan_of(model)
    reading = HostGauge.clock
    HostGauge.clock = staticmethod(lambda: marks.append(0) or reading())  # put back with the fixture
    for _ in range(3):
        step(model, clock, 64)
    assert not marks  # nothing is timed any more
    assert plan_of(model).names == plan.names and plan.measured is not None


@pytest.mark.parametrize("choice", ["keep", "recompute", "offload"])
def test_a_predicted_step_takes_as_long_as_whole_ones_do(choice, clock):
    model = Net(clock)
    for block in model.blocks:
        block.seconds = block.seconds[:1]
    fit(model, AMPLE, blocks=NAMES, choice=choice)
    taken = [step(model, clock) for _ in range(SETTLED_AFTER)]
    plan = plan_of(model)
    assert set(plan.choices.values()) == {choice}
    assert plan.measured == taken[-1]
    assert plan.seconds == pytest.approx(taken[-1], rel=0.02)  # what is in front of the first block is not measured
    assert {name: seconds for name, seconds, _ in plan.alternatives()}[choice] == plan.seconds
    assert "measured  " in plan.explain()


@pytest.mark.parametrize("budget", ["3300B", "4300B", "5300B"])
def test_the_fastest_of_the_plans_that_were_run_stays(budget, clock, monkeypatch):
    """Copies take longer than was measured of the link, so what moves least stays."""
    wait_for_copies(monkeypatch, clock, 100)
    model = Net(clock)
    fit(model, Budget(device=budget, host="1MB"), blocks=NAMES)
    taken = [step(model, clock, 64) for _ in range(SETTLED_AFTER + 2)]
    assert taken[1] > taken[-1] == min(taken)


def test_the_first_iteration_with_a_plan_teaches_nothing(clock):
    """It pins and allocates; and a device that has paused is faster at first."""
    model = Net(clock)
    for block in (model.stem, *model.blocks, model.head):
        block.seconds = [1.0, 100.0, 2.0]  # measured, the first with the plan, and the one after it
    fit(model, AMPLE, blocks=NAMES, choice="keep")
    for clock.step in range(3):
        step(model, clock)
    assert plan_of(model).seconds == pytest.approx(3 * 2.0 * 6)


def test_all_passes_of_a_step_are_measured(clock):
    class Local(Net):
        def forward(self, x):
            outputs = []
            for block in self.blocks:
                x = block(x.detach())
                outputs.append(x)
            return outputs

    model = Local(clock)
    for block in model.blocks:
        block.seconds = block.seconds[:1]
    fit(model, AMPLE, blocks=NAMES, choice="keep")
    for _ in range(SETTLED_AFTER):
        for output in reversed(model(torch.ones(8, 4))):
            output.sum().backward()
    assert plan_of(model).measured == pytest.approx(plan_of(model).seconds) == pytest.approx(3 * (5 + 3 + 5 + 3))


@pytest.mark.parametrize("passes", ["no backward pass", "errors"])
def test_steps_that_do_not_end_keep_no_model_from_a_plan(passes):
    class Failing(nn.Sequential):
        fails = False

        def forward(self, x):
            for number, block in enumerate(self):
                if self.fails and number == 2:
                    raise ZeroDivisionError
                x = block(x)
            return x

    model, x = Failing(*(MLP() for _ in range(3))), torch.randn(32, 8)
    fit(model, AMPLE)
    model(x).sum().backward()
    model.fails = passes == "errors"
    for _ in range(3 * SETTLED_AFTER):
        try:
            model(x)
        except ZeroDivisionError:
            assert model.fails
    model.fails = False
    model(x).sum().backward()
    assert set(plan_of(model).choices.values()) == {"keep"}


# Shapes that change.


def test_smaller_shapes_follow_the_plan_of_larger_ones_within_its_bytes():
    torch.manual_seed(0)
    model = fit(nn.Sequential(*(MLP() for _ in range(4))), Budget(device="60kB", host="1MB"))
    plain = nn.Sequential(*(MLP() for _ in range(4)))
    plain.load_state_dict(model.state_dict())
    for number in range(40):
        x = torch.randn(64 if number < 10 else 64 - number, 8)
        for net in (model, plain):
            net.zero_grad()
            net(x).square().sum().backward()
        assert all(torch.equal(one.grad, other.grad) for one, other in zip_parameters(model, plain))
        assert plan_of(model).metrics.peak["device"] <= 60_000
    assert plan_of(model).foreseen.peak <= 60_000


def zip_parameters(one, other):
    return zip(one.parameters(), other.parameters(), strict=True)


def runs_again(model, x):
    """Count the runs of blocks in a step beyond one each."""
    calls = Counter()
    blocks = [block for block in model.modules() if hasattr(block, "up")]
    handles = [block.up.register_forward_hook(lambda layer, *_: calls.update([layer])) for block in blocks]
    model(x).sum().backward()
    for handle in handles:
        handle.remove()
    return sum(count - 1 for count in calls.values())


def test_with_room_for_all_only_shapes_that_are_larger_than_all_before_are_recomputed():
    model = nn.Sequential(*(MLP() for _ in range(4)))
    fit(model, AMPLE)
    assert runs_again(model, torch.randn(32, 8)) == 4
    assert runs_again(model, torch.randn(32, 8)) == 0
    assert [runs_again(model, torch.randn(rows, 8)) for rows in (31, 7, 16, 33, 33, 32)] == [0, 0, 0, 4, 0, 0]


@pytest.mark.parametrize("seed", range(3))
def test_blocks_that_are_left_out_by_chance_are_planned_by_block(seed):
    """As layerdrop does: the others go on as they were planned."""

    class Dropping(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList(MLP() for _ in range(6))
            self.ran = range(6)

        def forward(self, x):
            for number in self.ran:
                x = self.blocks[number](x)
            return x

    torch.manual_seed(seed)
    model, plain, x = Dropping(), Dropping(), torch.randn(32, 8)
    plain.load_state_dict(model.state_dict())
    fit(model, AMPLE)
    again = []
    for number in range(80):
        left_out = torch.rand(6) < 0.1
        for net in (model, plain):
            net.ran = [place for place in range(6) if not left_out[place]] or [0]
            net.zero_grad()
        if number % 2:
            again.append(runs_again(model, x))
        else:
            model(x).sum().backward()
        plain(x).sum().backward()
        for one, other in zip_parameters(model, plain):
            assert one.grad is other.grad is None or torch.equal(one.grad, other.grad)
    assert sum(again[-20:]) <= 1  # by then all of them are known


def test_blocks_that_are_left_out_while_others_are_measured_anew_stay_known():
    class Dropping(nn.Module):
        ran, rows = (0, 1, 2), 1

        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList(MLP() for _ in range(3))

        def forward(self, x):
            for number in self.ran:
                x = self.blocks[number](x.repeat(self.rows, 1) if number == 2 else x)
            return x

    model, whole = fit(Dropping(), AMPLE), (0, 1, 2)
    for model.ran, model.rows in [(whole, 1), (whole, 1), (whole, 2), (whole, 2), ((0, 2), 1), (whole, 1)]:
        model(torch.ones(8, 8)).sum().backward()
    assert len(plan_of(model).choices) == 3


def test_with_blocks_left_out_in_every_step_a_plan_stays_by_step_eight_too(clock):
    """No step is like the one that was measured, so none tells which plan is the fastest."""

    class Dropping(Net):
        steps = 0

        def forward(self, x):
            for number, block in enumerate(self.blocks):
                if self.steps == 0 or number != self.steps % 4:
                    x = block(self.stem(x))
            self.steps += 1
            return self.head(x)

    model, marks = Dropping(clock), []
    fit(model, Budget(device="2300B", host="1MB"), blocks=NAMES)
    for _ in range(SETTLED_AFTER):
        step(model, clock, 64)
    model(torch.ones(64, 4)).sum().backward()
    reading = HostGauge.clock
    HostGauge.clock = staticmethod(lambda: marks.append(0) or reading())  # put back with the fixture
    for _ in range(20):
        step(model, clock, 64)
    assert not marks


def test_moments_are_compared_on_the_device_that_they_were_taken_on(monkeypatch):
    class Elsewhere(HostGauge):
        """Is of another device in every iteration, as if the model moved."""

        def mark(self):
            return self, super().mark()

        def seconds(self, start, end):
            assert start[0] is end[0] is self
            return end[1] - start[1]

    monkeypatch.setattr(tools, "gauge_for", lambda device: Elsewhere(torch.device("cpu", 1)))
    model, plain = pair(MLP)
    fit(model, AMPLE)
    for _ in range(4):
        x = torch.randn(32, 8)
        assert equal(train(model, x), train(plain, x))
