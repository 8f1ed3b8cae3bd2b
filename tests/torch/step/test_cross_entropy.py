"""The loss of a head, some rows at a time, beside torch's own."""

import copy
import weakref

import pytest
import torch
from tests.torch.models import DEVICES, deterministic  # noqa: F401
from torch import nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from forebay.errors import BudgetError, PlanError
from forebay.torch import linear_cross_entropy
from forebay.torch.step import cross_entropy

ROWS, WIDTH, WORDS = (3, 7), 16, 50
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-6, torch.bfloat16: 2e-2, torch.float16: 3e-3}
"""Errors of gradients relative to their largest: some roundings of the type."""


def problem(dtype=torch.float32, device="cpu", bias=True, rows=ROWS):
    torch.manual_seed(0)
    hidden = torch.randn(*rows, WIDTH, dtype=dtype, device=device, requires_grad=True)
    head = nn.Linear(WIDTH, WORDS, bias=bias, dtype=dtype, device=device)
    target = torch.randint(WORDS, rows, device=device)
    target.view(-1)[::5] = -100
    return hidden, head, target


def plain(hidden, head, target, softcap=None, **how):
    wide = torch.promote_types(hidden.dtype, torch.float32)
    logits = functional.linear(hidden.to(wide), head.weight.to(wide), None if head.bias is None else head.bias.to(wide))
    logits = logits if softcap is None else softcap * torch.tanh(logits / softcap)
    loss = functional.cross_entropy(logits.flatten(0, -2), target.flatten(), **how)
    return loss.view(target.shape) if loss.dim() else loss


def gradients(loss, hidden, head, scale=None):
    scale = torch.linspace(0.5, 2, loss.numel(), device=loss.device).view(loss.shape) if scale is None else scale
    return torch.autograd.grad(loss, [hidden, *head.parameters()], scale.to(loss.dtype))


def close(ours, theirs, dtype):
    for one, other in zip(ours, theirs, strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        error = (one.double() - other.double()).abs().max()
        assert error <= TOLERANCE[dtype] * max(1, other.abs().max())
    return True


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize(
    "how", [{}, {"label_smoothing": 0.1}, {"softcap": 2.0}, {"ignore_index": 3, "label_smoothing": 0.2}], ids=str
)
def test_loss_and_gradients_are_those_of_whole_logits(device, dtype, reduction, how):
    hidden, head, target = problem(dtype, device)
    target = target.where(target >= 0, how.get("ignore_index", -100))
    ours = linear_cross_entropy(hidden, head.weight, target, head.bias, budget="3kB", reduction=reduction, **how)
    theirs = plain(hidden, head, target, reduction=reduction, **how)
    assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
    assert close([ours], [theirs], dtype)
    assert close(gradients(ours, hidden, head), gradients(theirs, hidden, head), dtype)
    with torch.no_grad():
        again = linear_cross_entropy(hidden, head.weight, target, head.bias, budget="3kB", reduction=reduction, **how)
    assert torch.equal(ours, again)


@pytest.mark.parametrize("rows", [1, 5, 21])
def test_chunks_of_any_size_tell_the_same(rows):
    hidden, head, target = problem(torch.float64, bias=False)
    loss = linear_cross_entropy(hidden, head.weight, target, budget=rows * WORDS * 16)
    whole = linear_cross_entropy(hidden, head.weight, target)
    assert torch.allclose(loss, whole, rtol=1e-14)
    assert close(gradients(loss, hidden, head), gradients(whole, hidden, head), torch.float64)


def test_only_logits_of_the_budget_are_there_at_once():
    hidden, head, target = problem()
    made = []

    class Watching(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            if isinstance(result, torch.Tensor):
                made.append(result.numel())
            return result

    with Watching():
        linear_cross_entropy(hidden, head.weight, target, head.bias, budget=4 * WORDS * 8).backward()
    assert max(made) == max(4, WIDTH) * WORDS < 21 * WORDS  # four rows of logits, or the gradient of the weight


@pytest.mark.parametrize("softcap", [None, 5.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_logits_in_all_types_together_stay_within_the_budget(dtype, softcap):
    words, peak, there = 3000, 0, {}

    class Watching(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal peak
            result = func(*args, **(kwargs or {}))
            for one in tree_leaves(result):
                if isinstance(one, torch.Tensor) and one.dim() == 2 and one.shape[-1] == words:
                    there[one.untyped_storage()._cdata] = weakref.ref(one), one.untyped_storage().nbytes()
            peak = max(peak, sum(nbytes for one, nbytes in there.values() if one() is not None))
            return result

    hidden = torch.randn(64, 4, dtype=dtype, requires_grad=True)
    with Watching():
        weight = torch.randn(words, 4, dtype=dtype)
        linear_cross_entropy(hidden, weight, torch.randint(words, (64,)), budget="400kB", softcap=softcap)
    assert 200_000 < peak <= 400_000


def test_a_head_tied_to_the_embedding_trains_as_with_whole_logits():
    torch.manual_seed(0)
    ours = nn.Sequential(nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Tanh())
    theirs = copy.deepcopy(ours)
    words = torch.randint(WORDS, (4, 9))
    for model in (ours, theirs):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        for _ in range(5):
            optimizer.zero_grad()
            hidden, weight = model(words[:, :-1]), model[0].weight
            if model is ours:
                loss = linear_cross_entropy(hidden, weight, words[:, 1:], budget="2kB")
            else:
                loss = functional.cross_entropy((hidden @ weight.T).flatten(0, 1), words[:, 1:].flatten())
            loss.backward()
            optimizer.step()
    assert close(ours.parameters(), theirs.parameters(), torch.float32)


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_autocast_computes_products_as_it_says_and_sums_in_float32(reduction):
    hidden, head, target = problem()
    with torch.autocast("cpu", torch.bfloat16):
        ours = linear_cross_entropy(hidden, head.weight, target, head.bias, reduction=reduction)
        theirs = functional.cross_entropy(head(hidden).flatten(0, 1).float(), target.flatten(), reduction=reduction)
    assert ours.dtype == torch.float32 and close([ours.flatten()], [theirs.flatten()], torch.float32)
    scale = torch.ones_like(ours)
    theirs = theirs.view(ours.shape)
    assert close(gradients(ours, hidden, head, scale), gradients(theirs, hidden, head, scale), torch.bfloat16)


def test_a_mean_over_many_rows_loses_nothing_in_float16():
    hidden, head, target = problem(torch.float16, rows=(60_000,))
    ours = linear_cross_entropy(hidden, head.weight, target, head.bias)
    theirs = plain(hidden, head, target)
    weights = [torch.autograd.grad(65536 * loss, head.weight)[0].float() for loss in (ours, theirs)]
    assert (weights[0] - weights[1]).abs().max() <= 2e-3 * weights[1].abs().max()


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_float16_overflows_no_earlier_than_with_whole_logits(reduction):
    torch.manual_seed(0)
    hidden = torch.randn(8192, WIDTH, dtype=torch.float16)
    hidden[:, 0] = 24
    target = torch.randint(WORDS, (8192,)).where(torch.rand(8192) < 0.4, 0)
    weight = (torch.randn(WORDS, WIDTH) * 0.02).half().requires_grad_()
    scale = 128.0 if reduction == "mean" else 128.0 / 8192
    exact = torch.autograd.grad(128 * functional.cross_entropy(hidden.double() @ weight.double().T, target), weight)[0]
    loss = linear_cross_entropy(hidden, weight, target, reduction=reduction).sum()
    ours = torch.autograd.grad(loss * scale, weight)[0]
    assert (ours.double() - exact).abs().max() <= 2e-3 * exact.abs().max()


def test_a_negative_target_is_no_word_where_it_is_not_looked_at_before(monkeypatch):
    hidden, head, target = problem()
    monkeypatch.setattr(cross_entropy, "_check", lambda *_: None)  # as on a GPU, whose kernels then raise
    target[0, 1] = -1
    with pytest.raises(IndexError, match=f"{WORDS} is out of bounds"):
        linear_cross_entropy(hidden, head.weight, target)


def test_sums_over_many_chunks_in_bfloat16_lose_no_more_than_one_product():
    hidden, head, target = problem(torch.bfloat16, rows=(4096,), bias=False)
    exact = gradients(plain(hidden.double(), head.double(), target), hidden, head)[1]
    head.bfloat16()
    errors = []
    for budget in (50 * 10 * 4096, 50 * 10 * 16):
        loss = linear_cross_entropy(hidden, head.weight, target, budget=budget)
        errors.append((gradients(loss, hidden, head)[1].double() - exact).norm() / exact.norm())
    assert errors[1] <= 1.5 * errors[0]


def test_the_graph_may_be_kept_for_a_second_backward_pass():
    hidden, head, target = problem()
    loss = linear_cross_entropy(hidden, head.weight, target, head.bias)
    loss.backward(torch.tensor(3.0), retain_graph=True)
    first = hidden.grad.clone()
    hidden.grad = None
    loss.backward(torch.tensor(3.0))
    assert torch.equal(hidden.grad, first)
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


@pytest.mark.parametrize("frozen", ["hidden", "weight", "all"])
def test_what_wants_no_gradient_gets_none(frozen):
    hidden, head, target = problem(bias=False)
    if frozen in ("hidden", "all"):
        hidden = hidden.detach()
    if frozen in ("weight", "all"):
        head.weight.requires_grad_(False)
    loss = linear_cross_entropy(hidden, head.weight, target)
    assert loss.requires_grad == (frozen != "all")
    if frozen != "all":
        loss.backward()
    assert (hidden.grad is None) == (frozen in ("hidden", "all"))
    assert (head.weight.grad is None) == (frozen in ("weight", "all"))


def test_rows_that_all_count_for_nothing_leave_no_gradient():
    hidden, head, target = problem()
    loss = linear_cross_entropy(hidden, head.weight, torch.full_like(target, -100), head.bias)
    loss.backward()
    assert loss.isnan()  # as torch says
    assert not hidden.grad.any() and not head.weight.grad.any()


def test_second_derivatives_are_refused_in_words():
    hidden, head, target = problem()
    for reduction in ("mean", "none"):
        loss = linear_cross_entropy(hidden, head.weight, target, head.bias, reduction=reduction).sum()
        with pytest.raises(RuntimeError, match="no second derivative"):
            torch.autograd.grad(loss, hidden, create_graph=True)


@pytest.mark.parametrize(
    ("changed", "error", "words"),
    [
        ({"budget": "100B"}, BudgetError, "one row take 400B"),
        ({"reduction": "avg"}, PlanError, "none of 'mean'"),
        ({"label_smoothing": 2}, PlanError, "no share"),
        ({"softcap": 0}, PlanError, "above 0"),
        ({"target": torch.zeros(3, 7)}, PlanError, "give int64"),
        ({"target": torch.zeros(7, 3, dtype=torch.int64)}, PlanError, r"of \(3, 7\)"),
        ({"target": torch.full((3, 7), WORDS)}, PlanError, "50 is none of the 50 words"),
        ({"weight": torch.zeros(WORDS, 3)}, PlanError, "do not fit"),
        ({"bias": torch.zeros(3)}, PlanError, "bias of shape"),
    ],
)
def test_mistakes_are_told_before_anything_is_computed(changed, error, words):
    hidden, head, target = problem()
    given = {"hidden": hidden, "weight": head.weight, "target": target, "bias": head.bias} | changed
    with pytest.raises(error, match=words):
        linear_cross_entropy(**given)


def test_transforms_are_refused_in_words():
    hidden, head, target = problem()
    with pytest.raises(PlanError, match=r"no transform of torch\.func"):
        torch.func.grad(lambda hidden: linear_cross_entropy(hidden, head.weight, target))(hidden)


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_gradients_of_many_at_once_are_refused_in_words(reduction):
    hidden, head, target = problem()
    loss = linear_cross_entropy(hidden, head.weight, target, reduction=reduction)
    with pytest.raises(RuntimeError, match="one gradient at a time"):
        torch.autograd.grad(loss, hidden, torch.ones(2, *loss.shape), is_grads_batched=True)
