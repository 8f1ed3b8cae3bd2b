"""Blocks with hidden state: a second run would compute other values, so they are kept, by name, with one warning."""

import copy
import random
import warnings
from collections import deque
from typing import ClassVar

import pytest
import torch
from tests.torch.models import AMPLE, MLP, equal, pair, step
from tests.torch.models import deterministic as deterministic
from torch import nn

from forebay import Budget
from forebay.torch import fit, plan_of


class Drawing(MLP):
    """Has a generator of its own."""

    def __init__(self):
        super().__init__()
        self.generator = torch.Generator().manual_seed(3)

    def forward(self, x):
        return super().forward(x * torch.rand(x.shape, generator=self.generator))


class Fading(MLP):
    """Changes a tensor in place that is no buffer."""

    def __init__(self):
        super().__init__()
        self.scale = torch.ones(8)

    def forward(self, x):
        self.scale.mul_(0.9)
        return super().forward(x) * self.scale


class Averaging(MLP):
    """Assigns a tensor anew that is no buffer."""

    mean = torch.zeros(8)

    def forward(self, x):
        self.mean = 0.5 * self.mean + 0.5 * x.detach().mean(0)
        return super().forward(x - self.mean)


class Counting(MLP):
    def __init__(self):
        super().__init__()
        self.inner = nn.Module()
        self.inner.calls, self.inner.total = 0, torch.zeros(())

    def forward(self, x):
        self.inner.calls += 1
        return super().forward(x / self.inner.calls)


class Alternating(Counting):
    """Saves other tensors every second time."""

    def forward(self, x):
        self.inner.calls += 1
        return MLP.forward(self, torch.tanh(x) if self.inner.calls % 2 else x)


class Afterwards(Counting):
    """Counts for what autograd saves nothing of: a second run of it is right, as long as it does not count."""

    def forward(self, x):
        self.inner.calls += 1
        return MLP.forward(self, x) / self.inner.calls


class Collecting(MLP):
    """Counts in containers, for what autograd saves nothing of, and remembers what others read."""

    def __init__(self):
        super().__init__()
        self.means, self.calls, self.losses = [], {"all": [0]}, deque(maxlen=9)

    def forward(self, x):
        self.means.append(x.detach().mean())
        self.calls["all"][0] += 1
        x = super().forward(x)
        self.losses.append(x.square().mean())
        return x / (1 + len(self.means) * self.calls["all"][0])


HIDDEN = [Drawing, Fading, Averaging, Counting, Alternating]


def mixed(kind):
    """Make a model of plain blocks around one with hidden state."""
    torch.manual_seed(0)
    return nn.Sequential(MLP(), kind(), MLP())


def told(caught):
    return [str(warning.message) for warning in caught if "computes other values" in str(warning.message)]


@pytest.mark.parametrize("choice", [None, "recompute"])
@pytest.mark.parametrize("kind", HIDDEN)
def test_a_block_with_hidden_state_is_kept(kind, choice):
    model, plain = mixed(kind), mixed(kind)
    fit(model, AMPLE, blocks=["0", "1", "2"], choice=choice)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for number in range(8):
            x = torch.randn(32 if number < 6 else 16, 8, generator=torch.Generator().manual_seed(number))
            assert equal(step(model, x), step(plain, x))
    (message,) = told(caught)
    assert "(1)" in message and "not those of the plain model" not in message
    assert plan_of(model).choices["1"] == "keep"
    if choice:
        assert plan_of(model).choices["0"] == "recompute"


@pytest.mark.parametrize("kind", [Drawing, Counting])
@pytest.mark.parametrize("choice", [None, "recompute"])
def test_a_block_that_is_met_after_the_measuring_iterations_is_not_run_again_unseen(kind, choice):
    class Growing(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers, self.used = nn.ModuleList([MLP(), MLP(), kind()]), 2

        def forward(self, x):
            for layer in self.layers[: self.used]:
                x = layer(x)
            return x

    def made():
        torch.manual_seed(0)
        return Growing()

    model, plain = made(), made()
    fit(model, AMPLE, blocks=["layers.0", "layers.1", "layers.2"], choice=choice)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(12):
            model.used = plain.used = 3 if number > 5 else 2
            x = torch.randn(32, 8, generator=torch.Generator().manual_seed(number))
            for fitted in (model, plain):
                fitted.zero_grad()
                torch.manual_seed(7)
                fitted(x).square().mean().backward()
            for one, other in zip(model.parameters(), plain.parameters(), strict=True):
                assert (one.grad is None) == (other.grad is None)
                assert one.grad is None or torch.equal(one.grad, other.grad), number


@pytest.mark.parametrize("choice", [None, "recompute"])
@pytest.mark.parametrize("ahead", [0, 1], ids=["an object", "a closure"])
def test_what_only_shows_in_what_a_block_gives_is_told_where_nobody_can_put_it_back(ahead, choice):
    class Object:
        calls = 0

    def made():
        thing = Object()

        def count():
            thing.calls += 1
            return thing.calls

        class Scaling(MLP):
            def __init__(self):
                super().__init__()
                self.thing, self.count = (None, count) if ahead else (thing, lambda: None)

            def forward(self, x):
                self.count() if ahead else setattr(self.thing, "calls", self.thing.calls + 1)
                return super().forward(x) / thing.calls

        return mixed(Scaling)

    model, plain = made(), made()
    fit(model, AMPLE, blocks=["0", "1", "2"], choice=choice)
    x = torch.randn(32, 8)
    with pytest.warns(UserWarning, match=r"block \(1\) computes other values.*its state is a run ahead"):
        assert equal(step(model, x), step(plain, x))
    step(model, x)
    assert plan_of(model).choices["1"] == "keep"


def test_what_a_block_only_remembers_is_no_hidden_state():
    class Remembering(Afterwards):
        def forward(self, x):
            self.seen = x.detach()
            self.inner.total += x.detach().sum()
            self.shapes = {"last": x.shape, "mean": [x.detach().mean()]}
            self.like, self.number = torch.empty(3, device="meta"), float("nan")
            return super().forward(x)

    model, plain = pair(Remembering)
    fit(model, AMPLE, choice="recompute")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for rows in (32, 32, 16, 32):
            x = torch.randn(rows, 8)
            assert equal(step(model, x), step(plain, x))
    assert set(plan_of(model).choices.values()) == {"recompute"}
    assert model[0].inner.calls == 4 and torch.equal(model[0].inner.total, plain[0].inner.total)


def test_a_block_that_gives_a_tensor_without_memory_is_run_again():
    class Giving(MLP):
        def forward(self, x):
            return super().forward(x), torch.empty(3, device="meta")

    class First(nn.Sequential):
        def forward(self, x):
            return super().forward(x)[0]

    torch.manual_seed(0)
    model = First(MLP(), MLP(), Giving())
    plain, x = copy.deepcopy(model), torch.randn(32, 8)
    fit(model, AMPLE, blocks=["0", "1", "2"], choice="recompute")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            assert equal(step(model, x), step(plain, x))
    assert set(plan_of(model).choices.values()) == {"recompute"}


@pytest.mark.parametrize("choice", [None, "recompute"])
def test_what_a_block_collects_is_collected_once(choice):
    model, plain = pair(Collecting)
    fit(model, AMPLE, choice=choice)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for rows in (32, 32, 16, 32):
            x = torch.randn(rows, 8)
            assert equal(step(model, x), step(plain, x))
    assert len(model[0].means) == len(model[0].losses) == model[0].calls["all"][0] == 4
    assert set(plan_of(model).choices.values()) == {choice or "keep"}


def test_what_is_kept_is_part_of_the_plan():
    model = mixed(Counting)
    fit(model, Budget(device=200_000), blocks=["0", "1", "2"])
    with pytest.warns(UserWarning, match="computes other values"):
        step(model, torch.randn(64, 8))
    for rows in (64, 96, 96):
        step(model, torch.randn(rows, 8))
    with_it = plan_of(model)
    assert with_it.chain.blocks[1].choices[0].kept >= 96 * 64 * 4


# State that shows later than in the iteration that measures.


def late(change, counts=False):
    """Make a kind of blocks whose first calls, those of the iteration that measures and a few more, need no state."""

    class Late(MLP):
        log: ClassVar[list] = []
        calls = 0

        def __init__(self):
            super().__init__()
            self.scale, self.generator = torch.ones(8), torch.Generator().manual_seed(3)

        def forward(self, x):
            if counts:
                self.calls += 1
            return super().forward(change(self, x) if self.late else x)

    return Late


def with_data(self, x):
    self.scale.data.mul_(0.9)
    return x * self.scale


def listing(self, x):
    self.log.append(0)
    return x * len(self.log)


def listing_little(self, x):
    """Change one element in a thousand, which is not even saved last."""
    self.log.append(0)
    factors = torch.ones_like(x)
    factors[17, 3] = len(self.log)
    return x * factors


LATE = {
    "drawing": late(lambda self, x: x * torch.rand(x.shape, generator=self.generator)),
    "fading": late(lambda self, x: x * self.scale.mul_(0.9)),
    "data": late(with_data),
    "shared": late(lambda self, x: x * random.random()),
    "listing": late(listing),
}


def steps_of(kind, choice, count=16, rows=32):
    """Take steps of a fitted and of a plain model; yield whether gradients are equal, and what was told."""
    model, plain = mixed(kind), mixed(kind)
    fit(model, AMPLE, blocks=["0", "1", "2"], choice=choice)
    for number in range(count):
        x = torch.randn(rows, 8, generator=torch.Generator().manual_seed(number))
        model[1].late = plain[1].late = number > 5
        results = []
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for net in (model, plain):
                random.seed(number)
                kind.log = []
                results.append(step(net, x))
        yield equal(*results), told(caught)


@pytest.mark.parametrize("choice", ["recompute", "keep costly, recompute the rest"])
@pytest.mark.parametrize("kind", LATE)
def test_state_that_shows_later_is_told_when_it_does_and_kept_from_then_on(kind, choice):
    steps = list(steps_of(LATE[kind], choice))
    assert all(right and not messages for right, messages in steps[:6])
    right, (message,) = steps[6]
    assert not right and not any(messages for _, messages in steps[7:])
    assert "(1)" in message and "and perhaps of some before it, are not those of the plain model" in message
    if kind in ("shared", "listing"):  # the state of others is a run ahead
        assert all(right for right, _ in steps[7:])


def test_what_a_block_counts_from_the_beginning_is_right_when_it_begins_to_matter():
    counting = late(lambda self, x: x * self.calls, counts=True)
    assert all(right and not messages for right, messages in steps_of(counting, "recompute"))


@pytest.mark.slow
def test_state_in_few_elements_is_found_in_the_end():
    steps = list(steps_of(late(listing_little), "recompute", 80, 300))
    (number,) = [number for number, (_, messages) in enumerate(steps) if messages]
    assert all(right for right, _ in steps[number + 1 :])
