"""What the engine calls to run a loop forward and to differentiate it backwards, and what that leaves behind."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from forebay.torch.context import Autocast, Random, random_state, same_random, set_random_state
from forebay.torch.loops.decision import check_leaves
from forebay.torch.loops.recording import check_unchanged, record, twins_of, versions_of
from forebay.torch.loops.trees import OutputForm, Params, Steps, put
from forebay.torch.storage.mover import storage_of


@dataclass(frozen=True)
class Notes:
    """What the first sweep writes down beside the states that the engine keeps, at the start of each recording."""

    values: dict[int, tuple[Any, ...]]
    """the plain values of the state"""
    random: dict[int, Random] = field(default_factory=dict)
    """nothing where no step drew random numbers"""
    same: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """for steps some of whose outputs are tensors of the new state: the number of that tensor, or -1, by output"""
    twins: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """for states in which a tensor is at several places: the first of its places, by place"""
    form: list[OutputForm] = field(default_factory=list)
    """the one of what a step puts out, if anything"""
    outputs: list[Tensor] = field(default_factory=list)
    """all of it, each with a first axis of steps"""

    def note_twins(self, step: int, tensors: Sequence[Tensor]) -> None:
        """Note which tensors of the state before a step are the same."""
        if (twins := twins_of(tensors)) != tuple(range(len(tensors))):
            self.twins[step] = twins


@dataclass(frozen=True)
class Sweep:
    """The forward callback of a reversal, which it does not know, so that giving up the one frees the other."""

    steps: Steps
    chunk: int
    inputs: Sequence[Tensor]
    params: Params
    notes: Notes
    first: bool
    autocast: Autocast
    borrowed: set[int] = field(default_factory=set)
    """the memory that the last states given to forward are in"""

    def forward(self, state: Sequence[Tensor], start: int, stop: int, replay: bool) -> tuple[Tensor, ...]:
        """Run steps without recording them."""
        steps, notes = self.steps, self.notes
        again = replay or not self.first
        tensors, values = steps.form.unpack(state), notes.values[start]
        self.borrowed.clear()
        self.borrowed.update(tensor.untyped_storage().data_ptr() for tensor in state)
        if again and notes.random:
            set_random_state(steps.form.device, notes.random[start])
        arguments = self.params.build(self.params.tensors)
        with torch.no_grad(), self.autocast.replay_context():
            for step in range(start, stop):
                if not again and step % self.chunk == 0:
                    self._note_random(step)
                    notes.values[step] = values
                step_inputs = [x[step] for x in self.inputs]
                before, versions = tensors, [] if again else versions_of(tensors)
                tensors, values, output = steps.once(tensors, values, step, step_inputs, arguments)
                if again:
                    continue
                check_unchanged(step, before, versions)
                if steps.returns_outputs:
                    self._put_out(step, output, tensors)
                if (step + 1) % self.chunk == 0:
                    notes.note_twins(step + 1, tensors)
            notes.values[stop] = values
        return steps.form.pack(tensors)

    def final(self, state: Sequence[Tensor]) -> list[Tensor]:
        """Return the tensors of the final state, none of them in memory that the engine uses again."""
        tensors = self.steps.form.unpack([tensor.detach() for tensor in state])
        return [
            tensor.clone() if tensor.untyped_storage().data_ptr() in self.borrowed else tensor for tensor in tensors
        ]

    def _note_random(self, step: int) -> None:
        now = random_state(self.steps.form.device)
        last = self.notes.random.get(step - self.chunk)
        self.notes.random[step] = last if last is not None and same_random(last, now) else now  # kept once

    def end_of_sweep(self) -> list[Tensor]:
        """Forget random numbers where no step drew any; hand the outputs over: the graph must not hold its holder."""
        states, now = list(self.notes.random.values()), random_state(self.steps.form.device)
        if states[0] is states[-1] and same_random(states[-1], now):
            self.notes.random.clear()
        outputs = list(self.notes.outputs)
        self.notes.outputs.clear()
        return outputs

    def _put_out(self, step: int, output: Any, tensors: Sequence[Tensor]) -> None:
        notes = self.notes
        if not notes.form:
            notes.form.append(OutputForm.of(output))
            notes.outputs.extend(notes.form[0].empty(self.steps.count))
        leaves = notes.form[0].leaves(output, step)
        put(leaves, notes.outputs, step)
        same = tuple(next((n for n, tensor in enumerate(tensors) if tensor is leaf), -1) for leaf in leaves)
        if any(number >= 0 for number in same):
            notes.same[step] = same


@dataclass(frozen=True)
class Gradients:
    """What has been computed on the way back."""

    state: list[Tensor | None]
    """of the state that the sweep has come to; of the initial one in the end"""
    params: list[Tensor | None]
    inputs: list[Tensor | None]


def way_back(
    sweep: Sweep, of_final: Sequence[Tensor | None], of_all_outputs: Sequence[Tensor | None]
) -> tuple[Callable[[Sequence[Tensor], int], None], Gradients]:
    """Return the backward callback of a reversal, and the gradients that it changes."""
    steps, notes, chunk, params = sweep.steps, sweep.notes, sweep.chunk, sweep.params.stand_ins()
    arguments = sweep.params.build(params)
    of_inputs = [torch.zeros_like(x) if x.requires_grad else None for x in sweep.inputs]
    gradients = Gradients(list(of_final), [None] * len(params), of_inputs)

    def backward(state: Sequence[Tensor], start: int) -> None:
        """Differentiate the steps of one recording."""
        span = range(start, min(start + chunk, steps.count))
        if notes.random:
            set_random_state(steps.form.device, notes.random[start])
        before, values, twins = steps.form.unpack(state), notes.values[start], notes.twins.get(start)
        with sweep.autocast.replay_context():
            recorded = record(steps, before, values, span, sweep.inputs, params, arguments, twins=twins)
        check_leaves((*recorded.final, *_flat(recorded.outputs)), (*recorded.state, *_flat(recorded.inputs), *params))
        of_outputs = [[None if g is None else g[step] for g in of_all_outputs] for step in span]
        if span.stop < steps.count:
            # These have arrived already, at the start of the steps after.
            for output, number in enumerate(notes.same.get(span.stop - 1, ())):
                of_outputs[-1][output] = None if number >= 0 else of_outputs[-1][output]
        arrived = [
            (number, g[start - 1])
            for number, g in zip(notes.same.get(start - 1, ()), of_all_outputs, strict=False)
            if number >= 0 and g is not None
        ]
        of_state, of_slices, of_params = recorded.back(gradients.state, of_outputs, arrived, gradients.params)
        lent = {tensor.untyped_storage().data_ptr() for tensor in state}
        gradients.state[:] = [_own(gradient, lent) for gradient in of_state]
        gradients.params[:] = [_own(gradient, lent) for gradient in of_params]
        for step, slices in zip(span, of_slices, strict=True):
            for whole, gradient in zip(gradients.inputs, slices, strict=True):
                if whole is not None and gradient is not None:
                    whole[step].copy_(gradient)

    return backward, gradients


def _flat(groups: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    return [tensor for tensors in groups for tensor in tensors]


def _own(gradient: Tensor | None, lent: set[int]) -> Tensor | None:
    """Copy a gradient that lies in the engine's memory: some operations hand back what they saved."""
    storage = None if gradient is None else storage_of(gradient)
    return gradient.clone() if gradient is not None and storage is not None and storage.data_ptr() in lent else gradient
