"""The plan of a loop that is differentiated: made when it first comes by, and used again whenever it comes back."""

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from forebay.codec.auto import choices
from forebay.engine.costing import measured, there_is, with_codecs, with_unused
from forebay.engine.loop import TimeLoop
from forebay.engine.recorded import Request, plan_recorded
from forebay.errors import PlanError
from forebay.planner import Plan
from forebay.torch.execution_context import Autocast, random_untouched
from forebay.torch.loops.arguments import LoopArguments
from forebay.torch.loops.probe import probe
from forebay.torch.loops.step_signature import StepSignature
from forebay.torch.loops.steps import Steps

MOST_KEPT = 64
"""Decisions that are kept; the one not used for longest goes first."""


@dataclass(frozen=True)
class Decision:
    """What is done about a request."""

    in_place: bool
    """that a step changes the tensors of its state"""
    plan: Plan | None
    """None where the graph of the whole loop fits the budget, and nothing has to be recomputed"""
    note: str = ""
    """what was decided for the caller"""


_decisions: OrderedDict[Hashable, Decision] = OrderedDict()


def decide(loop: Steps, request: Request, loop_arguments: LoopArguments, signature: StepSignature) -> Decision:
    """Return the decision for a loop like this one, making it if there is none yet."""
    key = _key(loop, request, loop_arguments, signature)
    if key is not None and key in _decisions:
        _decisions.move_to_end(key)
        return _decisions[key]
    # Hooks around the call, such as those of a block that is recomputed, must not see the steps that are tried out.
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor):
        decision = _decide(loop, request, loop_arguments, signature.modules)
    if key is not None:
        _decisions[key] = decision
        while len(_decisions) > MOST_KEPT:
            _decisions.popitem(last=False)
    return decision


def _key(loop: Steps, request: Request, loop_arguments: LoopArguments, signature: StepSignature) -> Hashable | None:
    """Name everything that a decision depends on; None where that cannot be done."""
    kinds = tuple(
        (tuple(x.shape), x.dtype, x.requires_grad) for x in (*loop_arguments.inputs, *loop_arguments.params.tensors)
    )
    form = (loop.count, loop.form, loop.inputs, loop.returns_outputs, loop_arguments.params.structure)
    key = (signature.key, *form, kinds, Autocast.now(loop.form.device), request.key())
    try:
        hash(key)
    except TypeError:  # a schedule of another library
        return None
    return key


def _decide(loop: Steps, request: Request, loop_arguments: LoopArguments, modules: Sequence[nn.Module]) -> Decision:
    count = loop.count
    encoders, error = choices(request.codec)
    plain_values = {0: loop_arguments.values}

    def advance(state: Sequence[Tensor], start: int, stop: int) -> tuple[Tensor, ...]:
        tensors, here = loop.form.unpack(state), plain_values[start]
        with torch.no_grad(), autocast.replay_context():
            for step in range(start, stop):
                tensors, here, _ = loop.once(tensors, here, step, [x[step] for x in loop_arguments.inputs], arguments)
        plain_values[stop] = here
        return loop.form.pack(tensors)

    autocast, arguments = Autocast.now(loop.form.device), loop_arguments.params.build(loop_arguments.params.tensors)
    engine = TimeLoop(advance, loop.form.pack(loop_arguments.tensors), count, 1, None)
    nbytes = engine.layout.nbytes
    budget, note = there_is(request.budget, engine, count)
    if request.plan is None:
        request.check_budget(count, nbytes, budget)
    in_place, recording = probe(loop, loop_arguments, modules)
    at_once = request.chunk if request.plan is None else request.plan.every
    if in_place and at_once not in (None, 1):
        raise PlanError(
            f"chunk={at_once}: the step changes its state in place, and such steps are recorded one at a time; "
            "give no chunk, or return new tensors"
        )
    if request.plan is not None:
        return Decision(in_place, request.plan)
    if request.asks_for_nothing and not in_place and count * recording.graph_bytes <= budget[budget.tiers[0]]:
        return Decision(in_place, None)
    with random_untouched(loop.form.device):
        costs = request.costs or measured(engine, budget, request.where, False)
        costs = with_codecs(engine, costs, encoders, error)
    plan = plan_recorded(
        count,
        nbytes,
        budget,
        replace(costs, assumed=None),
        recording,
        replace(request, chunk=1) if in_place else request,
        codecs=[encoder.name for encoder in encoders if encoder.name in costs.codecs],
    )
    return Decision(in_place, plan, with_unused(note, request.codec, plan))
