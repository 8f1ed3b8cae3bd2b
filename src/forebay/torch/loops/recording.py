"""Differentiating a few steps at once: they are run again and recorded by autograd, which then goes back through them.

The gradients come out bit-equal to those of a loop that was recorded as a whole, because everything is added up in
the same order. Autograd adds what arrives for a tensor in the order of its arrival, and goes back through the latest
operations first. So the sum that a parameter has from later steps must arrive before anything of these steps does:
it is sent through an operation on the parameter that comes after all of them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from forebay.errors import StateError
from forebay.torch.loops.trees import Steps, output_leaves


@dataclass(frozen=True)
class RecordedSteps:
    """Some steps that autograd has recorded."""

    state: list[Tensor]
    """before the first of them; a tensor that is there twice is one leaf, whose gradient the first place gets"""
    inputs: list[list[Tensor]]
    """of each step"""
    params: Sequence[Tensor]
    final: list[Tensor]
    """the state after the last of them"""
    outputs: list[list[Tensor]]
    """of each step"""

    def back(
        self,
        of_final: Sequence[Tensor | None],
        of_outputs: Sequence[Sequence[Tensor | None]],
        of_state: Iterable[tuple[int, Tensor]],
        of_params: Sequence[Tensor | None],
    ) -> tuple[list[Tensor | None], list[list[Tensor | None]], list[Tensor | None]]:
        """Compute the gradients of state, inputs and parameters from those of the results.

        `of_state` are gradients that tensors of the first state have from the steps before, of which they are outputs;
        `of_params` are those that parameters have from later steps.
        """
        pairs: list[tuple[Tensor, Tensor | None]] = [*zip(self.final, of_final, strict=True)]
        pairs += [(self.state[number], gradient) for number, gradient in of_state]
        for outputs, gradients in zip(self.outputs, of_outputs, strict=True):
            pairs += zip(outputs, gradients, strict=True)
        with torch.enable_grad():
            pairs += [
                (param.view_as(param), gradient)
                for param, gradient in zip(self.params, of_params, strict=True)
                if gradient is not None
            ]
        seeds = [(tensor, gradient) for tensor, gradient in pairs if gradient is not None and tensor.requires_grad]
        firsts = twins_of(self.state)
        wanted = [
            *(
                tensor if number == first else None
                for number, (tensor, first) in enumerate(zip(self.state, firsts, strict=True))
            ),
            *(tensor for step in self.inputs for tensor in step),
            *self.params,
        ]
        asked = [tensor for tensor in wanted if tensor is not None and tensor.requires_grad]
        if not seeds or not asked:
            return [None] * len(self.state), [[None] * len(step) for step in self.inputs], list(of_params)
        tensors, starts = zip(*seeds, strict=True)
        computed = iter(torch.autograd.grad(tensors, asked, starts, allow_unused=True))
        every = iter([next(computed) if tensor is not None and tensor.requires_grad else None for tensor in wanted])
        return (
            [next(every) for _ in self.state],
            [[next(every) for _ in step] for step in self.inputs],
            [next(every) for _ in self.params],
        )


def record(
    steps: Steps,
    state: Sequence[Tensor],
    values: Sequence[Any],
    span: range,
    inputs: Sequence[Tensor],
    params: Sequence[Tensor],
    arguments: Sequence[Any],
    twins: Sequence[int] | None = None,
) -> RecordedSteps:
    """Run a span of steps and have autograd record them.

    Every tensor of the state that can have a gradient gets one, because a later step may have made it depend on a
    parameter. `twins` says which tensors of the state are one: autograd adds up what arrives for both in one sum.
    """
    differentiable = map(steps.form.differentiable, range(len(state)))
    leaves = [
        tensor.detach().requires_grad_() if can else tensor.detach()
        for tensor, can in zip(state, differentiable, strict=True)
    ]
    leaves = leaves if twins is None else [leaves[first] for first in twins]
    slices = [[x.detach()[step].requires_grad_(x.requires_grad) for x in inputs] for step in span]
    outputs = []
    with torch.enable_grad():
        tensors = leaves
        for step, step_inputs in zip(span, slices, strict=True):
            tensors, values, output = steps.once(tensors, values, step, step_inputs, arguments)
            outputs.append(output_leaves(output, steps.returns_outputs))
    return RecordedSteps(leaves, slices, params, list(tensors), outputs)


def twins_of(tensors: Sequence[Tensor]) -> tuple[int, ...]:
    """Return for each tensor the first place at which it is."""
    first = {id(tensor): number for number, tensor in reversed(list(enumerate(tensors)))}
    return tuple(first[id(tensor)] for tensor in tensors)


def copies_of(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Copy the tensors of a state, which a step may change: one that is there twice is one again."""
    copies = [tensor.clone() for tensor in tensors]
    return [copies[first] for first in twins_of(tensors)]


def versions_of(tensors: Sequence[Tensor]) -> list[int]:
    """Return the numbers that grow when tensors are changed in place."""
    return [tensor._version for tensor in tensors]


def check_unchanged(step: int, tensors: Sequence[Tensor], versions: Sequence[int]) -> None:
    """Refuse a step that has changed the tensors of its state."""
    if versions != versions_of(tensors):
        raise StateError(
            f"step {step} changes its state in place, as plain autograd refuses too where it has saved some of it: "
            "return new tensors, or clone what is changed"
        )
