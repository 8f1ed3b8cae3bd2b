"""`fit`: parts of one storage, buffers that are shared or read, parameters that thaw, shapes that fork, and others."""

import copy
import gc
from types import MethodType
from weakref import ref

import pytest
import torch
from tests.torch.cases import crossed
from tests.torch.models import AMPLE, DEVICES, MLP, equal, of, pair, step, trains_alike
from torch import nn
from torch.autograd import forward_ad
from torch.func import jvp, vmap

from forebay import Budget
from forebay.errors import PlanError
from forebay.torch import fit, offload, unfit

CHOICES = [
    "recompute",
    "keep",
    "offload",
    "keep costly, recompute the rest",
    "offload costly, recompute the rest",
    None,
]


class Gated(nn.Module):
    """Changes the parts of a product in place, each of which counts its own changes."""

    def __init__(self):
        super().__init__()
        self.gates, self.out = nn.Linear(8, 32), nn.Linear(16, 8)

    def forward(self, x):
        first, second = self.gates(x).unsafe_chunk(2, -1)
        return x + self.out(first.sigmoid_() * second.tanh_())


class Cell(nn.Module):
    """A recurrent cell, whose gates torch makes in the same way on a CPU."""

    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(8, 8)

    def forward(self, x):
        state = torch.zeros_like(x)
        for _ in range(3):
            state = self.cell(x, state)
        return x + state


class Reading(MLP):
    """Reads the statistics of its normalisation while that trains, and how many there were."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x):
        before = self.norm.running_var.sqrt()
        x = super().forward(self.norm(x) * before)
        return x * (1 + self.norm.running_mean) if self.norm.num_batches_tracked < 3 else x


class Toggling(MLP):
    """Uses its normalisation in both modes."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x):
        x = super().forward(self.norm(x))
        self.norm.eval()
        x = self.norm(x)
        self.norm.train()
        return x


class Sharing(MLP):
    """Has a buffer under two names, and another that is a part of it."""

    def __init__(self):
        super().__init__()
        self.register_buffer("one", torch.ones(16))
        self.register_buffer("same", self.one)
        self.register_buffer("part", self.one[4:12])

    def forward(self, x):
        self.one.mul_(1.5)
        return super().forward(x * self.part) * self.same.mean()


class Trying(MLP):
    """Has another way where the first fails."""

    def forward(self, x):
        try:
            return x + self.down(torch.tanh(self.up(x)))
        except Exception:
            return torch.tanh(x.exp())


KINDS = [Toggling, Reading, Sharing, Gated, Cell, Trying]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("kind", "choice"), crossed(KINDS, CHOICES))
def test_what_parts_share_is_as_in_the_plain_model(kind, choice, device):
    trains_alike(of(kind), choice, device=device)


@pytest.mark.parametrize("kind", [Gated, Cell], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("budget", [0, 5000, 20000])
def test_parts_of_one_storage_that_changed_at_other_times_move_each_as_it_was(kind, dtype, budget):
    model, plain = (one.to(dtype) for one in pair(kind))
    x = torch.randn(32, 8, dtype=dtype)
    saved = offload(Budget(device=budget, host="1GB"), min_bytes=0)
    for _ in range(4):
        model.zero_grad()
        with saved:
            loss = model(x).square().mean()
            loss.backward()
        plain.zero_grad()
        plain(x).square().mean().backward()
        assert equal([one.grad for one in model.parameters()], [one.grad for one in plain.parameters()])


def test_negated_views_come_back_with_their_signs():
    found = []
    for around in (offload(Budget(device=0, host="1GB"), min_bytes=0), torch.enable_grad()):
        weight = torch.arange(1.0, 5.0, requires_grad=True)
        with around:
            imaginary = torch.complex(torch.ones(4), torch.arange(4.0)).conj().imag
            (weight * imaginary).sum().backward()
        found.append(weight.grad)
    assert torch.equal(*found)


@pytest.mark.parametrize("frozen", [True, False], ids=["thawed", "frozen"])
@pytest.mark.parametrize("choice", CHOICES)
def test_parameters_may_thaw_or_freeze_between_the_passes(frozen, choice):
    class Square(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x):
            return self.second(torch.tanh(self.first(x)))

    model, plain = pair(Square)
    fit(model, AMPLE, choice=choice)
    for _ in range(3):
        found = []
        for net in (model, plain):
            x = torch.linspace(-1, 1, 64).view(8, 8).requires_grad_()
            net.zero_grad()
            net.requires_grad_(not frozen)
            loss = net(x).square().mean()
            net.requires_grad_(frozen)
            loss.backward()
            assert all(one.requires_grad is frozen for one in net.parameters())
            found.append([x.grad, *(one.grad for one in net.parameters() if one.grad is not None)])
        assert equal(*found)


def test_a_model_with_a_part_that_is_fitted_is_refused_in_either_order():
    inner = nn.Sequential(MLP(), MLP())
    deep = nn.Sequential(nn.Sequential(inner, nn.Tanh()), nn.Sequential(nn.Sequential(MLP(), MLP()), nn.Tanh()))
    for first, second in ((inner, deep), (deep, inner)):
        fit(first, AMPLE, blocks=list(first))
        with pytest.raises(PlanError, match="another fitted model"):
            fit(second, AMPLE, blocks=list(second))
        unfit(first)
        fit(second, AMPLE, blocks=list(second))
        unfit(second)


def plainly(block, x):
    return MLP.forward(block, x)


def with_a_forward_of_its_own(block):
    block.forward = MethodType(plainly, block)


def compiled_in_place(block):
    block.compile(backend="eager")


@pytest.mark.parametrize(
    ("cycle", "change"),
    crossed({"alone": False, "in a cycle": True}, [None, with_a_forward_of_its_own, compiled_in_place]),
)
def test_a_fitted_model_that_is_gone_leaves_its_blocks_as_they_were(cycle, change):
    model, plain = pair(MLP)
    if change:
        for block in model:
            change(block)
    before, blocks, x = [dict(vars(block)) for block in model], list(model), torch.randn(32, 8)
    fit(model, AMPLE)
    for _ in range(2):
        step(model, x)
    gone, model.cycle = ref(model), [model] if cycle else []
    del model
    other = nn.Sequential(*blocks)
    fit(other, AMPLE)  # which looks for what nobody holds but itself
    assert gone() is None
    for _ in range(3):
        assert equal(step(other, x), step(plain, x))
    unfit(other)
    assert [dict(vars(block)) for block in blocks] == before
    assert equal(step(other, x), step(plain, x))


def test_a_forward_that_others_have_set_since_stays():
    model, _ = pair(MLP)
    block = model[0]
    fit(model, AMPLE)
    block.forward = torch.tanh
    del model
    gc.collect()
    assert block.forward is torch.tanh


@pytest.mark.parametrize("choice", CHOICES)
def test_a_graph_outlives_its_fitted_model(choice):
    model, plain = pair(MLP)
    parameters, x = list(model.parameters()), torch.randn(32, 8)
    fit(model, AMPLE, choice=choice)
    step(model, x)
    model.zero_grad()
    loss = model(x).square().mean()
    del model
    loss.backward()
    assert equal([one.grad for one in parameters], step(plain, x)[1:])


class Pair(nn.Module):
    """Has blocks for one input, and others for another."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.ModuleList(MLP() for _ in range(2)), nn.ModuleList(MLP() for _ in range(2))

    def forward(self, one, other):
        for block in self.first:
            one = block(one)
        for block in self.second:
            other = block(other + one.mean())
        return other


def test_shapes_that_differ_behind_the_first_block_have_plans_of_their_own():
    torch.manual_seed(0)
    model = Pair()
    plain = copy.deepcopy(model)
    fit(model, AMPLE)
    for count in range(16):
        inputs = torch.randn(4, 8), torch.randn(3 + count % 2, 8)
        for net in (model, plain):
            net.zero_grad()
            net(*inputs).square().mean().backward()
        assert equal(*([one.grad for one in net.parameters()] for net in (model, plain)))


def of_tangent(model, x):
    """Give the gradient of a tangent."""
    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(model(forward_ad.make_dual(x, x))).tangent
        return torch.autograd.grad(tangent.square().sum(), [model[0].up.weight])


def test_transforms_run_blocks_as_they_are_and_say_so():
    model, plain = pair(MLP)
    fit(model, AMPLE)
    x = torch.randn(4, 8)
    step(model, x)
    with pytest.warns(UserWarning, match=r"torch\.func or forward AD"):
        assert torch.equal(vmap(model)(x), vmap(plain)(x))
    with pytest.warns(UserWarning, match=r"torch\.func or forward AD"):
        assert equal(jvp(model, (x,), (x,)), jvp(plain, (x,), (x,)))
    with pytest.warns(UserWarning, match=r"torch\.func or forward AD"):
        found = of_tangent(model, x)
    assert equal(found, of_tangent(plain, x))
    assert equal(step(model, x), step(plain, x))


@pytest.mark.parametrize("choice", CHOICES)
def test_inputs_that_were_made_for_inference_are_taken(choice):
    class Shifted(MLP):
        def forward(self, x, shift):
            return super().forward(x) + shift

    class Model(nn.ModuleList):
        def forward(self, x, shift):
            for block in self:
                x = block(x, shift)
            return x

    torch.manual_seed(0)
    model = Model([Shifted(), Shifted()])
    plain = copy.deepcopy(model)
    fit(model, AMPLE, choice=choice)
    with torch.inference_mode():
        shift = torch.randn(4, 8)
    x = torch.randn(4, 8)
    for _ in range(3):
        for net in (model, plain):
            net.zero_grad()
            net(x, shift).square().mean().backward()
        assert equal(*([one.grad for one in net.parameters()] for net in (model, plain)))


def test_a_call_that_others_have_put_around_a_block_stays_when_it_is_given_back():
    model, plain = pair(MLP)
    block, x = model[0], torch.randn(32, 8)
    for gone in (unfit, None):
        fit(model, AMPLE)
        step(model, x)
        fitted = block.forward
        block.forward = lambda x, inside=fitted: 2 * inside(x)
        if gone is None:
            del model
        else:
            gone(model)
        assert torch.equal(block(x), 2 * plain[0](x))
        block.forward = fitted  # as one does who had put it aside for a while
        assert torch.equal(block(x), plain[0](x))
        del block.forward


class Unready(MLP):
    """Has no call yet."""

    @property
    def forward(self):
        raise AttributeError("not yet")


def test_where_a_block_cannot_be_fitted_none_is():
    blocks = [MLP(), MLP(), Unready()]
    model = nn.Sequential(*blocks)
    with pytest.raises(AttributeError):
        fit(model, AMPLE, blocks=blocks)
    assert not any("forward" in vars(block) for block in blocks)
    fit(nn.Sequential(*blocks[:2]), AMPLE)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_scripted_blocks_are_refused():
    model = nn.Sequential(*(torch.jit.script(MLP()) for _ in range(3)))
    with pytest.raises(PlanError, match="'0' is or has a ScriptModule"):
        fit(model, AMPLE)
