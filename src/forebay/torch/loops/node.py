"""The loop as one node of autograd's graph: forward to the turn, a wait for the gradients, and back."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from forebay.engine import Result
from forebay.engine.recorded import Request
from forebay.engine.reversal import Reversal
from forebay.errors import ForebayError
from forebay.torch.context import Autocast, random_untouched
from forebay.torch.loops.captured import CapturedState, StepSignature, buffers_of, check_buffers
from forebay.torch.loops.decision import Decision
from forebay.torch.loops.sweep import Notes, Sweep, way_back
from forebay.torch.loops.trees import Params, Steps


class TwiceError(ForebayError, RuntimeError):
    """A loop that was to be differentiated twice."""


@dataclass(frozen=True)
class LoopCall:
    """One call of `checkpointed`."""

    loop: Steps
    decision: Decision
    params: Params
    inputs: int
    """how many tensors of inputs there are"""
    signature: StepSignature
    """with the modules whose buffers a step might change, and the tensors that it might use beside its arguments"""
    request: Request
    progress: bool | None
    report: Callable[[Result], None] | None
    notes: Notes

    def start(self, state: Sequence[Tensor], inputs: Sequence[Tensor], first: bool) -> tuple[Sweep, Reversal]:
        """Return a reversal that has not been run forward yet."""
        plan, state = self.decision.plan, self.loop.form.pack(state)
        assert plan is not None
        autocast = Autocast.now(self.loop.form.device)
        sweep = Sweep(self.loop, plan.every, inputs, self.params, self.notes, first, autocast)
        return sweep, self.request.prepare(sweep.forward, state, self.loop.count, plan, self.decision.note)


def differentiate(
    call: LoopCall, state: Sequence[Tensor], inputs: Sequence[Tensor]
) -> tuple[list[Tensor], list[Tensor]]:
    """Run a loop forward as a node of autograd's graph, and return its final state and its outputs."""
    call.notes.note_twins(0, state)
    results = list(
        _Loop.apply(  # type: ignore[no-untyped-call]
            call, *state, *inputs, *call.params.tensors
        )
    )
    return results[: len(state)], results[len(state) :]


class _Loop(torch.autograd.Function):
    """State, inputs and parameters to final state and outputs."""

    @staticmethod
    def forward(ctx: Any, call: LoopCall, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Run to the turn and wait there."""
        count = len(call.loop.form.shapes)
        state, inputs = tensors[:count], tensors[count : count + call.inputs]
        buffers = buffers_of(call.signature.modules, copied=False)
        sweep, reversal = call.start(state, inputs, True)
        try:
            final = reversal.forward(sweep.final)
            outputs = sweep.end_of_sweep()
            check_buffers(buffers)
        except BaseException:
            reversal.close()
            raise
        results = (*final, *outputs)
        _hand_over(results)
        ctx.call, ctx.waiting = call, (sweep, reversal)
        ctx.captured = CapturedState.now(call.signature)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors)
        whole = [tensor for tensor in results if not (tensor.is_floating_point() or tensor.is_complex())]
        ctx.mark_non_differentiable(*whole)
        return results

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        """Go back from the turn; where that has been done before, run forward anew first."""
        call: LoopCall = ctx.call
        tensors = ctx.saved_tensors
        count = len(call.loop.form.shapes)
        with torch.no_grad(), random_untouched(call.loop.form.device), ctx.captured.for_replay():
            waiting, ctx.waiting = ctx.waiting, None
            if waiting is None:
                sweep, reversal = call.start(tensors[:count], tensors[count : count + call.inputs], False)
                reversal.forward()
            else:
                sweep, reversal = waiting
            with reversal:
                backward, found = way_back(sweep, gradients[:count], gradients[count:])
                result = reversal.backward(backward, call.progress)
        own_gradients = [*found.state, *found.inputs, *found.params]
        _hand_over(own_gradients)
        if call.report is not None:
            call.report(result)
        if torch.is_grad_enabled():
            own_gradients = [
                None if gradient is None else _Once.apply(gradient, *tensors)  # type: ignore[no-untyped-call]
                for gradient in own_gradients
            ]
        needed = ctx.needs_input_grad[1:]
        return None, *(gradient if wanted else None for gradient, wanted in zip(own_gradients, needed, strict=True))


class _Once(torch.autograd.Function):
    """Hands a gradient on, and refuses to be differentiated."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, *_tensors: Tensor) -> Tensor:
        """Return the gradient as it is."""
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        """Say why not."""
        raise TwiceError(
            "a checkpointed loop can be differentiated once, not twice: write the loop out where its gradient is "
            "differentiated again"
        )


def _hand_over(tensors: Sequence[Tensor | None]) -> None:
    """Tell torch's allocator that what was made on the engine's stream is used on the caller's."""
    for tensor in tensors:
        if tensor is not None and tensor.is_cuda:
            tensor.record_stream(torch.cuda.current_stream(tensor.device))
