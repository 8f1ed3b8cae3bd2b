"""The blocks of a model: found where its modules repeat, or named."""

from collections import Counter
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from itertools import chain
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from forebay.errors import PlanError
from forebay.torch.compat import CONVOLUTION
from forebay.torch.replay.block import compiled, wraps

ENOUGH = 16
"""So many blocks are enough to choose from: a few are looked into for their parts, and more are taken together."""

FEW = 4
"""No more blocks than that may be parts of a network, such as its encoder and its decoder."""

_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)


def find(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Find the outermost modules that are there twice or more, have parameters, and are made of other modules.

    One that is reached by several names is found under the first. While one is recomputed, all that it saves is on the
    device: where they are few, those are opened that hold blocks in a row, as an encoder and a decoder do, and those
    that are made of blocks of different kinds, as a transformer's of its two halves, are found by these. Behind them
    come rows of torch's own layers that begin with a convolution and are part of none: such a stem may save more than
    several blocks do.

    Examples
    --------
    >>> layer = nn.TransformerEncoderLayer(8, 2, 16)
    >>> model = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
    >>> [name for name, _ in find(model)]
    ['layers.0', 'layers.1', 'layers.2']
    >>> [name for name, _ in find(nn.Sequential(nn.Sequential(nn.Conv1d(4, 8, 1), nn.ReLU()), model))]
    ['1.layers.0', '1.layers.1', '1.layers.2', '0']
    """
    count = Counter(type(module) for module in model.modules() if not wraps(module))
    blocks = _apart(list(_outermost(model, "", model, count, set())))
    if len(blocks) <= FEW:
        blocks = _apart(_once(pair for name, module in blocks for pair in _opened(name, module)))
    parts = _once(pair for name, module in blocks for pair in _parts(name, module))
    finer = _apart(parts)
    if len(finer) == len(parts) <= ENOUGH:
        blocks = finer
    inside = {below for _, module in blocks for below in module.modules()}
    return blocks + (list(_rows("", model, inside, set())) if blocks else [])


def _outermost(
    model: nn.Module, name: str, module: nn.Module, count: Counter[type], visited: set[nn.Module]
) -> Iterator[tuple[str, nn.Module]]:
    if module in visited:
        return
    visited.add(module)
    inner: Any = module._orig_mod if wraps(module) else module
    repeats = count[type(inner)] > 1
    if repeats and _whole(inner) and not isinstance(inner, _CONTAINERS) and module is not model:
        yield name, module
        return
    under = name if inner is module else ".".join(filter(None, (name, "_orig_mod")))
    for child, below in inner.named_children():
        yield from _outermost(model, f"{under}.{child}" if under else child, below, count, visited)


def _once(pairs: Iterable[tuple[str, nn.Module]]) -> list[tuple[str, nn.Module]]:
    """Leave out those that are there by another name."""
    names: dict[nn.Module, str] = {}
    for name, module in pairs:
        names.setdefault(module, name)
    return [(name, module) for module, name in names.items()]


def _apart(pairs: list[tuple[str, nn.Module]]) -> list[tuple[str, nn.Module]]:
    """Leave out those that are part of others."""
    inside = {below for _, module in pairs for below in module.modules() if below is not module}
    return [(name, module) for name, module in pairs if module not in inside]


def _opened(name: str, module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the blocks in a block that holds several of a kind in a row; else itself."""
    rows = [child for child in module.children() if isinstance(child, nn.Sequential | nn.ModuleList)]
    kinds = [
        Counter(type(below) for below in row if _whole(below) and not isinstance(below, _CONTAINERS)) for row in rows
    ]
    if compiled(module) or not any(count > 1 for kind in kinds for count in kind.values()):
        yield name, module
        return
    for child, below in module.named_children():
        yield from _wholes(f"{name}.{child}", below)


def _wholes(name: str, module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    if not isinstance(module, _CONTAINERS):
        if _whole(module):
            yield from _opened(name, module)
        return
    for child, below in module.named_children():
        yield from _wholes(f"{name}.{child}", below)


def _parts(name: str, module: nn.Module) -> list[tuple[str, nn.Module]]:
    """Return the blocks that a block is made of; itself, where something of it is in none of them.

    Where several are of one kind, as wrapped layers of an attention are, what is done between them may be much.
    """
    parts = [(f"{name}.{child}", below) for child, below in module.named_children()]
    distinct = len(parts) > 1 and len({type(below) for _, below in parts}) == len(parts)
    alone = not module._parameters and not module._buffers and not compiled(module)
    return parts if distinct and alone and all(_whole(below) for _, below in parts) else [(name, module)]


def _rows(
    name: str, module: nn.Module, blocks: set[nn.Module], visited: set[nn.Module]
) -> Iterator[tuple[str, nn.Module]]:
    """Yield the `nn.Sequential`s of layers that can be run again, whatever calls them, outside of what is taken.

    Each begins with a convolution that learns: it saves what it is given, which nobody may change after that, nor the
    row itself.
    """
    if compiled(module) or module in blocks or module in visited:
        return
    visited.add(module)
    below = list(module.modules())
    if (
        type(module) is nn.Sequential
        and len(module) > 1
        and isinstance(module[0], CONVOLUTION)
        and any(parameter.requires_grad for parameter in module[0].parameters())
        and blocks.isdisjoint(below)
        and not any(is_lazy(parameter) for parameter in module.parameters())
        and all(type(layer).__module__.startswith("torch.nn.") for layer in below)
    ):
        yield name, module
        return
    for child, inner in module.named_children():
        yield from _rows(f"{name}.{child}" if name else child, inner, blocks, visited)


def _whole(module: nn.Module) -> bool:
    """Tell whether a module is called as such, is made of others, and has parameters."""
    called = not isinstance(module, nn.ModuleList | nn.ModuleDict)
    return called and any(True for _ in module.children()) and any(True for _ in module.parameters())


def named(model: nn.Module, blocks: nn.Module | str | Iterable[nn.Module | str] | None) -> list[tuple[str, nn.Module]]:
    """Return names and modules of the blocks that the user named, or of those that are found."""
    if blocks is None:
        pairs = find(model)
        if not pairs:
            options = [
                name for name, module in model.named_modules() if name and any(True for _ in module.parameters())
            ]
            raise PlanError(
                f"no blocks were found in {type(model).__name__}: they are modules that are made of others, have "
                f"parameters, and are of a class that is there twice. Name some with blocks=[...], of {_some(options)}"
            )
        _check_plain(pairs)
        _check_between(model, pairs)
        return pairs
    if isinstance(blocks, str) or (isinstance(blocks, nn.Module) and not isinstance(blocks, _CONTAINERS)):
        blocks = [blocks]
    if not isinstance(blocks, Iterable):
        raise PlanError(f"blocks: {blocks!r:.80} is no module, no name, and no list of such")
    names = {module: name for name, module in model.named_modules()}
    modules = dict(model.named_modules(remove_duplicate=False))
    chosen: dict[nn.Module, str] = {}
    for block in blocks:
        if isinstance(block, str) and block in modules:
            chosen.setdefault(modules[block], block)
        elif isinstance(block, nn.Module) and block in names:
            chosen.setdefault(block, names[block])
        else:
            near = get_close_matches(block, modules) if isinstance(block, str) else []
            raise PlanError(
                f"blocks: {block!r:.80} is no module of the model, nor the name of one, such as "
                f"{_some(near or [name for name in modules if name])}"
            )
    _check_apart(chosen)
    pairs = [(name, module) for module, name in chosen.items()]
    _check_plain(pairs)
    return pairs


def _some(names: list[str]) -> str:
    """Write the first of some names."""
    return ", ".join(map(repr, names[:6])) + (", ..." if len(names) > 6 else "") if names else "which it has none"


def _check_apart(chosen: dict[nn.Module, str]) -> None:
    for module, name in chosen.items():
        for below in module.modules():
            if below is not module and below in chosen:
                raise PlanError(f"blocks: {chosen[below]!r} is inside {name!r}: name one of them")
    if not chosen:
        raise PlanError("blocks: name at least one module")


def _check_between(model: nn.Module, chosen: list[tuple[str, nn.Module]]) -> None:
    """Refuse blocks inside of what was compiled as a whole."""
    blocks = {module for _, module in chosen}
    for name, module in model.named_modules():
        if compiled(module) and module not in blocks and any(below in blocks for below in module.modules()):
            raise PlanError(
                f"{repr(name) if name else 'the model'} was compiled as a whole, with no place for a plan between its "
                "blocks: compile these instead (block.compile() for each) and fit the model, or name blocks=..."
            )


def _check_plain(chosen: list[tuple[str, nn.Module]]) -> None:
    for name, module in chosen:
        if any(isinstance(part, torch.jit.ScriptModule) for part in module.modules()):
            raise PlanError(
                f"blocks: {name!r} is or has a ScriptModule, which cannot be lent buffers to run again: fit the module "
                "that was scripted, or leave it out with blocks=..."
            )
        if any(is_lazy(tensor) for tensor in chain(module.parameters(), module.buffers())):
            raise PlanError(f"blocks: {name!r} does not know its shapes yet: run the model once before fit")
