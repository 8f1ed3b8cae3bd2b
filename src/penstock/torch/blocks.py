"""The blocks of a model: found where its modules repeat, and replaced by a call of ours until they are given back."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from torch import nn

from penstock.errors import PlanError

Call = Callable[..., Any]

_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)


def find(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Find the outermost modules that are there twice or more, have parameters, and are made of other modules.

    Examples
    --------
    >>> layer = nn.TransformerEncoderLayer(8, 2, 16)
    >>> [name for name, _ in find(nn.TransformerEncoder(layer, 3, enable_nested_tensor=False))]
    ['layers.0', 'layers.1', 'layers.2']
    """
    count = Counter(_kind(module) for module in model.modules())
    found: list[tuple[str, nn.Module]] = []

    def walk(name: str, module: nn.Module) -> None:
        inner = getattr(module, "_orig_mod", module)
        repeats = count[_kind(module)] > (1 if inner is module else 2)  # a compiled one is counted twice
        whole = any(True for _ in inner.children()) and any(True for _ in inner.parameters())
        if repeats and whole and not isinstance(inner, _CONTAINERS) and module is not model:
            found.append((name, module))
            return
        for child, below in module.named_children():
            walk(f"{name}.{child}" if name else child, below)

    walk("", model)
    return found


def _kind(module: nn.Module) -> type:
    return type(getattr(module, "_orig_mod", module))  # torch.compile wraps every kind in one of its own


def named(model: nn.Module, blocks: Iterable[nn.Module | str] | None) -> list[tuple[str, nn.Module]]:
    """Give names and modules of the blocks that the user named, or of those that are found."""
    if blocks is None:
        found = find(model)
        if not found:
            raise PlanError(
                f"no module of {type(model).__name__} is there twice: name the blocks, blocks=[model.first, 'second']"
            )
        return found
    names = {module: name for name, module in model.named_modules()}
    modules = dict(model.named_modules())
    chosen: list[tuple[str, nn.Module]] = []
    for block in blocks:
        if isinstance(block, str) and block in modules:
            chosen.append((block, modules[block]))
        elif isinstance(block, nn.Module) and block in names:
            chosen.append((names[block], block))
        else:
            raise PlanError(f"blocks: {block!r:.80} is no module of the model, nor the name of one")
    _check_apart(chosen)
    return chosen


def _check_apart(chosen: list[tuple[str, nn.Module]]) -> None:
    for name, module in chosen:
        inside = {id(one) for one in module.modules()} - {id(module)}
        for other, below in chosen:
            if id(below) in inside:
                raise PlanError(f"blocks: {other!r} is inside {name!r}: name one of them")
    if not chosen:
        raise PlanError("blocks: name at least one module")


class Patch:
    """A module whose call is ours until it is given back; its parameters, hooks and names stay as they are."""

    def __init__(self, module: nn.Module, make: Callable[[Call], Call]) -> None:
        self._module = module
        # What `module.compile()` made is called in place of `forward`, hooks and all.
        self.compiled = getattr(module, "_compiled_call_impl", None) is not None or hasattr(module, "_orig_mod")
        self._name = "_compiled_call_impl" if getattr(module, "_compiled_call_impl", None) is not None else "forward"
        self._own = vars(module).get(self._name)
        object.__setattr__(module, self._name, make(getattr(module, self._name)))

    def undo(self) -> None:
        """Give the module back as it was."""
        if self._own is None:
            object.__delattr__(self._module, self._name)
        else:
            object.__setattr__(self._module, self._name, self._own)
