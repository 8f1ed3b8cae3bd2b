"""The steps of a loop as its user wrote them, on flat lists of tensors: run once, or recorded by autograd."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from forebay.engine.loop import Trusted
from forebay.errors import StateError
from forebay.torch.loops.trees import Structure

PLAIN = (type(None), bool, int, float, complex, str, bytes)
"""Types of what a state may hold beside tensors: values that nobody can change behind our back."""


@dataclass(frozen=True)
class StateForm:
    """What every state of a loop has in common: its structure, and the kind of each of its tensors."""

    structure: Structure
    tensors: tuple[bool, ...]
    """for each leaf, whether it is a tensor"""
    shapes: tuple[torch.Size, ...]
    dtypes: tuple[torch.dtype, ...]
    orders: tuple[tuple[int, ...], ...]
    """for each tensor its axes from the slowest to the fastest in memory"""
    device: torch.device

    @classmethod
    def of(cls, state: Any) -> "StateForm":
        """Read the form of the initial state, refusing what cannot be kept."""
        structure = Structure.of(state)
        leaves = structure.leaves(state, "the state")
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        for leaf in leaves:
            if not isinstance(leaf, (Tensor, *PLAIN)):
                raise StateError(
                    f"the state holds a {type(leaf).__name__}: a state is made of tensors and plain values, in tuples, "
                    "lists and dicts"
                )
        if not tensors:
            raise StateError("the state holds no tensors: give a tensor, or a tuple, list or dict of tensors")
        devices = {tensor.device for tensor in tensors}
        if len(devices) > 1:
            raise StateError(
                f"the tensors of the state are on {', '.join(sorted(map(str, devices)))}: move them to one place"
            )
        return cls(
            structure,
            tuple(isinstance(leaf, Tensor) for leaf in leaves),
            tuple(tensor.shape for tensor in tensors),
            tuple(tensor.dtype for tensor in tensors),
            tuple(map(_order, tensors)),
            devices.pop(),
        )

    def split(self, state: Any, who: str) -> tuple[list[Tensor], tuple[Any, ...]]:
        """Part a state into its tensors, in the memory order of the initial ones, and its plain values."""
        tensors: list[Tensor] = []
        values: list[Any] = []
        for leaf, is_tensor in zip(self.structure.leaves(state, who), self.tensors, strict=True):
            if isinstance(leaf, Tensor) != is_tensor:
                wanted = "a tensor" if is_tensor else "a plain value"
                raise StateError(f"{who} holds a {type(leaf).__name__} where the initial state holds {wanted}")
            (tensors if is_tensor else values).append(leaf)
        for number, (tensor, shape, dtype) in enumerate(zip(tensors, self.shapes, self.dtypes, strict=True)):
            if tensor.shape != shape or tensor.dtype is not dtype or tensor.device != self.device:
                raise StateError(
                    f"{who} holds a tensor of {tensor.dtype} {list(tensor.shape)} on {tensor.device} where the initial "
                    f"state holds one of {dtype} {list(shape)} on {self.device}"
                )
            if not tensor.is_contiguous() or self.orders[number] != tuple(range(tensor.dim())):
                tensors[number] = self._outside(self.inside(tensor, number).contiguous(), number)
        return tensors, tuple(values)

    def join(self, tensors: Sequence[Tensor], values: Sequence[Any]) -> Any:
        """Put tensors and plain values together as a state."""
        first, second = iter(tensors), iter(values)
        return self.structure.build([next(first) if is_tensor else next(second) for is_tensor in self.tensors])

    def inside(self, tensor: Tensor, number: int) -> Tensor:
        """Turn the axes of a tensor so that the engine finds it without gaps."""
        order = self.orders[number]
        return tensor if order == tuple(range(len(order))) else tensor.permute(order)

    def _outside(self, tensor: Tensor, number: int) -> Tensor:
        order = self.orders[number]
        if order == tuple(range(len(order))):
            return tensor
        return tensor.permute(tuple(order.index(axis) for axis in range(len(order))))

    def pack(self, tensors: Sequence[Tensor]) -> Trusted:
        """Pack tensors for the engine, which copies bytes: conjugates and negatives that are only noted are made."""
        return Trusted(
            self.inside(tensor.detach().resolve_conj().resolve_neg(), number) for number, tensor in enumerate(tensors)
        )

    def unpack(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Take tensors from the engine."""
        return [self._outside(tensor, number) for number, tensor in enumerate(tensors)]

    def differentiable(self, number: int) -> bool:
        """Tell whether a tensor of the state can have a gradient."""
        return self.dtypes[number].is_floating_point or self.dtypes[number].is_complex


def _order(tensor: Tensor) -> tuple[int, ...]:
    """Return the axes of a dense tensor from slow to fast; those of one with gaps, which is gathered, as they are."""
    strides = tensor.stride()
    order = tuple(sorted(range(tensor.dim()), key=lambda axis: (-strides[axis], axis)))
    return order if not tensor.is_contiguous() and tensor.permute(order).is_contiguous() else tuple(range(tensor.dim()))


@dataclass(frozen=True)
class Steps:
    """A user's step, and how its arguments and results are built."""

    step: Callable[..., Any]
    count: int
    form: StateForm
    inputs: Structure | None
    """of the per-step inputs, where there are any"""
    returns_outputs: bool

    def once(
        self,
        tensors: Sequence[Tensor],
        values: Sequence[Any],
        step: int,
        inputs: Sequence[Tensor],
        params: Sequence[Any],
    ) -> tuple[list[Tensor], tuple[Any, ...], Any]:
        """Run one step, and return the tensors and values of the new state, and what the step puts out."""
        step_inputs = () if self.inputs is None else (self.inputs.build(inputs),)
        state = self.form.join(tensors, values)
        new = self.step(state, step, *step_inputs, *params)
        output = None
        if self.returns_outputs:
            if not isinstance(new, tuple) or len(new) != 2:
                raise StateError(f"with outputs=True the step returns (state, output), not a {type(new).__name__}")
            new, output = new
        who = f"what step {step} returned"
        if not (self.returns_outputs or isinstance(state, tuple)) and isinstance(new, tuple) and len(new) == 2:
            who += " (without outputs=True that is the new state alone)"
        return *self.form.split(new, who), output
