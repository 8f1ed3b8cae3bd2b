"""`fit`: blocks that change tensors and buffers as they run, and blocks that others run again."""

import copy
from contextlib import nullcontext
from weakref import ref

import numpy as np
import pytest
import torch
from tests.torch.cases import crossed
from tests.torch.models import AMPLE, DEVICES, EXACT, MLP, TwoTensorLike, equal, of, pair, step, trains_alike
from tests.torch.models import deterministic as deterministic
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from forebay import Budget
from forebay.errors import PlanError
from forebay.torch import fit, plan_of
from forebay.torch.replay import module_state

COSTLY = ["keep costly, recompute the rest", "offload costly, recompute the rest"]
RECOMPUTING = ["recompute", *COSTLY]


class Dropping(MLP):
    """Changes the output of its last product, after all that a second run needs."""

    def forward(self, x):
        return x + functional.dropout(self.down(functional.gelu(self.up(x)).sin()), 0.2, self.training, inplace=True)


class Branching(MLP):
    """Changes the output of a product in one of two branches, and in the other it does not."""

    def forward(self, x):
        h = self.up(x)
        h = torch.tanh(h) if torch.rand(()) < 0.5 else functional.leaky_relu(h, 0.1, inplace=True)
        return x + torch.tanh(self.down(torch.sin(h)))


class Parting(MLP):
    """Changes a part of a product, which counts its own changes, in one of two branches."""

    def forward(self, x):
        first, second = self.up(x).unsafe_chunk(2, -1)
        first = first.sigmoid() if torch.rand(()) < 0.5 else first.sigmoid_()
        return x + torch.tanh(self.down(torch.cat([first, second.sin()], -1)))


@pytest.mark.parametrize("kind", [Dropping, Branching, Parting], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("choice", COSTLY)
def test_an_output_that_its_block_changes_in_place_is_computed_again(kind, choice):
    assert choice in plan_of(trains_alike(of(kind), choice)).choices.values()


@pytest.mark.parametrize("choice", COSTLY)
def test_an_output_that_is_changed_in_place_behind_its_block_is_computed_again(choice):
    class Both(MLP):
        def forward(self, x):
            h = self.up(x)
            return h, self.down(torch.tanh(h * 2.0).sin())

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList(Both() for _ in range(3))

        def forward(self, x):
            for block in self.blocks:
                h, y = block(x)
                x = x + y + h.mul_(0.5).mean(-1, keepdim=True)
            return x

    assert choice in plan_of(trains_alike(Net, choice)).choices.values()


class Seldom(MLP):
    """Changes a buffer in its third run."""

    def __init__(self):
        super().__init__()
        self.register_buffer("codes", torch.ones(8))
        self.register_buffer("runs", torch.zeros(()))

    def forward(self, x):
        y = super().forward(x * self.codes.clone())
        self.runs += 1
        if self.runs == 3:
            self.codes.mul_(1.1)
        return y


def test_a_block_that_first_changes_a_large_buffer_later_is_refused_once_and_kept_from_then_on(monkeypatch):
    monkeypatch.setattr(module_state, "SMALL", 5)  # the count of runs is a small one
    model, plain = pair(Seldom)
    fit(model, AMPLE, choice="recompute")
    x = torch.randn(32, 8)
    for number in range(4):
        expected = step(plain, x)
        if number == 2:
            with (
                pytest.warns(UserWarning, match=r"changes a large buffer of its own \(codes\). It is kept"),
                pytest.raises(RuntimeError, match=r"\(codes\) was changed or added"),
            ):
                step(model, x)
        else:
            assert equal(step(model, x), expected)


@pytest.mark.parametrize("small", [module_state.SMALL, 0])
def test_a_buffer_that_changes_only_in_training_after_an_evaluation_with_gradients(small, monkeypatch):
    monkeypatch.setattr(module_state, "SMALL", small)

    class Spectral(MLP):
        def __init__(self):
            super().__init__()
            nn.utils.parametrizations.spectral_norm(self.up)

    model, plain = pair(Spectral)
    fit(model, AMPLE, choice="recompute")
    x = torch.randn(32, 8)
    for training in (False, True, True, False, True):
        assert equal(step(model.train(training), x), step(plain.train(training), x))


@pytest.mark.parametrize("choice", [*EXACT, None])
def test_a_sparse_tensor_that_a_block_saves_stays(choice):
    class Mixing(MLP):
        def __init__(self):
            super().__init__()
            self.register_buffer("mix", torch.eye(32).to_sparse())

        def forward(self, x):
            weighted = (self.mix * x.mean()).coalesce()
            return super().forward(torch.sparse.mm(self.mix, x) + torch.sparse.mm(weighted, x))

    model = trains_alike(of(Mixing), choice, Budget(device=60_000, host="1GB") if choice is None else AMPLE, 3)
    assert choice is None or choice in plan_of(model).choices.values()


class Checkpointed(nn.Module):
    """Blocks inside of torch.utils.checkpoint: all in one, or each with something around it."""

    def __init__(self, reentrant, whole):
        super().__init__()
        self.first, self.blocks = nn.Linear(8, 8), nn.Sequential(*(MLP() for _ in range(3)))
        self.reentrant, self.whole = reentrant, whole

    def forward(self, x):
        x = self.first(x)
        if self.whole:
            return checkpoint(self.blocks, x, use_reentrant=self.reentrant)
        for block in self.blocks:
            x = checkpoint(lambda x, block=block: block(x.exp()).sin(), x, use_reentrant=self.reentrant)
        return x


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("choice", ["keep", "recompute", "offload", None])
def test_blocks_inside_of_a_checkpoint_are_left_to_it(reentrant, whole, choice):
    torch.manual_seed(0)
    model, plain = Checkpointed(reentrant, whole), Checkpointed(reentrant, whole)
    plain.load_state_dict(model.state_dict())
    fit(model, Budget(device=3000, host="1GB") if choice is None else AMPLE, choice=choice)
    x = torch.randn(16, 8)
    for _ in range(4):
        with pytest.warns(UserWarning, match="is left to it"):
            found = step(model, x)
        assert equal(found, step(plain, x))
    with pytest.raises(PlanError):
        plan_of(model)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("choice", ["recompute", *COSTLY, None])
def test_seeds_that_are_set_between_the_passes_stay_set(choice, device):
    """The second run has the masks of the first, and later draws are as plain."""
    model, plain = (one.to(device) for one in pair(Dropping))
    fit(model, AMPLE, choice=choice)
    x = torch.randn(32, 8).to(device)
    for seed in (3, 2**63 + 5):
        found = []
        for net in (model, plain):
            torch.manual_seed(1)
            net.zero_grad()
            loss = net(x).square().mean()
            torch.manual_seed(seed)
            between = torch.rand(3, device=device)
            loss.backward()
            after = torch.rand(3, device=device), torch.rand(3)
            found.append([*(one.grad for one in net.parameters()), between, *after])
        assert equal(*found)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("kind", [Dropping, Branching, Parting, Seldom])
@pytest.mark.parametrize("choice", ["recompute", *COSTLY, None])
def test_on_a_gpu_what_blocks_change_is_as_in_the_plain_model(kind, choice):
    trains_alike(of(kind), choice, device="cuda")


class Buffered(MLP):
    """Has buffers, and does something with them."""

    def __init__(self, use, **buffers):
        super().__init__()
        self.use = use
        for name, buffer in buffers.items():
            self.register_buffer(name, buffer)

    def forward(self, x):
        return super().forward(self.use(self, x))


def grows(self, x):
    torch.mean(x.detach(), 0, out=self.mean)
    return x * self.scale


def grows_more(self, x):
    self.mean.resize_(160)[100:] = 7.0
    return x * self.scale


def swaps(self, x):
    first, second = self.mean, self.scale
    del self.mean, self.scale
    self.register_buffer("scale", first)
    self.register_buffer("mean", second)
    return x * self.scale + self.mean


def turns(self, x):
    self.scale.t_()
    return x @ self.scale


def conjugates(self, x):
    self.mean.mul_(1.5)
    return x * (self.mean * (1 + 2j) * self.scale).real


def shifts(self, x):
    self.mean.mul_(1.5)
    return x * self.scale + self.mean[:8]


def laid_over(first, second):
    """Give two tensors that know nothing of each other, over parts of one array."""
    array = np.linspace(1, 2, 24, dtype=np.float32)
    return {"mean": torch.from_numpy(array[first]), "scale": torch.from_numpy(array[second])}


def waves():
    first = torch.complex(torch.linspace(1, 2, 8), torch.linspace(0, 1, 8))
    return {"mean": first, "scale": first.conj()}


def scales(self, x):
    return x * self.scale.sum()


def averages(self, x):
    now = x.detach().mean(0)
    self.mean = now if self.mean is None else 0.9 * self.mean + 0.3 * now
    return x - self.mean


def makes_its_own(self, x):
    if "late" not in self._buffers:
        self.register_buffer("late", torch.rand(8))
    return functional.dropout(x * self.late, 0.5)


def inference():
    with torch.inference_mode():
        return torch.linspace(1, 2, 8)


BUFFERED = {
    "none at first": lambda: Buffered(averages, mean=None),
    "not there at first": lambda: Buffered(makes_its_own),
    "wants gradients": lambda: Buffered(lambda self, x: x * self.scale, scale=torch.rand(8, 8).requires_grad_()),
    "quantized": lambda: Buffered(
        lambda self, x: x * self.scale.dequantize(),
        scale=torch.quantize_per_tensor(torch.linspace(1, 2, 8), 0.1, 0, torch.qint8),
    ),
    "made for inference": lambda: Buffered(lambda self, x: x + self.scale, scale=inference()),
    "made of others": lambda: Buffered(
        lambda self, x: x * self.scale.elem, scale=TwoTensorLike(torch.linspace(1, 2, 8))
    ),
    "with gaps": lambda: Buffered(scales, scale=torch.randn(4001)[::2]),
    "one grows": lambda: Buffered(grows_more, mean=torch.zeros(100), scale=torch.linspace(1, 2, 8)),
    "names swapped": lambda: Buffered(swaps, mean=torch.ones(8), scale=torch.linspace(1, 2, 8)),
    "turned": lambda: Buffered(turns, scale=torch.linspace(1, 2, 64).view(8, 8)),
    "over one array": lambda: Buffered(shifts, **laid_over(slice(0, 16), slice(8, 16))),
    "conjugates": lambda: Buffered(conjugates, **waves()),
}


KEPT = {
    "with gaps",
    "over one array",
    "conjugates",
}
"""Those whose buffers cannot be copied as they lie."""


@pytest.mark.parametrize(
    ("kind", "choice"), crossed(list(BUFFERED), ["recompute", "keep costly, recompute the rest", None])
)
def test_buffers_in_all_their_shapes_are_as_the_first_run_found_them(kind, choice):
    (model, _), (plain, _) = pair(BUFFERED[kind]), pair(BUFFERED[kind])  # copies do not share what their models do
    fit(model, AMPLE, choice=choice)
    x = torch.randn(8, 8)
    for number in range(4):
        with pytest.warns(match="a block .* has ") if kind in KEPT and not number else nullcontext():
            found = step(model, x)
        assert equal(found, step(plain, x))
        assert equal(*([one.grad for one in net.buffers() if one.requires_grad] for net in (model, plain)))


def test_buffers_that_come_to_lie_over_each_other_are_refused():
    def use(self, x):
        return (x * self.mean + self.scale.mul_(1.5)) * self.mean

    model, _ = pair(lambda: Buffered(use, mean=torch.ones(8), scale=torch.ones(8)))
    fit(model, AMPLE, choice="recompute")
    x = torch.randn(8, 8)
    for _ in range(2):
        step(model, x)
    for block in model:
        block.mean.data = block.scale.data[:8]
    with pytest.raises(RuntimeError, match=r"has buffers in the same memory \(mean, scale\)"):
        step(model, x)


class Pair(MLP):
    """Has two modules that differ in what they do."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        return self.a(torch.tanh(self.b(super().forward(x))))


def sorted_by_name(model, x):
    """Run one iteration, and give gradients in the order of names."""
    step(model, x)
    return [one.grad for _, one in sorted(model.named_parameters())]


def swap_names(block):
    a, b = block.a, block.b
    del block.a, block.b
    block.b, block.a = a, b


@pytest.mark.parametrize("change", [swap_names, lambda block: setattr(block, "a", nn.Linear(8, 8))])
def test_modules_may_not_change_between_the_passes(change):
    model, plain = pair(Pair)
    fit(model, AMPLE, choice="recompute")
    x = torch.randn(8, 8)
    for _ in range(3):
        assert equal(step(model, x), step(plain, x))
    loss = model(x).sum()
    change(model[1])
    with pytest.raises(RuntimeError, match=r"\(a module of it\) was changed or added"):
        loss.backward()
    plain[1].a, plain[1].b = copy.deepcopy(model[1].a), copy.deepcopy(model[1].b)
    for _ in range(3):
        assert equal(sorted_by_name(model, x), sorted_by_name(plain, x))


@pytest.mark.parametrize("kind", ["parameter", "module"])
def test_what_a_block_makes_in_its_forward_is_refused_and_there_from_then_on(kind):
    class Late(MLP):
        def forward(self, x):
            if not hasattr(self, "late"):
                self.late = nn.Parameter(torch.ones(8)) if kind == "parameter" else nn.Linear(8, 8)
            return super().forward(x * self.late if kind == "parameter" else self.late(x))

    model, _ = pair(Late)
    fit(model, AMPLE, choice="recompute")
    x = torch.randn(8, 8)
    with pytest.raises(RuntimeError, match="Have it there before fit"):
        step(model, x)
    plain = nn.Sequential(*(Late() for _ in range(3)))
    plain(x)
    plain.load_state_dict(model.state_dict())
    for _ in range(3):
        assert equal(step(model, x), step(plain, x))


@pytest.mark.parametrize("choice", RECOMPUTING)
@pytest.mark.parametrize("kind", ["type", "shape"])
def test_a_second_run_that_saves_others_of_as_many_bytes_is_refused(kind, choice):
    first = True

    class Fickle(MLP):
        def forward(self, x):
            y = super().forward(x)
            if kind == "shape":
                return y * y[0][None if first else slice(None), slice(None) if first else None]
            y = y.to(torch.float16 if first else torch.bfloat16)
            return (y * y).float()

    model, _ = pair(Fickle)
    fit(model, AMPLE, choice=choice)
    for _ in range(3):
        first = True
        loss = model(torch.randn(8, 8)).sum()
        first = False
        with pytest.raises(RuntimeError, match="saved other tensors than the first time"):
            loss.backward()


@pytest.mark.parametrize("choice", RECOMPUTING)
def test_a_block_that_changes_what_it_has_saved_is_refused_as_in_the_plain_model(choice):
    class Changing(MLP):
        def forward(self, x):
            y = torch.sigmoid(super().forward(x))
            z = y * y
            y.add_(1)
            return torch.tanh(z + y)

    model, plain = pair(Changing)
    fit(model, AMPLE, choice=choice)
    for one in (model, model, plain):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            one(torch.randn(4, 8)).sum().backward()


@pytest.mark.parametrize("choice", RECOMPUTING)
def test_a_parameter_that_a_hook_changes_in_the_backward_pass_is_refused_as_in_the_plain_model(choice):
    class Scaled(MLP):
        def __init__(self):
            super().__init__()
            self.weight, self.scale = nn.Parameter(torch.eye(8)), nn.Parameter(torch.ones(8))

        def forward(self, x):
            return torch.tanh(super().forward(x) @ self.weight) * self.scale

    model, plain = pair(Scaled)
    fit(model, AMPLE, choice=choice)
    for one in (model, plain):
        one(torch.randn(4, 8)).sum().backward()
        one[1].scale.register_post_accumulate_grad_hook(lambda _, one=one: change(one[1].weight))
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            one(torch.randn(4, 8)).sum().backward()


def change(weight):
    with torch.no_grad():
        weight.add_(1)


@pytest.mark.parametrize("choice", RECOMPUTING)
def test_a_nested_tensor_that_a_block_makes_is_no_obstacle(choice):
    class Ragged(MLP):
        def forward(self, x):
            nested = torch.nested.as_nested_tensor([x[:1], x[1:]], layout=torch.jagged)
            return torch.cat(torch.tanh(self.down(torch.sin(self.up(nested)))).unbind())

    trains_alike(of(Ragged), choice)


@pytest.mark.parametrize("choice", RECOMPUTING)
def test_data_that_a_block_sets_behind_autograd_is_not_what_was_saved(choice):
    class Straight(MLP):
        def forward(self, x):
            y = torch.sigmoid(super().forward(x))
            y.data = y.data.round()
            return torch.sin(y)

    trains_alike(of(Straight), choice)


def test_what_functions_hold_of_a_second_run_goes_with_it():
    held, alive = [], []

    class Holding(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.more = x.detach().clone()
            held.append(ref(ctx.more))
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            return gradient * 2

    class Looking(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            assert ctx.saved_tensors
            alive.append(sum(one() is not None for one in held))
            return gradient

    class Block(MLP):
        def forward(self, x):
            return Looking.apply(torch.tanh(torch.sin(Holding.apply(super().forward(x)))))

    model, _ = pair(Block)
    fit(model, AMPLE, choice="recompute")
    for _ in range(3):
        held.clear()
        model(torch.randn(4, 8)).sum().backward()
    assert alive == [3] * 9  # those of the first runs


def test_a_block_that_does_not_know_its_shapes_is_refused():
    model = nn.Sequential(*(nn.Sequential(nn.LazyLinear(8), nn.ReLU()) for _ in range(3)))
    with pytest.raises(PlanError, match="'0' does not know its shapes yet: run the model once before fit"):
        fit(model, AMPLE, blocks=list(model))
    model(torch.randn(8, 8))
    fit(model, AMPLE, blocks=list(model))
    step(model, torch.randn(8, 8))
