"""What blocks are given and give: tensors in containers, and what it takes to give them once more."""

import enum
from collections import OrderedDict
from types import BuiltinFunctionType, FunctionType, NoneType
from typing import Any, NamedTuple

import optree
import torch

from forebay.engine.trees import NAMESPACE
from forebay.torch.storage.tensors import Keep, KeptTensor, StoredTensor

_LEAVES = frozenset((float, int, bool, complex, str, bytes, NoneType, range, slice))
_MORE_LEAVES = (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size, enum.Enum, type)
"""What is given as it is: it does not change."""
_CONTAINERS = (tuple, list, dict, OrderedDict)


class Inputs(NamedTuple):
    """What a block is called with."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    tensors: list[torch.Tensor]
    """those among them"""


def tensors_in(tree: Any) -> list[torch.Tensor]:
    """List the tensors of arguments or results, however nested in containers.

    Examples
    --------
    >>> x = torch.ones(2)
    >>> [len(tensors_in(one)) for one in (x, [x, {"more": (x, 3)}], "none")]
    [1, 2, 0]
    """
    if isinstance(tree, torch.Tensor):
        return [tree]
    if not isinstance(tree, tuple | list | dict):
        return []
    tensors: list[torch.Tensor] = []  # it is asked for each block, several times a step
    for item in tree.values() if isinstance(tree, dict) else tree:
        if isinstance(item, torch.Tensor):
            tensors.append(item)
        elif item is not None:
            tensors += tensors_in(item)
    return tensors


def beyond_containers(given: Any) -> str | None:
    """Name the kind of something that is neither a tensor, a plain value, nor a container of such; None without.

    A list or dict that is there twice is one too: to change one of its places changes the other.

    Examples
    --------
    >>> beyond_containers((torch.ones(2), [1, {"more": None}])), beyond_containers((iter([1]),))
    (None, 'list_iterator')
    """
    return _beyond(given, set())


def _beyond(item: Any, visited: set[int]) -> str | None:
    kind: Any = type(item)
    if kind in _LEAVES or isinstance(item, torch.Tensor):
        return None
    if kind not in _CONTAINERS and not _is_named_tuple(item):
        return None if isinstance(item, _MORE_LEAVES) or _holds_nothing(item) else str(kind.__name__)
    if not isinstance(item, tuple):
        if id(item) in visited:
            return f"{kind.__name__} that is there twice"
        visited.add(id(item))
    for value in item.values() if isinstance(item, dict) else item:
        if (found := _beyond(value, visited)) is not None:
            return found
    return None


def _is_named_tuple(item: Any) -> bool:
    return isinstance(item, tuple) and hasattr(type(item), "_make") and not getattr(item, "__dict__", None)


def _holds_nothing(item: Any) -> bool:
    """Tell whether something is a function of a module, with nothing of its own that may change between calls."""
    if isinstance(item, FunctionType):
        held = item.__closure__ or item.__kwdefaults__ or item.__dict__
        return not held and all(type(value) in _LEAVES for value in item.__defaults__ or ())
    owner = getattr(item, "__self__", None)
    return type(item) is BuiltinFunctionType and (owner is None or type(owner).__name__ == "module")


class Input(NamedTuple):
    """Stands for a tensor that a block was given."""

    kept: KeptTensor | StoredTensor
    wanted: bool
    """whether it wanted a gradient"""
    more: dict[str, Any]
    """what others have set on it"""

    def tensor(self) -> torch.Tensor:
        """Return the tensor again, without history."""
        tensor: torch.Tensor = self.kept.tensor().detach().requires_grad_(self.wanted)
        for name, value in self.more.items():  # those that are made of others have some of their own by now
            tensor.__dict__.setdefault(name, value)
        return tensor


class CallArguments(NamedTuple):
    """The arguments of a call, to be given again: tensors kept in some way, in containers made anew.

    A tensor that is there twice is one again, as queries, keys and values often are.
    """

    structure: Any
    leaves: list[Any]

    @classmethod
    def of(cls, inputs: Inputs, keep: Keep) -> "CallArguments":
        """Keep what a block is called with."""
        given: Any = inputs.args, inputs.kwargs
        leaves, structure = optree.tree_flatten(given, none_is_leaf=True, namespace=NAMESPACE)
        kept = {
            id(leaf): Input(keep(leaf), leaf.requires_grad, dict(leaf.__dict__))
            for leaf in leaves
            if isinstance(leaf, torch.Tensor)
        }
        return cls(structure, [kept.get(id(leaf), leaf) for leaf in leaves])

    def again(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments for another call, their tensors without history."""
        made = {id(leaf): leaf.tensor() for leaf in self.leaves if type(leaf) is Input}
        again: tuple[tuple[Any, ...], dict[str, Any]] = self.structure.unflatten(
            [made.get(id(leaf), leaf) for leaf in self.leaves]
        )
        return again
