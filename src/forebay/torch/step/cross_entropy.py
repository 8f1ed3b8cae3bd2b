"""`linear_cross_entropy`: a head and its cross entropy with the logits of some rows at a time."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from forebay.errors import BudgetError, PlanError
from forebay.torch.compat import batched, keeps_graph, transformed
from forebay.units import to_bytes, to_text

COLUMNS = 2**14
"""Products for the weight's gradient are made for so many words at a time, and added up in float32."""


def linear_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None = None,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
    softcap: float | None = None,
    budget: str | float = "512MB",
) -> Tensor:
    """Return the cross entropy of ``hidden @ weight.T + bias``, with the logits of some rows at a time.

    It is `torch.nn.functional.cross_entropy` of those logits within rounding, and so are its gradients. These are
    computed with the loss, so that each logit is made once, unless ``reduction="none"``. Products are in the type of
    `hidden`, or of autocast; what comes after them, and sums over rows, in float32.

    Parameters
    ----------
    hidden : torch.Tensor
        What the head is given, with any number of axes in front of the last.
    weight : torch.Tensor
        The head's weight, of as many rows as there are words; it may be that of the embedding too.
    target : torch.Tensor
        The right words, int64, with the axes of `hidden` but the last.
    bias : torch.Tensor, optional
        The head's bias.
    ignore_index : int
        Rows of this target count for nothing.
    label_smoothing : float
        The share of the target that all words have alike.
    reduction : str
        ``"mean"`` over the rows that count, ``"sum"``, or ``"none"``, whose backward pass makes the logits again.
    softcap : float, optional
        Logits are ``softcap * tanh(logits / softcap)``, as in models that cap them.
    budget : str or int
        Bytes of what is there of logits at once: a chunk in the type of the product, and what float32 there is of it.

    Returns
    -------
    torch.Tensor
        The loss in float32, or float64 where `hidden` is.

    Examples
    --------
    >>> hidden, weight = torch.randn(2, 6, 8, requires_grad=True), torch.randn(100, 8, requires_grad=True)
    >>> loss = linear_cross_entropy(hidden, weight, torch.randint(100, (2, 6)), budget="2kB")
    >>> loss.backward()
    >>> hidden.grad.shape, weight.grad.shape
    (torch.Size([2, 6, 8]), torch.Size([100, 8]))
    """
    _check(hidden, weight, target, bias, ignore_index)
    if reduction not in ("mean", "sum", "none"):
        raise PlanError(f"reduction: {reduction!r} is none of 'mean', 'sum' and 'none'")
    if not 0 <= label_smoothing <= 1:
        raise PlanError(f"label_smoothing: {label_smoothing!r} is no share: give a number from 0 to 1")
    if softcap is not None and not softcap > 0:
        raise PlanError(f"softcap: {softcap!r} is no bound for logits: give a number above 0")
    kind = hidden.device.type
    autocast = torch.is_autocast_enabled(kind) and hidden.dtype != torch.float64
    dtype = torch.get_autocast_dtype(kind) if autocast else torch.promote_types(hidden.dtype, weight.dtype)
    wide = torch.promote_types(dtype, torch.float32)
    narrow, copies = (1 if softcap is None else 2), (1 if softcap is None and dtype == wide else 2)
    each = len(weight) * (narrow * dtype.itemsize + copies * wide.itemsize)
    rows = to_bytes(budget) // each
    if not rows:
        raise BudgetError(f"budget: the logits of one row take {to_text(each)}: give that or more")
    how = Chunks(dtype, wide, rows, ignore_index, label_smoothing, softcap)
    flat = hidden.flatten(0, -2), target.flatten()
    if not torch.is_grad_enabled():
        losses = _sweep(how, *flat, weight, bias)
    elif reduction == "none":
        losses = _EachLoss.apply(how, *flat, weight, bias)  # type: ignore[no-untyped-call]
    else:
        total: Tensor = _TotalLoss.apply(how, reduction == "mean", *flat, weight, bias)  # type: ignore[no-untyped-call]
        return total
    return losses.view(target.shape) if reduction == "none" else _total(how, losses, flat[1], reduction == "mean")


def _check(hidden: Tensor, weight: Tensor, target: Tensor, bias: Tensor | None, ignore_index: int) -> None:
    """Refuse what would be computed otherwise than it is meant."""
    for name, tensor in (("hidden", hidden), ("weight", weight), ("target", target), ("bias", bias)):
        if tensor is not None and type(tensor) not in (Tensor, torch.nn.Parameter):
            raise PlanError(
                f"{name}: a {type(tensor).__name__} is no plain tensor: call linear_cross_entropy where it is whole, "
                "as in the forward of a module that FSDP has gathered"
            )
    if hidden.dim() < 2 or weight.dim() != 2 or hidden.shape[-1] != weight.shape[1] or not hidden.is_floating_point():
        raise PlanError(
            f"hidden of shape {tuple(hidden.shape)} and weight of {tuple(weight.shape)} do not fit: give (..., width) "
            "and (words, width), of floating-point numbers"
        )
    if target.dtype != torch.int64 or target.shape != hidden.shape[:-1]:
        raise PlanError(
            f"target: {target.dtype} of shape {tuple(target.shape)}: give int64 of {tuple(hidden.shape[:-1])}, a word "
            "for each row of hidden"
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise PlanError(f"bias of shape {tuple(bias.shape)}: give one of {tuple(weight.shape[:1])}")
    if transformed():
        raise PlanError("linear_cross_entropy runs in no transform of torch.func: use torch's own cross_entropy there")
    if target.is_cpu and target.numel():  # a GPU notices as it computes: a wait would cost more
        wrong = (target != ignore_index) & ((target < 0) | (target >= len(weight)))
        if wrong.any():
            raise PlanError(
                f"target: {int(target[wrong][0])} is none of the {len(weight)} words, nor ignore_index={ignore_index}"
            )


class Chunks(NamedTuple):
    """How the logits of some rows are computed, and what is asked of them."""

    dtype: torch.dtype
    """of the products"""
    wide: torch.dtype
    """of what is computed from logits, and of sums"""
    rows: int
    """whose logits are there at a time"""
    ignore_index: int
    smoothing: float
    softcap: float | None


class HeadGradients:
    """What becomes of the gradients of a head, those that are asked for."""

    def __init__(self, how: Chunks, hidden: Tensor, weight: Tensor, asked: tuple[bool, ...]) -> None:
        device = hidden.device
        self.hidden = torch.empty(hidden.shape, dtype=how.dtype, device=device) if asked[0] else None
        self.weight = torch.zeros(weight.shape, dtype=how.wide, device=device) if asked[1] else None
        self.bias = torch.zeros(len(weight), dtype=how.wide, device=device) if asked[2] else None

    def add(self, at: slice, logits: Tensor, hidden: Tensor, weight: Tensor, scales: Tensor | None) -> None:
        """Add what the gradients of some rows' logits come to, each no larger than its row's scale."""
        if self.hidden is not None:
            torch.mm(logits, weight, out=self.hidden[at])
        if self.weight is not None:
            shrunk = None
            if hidden.dtype == torch.float16:  # a sum over rows may overflow where their mean does not
                most = hidden.abs().amax().float() * (len(hidden) if scales is None else scales.abs().sum())
                shrunk = (-(most / 2**15).log2().ceil().clamp(min=0)).exp2().view(1)
                hidden = (hidden * shrunk).half()
            for first in range(0, len(weight), COLUMNS):
                some = slice(first, first + COLUMNS)
                product = logits[:, some].T @ hidden
                self.weight[some] += product if shrunk is None else product / shrunk
        if self.bias is not None:
            self.bias += logits.sum(0, dtype=self.bias.dtype)


def _sweep(
    how: Chunks,
    hidden: Tensor,
    target: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    gradients: HeadGradients | None = None,
    scales: Tensor | None = None,
) -> Tensor:
    """Return the loss of each row, and add up gradients, each row's scaled."""
    weight, bias = weight.detach().to(how.dtype), None if bias is None else bias.detach().to(how.dtype)
    losses = torch.empty(len(hidden), dtype=how.wide, device=hidden.device)
    with torch.autocast(hidden.device.type, enabled=False):  # the types have been chosen
        for first in range(0, len(hidden), how.rows):
            at = slice(first, first + how.rows)
            some = hidden[at].detach().to(how.dtype)
            logits = torch.nn.functional.linear(some, weight, bias)
            scores = logits if how.softcap is None else logits.div_(how.softcap).tanh_() * how.softcap
            scores = torch.log_softmax(scores, -1, dtype=how.wide)
            counted = target[at] != how.ignore_index
            words = target[at].where(counted, 0)
            words = words.where(words >= 0, len(weight))  # a GPU refuses an index that is too large, and wraps these
            right = torch.arange(len(some), device=some.device), words
            loss = scores[right] * (how.smoothing - 1)
            if how.smoothing:
                loss -= how.smoothing * scores.mean(-1)
            losses[at] = loss.where(counted, 0)
            if gradients is None:
                continue
            # The gradient of a row's logits is its probabilities less its target.
            scores = scores.exp_()
            if how.smoothing:
                scores -= how.smoothing / len(weight)
            scores[right] -= 1 - how.smoothing
            if how.softcap is not None:
                scores.addcmul_(scores * logits, logits, value=-1)
            torch.mul(scores, (counted if scales is None else counted * scales[at])[:, None], out=logits)
            gradients.add(at, logits, some, weight, None if scales is None else scales[at])
            del logits, scores  # before the next are there
    return losses


def _total(how: Chunks, losses: Tensor, target: Tensor, mean: bool) -> Tensor:
    """Add up losses, and divide by the rows that count."""
    return losses.sum() / (target != how.ignore_index).sum() if mean else losses.sum()


class _TotalLoss(torch.autograd.Function):
    """The sum of all losses, or their mean; gradients come with it, before their scale is known."""

    @staticmethod
    def forward(
        ctx: Any, how: Chunks, mean: bool, hidden: Tensor, target: Tensor, weight: Tensor, bias: Tensor | None
    ) -> Tensor:
        asked = ctx.needs_input_grad[2], ctx.needs_input_grad[4], ctx.needs_input_grad[5]
        gradients = HeadGradients(how, hidden, weight, asked) if any(asked) else None
        losses = _sweep(how, hidden, target, weight, bias, gradients)
        # Before rows are scaled: a type of few bits has no room for their share of a mean.
        ctx.count = (target != how.ignore_index).sum().clamp(min=1) if mean else None
        ctx.dtypes = hidden.dtype, weight.dtype, None if bias is None else bias.dtype
        if gradients is not None:
            ctx.save_for_backward(gradients.hidden, gradients.weight, gradients.bias)
        return _total(how, losses, target, mean)

    @staticmethod
    def backward(ctx: Any, *outputs: Tensor) -> Any:
        _refuse_graph(outputs[0])
        scale = (outputs[0] if ctx.count is None else outputs[0] / ctx.count).view(1)
        hidden, weight, bias = (
            None if gradient is None else _scaled(gradient, scale, dtype)
            for gradient, dtype in zip(ctx.saved_tensors, ctx.dtypes, strict=True)
        )
        return None, None, hidden, None, weight, bias


class _EachLoss(torch.autograd.Function):
    """The losses of all rows; gradients are made when the scale of each is known."""

    @staticmethod
    def forward(ctx: Any, how: Chunks, hidden: Tensor, target: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.how = how
        ctx.save_for_backward(hidden, target, weight, bias)
        return _sweep(how, hidden, target, weight, bias)

    @staticmethod
    def backward(ctx: Any, *outputs: Tensor) -> Any:
        _refuse_graph(outputs[0])
        hidden, target, weight, bias = ctx.saved_tensors
        asked = ctx.needs_input_grad[1], ctx.needs_input_grad[3], ctx.needs_input_grad[4]
        gradients = HeadGradients(ctx.how, hidden, weight, asked)
        _sweep(ctx.how, hidden, target, weight, bias, gradients, outputs[0])
        given = (gradients.hidden, hidden), (gradients.weight, weight), (gradients.bias, bias)
        own = [None if gradient is None else gradient.to(tensor.dtype) for gradient, tensor in given]
        return None, own[0], None, own[1], own[2]


def _scaled(gradient: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    """Scale a gradient, where it is unless a second backward pass may come."""
    stays = keeps_graph() or gradient.dtype != dtype
    return torch.mul(gradient, scale, out=torch.empty_like(gradient, dtype=dtype) if stays else gradient)


def _refuse_graph(scale: Tensor) -> None:
    if batched(scale):
        raise RuntimeError(
            "linear_cross_entropy takes one gradient at a time, without is_grads_batched or vmap: use "
            "torch.nn.functional.cross_entropy there"
        )
    if torch.is_grad_enabled():
        raise RuntimeError(
            "linear_cross_entropy has no second derivative, which create_graph=True asks for: use "
            "torch.nn.functional.cross_entropy there"
        )
