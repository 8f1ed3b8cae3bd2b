"""`fit`: a model's training step inside a budget, each block kept, moved, compressed or recomputed as a plan says."""

import gc
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar
from weakref import WeakSet, finalize, ref

from torch import nn
from torch.utils.hooks import RemovableHandle

from forebay.codec import get as get_codec
from forebay.errors import PlanError
from forebay.torch.fitting.blocks import ENOUGH, named
from forebay.torch.fitting.facts import TREATMENTS
from forebay.torch.fitting.fitplan import FitPlan
from forebay.torch.fitting.neighbours import sequences
from forebay.torch.fitting.patch import Attachment, Patch
from forebay.torch.fitting.session import FittingSession
from forebay.torch.fitting.tools import tools_for
from forebay.torch.replay.block import Call, FittedBlock
from forebay.torch.storage.mover import budget_of
from forebay.units import Budget

Model = TypeVar("Model", bound=nn.Module)


def fit(
    model: Model,
    budget: Budget | str | float,
    codec: str | None = None,
    blocks: nn.Module | str | Iterable[nn.Module | str] | None = None,
    *,
    choice: str | None = None,
    plan: FitPlan | Mapping[str, str] | None = None,
) -> Model:
    """Let a model train inside a budget.

    The first iteration recomputes every block in the backward pass, so that it fits where anything does, and measures
    them. From the second on each block is treated as the planner chose. What it saves for the backward pass is kept,
    moved to the host and back, compressed, or recomputed. Outputs of products, convolutions and attention may be spared
    from recomputing. At most three plans are run for two steps each, and the fastest stays. Smaller shapes follow the
    plan of larger ones. Without a lossy codec gradients are bit-equal to those of the plain model.

    Parameters
    ----------
    model : torch.nn.Module
        It is changed in place: its blocks are called through the plan until `unfit`, or until nobody holds the model.
        Parameters, their names and the optimizer stay untouched. A copy or pickle of a fitted model is plain.
    budget : Budget, str or int
        On a GPU the device's part covers all of torch's memory: parameters, gradients, optimizer states, activations.
        On a CPU it covers what blocks save and are given. The host's part is pinned memory for what moves; none moves
        where it is not named.
    codec : str, optional
        A codec that the planner may use on what is moved or kept, such as ``"cast:float16"``.
    blocks : iterable of modules or names, optional
        The blocks. Without them, the outermost modules that are made of others, have parameters, and are of a class
        that is there twice or more. Where these are few, what they are made of. And each `nn.Sequential` of torch's own
        layers beside them that begins with a convolution that learns. Where they are more than 16, neighbours in an
        `nn.Sequential` are taken together.
    choice : str, optional
        One treatment for all blocks instead of the planner's, for comparisons; one of the names in `plan_of(model)`.
    plan : FitPlan or mapping, optional
        What ``plan_of(model).choices`` was in another run. One iteration measures the blocks, and the next follows it.
        Where blocks are others, or it does not fit any more, another is made, with a warning.

    Returns
    -------
    torch.nn.Module
        The same model.

    Examples
    --------
    >>> import torch
    >>> model = nn.Sequential(*(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True) for _ in range(3)))
    >>> model = fit(model, Budget(device="60kB", host="1MB"))
    >>> for _ in range(2):
    ...     model(torch.randn(4, 10, 8)).sum().backward()
    >>> sorted(plan_of(model).choices)
    ['0', '1', '2']
    >>> _ = unfit(model)
    """
    if not isinstance(model, nn.Module):
        raise PlanError(f"fit takes a torch.nn.Module, not {model!r:.80}")
    budget = budget_of(budget, "fit")
    if "_forebay" in vars(model):
        raise PlanError("the model is fitted already: call unfit(model) first")
    if _already_fitted(model):
        gc.collect()  # by a model that nobody holds any more, perhaps, but for a cycle of its own
    if _already_fitted(model):
        raise PlanError(
            "a part of the model is in a block of another fitted model: call unfit of that one first, or fit one "
            "module that holds both"
        )
    choices = plan.choices if isinstance(plan, FitPlan) else plan or {}
    if not isinstance(choices, Mapping) or not all(isinstance(name, str) for name in choices):
        raise PlanError(
            f"plan: {plan!r:.80} is no plan: give plan_of(model).choices of another run, a choice for each block by "
            "its name; one for all blocks is choice="
        )
    for name in [*choices.values(), *([] if choice is None else [choice])]:
        _check_choice(name, budget, codec)
    coder = None if codec is None else get_codec(codec)
    chosen = named(model, blocks)
    several = sequences(model, [module for _, module in chosen]) if blocks is None and len(chosen) > ENOUGH else []
    held = WeakSet(several)
    session = FittingSession(
        partial(tools_for, budget=budget, codec=coder, choice=choice, given=choices, sequences=held)
    )
    patches: list[Patch] = []
    try:
        for name, module in chosen:
            patches.append(Patch.onto(module, partial(_block_call, session, name, module)))
        for sequence in several:
            patches.append(Patch.onto(sequence, partial(_sequence_call, session, sequence)))
    except BaseException:
        _give_back(patches, (), ref(session))
        raise
    inside = [part for _, module in chosen for part in module.modules()]
    _inside.update(inside)
    _attach(model, session, patches, inside)
    return model


def _check_choice(choice: str, budget: Budget, codec: str | None) -> None:
    if not isinstance(choice, str) or choice not in TREATMENTS:
        raise PlanError(f"choice: {choice!r} is none of {', '.join(map(repr, TREATMENTS))}")
    treatment = TREATMENTS[choice]
    if treatment.encoded and codec is None:
        raise PlanError(f"choice: {choice!r} needs a codec: give codec='cast:float16' or another")
    if (treatment.away or treatment.inputs_away) and not budget.host:
        raise PlanError(f"choice: {choice!r} needs host memory: give Budget(device='8GB', host='64GB')")


_inside: "WeakSet[nn.Module]" = WeakSet()
"""The modules that the blocks of fitted models are made of: two plans for one would get in each other's way."""


def _already_fitted(model: nn.Module) -> bool:
    return any(module in _inside for module in model.modules())


def _block_call(session: FittingSession, name: str, module: nn.Module, call: Call) -> Call:
    block = session.blocks[id(module)] = FittedBlock(name, call, module)
    return lambda *args, **kwargs: session.call(block, args, kwargs)


def _sequence_call(session: FittingSession, sequence: nn.Sequential, call: Call) -> Call:
    def forward(input: Any) -> Any:  # noqa: A002 - as in torch
        return session.along(sequence, input)

    return forward


def unfit(model: Model) -> Model:
    """Restore a model as it was before `fit`; graphs that are still alive can be differentiated all the same."""
    fitted = _of(model)
    fitted.give_back()
    for hook in fitted.hooks:
        hook.remove()
    fitted.leave(vars(model))
    return model


def plan_of(model: nn.Module) -> FitPlan:
    """Return the plan that a fitted model follows now: ``choices``, ``seconds``, ``metrics`` and ``explain()``."""
    plan = _of(model).session.plan()
    if plan is None:
        raise PlanError(
            "no plan has been made yet: run one iteration, forward and backward, and one more where blocks are many; "
            "blocks that run inside of torch.utils.checkpoint or torch.func are never planned"
        )
    return plan


@dataclass(frozen=True, eq=False)
class Fitted(Attachment):
    """What a fitted model holds of ours; it goes with the model, and so does what its blocks have of ours."""

    session: FittingSession
    give_back: Callable[[], Any]
    hooks: tuple[RemovableHandle, RemovableHandle]

    def leave(self, attributes: dict[str, Any]) -> None:
        """Take the model's hooks away."""
        super().leave(attributes)
        attributes.pop("_forebay", None)
        own = {hook.id for hook in self.hooks}
        for name, table in attributes.items():
            if name.startswith("_forward_") and isinstance(table, dict) and not own.isdisjoint(table):
                attributes[name] = type(table)((key, hook) for key, hook in table.items() if key not in own)


def _attach(model: nn.Module, session: FittingSession, patches: list[Patch], inside: list[nn.Module]) -> None:
    # Weakly: a block may hold the model, and others may hold blocks of a model that is gone.
    give_back = finalize(model, _give_back, WeakSet(patches), WeakSet(inside), ref(session))
    give_back.atexit = False
    begin = model.register_forward_pre_hook(lambda _, args, kwargs: session.begin(args, kwargs), with_kwargs=True)
    ran = model.register_forward_hook(lambda *_: session.ran())
    Fitted(session, give_back, (begin, ran)).attach(model, "_forebay")


def _give_back(patches: Iterable[Patch], inside: Iterable[nn.Module], reference: "ref[FittingSession]") -> None:
    for patch in patches:
        patch.undo()
    _inside.difference_update(inside)
    session = reference()
    if session is not None:
        session.close()


def _of(model: nn.Module) -> Fitted:
    fitted = vars(model).get("_forebay")
    if not isinstance(fitted, Fitted):
        raise PlanError(f"this {type(model).__name__} is not fitted: call fit(model, budget) first")
    return fitted
