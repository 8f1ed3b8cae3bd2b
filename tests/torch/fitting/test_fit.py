"""`fit`: gradients, statistics and random numbers are those of the plain model, whatever happens to each block."""

import copy
import gc
import io
import json
import pickle
from weakref import ref

import pytest
import torch
from tests.torch.cases import crossed
from tests.torch.models import (
    AMPLE,
    EXACT,
    INPUTS,
    MLP,
    Block,
    Residual,
    Transformer,
    UNet,
    blocks_of,
    equal,
    least_for,
    pair,
    problem,
    step,
    trains_alike,
)
from tests.torch.models import deterministic as deterministic
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from forebay import Budget
from forebay.errors import BudgetError, CodecError, PlanError
from forebay.torch import fit, plan_of, unfit
from forebay.torch.fit import _of
from forebay.torch.fitting import profile, tools
from forebay.torch.fitting.blocks import find


def test_a_fitted_model_writes_a_page_about_its_blocks(tmp_path):
    model, x = problem(Transformer)
    fit(model, AMPLE, blocks=blocks_of(Transformer))
    step(model, x)
    plan = plan_of(model)
    plan.report(tmp_path / "page.html", "My model")
    text = (tmp_path / "page.html").read_text()
    assert (
        "My model" in text
        and all(name in text for name in plan.choices)
        and "with memory for everything" in text
        and "recompute for all" in text
    )
    assert plan.explain().splitlines()[0].split(":")[0].replace("'", "&#x27;") in plan._repr_html_()
    assert f"{len(plan.choices)} blocks" in repr(plan) and plan.names[0] in repr(plan) and len(repr(plan)) < 500


def needs(kind):
    """The bytes that blocks save and are given when everything is kept, and when everything is recomputed."""
    model, x = problem(kind)
    fit(model, AMPLE, blocks=blocks_of(kind))
    step(model, x)
    peaks = {name: peak for name, _, peak in plan_of(model).alternatives()}
    return peaks["keep"], peaks["recompute"]


@pytest.mark.parametrize(("kind", "choice"), crossed(list(INPUTS), EXACT))
def test_every_choice_gives_the_bits_of_the_plain_model(kind, choice):
    model, x = problem(kind)
    plain, _ = problem(kind)
    fit(model, AMPLE, choice=choice, blocks=blocks_of(kind))
    for _ in range(3):
        assert equal(step(model, x), step(plain, x))
    assert choice in plan_of(model).choices.values()


@pytest.mark.parametrize(("kind", "choice"), crossed(list(INPUTS), [name for name in EXACT if "offload" in name]))
def test_what_has_to_leave_the_device_comes_back_with_the_same_bits(kind, choice):
    model, x = problem(kind)
    plain, _ = problem(kind)
    fit(model, Budget(device=least_for(kind, choice), host="1GB"), choice=choice, blocks=blocks_of(kind))
    for _ in range(4):
        assert equal(step(model, x), step(plain, x))
    if "inputs" not in choice or kind in (Transformer, Residual):  # others share their inputs, which then stay
        assert max(plan_of(model).foreseen.leave) > 0
        assert plan_of(model).metrics.moved["up 1"] > 0


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


def test_without_a_host_nothing_moves():
    most, least = needs(Transformer)
    model, x = problem(Transformer)
    fit(model, Budget(device=(most + least) // 2))
    for _ in range(4):
        step(model, x)
    assert plan_of(model).foreseen.moved == 0
    assert plan_of(model).metrics.moved["down 1"] == 0


def test_no_more_moves_than_the_host_has_whatever_the_budget_allows(monkeypatch, caplog):
    monkeypatch.setattr(tools, "free_host_bytes", lambda: 20_000)
    most, least = needs(Transformer)
    model, x = problem(Transformer)
    with caplog.at_level("WARNING", "forebay.torch"):
        fit(model, Budget(device=(most + least) // 2, host="1GB"))
        for _ in range(3):
            step(model, x)
    assert plan_of(model).foreseen.moved <= 20_000 and plan_of(model).metrics.peak["host"] <= 20_000
    assert "allows 1GB of the host, of which 20kB are there" in caplog.text


def test_saved_bytes_on_the_device_follow_the_plan():
    most, least = needs(Transformer)
    model, x = problem(Transformer)
    fit(model, Budget(device=int(least * 1.1), host="1GB"), choice="offload")
    for _ in range(3):
        step(model, x)
    store = _of(model).session._tools.store
    assert store.metrics.peak["device"] < (most - least) // 2
    gc.collect()
    store.collect()
    assert store.held == 0 and store.mover.room.used == 0


def test_a_batch_that_the_caller_holds_is_not_moved_as_that_would_free_nothing():
    model, x = pair(MLP)[0], torch.randn(32, 8)
    fit(model, AMPLE, choice="recompute, inputs offloaded")
    for _ in range(2):
        step(model, x)
    plan = plan_of(model)
    assert list(plan.choices.values()) == ["recompute", *["recompute, inputs offloaded"] * 2]
    assert plan.metrics.moved["down 1"] == 2 * x.nbytes


def test_a_codec_compresses_within_its_error():
    for choice in ("compress", "offload compressed"):
        model, x = problem(Transformer)
        plain, _ = problem(Transformer)
        fit(model, AMPLE, codec="cast:float16", choice=choice)
        for _ in range(3):
            for found, expected in zip(step(model, x), step(plain, x), strict=True):
                torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-3)
        assert set(plan_of(model).choices.values()) == {choice}
        assert plan_of(model).metrics.ratios


class Counting(TorchDispatchMode):
    """Counts the products with a bias, which only a forward does."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func is torch.ops.aten.addmm.default
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("choice", "again"),
    [
        ("keep", 0),
        ("keep costly, recompute the rest", 0),
        ("offload costly, recompute the rest", 0),
        ("offload", 0),
        ("recompute", 4 * 3),
    ],
)
def test_costly_operations_run_again_only_where_their_outputs_are_not_kept(choice, again):
    model, x = problem(Transformer)
    fit(model, AMPLE, choice=choice)
    step(model, x)
    loss = model(x).sum()
    with Counting() as counting:
        loss.backward()
    assert counting.count == again  # the last of a block's four is not run again: all has been saved by then


@pytest.mark.parametrize("choice", [None, "recompute", "offload", "keep costly, recompute the rest"])
def test_autocast(choice):
    model, x = problem(Transformer)
    plain, _ = problem(Transformer)
    fit(model, Budget(device="300kB", host="1GB") if choice is None else AMPLE, choice=choice, blocks=["blocks.1"])
    for _ in range(3):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found, expected = step(model, x), step(plain, x)
        assert equal(found, expected)


@pytest.mark.parametrize(
    ("way", "choice"),
    [("module", "recompute"), ("in place", "recompute"), pytest.param("module", "offload", marks=pytest.mark.slow)],
)
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
    assert "keep costly, recompute the rest" not in {
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


def test_without_gradients_nothing_is_done():
    model, x = problem(Transformer)
    fit(model, AMPLE, choice="recompute")
    model.eval()
    with torch.no_grad():
        found = model(x)
    plain, _ = problem(Transformer)
    assert torch.equal(found, plain.eval()(x))
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


def test_a_model_that_is_given_back_is_gone_as_soon_as_nobody_holds_it():
    step(fit(*(problem(Transformer)[0], AMPLE)), problem(Transformer)[1])  # what torch keeps after a first time
    gc.collect()
    gc.disable()
    try:
        model, x = problem(Transformer)
        fit(model, AMPLE)
        for _ in range(2):
            step(model, x)
        gone = ref(unfit(model))
        del model
        assert gone() is None
    finally:
        gc.enable()


def saved_and_loaded(module):
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


COPIED = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda module: pickle.loads(pickle.dumps(module)),
    "torch.save": saved_and_loaded,
    "AveragedModel": lambda module: torch.optim.swa_utils.AveragedModel(module).module,
}


@pytest.mark.parametrize("copied", COPIED.values(), ids=COPIED)
def test_a_copy_of_a_fitted_model_is_plain(copied):
    model, plain = pair(MLP)
    fit(model, AMPLE, choice="recompute")
    x, copies = torch.randn(32, 8), []
    step(model, x)
    model.register_forward_hook(_no_hook)
    for module in (model, model[0], nn.Sequential(model)):
        other = copied(module)
        assert not any("forebay" in repr(value) for part in other.modules() for value in vars(part).values())
        assert [list(vars(part)) for part in other.modules()] == [
            [
                name
                for name in vars(part)
                if name not in ("forward", "_forebay", "__reduce_ex__", "_replicate_for_data_parallel")
            ]
            for part in module.modules()
        ]
        copies.append(other)
    assert len(copies[0]._forward_hooks) == 1 and not copies[0]._forward_pre_hooks
    assert equal(step(copies[0], x), step(plain, x))
    fit(copies[0], AMPLE, choice="recompute")  # each with a plan of its own
    assert equal(step(copies[0], x), step(plain, x)) and equal(step(model, x), step(plain, x))


def _no_hook(module, args, output):
    pass


def test_a_plan_is_given_again():
    model, x = problem(Transformer)
    budget = Budget(device=(sum(needs(Transformer)) // 2), host="1GB")
    fit(model, budget)
    for _ in range(2):
        step(model, x)
    choices = json.loads(json.dumps(plan_of(model).choices))
    assert len(set(choices.values())) > 1
    for plan in (choices, plan_of(model)):
        again, x = problem(Transformer)
        fit(again, budget, plan=plan)
        for _ in range(3):
            assert equal(step(again, x), step(problem(Transformer)[0], x))
            assert plan_of(again).choices == choices


@pytest.mark.parametrize("other", ["other blocks", "no room"])
def test_a_plan_that_does_not_suit_is_replaced_with_a_warning(other):
    model, x = problem(Transformer)
    plan = {f"blocks.{number}": "keep" for number in range(3 if other == "other blocks" else 4)}
    fit(model, "1GB" if other == "other blocks" else sum(needs(Transformer)) // 2, plan=plan)
    step(model, x)
    with pytest.warns(UserWarning, match="the plan that was given"):
        step(model, x)
    assert plan_of(model).choices != plan


@pytest.mark.parametrize("plan", [{"blocks.0": "no such"}, {"blocks.0": "offload"}, {"blocks.0": "compress"}])
def test_a_plan_with_choices_that_cannot_be_is_refused_at_once(plan):
    with pytest.raises(PlanError, match="choice: "):
        fit(problem(Transformer)[0], "1GB", plan=plan)


def test_a_class_that_copies_its_attributes_by_itself_is_refused():
    class Copying(MLP):
        def __deepcopy__(self, memo):
            other = type(self)()
            other.__dict__.update(copy.deepcopy(self.__dict__, memo))
            return other

    model, _ = pair(Copying)
    fit(model, AMPLE)
    with pytest.raises(PlanError, match=r"unfit\(model\) first"):
        copy.deepcopy(model)


def test_a_block_computes_where_its_parameters_are_whatever_comes_first():
    class Late(MLP):
        def forward(self, lengths):
            return super().forward(torch.zeros(len(lengths), 8, device="meta"))

    model = fit(nn.ModuleList([Late(), Late()]).to("meta"), AMPLE)
    with pytest.raises(BudgetError, match="not on meta"):
        model[0](torch.ones(3))


def test_plans_for_many_shapes_are_not_kept_for_ever(monkeypatch):
    monkeypatch.setattr(profile, "MOST_SHAPES", 2)
    model, _ = problem(Transformer)
    plain, _ = problem(Transformer)
    fit(model, AMPLE, choice="offload")
    for length in (5, 6, 5, 7, 5, 6, 6, 5):
        x = torch.randn(4, length, 8)
        assert equal(step(model, x), step(plain, x))
        assert len(_of(model).session._tools.profiles._profiles) <= 2


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


class Half(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.inner = nn.LayerNorm(8), MLP()

    def forward(self, x):
        return x + self.inner(self.norm(x))


class OtherHalf(Half):
    pass


class OfHalves(nn.Module):
    def __init__(self, more=None, second=OtherHalf):
        super().__init__()
        self.first, self.second, self.more = Half(), second(), more

    def forward(self, x):
        return self.second(self.first(x)) * 0.5


class Stack(nn.Module):
    """Blocks in a row, with something in front of them and behind."""

    def __init__(self, depth=3, row=nn.ModuleList):
        super().__init__()
        self.front, self.row, self.norm = nn.Sequential(MLP()), row([Half() for _ in range(depth)]), nn.LayerNorm(8)

    def forward(self, x):
        x = self.front(x)
        for block in self.row:
            x = block(x)
        return self.norm(x)


def stem(*more, first=None):
    return nn.Sequential(nn.Conv1d(1, 4, 1) if first is None else first, nn.ReLU(True), *more)


class OwnRow(nn.Sequential):
    pass


class Stemmed(nn.Module):
    """Blocks between a stem and a head."""

    def __init__(self, first=stem, last=lambda: nn.Linear(8, 2)):
        super().__init__()
        self.stem, self.blocks, self.head = first(), nn.Sequential(*(Half() for _ in range(3))), last()

    def forward(self, x):
        return self.head(self.blocks(self.stem(x[:, None]).mean(1)))


def compiled_first(*blocks):
    blocks[0].compile(backend="eager")
    return nn.Sequential(*blocks)


def sharing():
    model = nn.Sequential(OfHalves(), OfHalves(), OfHalves())
    model[1].first, model[2].first.inner = model[0].first, model[0].second
    return model


def sharing_a_part():
    model = nn.Sequential(OfHalves(), OfHalves())
    model[1].second = model[0].second
    return model


def named_again():
    """The stem by another name, and in a part that holds the whole."""
    model = Stemmed()
    model.again = nn.ModuleList([model.stem, model])
    return model


def frozen():
    row = stem(nn.BatchNorm1d(4))
    row[0].requires_grad_(False)
    return row


def with_a_part_of_a_block():
    model = Stemmed()
    model.stem.append(model.blocks[0].norm)
    return model


def several(count, make):
    return nn.Sequential(*(make() for _ in range(count)))


HALVES = [f"blocks.{n}" for n in range(3)]
ROWS = [f"{n}.{one}" for n in range(2) for one in ("front.0", *(f"row.{k}" for k in range(3)))]
FOUND = {
    "outermost that repeat": (Transformer, [f"blocks.{n}" for n in range(4)]),
    "in a sequence": (Residual, [f"stage.{n}" for n in range(4)]),
    "here and there": (UNet, ["down1", "down2", "bottom", "up2", "up1"]),
    "halves": (lambda: several(8, OfHalves), [f"{n}.{half}" for n in range(8) for half in ("first", "second")]),
    "many": (lambda: several(9, OfHalves), [str(n) for n in range(9)]),
    "more than halves": (lambda: several(2, lambda: OfHalves(nn.LayerNorm(8))), ["0", "1"]),
    "a list besides": (lambda: several(2, lambda: OfHalves(nn.ModuleList([MLP()]))), ["0", "1"]),
    "a parameter besides": (lambda: several(2, lambda: OfHalves(nn.Parameter(torch.ones(8)))), ["0", "1"]),
    "two of one kind": (lambda: several(3, lambda: OfHalves(second=Half)), ["0", "1", "2"]),
    "one is compiled": (lambda: compiled_first(OfHalves(), OfHalves()), ["0", "1.first", "1.second"]),
    "parts of others": (sharing, ["0", "1", "2"]),
    "a part of both": (sharing_a_part, ["0.first", "0.second", "1.first"]),
    "encoder and decoder": (lambda: several(2, Stack), ROWS),
    "these as sequences": (lambda: several(2, lambda: Stack(row=lambda row: nn.Sequential(*row))), ROWS),
    "many stacks": (lambda: several(5, Stack), [str(n) for n in range(5)]),
    "stacks of one": (lambda: several(2, lambda: Stack(1)), ["0", "1"]),
    "a compiled stack": (lambda: compiled_first(Stack(), Stack()), ["0", *ROWS[4:]]),
    "a stem": (Stemmed, [*HALVES, "stem"]),
    "stem and head": (
        lambda: Stemmed(lambda: nn.Sequential(OwnRow(*stem()), stem()), stem),
        [*HALVES, "stem.1", "head"],
    ),
    "a stem with other names": (named_again, [*HALVES, "stem"]),
    "a compiled stem": (lambda: Stemmed(lambda: torch.compile(stem(), backend="eager")), HALVES),
    "a stem of one layer": (lambda: Stemmed(lambda: nn.Sequential(nn.Conv1d(1, 4, 1))), HALVES),
    "a stem of its own kind": (lambda: Stemmed(lambda: OwnRow(*stem())), HALVES),
    "a lazy stem": (lambda: Stemmed(lambda: stem(first=nn.LazyConv1d(4, 1))), HALVES),
    "a frozen stem": (lambda: Stemmed(frozen), HALVES),
    "a stem with a part of a block": (with_a_part_of_a_block, HALVES),
    "a stem alone": (stem, []),
}


@pytest.mark.parametrize("make", FOUND.values(), ids=FOUND)
def test_blocks_are_found(make):
    model, names = make[0](), make[1]
    assert [name for name, _ in find(model)] == names


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (lambda: several(3, OfHalves), [f"{n}.{half}" for n in range(3) for half in ("first", "second")]),
        (lambda: several(2, Stack), ROWS),
        (lambda: Stemmed(lambda: stem(nn.BatchNorm1d(4))), ["stem", *HALVES]),
    ],
    ids=["halves", "stacks", "stem"],
)
def test_models_train_as_they_did_whatever_is_found(kind, names):
    assert list(plan_of(trains_alike(kind, "recompute")).choices) == names


@pytest.mark.parametrize("first", [nn.Dropout(0.2, inplace=True), nn.ReLU(inplace=True)], ids=["dropout", "relu"])
def test_a_head_that_changes_what_it_is_given_is_none(first):
    trains_alike(lambda: Stemmed(last=lambda: nn.Sequential(copy.deepcopy(first), nn.Linear(8, 2))))


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
