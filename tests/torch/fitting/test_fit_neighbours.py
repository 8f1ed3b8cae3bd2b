"""`fit`: blocks that follow each other in an `nn.Sequential` are taken together where there are many."""

import copy
import gc
from functools import cache
from weakref import ref

import pytest
import torch
from tests.torch.cases import mostly_slow
from tests.torch.models import AMPLE, MLP, Bottleneck, empty_device, equal, step
from tests.torch.models import deterministic as deterministic
from torch import nn
from torch.nn import functional
from torch.nn.modules import module as torch_module

from forebay import Budget
from forebay.planner.blocks import Block
from forebay.torch import fit, plan_of, unfit
from forebay.torch.fit import _of
from forebay.torch.fitting import iteration, neighbours
from forebay.torch.fitting.facts import BlockRecord, MeasuredBlock
from forebay.torch.storage.gauge import HostGauge

MANY = 40


class Normed(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm = nn.BatchNorm1d(4 * width)

    def forward(self, x):
        return x + functional.dropout(self.down(torch.relu(self.norm(self.up(x)))), 0.1, self.training)


class Deep(nn.Module):
    def __init__(self, kind=Normed, count=MANY):
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 4)
        self.blocks = nn.Sequential(*(kind() for _ in range(count)))

    def forward(self, x):
        return self.last(self.blocks(self.first(x)))


def deep(kind=Normed, count=MANY):
    """Give a model with many blocks, another that is equal to it, and what they are given."""
    torch.manual_seed(0)
    model = Deep(kind, count)
    return model, copy.deepcopy(model), torch.randn(32, 8)


@cache
def half(kind=Normed):
    """Give half of the bytes that the blocks save and are given when all is kept."""
    model, _, x = deep(kind)
    fit(model, AMPLE)
    for _ in range(2):
        step(model, x)
    return Budget(device=plan_of(model).foreseen.peak // 2, host="1GB")


def trains_alike(model, plain, x, steps=6):
    for _ in range(steps):
        assert equal(step(model, x), step(plain, x))


@pytest.mark.slow
@pytest.mark.parametrize(
    "choice", mostly_slow(["recompute", "keep", "offload", "keep costly, recompute the rest", None], "offload", "None")
)
def test_neighbours_are_taken_together_and_gradients_and_statistics_stay(choice):
    model, plain, x = deep()
    fit(model, AMPLE if choice else half(), choice=choice)
    trains_alike(model, plain, x, 9 if choice is None else 5)
    plan = plan_of(model)
    names = list(plan.choices)
    assert names[0].startswith("blocks.0 to blocks.")
    assert len(names) <= MANY // 2
    assert f"{len(names)} blocks made of {MANY} neighbours" in plan.explain()
    unfit(model)
    assert not any("forward" in vars(module) for module in (model.blocks, *model.blocks))


def least(monkeypatch, enough, most):
    """Give the bytes of a step that recomputes all blocks, with so many groups of so large a part of the budget."""
    model, _, x = deep(MLP)
    with monkeypatch.context() as patched:
        patched.setattr(neighbours, "ENOUGH", enough)
        patched.setattr(neighbours, "MOST", most)
        fit(model, AMPLE, choice="recompute")
        for _ in range(3):
            step(model, x)
    return plan_of(model).foreseen.peak


def test_neighbours_that_are_recomputed_keep_only_what_the_first_is_given(monkeypatch):
    single, together = least(monkeypatch, MANY, 1), least(monkeypatch, 16, 1)
    width, saved = 32 * 8 * 4, 32 * 64 * 4  # bytes that a block is given, and that it saves
    assert single == MANY * width + saved
    assert together == MANY // 2 * width + 2 * saved + width


def test_few_blocks_and_those_that_were_named_are_planned_one_by_one():
    model, _, x = deep(count=neighbours.ENOUGH)
    fit(model, AMPLE)
    named, _, _ = deep()
    fit(named, AMPLE, blocks=[f"blocks.{number}" for number in range(MANY)])
    for net, count in ((model, neighbours.ENOUGH), (named, MANY)):
        for _ in range(2):
            step(net, x)
        assert len(plan_of(net).choices) == count
        assert "forward" not in vars(net.blocks)


def watched(model):
    """Watch a block in the middle from outside, and give what is seen."""
    seen = []
    model.blocks[9].register_forward_hook(lambda module, args, output: seen.append(output))
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("late", mostly_slow([False, True], "True"))
def test_a_block_with_hooks_stands_alone_and_they_are_called_once(late):
    model, plain, x = deep()
    fit(model, AMPLE, choice="recompute")
    if late:
        trains_alike(model, plain, x)
    for number in range(6):
        if number == 0:
            seen = [watched(net) for net in (model, plain)]
        found = []
        for net, outputs in zip((model, plain), seen, strict=True):
            torch.manual_seed(7)
            net.zero_grad()
            loss = net(x).square().mean() + outputs[-1].square().mean()
            loss.backward()
            found.append([loss.detach(), *(one.grad for one in net.parameters())])
        assert equal(*found)
        assert len(seen[0]) == len(seen[1]) == number + 1
    assert "blocks.9" in plan_of(model).choices


HOOKS = {
    "forward": lambda block, change: block.register_forward_hook(lambda module, args, output: change(output)),
    "before forward": lambda block, change: block.register_forward_pre_hook(lambda module, args: change(args[0])),
    "backward": lambda block, change: block.register_full_backward_hook(
        lambda module, given, gradients: tuple(map(change, given))
    ),
    "before backward": lambda block, change: block.register_full_backward_pre_hook(
        lambda module, gradients: tuple(map(change, gradients))
    ),
    "all forward": lambda block, change: torch_module.register_module_forward_hook(
        lambda module, args, output: change(output) if module is block else None
    ),
    "before all forward": lambda block, change: torch_module.register_module_forward_pre_hook(
        lambda module, args: change(args[0]) if module is block else None
    ),
    "all backward": lambda block, change: torch_module.register_module_full_backward_hook(
        lambda module, given, gradients: tuple(map(change, given)) if module is block else None
    ),
    "before all backward": lambda block, change: torch_module.register_module_full_backward_pre_hook(
        lambda module, gradients: tuple(map(change, gradients)) if module is block else None
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", mostly_slow(list(HOOKS), "all backward"))
def test_hooks_of_all_kinds_change_what_they_change_in_the_plain_model(kind):
    model, plain, x = deep()
    fit(model, AMPLE, choice="recompute")
    trains_alike(model, plain, x, 3)
    handles = [HOOKS[kind](net.blocks[9], lambda one: one * 1.5) for net in (model, plain)]
    try:
        trains_alike(model, plain, x, 4)
    finally:
        for handle in handles:
            handle.remove()
    trains_alike(model, plain, x, 4)
    assert (len(plan_of(model).choices) == MANY) == ("all" in kind)


class Halving(nn.Sequential):
    """Does more than to call its modules."""

    def forward(self, x):
        for module in self:
            x = module(x) * 0.5
        return x


class Shuffled(nn.Sequential):
    """Has an order of its own in each run."""

    def __iter__(self):
        several = list(super().__iter__())
        return iter([several[number] for number in torch.randperm(len(several))])


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Halving, Shuffled])
def test_a_sequence_that_is_run_in_its_own_way_is_left_alone(kind):
    torch.manual_seed(0)
    model = Deep()
    model.blocks = kind(*model.blocks)
    plain, x = copy.deepcopy(model), torch.randn(32, 8)
    fit(model, AMPLE, choice="recompute")
    trains_alike(model, plain, x)
    assert "forward" not in vars(model.blocks)


@pytest.mark.slow
def test_a_module_that_is_replaced_while_the_sequence_runs():
    model, plain, x = deep()
    fit(model, AMPLE, choice="recompute")
    trains_alike(model, plain, x, 3)
    for net in (model, plain):
        net.blocks[2].register_forward_hook(
            lambda module, args, output, net=net: net.blocks.__setitem__(12, nn.Identity())
        )
    trains_alike(model, plain, x)
    model.blocks[3].register_forward_hook(lambda module, args, output: model.blocks.append(nn.Identity()))
    with pytest.raises(RuntimeError, match="while it ran"):
        step(model, x)


@pytest.mark.slow
def test_blocks_in_another_order_are_not_the_same_group():
    model, plain, x = deep()
    fit(model, AMPLE, choice="recompute")
    trains_alike(model, plain, x, 3)
    for net in (model, plain):
        several = list(net.blocks)
        for number, block in enumerate([several[0], *several[:0:-1]]):
            net.blocks[number] = block
    for _ in range(6):
        assert equal(step(model, x), step(plain, x))
        names = [record.name for record in _of(model).session._iteration.records]
        assert "blocks.0 to blocks.1" not in names
    assert f"blocks.0 to blocks.{MANY - 1}" in names


@pytest.mark.slow
def test_blocks_that_are_replaced_and_models_that_are_dropped_are_freed():
    model, _, x = deep()
    fit(model, AMPLE, choice="recompute")
    for number in range(6):
        step(model, x[number % 2 :])
    replaced = ref(model.blocks[7])
    model.blocks[7] = Normed()
    for _ in range(6):
        step(model, x)
    gc.collect()
    assert replaced() is None
    output = model(x)
    output.sum().backward()
    blocks = [ref(block) for block in model.blocks]
    del model
    gc.collect()
    assert not any(block() for block in blocks)


class Calling(Normed):
    """Does something when it is called, rather than in its forward."""

    def __call__(self, x):
        return 2 * super().__call__(x)


@pytest.mark.slow
def test_blocks_that_are_called_in_their_own_way_stand_alone():
    model, plain, x = deep(Calling)
    fit(model, AMPLE, choice="recompute")
    trains_alike(model, plain, x)
    assert len(plan_of(model).choices) == MANY


def test_compiled_blocks_stand_alone():
    torch.manual_seed(0)
    model = Deep(count=20)
    model.blocks = nn.Sequential(*(torch.compile(block, backend="eager") for block in model.blocks))
    fit(model, AMPLE, choice="recompute")
    x = torch.randn(32, 8)
    for _ in range(2):
        step(model, x)
    assert len(plan_of(model).choices) == 20


@pytest.mark.slow
def test_a_call_that_others_put_around_a_block_is_called():
    model, plain, x = deep()
    fit(model, AMPLE, choice="recompute")
    trains_alike(model, plain, x)
    for net in (model, plain):
        block = net.blocks[5]
        block.forward = lambda x, call=block.forward: 3 * call(x)
    trains_alike(model, plain, x)


@pytest.mark.slow
def test_a_block_that_is_there_twice_stands_alone():
    torch.manual_seed(0)
    model = Deep()
    model.blocks[20] = model.blocks[3]
    plain, x = copy.deepcopy(model), torch.randn(32, 8)
    fit(model, AMPLE, choice="recompute")
    trains_alike(model, plain, x)
    assert {"blocks.3", "blocks.3 (2)"} <= set(plan_of(model).choices)


@pytest.mark.slow
def test_where_only_single_blocks_fit_they_are_planned_one_by_one(monkeypatch):
    room = int(least(monkeypatch, MANY, 1) / 0.99) + 2
    assert least(monkeypatch, 2, 1) > room
    model, plain, x = deep(MLP)
    fit(model, room)
    first = slice(MANY // 2)
    monkeypatch.setattr(
        iteration,
        "groups",
        lambda blocks, *_: {blocks[0].record.module: tuple(one.record.module for one in blocks[first])},
    )
    counts = []
    for _ in range(6):
        assert equal(step(model, x), step(plain, x))
        counts.append(len(_of(model).session._iteration.records))
    assert counts == [MANY, MANY // 2 + 1, *[MANY] * 4]
    assert plan_of(model).foreseen.peak <= room


def sizes(monkeypatch, budget, peak=0, count=MANY):
    """Give the sizes of the groups of some blocks that save 10 bytes each."""
    blocks = [
        MeasuredBlock(BlockRecord(f"{n}", n, ()), Block(f"{n}", 0.0, 0.0, 0, 0, peak or 10, ()), saved=10)
        for n in range(count)
    ]
    monkeypatch.setattr(neighbours, "adjacent", lambda several: {(n - 1, n) for n in range(count)})
    return [len(group) for group in neighbours.groups(blocks, budget, ()).values()]


def test_how_large_groups_are(monkeypatch):
    assert sizes(monkeypatch, 10_000) == [2] * 20  # a sixteenth of all
    assert sizes(monkeypatch, 10_000, count=64) == [4] * 16
    assert sizes(monkeypatch, 200) == [10, 10] + [2] * 10  # the first ones have to go
    assert sizes(monkeypatch, 110) == [7, 7, 7, 7]  # a sixth of the budget is less than two: all others stand alone
    assert sizes(monkeypatch, 200, peak=185) == [2] * 20  # there is no room for more while they are recomputed
    assert sizes(monkeypatch, 200, peak=195) == []


def test_groups_leave_room_for_what_an_optimizer_has_taken_since(monkeypatch):
    taken, budgets = [0], []

    def groups(blocks, budget, several):
        budgets.append(budget)
        return neighbours.groups(blocks, budget, several)

    monkeypatch.setattr(HostGauge, "allocated", lambda self: taken[0])
    monkeypatch.setattr(iteration, "groups", groups)
    model, _, x = deep()
    fit(model, AMPLE)
    for nbytes in (100, 1100, 1100):
        taken[0] = nbytes
        step(model, x)
    assert budgets == [AMPLE["device"] - 1000]


@pytest.mark.slow
def test_shapes_that_change_have_neighbours_of_their_own():
    model, plain, _ = deep()
    fit(model, half())
    for size in (32, 8, 64, 32, 64, 8, 32, 64, 8, 32):
        x = torch.randn(size, 8)
        assert equal(step(model, x), step(plain, x))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("part", [2, 3])
def test_on_a_gpu_neighbours_are_as_in_the_plain_model_within_the_budget(part):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), *(Bottleneck(64) for _ in range(MANY))).cuda()
    plain, x = copy.deepcopy(model), torch.randn(8, 3, 32, 32).cuda()
    empty_device(workspaces=True)
    for _ in range(3):
        for net in (model, plain):
            step(net, x)
            net.zero_grad()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    for net in (model, plain):
        step(net, x)
        net.zero_grad()
    need = torch.cuda.max_memory_allocated() - before
    budget = before + need // part
    fit(model, Budget(device=budget, host="1GB"))
    for _ in range(20):
        expected = step(plain, x)
        plain.zero_grad()
        torch.cuda.reset_peak_memory_stats()
        held = sum(one.nbytes for one in expected)
        assert equal(step(model, x), expected)
        model.zero_grad()
    assert torch.cuda.max_memory_allocated() - held <= budget
    assert len(plan_of(model).choices) < MANY


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_on_a_gpu_steps_with_an_optimizer_stay_within_a_third_from_the_first_plan_on():
    """Its states, twice the parameters, are there from the second step on, when groups have yet to be made."""

    def train(budget=None):
        torch.manual_seed(0)
        model = nn.Sequential(*(Normed(512) for _ in range(MANY))).cuda()
        optimizer = torch.optim.Adam(model.parameters(), foreach=False)
        if budget is not None:
            fit(model, Budget(device=budget, host="8GB"))
        peaks = []
        for _ in range(20):
            torch.cuda.reset_peak_memory_stats()
            step(model, x)
            optimizer.step()
            model.zero_grad()
            peaks.append(torch.cuda.max_memory_allocated())
        assert budget is None or len(plan_of(model).choices) < MANY
        return peaks, [one.cpu() for one in model.state_dict().values()]

    empty_device(workspaces=True)
    x = torch.randn(8192, 512, device="cuda")
    needed, expected = train()
    empty_device()
    third = max(needed) // 3
    peaks, found = train(third)
    assert max(peaks[1:]) <= third
    assert equal(found, expected)
