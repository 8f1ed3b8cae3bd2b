"""The plan of a loop that is differentiated: made when it first comes by, and used again whenever it comes back."""

import tempfile
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from penstock.codec import Codec
from penstock.codec.auto import choices
from penstock.engine.costing import measured, read_budget, with_codecs
from penstock.engine.loop import Loop
from penstock.engine.recorded import plan_recorded
from penstock.errors import PlanError
from penstock.planner import Costs, Plan
from penstock.planner import plan as make_plan
from penstock.torch.ambient import Autocast, random_untouched
from penstock.torch.loops.arguments import Params
from penstock.torch.loops.probe import Probe, probe
from penstock.torch.loops.steps import Steps
from penstock.units import Budget

MOST_KEPT = 64
"""Decisions that are kept; the one not used for longest goes first."""


@dataclass(frozen=True)
class Request:
    """What a caller asked for."""

    loop: Steps
    budget: Budget | str | int | None
    schedule: Any
    codec: str | Codec | Sequence[str | Codec] | None
    chunk: int | None
    plan: Plan | None
    costs: Costs | None
    directory: Path | str | None


@dataclass(frozen=True)
class Decision:
    """What is done about it."""

    probe: Probe
    plan: Plan | None
    """None where the graph of the whole loop fits the budget, and nothing has to be recomputed"""


_decisions: OrderedDict[Hashable, Decision] = OrderedDict()


def forget_plans() -> None:
    """Forget the plans of all loops, so that each is measured and planned anew."""
    _decisions.clear()


def planned(
    request: Request, tensors: Sequence[Tensor], values: tuple[Any, ...], inputs: Sequence[Tensor], params: Params
) -> Decision:
    """Give the decision for a loop like this one, making it if there is none yet."""
    key = _key(request, inputs, params)
    if key is not None and key in _decisions:
        _decisions.move_to_end(key)
        return _decisions[key]
    decision = _decide(request, tensors, values, inputs, params)
    if key is not None:
        _decisions[key] = decision
        while len(_decisions) > MOST_KEPT:
            _decisions.popitem(last=False)
    return decision


def _key(request: Request, inputs: Sequence[Tensor], params: Params) -> Hashable | None:
    """Name everything that a decision depends on; None where that cannot be done."""
    loop = request.loop
    kinds = tuple((tuple(x.shape), x.dtype, x.requires_grad) for x in (*inputs, *params.tensors))
    # A function made anew in every iteration has the same code.
    what = getattr(loop.step, "__code__", type(loop.step))
    key = (what, loop.count, loop.form, loop.inputs, loop.returns_outputs, kinds, Autocast.now(loop.form.device))
    plan = None if request.plan is None else request.plan.to_json()
    asked = (request.budget, request.schedule, request.chunk, repr(request.costs), str(request.directory), plan)
    names = tuple(encoder.name for encoder in choices(request.codec)[0])
    try:
        hash((*key, asked, names))
    except TypeError:  # a schedule of another library
        return None
    return (*key, asked, names)


def _decide(
    request: Request, tensors: Sequence[Tensor], values: tuple[Any, ...], inputs: Sequence[Tensor], params: Params
) -> Decision:
    loop, count = request.loop, request.loop.count
    encoders, error = choices(request.codec)
    noted = {0: values}

    def advance(state: Sequence[Tensor], start: int, stop: int) -> tuple[Tensor, ...]:
        given, here = loop.form.unpack(state), noted[start]
        with torch.no_grad(), autocast.again():
            for step in range(start, stop):
                given, here, _ = loop.once(given, here, step, [x[step] for x in inputs], arguments)
        noted[stop] = here
        return loop.form.pack(given)

    autocast, arguments = Autocast.now(loop.form.device), params.build(params.tensors)
    engine = Loop(advance, lambda state, step: None, loop.form.pack(tensors), count, 1, None)
    nbytes = engine.layout.nbytes
    if request.plan is not None:
        return Decision(probe(loop, tensors, values, inputs, params), request.plan)
    budget, _ = read_budget(request.budget, engine.library)
    if request.codec is None:  # before anything runs
        smallest = request.schedule if request.schedule != "auto" else "revolve:1"
        make_plan(count, nbytes, budget, schedule=smallest, every=request.chunk or 1)
    seen = probe(loop, tensors, values, inputs, params)
    recording = seen.recording
    if seen.in_place and request.chunk not in (None, 1):
        raise PlanError(
            f"chunk={request.chunk}: the step changes its state in place, and such steps are recorded one at a time; "
            "give no chunk, or return new tensors"
        )
    free = request.schedule == "auto" and request.codec is None and request.chunk is None and not seen.in_place
    if free and count * recording.graph_bytes <= budget[budget.tiers[0]]:
        return Decision(seen, None)
    where = Path(request.directory) if request.directory is not None else Path(tempfile.gettempdir())
    with random_untouched(loop.form.device):
        costs = request.costs or measured(engine, where if "disk" in budget.tiers else None, False)
        costs = with_codecs(engine, costs, encoders, error)
    plan = plan_recorded(
        count,
        nbytes,
        budget,
        replace(costs, assumed=None),
        recording,
        schedule=request.schedule,
        codecs=[encoder.name for encoder in encoders if encoder.name in costs.codecs],
        chunk=1 if seen.in_place else request.chunk,
    )
    return Decision(seen, plan)
