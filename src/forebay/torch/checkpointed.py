"""Differentiating a time loop inside a budget: one call that runs the loop and joins autograd's graph as one node."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from forebay.codec import Codec
from forebay.engine import Result
from forebay.engine.array_memory import memory_of
from forebay.engine.recorded import Request
from forebay.errors import StateError
from forebay.planner import Costs, Plan
from forebay.schedule import Schedule
from forebay.torch.compat import differentiated_by_func
from forebay.torch.loops.captured import StepSignature
from forebay.torch.loops.decision import check_leaves, check_random, decide
from forebay.torch.loops.node import LoopCall, differentiate
from forebay.torch.loops.recording import copies_of
from forebay.torch.loops.sweep import Notes
from forebay.torch.loops.trees import (
    LoopArguments,
    OutputForm,
    Params,
    StateForm,
    Steps,
    output_leaves,
    put,
    read_inputs,
)
from forebay.units import Budget


def checkpointed(
    step: Callable[..., Any],
    state: Any,
    steps: int,
    *,
    params: Any = (),
    inputs: Any = None,
    outputs: bool = False,
    budget: Budget | str | int | None = None,
    schedule: str | Schedule | Any = "auto",
    codec: str | Codec | Sequence[str | Codec] | None = None,
    chunk: int | None = None,
    plan: Plan | None = None,
    costs: Costs | None = None,
    directory: Path | str | None = None,
    progress: bool | None = None,
    report: Callable[[Result], None] | None = None,
) -> Any:
    """Run a time loop that autograd can go back through, keeping and recomputing states inside a budget.

    Without a lossy codec, gradients are bit-equal to those of the same loop written out in plain PyTorch.

    Parameters
    ----------
    step
        ``step(state, t, *params) -> state``, or ``step(state, t, x, *params)`` where there are inputs. It is called
        again for the same steps, so it must do the same again: it depends on its arguments and on torch's random
        numbers, which are set again, and changes nothing else.
    state
        The state at step 0: a tensor, or tensors and plain values (numbers, strings, None) in tuples, lists and dicts,
        all tensors on one device. Every step returns one of the same shapes and types.
    steps
        Steps of the loop.
    params
        What every step gets, and may have gradients: a tuple or list of tensors, modules and trees of them, or a
        single one. A dict or a named tuple is a single one.
    inputs
        A tensor, or a tree of tensors, whose first axis is time: each step gets its own slice as `x`.
    outputs
        Whether a step returns ``(state, output)``; all outputs are then returned, stacked along a first axis.
    budget
        Bytes for snapshots, and for the graphs of all but one of the steps that are recorded at once, per tier; a bare
        amount is that of the device where the state is. None takes half of what is free. Each loop that waits for its
        backward pass holds its own.
    schedule, codec, costs
        As for `forebay.reverse`. A lossy codec's bound holds at each state that is kept, and passes through
        recomputation.
    chunk
        Steps that are recorded at once; None leaves it to the plan. A schedule with numbers counts in these.
    plan
        Of an earlier call, from its report.
    directory
        Where the disk tier keeps its files.
    progress
        Whether to show the progress of backward passes; None shows it for long ones on a terminal.
    report
        Called with the result of each backward pass: its plan, metrics and explanation.

    Returns
    -------
    state, or (state, outputs)
        The final state, and the outputs where they were asked for.

    Examples
    --------
    >>> import torch
    >>> rate = torch.tensor(0.1, dtype=torch.float64, requires_grad=True)
    >>> start = torch.ones(3, dtype=torch.float64)
    >>> def decay(y, t, rate):
    ...     return y - rate * y
    >>> final = checkpointed(decay, start, 100, params=rate, budget="64kB", schedule="revolve:5")
    >>> final.sum().backward()
    >>> round(rate.grad.item(), 6) == round(-300 * 0.9**99, 6)
    True
    """
    if report is not None and not callable(report):
        raise StateError(f"report is a function that is called with what the backward pass did, not {report!r:.80}")
    form = StateForm.of(state)
    structure, slices = read_inputs(inputs, steps)
    loop = Steps(step, steps, form, structure, outputs)
    tensors, values = form.split(state, "the state")
    loop_arguments = LoopArguments(tensors, values, slices, Params.of(params))
    request = Request(budget, schedule, codec, chunk, plan, costs, directory)
    request.check(steps, memory_of(tensors))
    if not torch.is_grad_enabled() or not loop_arguments.differentiable:
        return _plainly(loop, loop_arguments, recorded=False)
    if differentiated_by_func():
        raise StateError(
            "torch.func.grad and its like cannot differentiate a loop that is checkpointed: call backward(), or "
            "torch.autograd.grad"
        )
    signature = StepSignature.of((step, *loop_arguments.params.leaves))
    check_random(signature.generators)
    decision = decide(loop, request, loop_arguments, signature)
    if decision.plan is None:
        return _plainly(loop, loop_arguments, recorded=True)
    notes = Notes({0: values})
    call = LoopCall(loop, decision, loop_arguments.params, len(slices), signature, request, progress, report, notes)
    final, stacked = differentiate(call, tensors, slices)
    result = form.join(final, notes.values[steps])
    if not outputs:
        return result
    return result, notes.form[0].structure.build(stacked)


def _plainly(loop: Steps, loop_arguments: LoopArguments, recorded: bool) -> Any:
    """Run the loop as it is: recorded by autograd, whose graph the budget holds, or where nothing has a gradient."""
    arguments = loop_arguments.params.build(loop_arguments.params.tensors)
    slices = [x.unbind() for x in loop_arguments.inputs]
    tensors, values = copies_of(loop_arguments.tensors), loop_arguments.values
    form: OutputForm | None = None
    stacked: list[Tensor] = []
    outputs: list[list[Tensor]] = []
    for step in range(loop.count):
        tensors, values, output = loop.once(tensors, values, step, [x[step] for x in slices], arguments)
        if not recorded:
            check_leaves((*tensors, *output_leaves(output, loop.returns_outputs)), ())  # it may use what was not given
        if loop.returns_outputs:
            form = form or OutputForm.of(output)
            if recorded:
                outputs.append(form.leaves(output, step))
            else:
                stacked = stacked or form.empty(loop.count)
                put(form.leaves(output, step), stacked, step)
    final = loop.form.join(tensors, values)
    if form is None:
        return final
    return final, form.structure.build(stacked or [torch.stack(leaves) for leaves in zip(*outputs, strict=True)])
