"""`fit` on a GPU: bits, bytes and peaks."""

import pytest
import torch
from tests.torch.models import (
    AMPLE,
    EXACT,
    Block,
    Residual,
    Shared,
    Transformer,
    blocks_of,
    empty_device,
    equal,
    large_problem,
    least_of,
    step,
)
from tests.torch.models import deterministic as deterministic
from torch import nn

from forebay import Budget
from forebay.torch import fit, plan_of, unfit
from forebay.torch.fit import _of

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")]


def alike_on_a_gpu(found, expected):
    """Tell whether gradients that went through a lossy codec are near: by norm, as single values may be tiny."""
    return all((one - other).norm() <= 0.05 * other.norm() + 1e-6 for one, other in zip(found, expected, strict=True))


@pytest.mark.parametrize("kind", [Transformer, Residual, Shared])  # pooling and interpolation in 3-D add in any order
@pytest.mark.parametrize("choice", [*EXACT, None])
def test_on_a_gpu_gradients_are_bit_equal_and_what_has_to_leave_comes_back(kind, choice):
    empty_device(workspaces=True)
    plain, x = large_problem(kind)
    expected = [[one.cpu() for one in step(plain, x)] for _ in range(4)]
    del plain
    empty_device()
    model = large_problem(kind)[0]
    fit(model, Budget(device="100GB", host="1GB"), choice=choice, blocks=blocks_of(kind))
    step(model, x)
    plan = plan_of(model)
    told = {name: peak for name, _, peak in plan.alternatives()}
    budget = (told["keep"] + told["recompute"]) // 2 if choice is None else least_of(plan) + 2**16
    unfit(model)
    model = None  # its memory is free before the next is measured
    empty_device()
    model = large_problem(kind)[0]
    fit(model, Budget(device=budget, host="1GB"), choice=choice, blocks=blocks_of(kind))
    for one in expected:
        assert equal([other.cpu() for other in step(model, x)], one)
    plan = plan_of(model)
    assert choice is None or choice in plan.choices.values()
    if choice is not None and "offload" in choice and ("inputs" not in choice or kind is not Shared):
        assert plan.metrics.moved["down 1"] > 0 and plan.metrics.moved["up 1"] > 0


@pytest.mark.parametrize("codec", ["cast:float16", "bounded:1e-3"])
@pytest.mark.parametrize("choice", ["compress", "offload compressed"])
def test_on_a_gpu_a_codec_compresses_within_its_error(choice, codec):
    plain, x = large_problem(Transformer)
    expected = [[one.cpu() for one in step(plain, x)] for _ in range(3)]
    model, _ = large_problem(Transformer)
    fit(model, Budget(device="100GB", host="1GB"), codec=codec, choice=choice)
    for one in expected:
        assert alike_on_a_gpu([other.cpu() for other in step(model, x)], one)
    plan = plan_of(model)
    assert set(plan.choices.values()) == {choice}
    assert plan.metrics.ratios and plan.metrics.ratios.worst > 1
    assert all(one.room > 0 for block in plan.chain.blocks for one in block.choices if one.name == choice)
    assert bool(plan.metrics.moved["down 1"]) == (choice == "offload compressed")


def test_on_a_gpu_an_input_on_the_host_does_not_hide_its_generator():
    class Masked(Block):
        def forward(self, lengths, x):
            return super().forward(x) * (lengths.max() > 0).item()

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList(Masked() for _ in range(3))

        def forward(self, x):
            for block in self.blocks:
                x = block(torch.ones(4), x)
            return x

    torch.manual_seed(0)
    model, x = Net().cuda(), torch.randn(4, 16, 32).cuda()
    expected = [one.cpu() for one in step(model, x)]
    fit(model, AMPLE, choice="recompute")
    for _ in range(3):
        assert equal([one.cpu() for one in step(model, x)], expected)
    assert _of(model).session._tools.gauge.device.type == "cuda"


def test_on_a_gpu_steps_with_an_optimizer_stay_within_a_third_from_the_first_plan_on():
    """Its states, twice the parameters, are there from the second step on."""

    def train(budget=None):
        torch.manual_seed(0)
        model = nn.Sequential(*(Block(512) for _ in range(20))).cuda()
        optimizer, peaks = torch.optim.Adam(model.parameters(), foreach=False), []
        if budget is not None:
            fit(model, Budget(device=budget, host="8GB"))
        for _ in range(12):
            torch.cuda.reset_peak_memory_stats()
            step(model, x)
            optimizer.step()
            model.zero_grad()
            peaks.append(torch.cuda.max_memory_allocated())
        return peaks, [one.cpu() for one in model.parameters()]

    empty_device(workspaces=True)
    x = torch.randn(16, 512, 512, device="cuda")
    needed, expected = train()
    empty_device()
    third = max(needed) // 3
    peaks, found = train(third)
    assert max(peaks[1:]) <= third and equal(found, expected)


@pytest.mark.parametrize("part", [2, 3])
@pytest.mark.parametrize(
    ("choice", "codec"),
    [
        ("offload", None),
        ("offload costly, recompute the rest", None),
        ("keep costly, recompute the rest", None),
        ("compress", "cast:float16"),
        ("compress", "bounded:1e-3"),
        (None, None),
    ],
)
def test_on_a_gpu_the_peak_stays_within_the_budget(part, choice, codec):
    def made():
        empty_device()
        torch.manual_seed(0)
        return nn.Sequential(*(Block(512) for _ in range(8))).cuda()

    empty_device(workspaces=True)
    plain = made()
    # So many that a third of the memory is more than parameters, gradients and workspaces with one block's tensors.
    x = torch.randn(16, 512, 512, device="cuda")
    step(plain, x)
    torch.cuda.reset_peak_memory_stats()
    expected = [one.cpu() for one in step(plain, x)]
    budget = torch.cuda.max_memory_allocated() // part
    del plain
    if choice is not None:  # one choice for all may not fit there; the planner's must
        model = made()
        fit(model, Budget(device="100GB", host="8GB"), codec=codec, choice=choice)
        step(model, x)
        budget = max(budget, least_of(plan_of(model)) + 2**20)
        unfit(model)
        model = None  # its memory is free before the next is measured
    model = made()
    fit(model, Budget(device=budget, host="8GB"), codec=codec, choice=choice)
    for number in range(6):
        torch.cuda.reset_peak_memory_stats()
        found = [one.cpu() for one in step(model, x)]
        assert not number or torch.cuda.max_memory_allocated() <= budget
    assert alike_on_a_gpu(found, expected) if codec else equal(found, expected)


def test_on_a_gpu_what_is_in_no_block_is_told():
    empty_device(workspaces=True)
    model, x = large_problem(Transformer)
    model.last = nn.Linear(128, 8192, device="cuda")  # its output is 134 MB
    optimizer = torch.optim.Adam(model.parameters())
    fit(model, Budget(device="4GB", host="1GB"))
    for _ in range(3):
        step(model, x)
        optimizer.step()
    plan, kept = plan_of(model), 3 * sum(parameter.nbytes for parameter in model.parameters())
    assert kept <= plan.base <= kept + x.nbytes + 2**27
    assert 134e6 <= plan.behind <= 8 * 134e6  # what the loss makes of it too
