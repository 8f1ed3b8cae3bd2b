"""`fit`: gradients, statistics and random numbers are those of the plain model, whatever happens to each block."""

import gc
import os

import pytest

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what deterministic products need on a GPU

torch = pytest.importorskip("torch")

from tests.torch.models import (  # noqa: E402
    INPUTS,
    Block,
    Residual,
    Shared,
    Transformer,
    UNet,
    blocks_of,
    equal,
    least_for,
    problem,
    step,
)
from torch import nn  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from penstock import Budget  # noqa: E402
from penstock.errors import BudgetError, CodecError, PlanError  # noqa: E402
from penstock.torch import fit, plan_of, unfit  # noqa: E402
from penstock.torch.blocks import find  # noqa: E402
from penstock.torch.choices import TREATMENTS  # noqa: E402
from penstock.torch.fit import _fitted  # noqa: E402

AMPLE = Budget(device="1GB", host="1GB")
EXACT = [name for name in TREATMENTS if "compress" not in name]


@pytest.fixture(autouse=True)
def deterministic():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)
    torch.set_num_threads(threads)


def needs(kind):
    """The bytes that blocks save and are given when everything is kept, and when everything is recomputed."""
    model, x = problem(kind)
    fit(model, AMPLE, blocks=blocks_of(kind))
    step(model, x)
    told = {name: peak for name, _, peak in plan_of(model).alternatives()}
    return told["keep"], told["recompute"]


@pytest.mark.parametrize("kind", INPUTS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("choice", EXACT)
def test_every_choice_gives_the_bits_of_the_plain_model(kind, choice):
    model, x = problem(kind)
    plain, _ = problem(kind)
    fit(model, AMPLE, choice=choice, blocks=blocks_of(kind))
    for _ in range(3):
        assert equal(step(model, x), step(plain, x))
    assert choice in plan_of(model).choices.values()


@pytest.mark.parametrize("kind", INPUTS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("choice", [name for name in EXACT if "offload" in name])
def test_what_has_to_leave_the_device_comes_back_with_the_same_bits(kind, choice):
    model, x = problem(kind)
    plain, _ = problem(kind)
    fit(model, Budget(device=least_for(kind, choice), host="1GB"), choice=choice, blocks=blocks_of(kind))
    for _ in range(4):
        assert equal(step(model, x), step(plain, x))
    if "inputs" not in choice or kind in (Transformer, Residual):  # others share their inputs, which then stay
        assert max(plan_of(model).foreseen.leave) > 0
        assert _fitted[model][0].metrics.moved["up 1"] > 0


@pytest.mark.parametrize("kind", INPUTS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("part", [0.0, 0.5])
def test_the_planners_choices_give_the_bits_of_the_plain_model(kind, part):
    most, least = needs(kind)
    budget = int((least + part * (most - least)) * 1.02) + 1
    model, x = problem(kind)
    plain, _ = problem(kind)
    fit(model, Budget(device=budget, host="1GB"), blocks=blocks_of(kind))
    for _ in range(5):
        assert equal(step(model, x), step(plain, x))
    plan = plan_of(model)
    assert plan.foreseen.peak <= budget
    assert set(plan.choices.values()) != {"keep"}


def test_with_enough_memory_everything_is_kept():
    model, x = problem(Transformer)
    fit(model, AMPLE)
    step(model, x)
    step(model, x)
    assert set(plan_of(model).choices.values()) == {"keep"}


def test_without_a_host_nothing_moves():
    most, least = needs(Transformer)
    model, x = problem(Transformer)
    fit(model, Budget(device=(most + least) // 2))
    for _ in range(4):
        step(model, x)
    assert plan_of(model).foreseen.moved == 0
    assert _fitted[model][0].metrics.moved["down 1"] == 0


def test_what_moves_is_what_the_plan_says():
    model, x = problem(Transformer)
    fit(model, AMPLE, choice="offload")
    step(model, x)
    metrics = _fitted[model][0].metrics
    before = metrics.moved["down 1"]
    step(model, x)
    moved = metrics.moved["down 1"] - before
    assert moved == pytest.approx(plan_of(model).foreseen.moved, rel=0.02)  # small tensors stay


def test_saved_bytes_on_the_device_follow_the_plan():
    most, least = needs(Transformer)
    model, x = problem(Transformer)
    fit(model, Budget(device=int(least * 1.1), host="1GB"), choice="offload")
    for _ in range(3):
        step(model, x)
    store = _fitted[model][0]._store
    assert store.metrics.peak["device"] < (most - least) // 2
    gc.collect()
    store.collect()
    assert store.held == 0 and store.mover.room.used == 0


def test_a_codec_compresses_within_its_error():
    for choice in ("compress", "offload compressed"):
        model, x = problem(Transformer)
        plain, _ = problem(Transformer)
        fit(model, AMPLE, codec="cast:float16", choice=choice)
        for _ in range(3):
            for found, expected in zip(step(model, x), step(plain, x), strict=True):
                torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-3)
        assert set(plan_of(model).choices.values()) == {choice}
        assert _fitted[model][0].metrics.ratios


class Counting(TorchDispatchMode):
    """Counts the products with a bias, which only a forward does."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func is torch.ops.aten.addmm.default
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("choice", "again"), [("keep", 0), ("keep dear, recompute the rest", 0), ("offload", 0), ("recompute", 4 * 3)]
)
def test_dear_operations_run_again_only_where_the_whole_block_is_recomputed(choice, again):
    model, x = problem(Transformer)
    fit(model, AMPLE, choice=choice)
    step(model, x)
    loss = model(x).sum()
    with Counting() as counting:
        loss.backward()
    assert counting.count == again  # the last of a block's four is not run again: all has been saved by then


def test_optimizer_and_training_go_on_as_before():
    model, x = problem(Residual)
    plain, _ = problem(Residual)
    fit(model, AMPLE, choice="recompute")
    losses = []
    for net in (model, plain):
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
        losses.append([])
        for _ in range(4):
            losses[-1].append(step(net, x)[0].item())
            optimizer.step()
    assert losses[0] == losses[1]
    assert model.state_dict().keys() == plain.state_dict().keys()


@pytest.mark.parametrize("choice", [None, "recompute", "offload", "keep dear, recompute the rest"])
def test_autocast(choice):
    model, x = problem(Transformer)
    plain, _ = problem(Transformer)
    fit(model, Budget(device="300kB", host="1GB") if choice is None else AMPLE, choice=choice, blocks=["blocks.1"])
    for _ in range(3):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found, expected = step(model, x), step(plain, x)
        assert equal(found, expected)


@pytest.mark.parametrize(("way", "choice"), [("module", "recompute"), ("in place", "recompute"), ("module", "offload")])
def test_compiled_blocks(way, choice):
    torch._dynamo.reset()

    def compiled():
        model, x = problem(Residual)
        model.stage = model.stage[:2]
        for number, block in enumerate(model.stage):
            if way == "module":
                model.stage[number] = torch.compile(block, backend="aot_eager")
            else:
                block.compile(backend="aot_eager")
        return model, x

    model, x = compiled()
    plain, _ = compiled()
    assert len(find(model)) == 2
    fit(model, AMPLE, choice=choice)
    for _ in range(2):
        assert equal(step(model, x), step(plain, x))
    assert "keep dear, recompute the rest" not in {
        one.name for block in plan_of(model).chain.blocks for one in block.choices
    }


def test_a_model_under_ddp(tmp_path):
    distributed = torch.distributed
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/ddp", rank=0, world_size=1)
    try:
        inner, x = problem(Transformer)
        plain, _ = problem(Transformer)
        model = fit(nn.parallel.DistributedDataParallel(inner), AMPLE, choice="recompute")
        for _ in range(3):
            assert equal(step(model, x), step(plain, x))
        assert list(plan_of(model).choices) == [f"module.blocks.{n}" for n in range(4)]
        unfit(model)
    finally:
        distributed.destroy_process_group()


def test_shapes_that_change_get_plans_of_their_own():
    model, _ = problem(Transformer)
    plain, _ = problem(Transformer)
    fit(model, Budget(device="1MB", host="1GB"))
    for length in (16, 16, 5, 5, 30, 16, 5, 30):
        x = torch.randn(4, length, 8)
        assert equal(step(model, x), step(plain, x))
    assert len(_fitted[model][0]._known) == 3


@pytest.mark.parametrize("left_out", [1, 3])
def test_a_model_that_takes_another_path_is_measured_anew(left_out):
    class Skipping(Transformer):
        skip = False

        def forward(self, x):
            x = self.first(x)
            for number, block in enumerate(self.blocks):
                if not (self.skip and number == left_out):
                    x = block(x)
            return self.last(x).square()

    torch.manual_seed(0)
    model, plain = Skipping(), Skipping()
    plain.load_state_dict(model.state_dict())
    x = torch.randn(4, 16, 8)
    fit(model, AMPLE, choice="offload")
    for skip in (False, False, True, True, True, False, False, False, False, False, True, False):
        model.skip = plain.skip = skip
        for net in (model, plain):
            net.zero_grad()
            torch.manual_seed(7)
            net(x).mean().backward()
        for one, other in zip(model.parameters(), plain.parameters(), strict=True):
            assert (one.grad is None and other.grad is None) or torch.equal(one.grad, other.grad)


def test_without_gradients_nothing_is_done():
    model, x = problem(Transformer)
    fit(model, AMPLE, choice="recompute")
    model.eval()
    with torch.no_grad():
        found = model(x)
    plain, _ = problem(Transformer)
    assert torch.equal(found, plain.eval()(x))
    assert _fitted[model][0]._now is None
    with pytest.raises(PlanError, match="no plan has been made yet"):
        plan_of(model)


def test_an_error_in_a_block_leaves_the_model_usable():
    model, x = problem(Transformer)
    plain, _ = problem(Transformer)
    fit(model, AMPLE, choice="offload")
    for _ in range(3):
        with pytest.raises(RuntimeError):
            step(model, x[..., :3])
        assert equal(step(model, x), step(plain, x))


def test_several_models():
    one, x = problem(Transformer)
    other, y = problem(Residual)
    fit(one, AMPLE, choice="offload")
    fit(other, AMPLE, choice="recompute")
    plain_one, plain_other = problem(Transformer)[0], problem(Residual)[0]
    for _ in range(3):
        assert equal(step(one, x), step(plain_one, x))
        assert equal(step(other, y), step(plain_other, y))


@pytest.mark.parametrize("choice", EXACT)
def test_several_backward_passes_with_retain_graph(choice):
    model, x = problem(Transformer)
    plain, _ = problem(Transformer)
    model.eval(), plain.eval()
    fit(model, AMPLE, choice=choice)
    expected = torch.autograd.grad(plain(x).sum(), list(plain.parameters()))
    for _ in range(2):
        loss = model(x).sum()
        for retain in (True, True, False):
            assert equal(torch.autograd.grad(loss, list(model.parameters()), retain_graph=retain), expected)


@pytest.mark.parametrize("choice", EXACT)
def test_double_backward(choice):
    def second(model, x):
        x = x.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(model(x).square().sum(), x, create_graph=True)
        return torch.autograd.grad(gradient.square().sum(), list(model.parameters()), allow_unused=True)

    model, plain = nn.Sequential(*(MLP() for _ in range(3))), nn.Sequential(*(MLP() for _ in range(3)))
    plain.load_state_dict(model.state_dict())
    x = torch.randn(32, 8)
    fit(model, AMPLE, choice=choice)
    for _ in range(3):
        for one, other in zip(second(model, x), second(plain, x), strict=True):
            assert (one is None and other is None) or torch.equal(one, other)


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 64), nn.Linear(64, 8)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(x)))


@pytest.mark.parametrize("choice", ["recompute", "keep dear, recompute the rest", "recompute, inputs offloaded"])
def test_an_input_that_is_changed_in_place_raises(choice):
    model, x = nn.Sequential(MLP(), MLP()), torch.randn(32, 8)
    fit(model, AMPLE, choice=choice)
    model(x).sum().backward()
    x = (x * 1.0).requires_grad_() * 1.0
    y = model(x)
    with torch.no_grad():
        x.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_buffers_that_a_block_counts_with_change_once():
    class Counting(MLP):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.calls += 1
            return super().forward(x) * self.calls

    model, plain = nn.Sequential(Counting(), Counting()), nn.Sequential(Counting(), Counting())
    plain.load_state_dict(model.state_dict())
    fit(model, AMPLE, choice="recompute")
    x = torch.randn(32, 8)
    for _ in range(4):
        assert equal(step(model, x), step(plain, x))
    assert model[0].calls == 4


def test_a_block_that_depends_on_something_else_is_refused():
    class Fickle(MLP):
        runs = 0

        def forward(self, x):
            Fickle.runs += 1
            return super().forward(x) if Fickle.runs % 2 else torch.exp(x)

    model = fit(nn.Sequential(Fickle(), Fickle(), Fickle()), AMPLE)
    with pytest.raises(RuntimeError, match="depend on nothing but its inputs"):
        model(torch.randn(4, 8)).sum().backward()


def test_unfit_gives_the_model_back():
    model, x = problem(Transformer)
    plain, _ = problem(Transformer)
    fit(model, AMPLE, choice="recompute")
    loss = None
    for _ in range(2):
        torch.manual_seed(7)
        loss = model(x).square().mean()
    unfit(model)
    loss.backward()  # a graph from before
    assert equal([one.grad for one in model.parameters()], step(plain, x)[1:])
    assert all("forward" not in vars(block) for block in model.blocks)
    assert not model._forward_pre_hooks
    with pytest.raises(PlanError, match="is not fitted"):
        plan_of(model)
    fit(model, AMPLE)


def test_a_budget_in_which_nothing_works_says_what_would():
    model, x = problem(Transformer)
    fit(model, Budget(device="20kB", host="1GB"))
    step(model, x)
    with pytest.raises(BudgetError, match=r"does not fit .* lacks about"):
        step(model, x)


def test_the_same_measurements_give_the_same_plan():
    from penstock.planner.blocks import choose

    model, x = problem(Transformer)
    fit(model, Budget(device="300kB", host="1GB"))
    for _ in range(4):
        step(model, x)
    plan = plan_of(model)
    assert choose(plan.chain, int(plan.budget["device"] * 0.99))[0] == plan.picks


def test_a_plan_explains_itself():
    model, x = problem(Transformer)
    fit(model, Budget(device="300kB", host="1GB"))
    for _ in range(4):
        step(model, x)
    told = plan_of(model).explain()
    assert "4 blocks" in told and "recompute for all" in told and "measured" in told
    assert "keep for all" in told and "does not fit" in told


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (Transformer, [f"blocks.{n}" for n in range(4)]),
        (Residual, [f"stage.{n}" for n in range(4)]),
        (UNet, ["down1", "down2", "bottom", "up2", "up1"]),
    ],
)
def test_blocks_are_the_outermost_modules_that_repeat(kind, names):
    assert [name for name, _ in find(problem(kind)[0])] == names


def test_what_cannot_work_is_refused_at_once():
    model = Transformer()
    with pytest.raises(BudgetError):
        fit(model, Budget(host="1GB"))
    with pytest.raises(CodecError):
        fit(model, "1GB", codec="no such")
    with pytest.raises(PlanError, match="is there twice"):
        fit(nn.Linear(2, 2), "1GB")
    with pytest.raises(PlanError, match="no module of the model"):
        fit(model, "1GB", blocks=[Block()])
    with pytest.raises(PlanError, match="is inside"):
        fit(model, "1GB", blocks=["blocks.0", "blocks.0.up"])
    with pytest.raises(PlanError, match="none of"):
        fit(model, "1GB", choice="hope")
    fit(model, "1GB")
    with pytest.raises(PlanError, match="fitted already"):
        fit(model, "1GB")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("kind", [Transformer, Residual, Shared])  # pooling and interpolation in 3-D add in any order
@pytest.mark.parametrize("choice", [*EXACT, None])
def test_on_a_gpu_gradients_are_bit_equal(kind, choice):
    model, x = problem(kind)
    plain, _ = problem(kind)
    model, plain, x = model.cuda(), plain.cuda(), x.cuda()
    fit(model, AMPLE, choice=choice, blocks=blocks_of(kind))
    for _ in range(4):
        assert equal(step(model, x), step(plain, x))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("part", [2, 3])
@pytest.mark.parametrize(
    "choice", ["offload", "offload dear, recompute the rest", "keep dear, recompute the rest", None]
)
def test_on_a_gpu_the_peak_stays_within_the_budget(part, choice):
    def made():
        torch.manual_seed(0)
        return nn.Sequential(*(Block(512) for _ in range(8))).cuda(), torch.randn(16, 1024, 512, device="cuda")

    plain, x = made()
    step(plain, x)
    torch.cuda.reset_peak_memory_stats()
    expected = [one.cpu() for one in step(plain, x)]
    budget = torch.cuda.max_memory_allocated() // part
    del plain
    model, _ = made()
    fit(model, Budget(device=budget, host="8GB"), choice=choice)
    try:
        for number in range(6):
            torch.cuda.reset_peak_memory_stats()
            found = [one.cpu() for one in step(model, x)]
            assert not number or torch.cuda.max_memory_allocated() <= budget
    except BudgetError:
        assert choice is not None  # one choice for all may not fit; the planner's must
        return
    assert equal(found, expected)
