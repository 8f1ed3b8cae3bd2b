"""The plan of a loop that is differentiated: made when it first comes by, and used again whenever it comes back.

Before it is made, the first steps are looked at: what they need, what they cost, and what they must not do.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

from forebay.codec.auto import choices
from forebay.engine.loop import TimeLoop
from forebay.engine.recorded import Recording, Request, plan_recorded
from forebay.engine.timing.costing import measured, there_is, with_codecs, with_unused
from forebay.errors import StateError
from forebay.planner import Plan
from forebay.torch.context import Autocast, random_state, random_untouched, set_random_state, shared_random
from forebay.torch.loops.captured import StepSignature, buffers_of, check_buffers, put_back, row
from forebay.torch.loops.recording import RecordedSteps, check_unchanged, record, versions_of
from forebay.torch.loops.trees import LoopArguments, Steps
from forebay.torch.replay.hidden_state import alike
from forebay.torch.storage.mover import storage_of

MOST_KEPT = 64
"""Decisions that are kept; the one not used for longest goes first."""
REPEATS, ENOUGH = 5, 0.2
"""How often a call is timed, and the seconds after which it is enough."""


@dataclass(frozen=True)
class Decision:
    """What is done about a request."""

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
    recording = probe(loop, loop_arguments, modules)
    if request.plan is not None:
        return Decision(request.plan)
    if request.asks_for_nothing and count * recording.graph_bytes <= budget[budget.tiers[0]]:
        return Decision(None)
    with random_untouched(loop.form.device):
        costs = request.costs or measured(engine, budget, request.where, False)
        costs = with_codecs(engine, costs, encoders, error)
    plan = plan_recorded(
        count,
        nbytes,
        budget,
        replace(costs, assumed=None),
        recording,
        request,
        codecs=[encoder.name for encoder in encoders if encoder.name in costs.codecs],
    )
    return Decision(plan, with_unused(note, request.codec, plan))


def probe(steps: Steps, loop_arguments: LoopArguments, modules: Sequence[nn.Module]) -> Recording:
    """Run and record the first steps on copies, leaving random numbers and buffers of modules as they were.

    Tells what recordings need and cost, and refuses steps that cannot be run again.
    """
    autocast = Autocast.now(steps.form.device)
    values, inputs, leaves = loop_arguments.values, loop_arguments.inputs, loop_arguments.params.stand_ins()
    arguments = loop_arguments.params.build(leaves)

    def fresh() -> list[Tensor]:
        return [tensor.detach().clone() for tensor in loop_arguments.tensors]

    def recorded(count: int) -> RecordedSteps:
        with autocast.replay_context():
            return record(steps, fresh(), values, range(count), inputs, leaves, arguments)

    with random_untouched(steps.form.device), _buffers_checked(modules):
        drawn = shared_random()
        with autocast.replay_context():
            _check_unchanged(steps, fresh(), values, inputs, arguments)
        if shared_random() != drawn:
            raise _drawing("Python's or NumPy's shared generator, as np.random.rand() does")
        drawn_from = random_state(steps.form.device)
        first = recorded(1)
        results = [*first.final, *first.outputs[0]]
        check_leaves(results, (*first.state, *first.inputs[0], *leaves))
        results = [tensor.detach() for tensor in results]
        set_random_state(steps.form.device, drawn_from)
        first = recorded(1)
        _check_again(results, [*first.final, *first.outputs[0]])
        _back(first)  # compiles what has to be, and warms up
        del first, results
        count = min(2, steps.count)
        sizes = [_graph_bytes(recorded, length, leaves) for length in range(1, count + 1)]
        one_step = _seconds(lambda: _back(recorded(1)), steps.form.device)
        both = _seconds(lambda: _back(recorded(count)), steps.form.device) if count > 1 else 2 * one_step
    each = max(both - one_step, both / 4)  # no measurement is so good that a step costs nothing
    return Recording(max(0, sizes[-1] - sizes[0]), max(0.0, one_step - each), each)


@torch.no_grad()
def _check_unchanged(
    steps: Steps, tensors: list[Tensor], values: Sequence[Any], inputs: Sequence[Tensor], arguments: Sequence[Any]
) -> None:
    """Refuse a loop whose first or second step changes its state in place: the first may do something else."""
    for step in range(min(2, steps.count)):
        before, versions = tensors, versions_of(tensors)
        tensors, values, _ = steps.once(tensors, values, step, [x[step] for x in inputs], arguments)
        check_unchanged(step, before, versions)


def _check_again(first: Sequence[Tensor], second: Sequence[Tensor]) -> None:
    """Refuse a step that gives other values when it is run again with the same random numbers."""
    rows = [[row(tensor) for tensor in run if storage_of(tensor) is not None] for run in (first, second)]
    if not all(map(alike, *rows)):
        raise StateError(
            "the step computes other values when it is run again: it has state of its own, such as a counter, or a "
            "tensor that it changes beside its state. Steps are run again: carry it in the state, or pass it as inputs="
        )


@contextmanager
def _buffers_checked(modules: Sequence[nn.Module]) -> Iterator[None]:
    """Refuse steps that change buffers of modules, and leave the buffers as they were, whatever happens."""
    watched = buffers_of(modules, copied=True)
    try:
        yield
    except BaseException:
        put_back(watched)
        raise
    check_buffers(watched)


def check_random(generators: Sequence[Any]) -> None:
    """Refuse generators other than torch's own, which alone are set again before a step runs again."""
    own = (torch.default_generator, *torch.cuda.default_generators)
    if others := [drawn_from for drawn_from in generators if not any(drawn_from is generator for generator in own)]:
        kind = type(others[0])
        raise _drawing(f"a {kind.__module__}.{kind.__name__}")


def _drawing(what: str) -> StateError:
    return StateError(
        f"the step may draw from {what}: steps are run again, and would draw other numbers; draw from torch's default "
        "generators (torch.manual_seed), or pass the random numbers as inputs="
    )


def check_leaves(results: Sequence[Tensor], allowed: Sequence[Tensor]) -> None:
    """Refuse results that depend on tensors whose gradients nobody would hand on."""
    identities = {id(tensor) for tensor in allowed}
    for leaf in _leaves(results):
        if id(leaf) not in identities:
            raise StateError(
                f"the step uses a tensor of shape {list(leaf.shape)} that requires a gradient and was not given: "
                "pass it, or the module that it belongs to, in params="
            )


def _leaves(results: Sequence[Tensor]) -> Iterator[Tensor]:
    """Return the leaves of the graph that some results come from, among them results that are leaves themselves."""
    yield from (tensor for tensor in results if tensor.requires_grad and tensor.grad_fn is None)
    nodes: list[Any] = [tensor.grad_fn for tensor in results if tensor.grad_fn is not None]
    visited = set(nodes)
    while nodes:
        node = nodes.pop()
        following = node.next_functions
        if not following and isinstance(leaf := getattr(node, "variable", None), Tensor):
            yield leaf
        for other, _ in following:
            if other is not None and other not in visited:
                visited.add(other)
                nodes.append(other)


def _graph_bytes(recorded: Callable[[int], RecordedSteps], count: int, params: Sequence[Tensor]) -> int:
    """Add up the memory that autograd keeps for so many steps, each piece once, the parameters left out."""
    pieces: dict[int, int] = {}
    held: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        storage = storage_of(tensor)
        if storage is not None:
            pieces[storage.data_ptr()] = storage.nbytes()
        held.append(tensor.detach())  # so that its memory is not used again, and taken for the same piece
        return held[-1]  # a step may differentiate inside itself

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda packed: packed):
        result = recorded(count)
    for tensor in params:
        if (storage := storage_of(tensor)) is not None:
            pieces.pop(storage.data_ptr(), None)
    del result
    return sum(pieces.values())


def _back(recorded: RecordedSteps) -> None:
    """Go back through recorded steps with gradients of one."""
    recorded.back(
        [torch.ones_like(tensor) if tensor.requires_grad else None for tensor in recorded.final],
        [[torch.ones_like(tensor) if tensor.requires_grad else None for tensor in step] for step in recorded.outputs],
        [],
        [None] * len(recorded.params),
    )


def _seconds(call: Callable[[], None], device: torch.device) -> float:
    """Time a call, with the work that it leaves on a GPU: the best of several where they are short."""
    best, spent = float("inf"), 0.0
    for _ in range(REPEATS):
        if device.type == "cuda":
            torch.cuda.current_stream(device).synchronize()
        start = perf_counter()
        call()
        if device.type == "cuda":
            torch.cuda.current_stream(device).synchronize()
        taken = perf_counter() - start
        best, spent = min(best, taken), spent + taken
        if spent > ENOUGH:
            break
    return best
