"""What `fit` and `offload` say to those who ask for what cannot be, before any work starts."""

import copy
import random
import warnings

import numpy as np
import pytest
import torch
from tests.torch.models import AMPLE, MLP, Transformer, equal, problem, step
from tests.torch.models import deterministic as deterministic
from torch import nn

from forebay import Budget
from forebay.errors import BudgetError, PlanError
from forebay.torch import fit, offload, plan_of, unfit
from forebay.torch.fit import _of


@pytest.mark.parametrize("model", [None, Transformer, "model"])
def test_what_is_no_module_is_refused(model):
    with pytest.raises(PlanError, match=r"takes a torch\.nn\.Module"):
        fit(model, AMPLE)


def test_blocks_that_are_not_found_are_described():
    with pytest.raises(PlanError, match=r"made of others, have parameters.*of '0', '2'"):
        fit(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)), AMPLE)
    with pytest.raises(PlanError, match="of which it has none"):
        fit(nn.Sequential(nn.ReLU()), AMPLE)


def test_a_name_that_is_none_comes_with_those_that_are_near():
    model, _ = problem(Transformer)
    with pytest.raises(PlanError, match=r"'block\.0' is no module .*such as 'blocks\.0'"):
        fit(model, AMPLE, blocks=["block.0"])
    with pytest.raises(PlanError, match=r"is no module .*such as '.*', \.\.\."):
        fit(model, AMPLE, blocks=[nn.Linear(2, 2)])


@pytest.mark.parametrize("compiled", [lambda net: net.compile(backend="eager"), None])
def test_what_was_compiled_around_blocks_is_refused_wherever_it_is(compiled):
    model, _ = problem(Transformer)
    if compiled is None:
        model = nn.ModuleDict({"net": torch.compile(model, backend="eager")})
    else:
        compiled(model)
    with pytest.raises(PlanError, match="was compiled as a whole"):
        fit(model, AMPLE)


@pytest.mark.parametrize("wrap", [nn.ModuleList, lambda blocks: nn.Sequential(*blocks)])
def test_a_container_of_blocks_names_those_that_it_holds(wrap):
    model = nn.Module()
    model.layers = wrap([nn.Linear(4, 4) for _ in range(3)])
    fit(model, AMPLE, blocks=model.layers)
    assert len(_of(model).session.blocks) == 3
    unfit(model)
    with pytest.raises(PlanError, match="no list of such"):
        fit(model, AMPLE, blocks=3)


def test_one_block_may_be_named_by_itself():
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(12)))
    for blocks in ("10", model[10]):
        fit(model, AMPLE, blocks=blocks)
        for _ in range(2):
            model(torch.ones(2, 4)).sum().backward()
        assert list(plan_of(model).choices) == ["10"]
        unfit(model)


@pytest.mark.parametrize(
    ("choice", "budget", "codec", "needs"),
    [
        ("offload", Budget(device="1MB"), None, "host memory"),
        ("recompute, inputs offloaded", Budget(device="1MB"), None, "host memory"),
        ("offload compressed", Budget(device="1MB"), "cast:float16", "host memory"),
        ("compress", Budget(device="1MB", host="1MB"), None, "a codec"),
        ("to keep", Budget(device="1MB"), None, None),
        (["keep"], Budget(device="1MB"), None, None),
    ],
)
def test_a_choice_that_cannot_be_made_is_refused(choice, budget, codec, needs):
    model, _ = problem(Transformer)
    with pytest.raises(PlanError, match="is none of" if needs is None else f"needs {needs}"):
        fit(model, budget, codec=codec, choice=choice)


@pytest.mark.parametrize("plan", ["recompute", ["keep"], 3, {0: "keep"}])
def test_what_is_no_plan_is_refused(plan):
    with pytest.raises(PlanError, match=r"plan: .* is no plan: .*plan_of\(model\)\.choices.*choice="):
        fit(problem(Transformer)[0], AMPLE, plan=plan)


@pytest.mark.parametrize("use", [lambda budget: fit(problem(Transformer)[0], budget), offload])
def test_no_disk_and_a_device(use):
    with pytest.raises(BudgetError, match="to the host and no further"):
        use(Budget(device="1MB", disk="1GB"))
    with pytest.raises(BudgetError, match="needs the bytes of the device"):
        use(Budget(host="1MB"))


def test_a_budget_that_one_choice_does_not_fit_in_says_which():
    model, x = problem(Transformer)
    fit(model, "10kB", choice="keep")
    step(model, x)
    with pytest.raises(BudgetError, match="with 'keep' for its blocks"):
        step(model, x)


class Drawing(nn.Module):
    def __init__(self, draw):
        super().__init__()
        self.inner, self.draw = nn.Sequential(nn.Linear(8, 8), nn.Tanh()), draw

    def forward(self, x):
        return torch.tanh(self.inner(x) * self.draw())


@pytest.mark.parametrize("draw", [np.random.rand, random.random, lambda: random.gauss(0, 1)])
def test_a_block_that_draws_from_generators_that_all_share_is_refused(draw, alone):
    model = nn.Sequential(*(Drawing(draw) for _ in range(3)))
    fit(model, AMPLE)
    with pytest.raises(RuntimeError, match=r"block \(0\) draws from Python's or NumPy's"):
        model(torch.ones(4, 8))


def test_what_another_thread_draws_is_no_matter(prefetching):
    model, x = problem(Transformer)
    plain = copy.deepcopy(model)
    fit(model, AMPLE)
    for _ in range(3):
        assert equal(step(model, x), step(plain, x))
    assert prefetching.is_alive()


def test_replicas_are_refused_until_the_model_is_given_back():
    model = fit(nn.Sequential(MLP(), MLP()), AMPLE)
    with pytest.raises(PlanError, match="DistributedDataParallel"):
        model[0]._replicate_for_data_parallel()
    unfit(model)
    assert type(model[0]._replicate_for_data_parallel()) is MLP


class Around(MLP):
    """Calls none of its modules as such."""

    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList(MLP() for _ in range(2))

    def forward(self, x):
        for part in self.parts:
            x = MLP.forward(part, x)
        return x


def test_a_model_that_calls_none_of_its_blocks_is_told_so_once():
    model, x = fit(Around(), AMPLE), torch.randn(4, 8)
    with torch.no_grad():
        model(x)
    with pytest.warns(UserWarning, match=r"called none of its blocks \(parts.0, parts.1\).*Name those"):
        model(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(x)
