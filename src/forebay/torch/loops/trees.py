"""What a loop is given and hands on: trees of tensors and plain values, taken apart and put together again."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import optree
import torch
from torch import Tensor, nn

from forebay.engine.loop import Trusted
from forebay.engine.trees import flatten
from forebay.errors import StateError

PLAIN = (type(None), bool, int, float, complex, str, bytes)
"""Types of what a state may hold beside tensors: values that nobody can change behind our back."""


@dataclass(frozen=True)
class Structure:
    """How a tree is built, without its leaves."""

    spec: optree.PyTreeSpec
    paths: tuple[tuple[Any, ...], ...]
    """of its leaves: the keys and numbers that lead to each"""

    @classmethod
    def of(cls, tree: Any) -> "Structure":
        """Read the structure of a tuple, list or dict, nested or not; anything else is a leaf."""
        _, spec = flatten(tree, _is_leaf)
        return cls(spec, tuple(spec.paths()))

    def leaves(self, tree: Any, who: str) -> list[Any]:
        """Take a tree apart, refusing one that is built otherwise; a list may stand in the place of a tuple."""
        leaves, spec = flatten(tree)
        if spec == self.spec:
            return leaves
        leaves, spec = flatten(tree, _is_leaf)
        at = dict(zip(spec.paths(), leaves, strict=True))
        if at.keys() != set(self.paths):
            raise StateError(f"{who} is {_text(spec)} where {_text(self.spec)} belongs")
        return [at[path] for path in self.paths]

    def build(self, leaves: Sequence[Any]) -> Any:
        """Put leaves together."""
        return self.spec.unflatten(leaves)


def _is_leaf(tree: Any) -> bool:
    return not isinstance(tree, tuple | list | dict)


def _text(spec: optree.PyTreeSpec) -> str:
    """Write how a tree is built, its leaves as stars."""
    if spec.is_leaf():
        return "a tensor or a value"
    return repr(spec).removeprefix("PyTreeSpec(").rpartition(", NoneIsLeaf")[0]


@dataclass(frozen=True)
class OutputForm:
    """What the outputs of all steps have in common."""

    structure: Structure
    kinds: tuple[tuple[torch.Size, torch.dtype, torch.device], ...]
    """of each tensor"""

    @classmethod
    def of(cls, output: Any) -> "OutputForm":
        """Read the form of one output."""
        return cls(
            Structure.of(output), tuple((leaf.shape, leaf.dtype, leaf.device) for leaf in output_leaves(output, True))
        )

    def leaves(self, output: Any, step: int) -> list[Tensor]:
        """Take the output of a step apart, refusing one of another form."""
        if OutputForm.of(output) != self:
            raise StateError(
                f"step {step} put out something else than step 0: every step puts out the same shapes and types"
            )
        return output_leaves(output, True)

    def empty(self, count: int) -> list[Tensor]:
        """Allocate room for the outputs of so many steps."""
        return [torch.empty((count, *shape), dtype=dtype, device=device) for shape, dtype, device in self.kinds]


def put(leaves: Sequence[Tensor], wholes: Sequence[Tensor], step: int) -> None:
    """Put the output of a step to its place."""
    for leaf, whole in zip(leaves, wholes, strict=True):
        whole[step].copy_(leaf)


def output_leaves(output: Any, wanted: bool) -> list[Tensor]:
    """Take the output of a step apart."""
    if not wanted:
        return []
    leaves = Structure.of(output).leaves(output, "an output")
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise StateError(f"a step put out a {type(leaf).__name__}: outputs are tensors, in tuples, lists and dicts")
    return leaves


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


@dataclass(frozen=True)
class Params:
    """What is given to every step beside the state: trees of tensors, modules and anything else."""

    structure: Structure
    leaves: tuple[Any, ...]
    tensors: tuple[Tensor, ...]
    """each tensor among them and each parameter of a module once"""
    themselves: tuple[bool, ...]
    """for each tensor, whether steps get it as it is: where they may reach it through a module or otherwise"""

    @classmethod
    def of(cls, params: Any) -> "Params":
        """Read what was given: one thing, or a tuple or list of several; a named tuple is one thing."""
        single = isinstance(params, Tensor | nn.Module | dict | str) or not hasattr(params, "__iter__")
        single |= hasattr(params, "_fields")
        arguments = (params,) if single else tuple(params)
        structure = Structure.of(arguments)
        leaves = structure.leaves(arguments, "params")
        modules = [leaf for leaf in leaves if isinstance(leaf, nn.Module)]
        theirs = {id(tensor): tensor for module in modules for tensor in module.parameters() if tensor.requires_grad}
        if any(tensor._backward_hooks for tensor in theirs.values()):
            raise StateError("a parameter of a module in params has hooks, which every step would call: remove them")
        tensors = {id(leaf): leaf for leaf in leaves if isinstance(leaf, Tensor)} | theirs
        themselves = tuple(
            key in theirs or (tensor.is_leaf and not tensor._backward_hooks) for key, tensor in tensors.items()
        )
        return cls(structure, tuple(leaves), tuple(tensors.values()), themselves)

    @property
    def modules(self) -> list[nn.Module]:
        """The modules among them."""
        return [leaf for leaf in self.leaves if isinstance(leaf, nn.Module)]

    def build(self, tensors: Sequence[Tensor]) -> tuple[Any, ...]:
        """Build the arguments with other tensors in the places of their own."""
        instead = {id(old): new for old, new in zip(self.tensors, tensors, strict=True)}
        built: tuple[Any, ...] = self.structure.build([instead.get(id(leaf), leaf) for leaf in self.leaves])
        return built

    def stand_ins(self) -> list[Tensor]:
        """Make leaves for autograd: tensors with a history are stood in for by their memory without it."""
        return [
            tensor if itself or not tensor.requires_grad else tensor.detach().requires_grad_()
            for tensor, itself in zip(self.tensors, self.themselves, strict=True)
        ]


@dataclass(frozen=True)
class LoopArguments:
    """What a loop is run on."""

    tensors: list[Tensor]
    values: tuple[Any, ...]
    """the plain ones, which with the tensors are the initial state"""
    inputs: list[Tensor]
    params: Params

    @property
    def differentiable(self) -> bool:
        """Whether anything of it has a gradient."""
        return any(tensor.requires_grad for tensor in (*self.tensors, *self.inputs, *self.params.tensors))


def read_inputs(inputs: Any, steps: int) -> tuple[Structure | None, list[Tensor]]:
    """Read the per-step inputs: tensors whose first axis is time."""
    if inputs is None:
        return None, []
    structure = Structure.of(inputs)
    leaves = structure.leaves(inputs, "inputs")
    for leaf in leaves:
        if not isinstance(leaf, torch.Tensor):
            raise StateError(f"inputs hold a {type(leaf).__name__}: give tensors whose first axis is time")
        if leaf.dim() < 1 or leaf.shape[0] != steps:
            raise StateError(
                f"an input has the shape {list(leaf.shape)}: its first axis must have {steps} entries, one a step"
            )
    return structure, leaves
