"""What blocks are given and give: the tensors in it, however nested, and what it takes to give it once more."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._pytree import tree_flatten

from forebay.torch.replay.contents import PLAIN, tensors_held
from forebay.torch.replay.objects import Input, Objects, value_of
from forebay.torch.saved_tensors import Keep


def tensors_in(tree: Any) -> list[torch.Tensor]:
    """List the tensors of arguments or results, however nested, in containers and in objects with attributes.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> x = torch.ones(2)
    >>> [len(tensors_in(one)) for one in (x, [x, {"more": (x, 3)}], SimpleNamespace(x=[x]), "none")]
    [1, 2, 1, 0]
    """
    if isinstance(tree, torch.Tensor):
        return [tree]
    if type(tree) not in PLAIN:
        return tensors_held(tree)
    tensors: list[torch.Tensor] = []  # what nearly all blocks take: it is asked for each of them, several times a step
    for item in tree.values() if type(tree) is dict else tree:
        if isinstance(item, torch.Tensor):
            tensors.append(item)
        elif item is not None:
            tensors += tensors_in(item)
    return tensors


def direct_tensors(arguments: tuple[Any, ...]) -> list[torch.Tensor]:
    """List the tensors of arguments that are not inside of objects."""
    return [leaf for leaf in tree_flatten(arguments)[0] if isinstance(leaf, torch.Tensor)]


class CallArguments:
    """The arguments of a call, to be given again: tensors kept in some way, and objects as they are now.

    A block may set attributes of an object that it is given, or put keys and values into a cache, and so may the model
    behind it. A second run is given the very same object where nobody has, and leaves it as it was; otherwise another
    in the state that the first run found. Objects are not held, for they may hold what the block gives: only what they
    hold is.

    Parameters
    ----------
    args, kwargs
        The arguments.
    keep
        Keeps a tensor.
    """

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any], keep: Keep) -> None:
        arguments = (*args, *kwargs.values())
        flat = [item for argument in arguments for item in (argument if type(argument) is tuple else (argument,))]
        plain = all(isinstance(item, _LEAVES) for item in flat)
        inputs: dict[int, Input] = {}  # what is there twice is one again, as queries, keys and values often are
        for leaf in flat if plain else direct_tensors(arguments):
            if isinstance(leaf, torch.Tensor) and id(leaf) not in inputs:
                inputs[id(leaf)] = Input(leaf, keep)
        self._objects = None if plain else Objects(args, kwargs, inputs)
        if plain:
            self._args = [_mark(argument, inputs) for argument in args]
            self._kwargs = {name: _mark(argument, inputs) for name, argument in kwargs.items()}

    @contextmanager
    def for_replay(self) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
        """Yield the arguments for another call, their tensors without history."""
        if self._objects is not None:
            with self._objects.for_replay() as (args, kwargs):
                yield args, kwargs
            return
        built: dict[int, Any] = {}
        yield (
            tuple([_unmarked(argument, built) for argument in self._args]),
            {name: _unmarked(argument, built) for name, argument in self._kwargs.items()},
        )


def _mark(argument: Any, inputs: dict[int, Input]) -> Any:
    return (
        tuple([inputs.get(id(item), item) for item in argument])
        if type(argument) is tuple
        else inputs.get(id(argument), argument)
    )


def _unmarked(argument: Any, built: dict[int, Any]) -> Any:
    return tuple([value_of(item, built) for item in argument]) if type(argument) is tuple else value_of(argument, built)


_LEAVES = (torch.Tensor, float, int, str, type(None), torch.dtype, torch.device)
