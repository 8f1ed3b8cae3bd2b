"""Prefetching the parameters of a torch model before its kernels need them, where they are in managed memory.

Modules run in an order that the first pass shows. From then on the parameters of the next module are moved while
those of this one are used, and only if they were not moved to the device before: asking is cheap, moving is not.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any, Self

from forebay.errors import StateError
from forebay.memory.unified.advise import extent


@dataclass(eq=False)
class Hooks:
    """The hooks of a model; made by `prefetch_hooks`. As a context manager it removes them."""

    move: Callable[[Any, bool], bool]
    """moves a tensor to the device where it is elsewhere, beside the computation or before it; tells if it moved"""
    handles: list[Any] = field(default_factory=list)
    moved: int = 0
    """tensors that were moved"""
    _following: dict[tuple[str, int], Any] = field(default_factory=dict)  # the module after each, forward or backward
    _last: dict[str, Any] = field(default_factory=dict)
    _called: set[int] = field(default_factory=set)
    _ended: set[int] = field(default_factory=set)

    def before_forward(self, module: Any, inputs: Any, named: Any) -> None:
        """Have what a module needs on its way before its kernels, and what the next one needs beside them."""
        self._called.add(id(module))
        self._before(module, "forward")
        for tensor in _tensors((inputs, named)):
            self.moved += self.move(tensor, False)

    def after_forward(self, module: Any, inputs: Any, output: Any) -> None:
        """Do the same on the way back: a module's begins when the gradient of its output is there."""
        self._ended.add(id(module))

        def before_backward(_gradient: Any) -> None:
            if self.handles:  # a graph may outlive them
                self._before(module, "backward")

        # Not a hook of the module: that would pass its output through a view, which may not be changed in place.
        for tensor in _tensors(output):
            if tensor.grad_fn is not None:  # on a parameter it would stay for good
                tensor.register_hook(before_backward)

    def remove(self) -> None:
        """Take the hooks off the model."""
        while self.handles:
            self.handles.pop().remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.remove()

    def _before(self, module: Any, direction: str) -> None:
        last, self._last[direction] = self._last.get(direction, module), module
        if last is not module:
            self._following[direction, id(last)] = module
        following = self._following.get((direction, id(module)))
        if following is not None:  # first: after the computation waits for its own, this would wait for that, too
            for tensor in self._needed(following):
                self.moved += self.move(tensor, True)
        for tensor in self._needed(module):
            self.moved += self.move(tensor, False)

    def _needed(self, module: Any) -> Iterable[Any]:
        """List what a module owns, and what parts of it own that it does not call but computes with itself."""
        yield from _own(module)
        if id(module) in self._ended:
            for part in module.modules():
                if part is not module and id(part) not in self._called:
                    yield from _own(part)


def prefetch_hooks(model: Any) -> Hooks:
    """Have the parameters of a torch model prefetched before they are used, those that were not moved there before.

    Pages that the driver evicted without being asked are not noticed: it tells what was asked for, not where they are.

    Parameters
    ----------
    model : torch.nn.Module
        Its parameters were made under `unify`; those in other memory are left alone.

    Returns
    -------
    Hooks
        To `remove` them again, or to use in a ``with`` statement.
    """
    if not (hasattr(model, "modules") and hasattr(model, "register_forward_pre_hook")):
        raise StateError(f"prefetch_hooks takes a torch module, not {type(model).__name__}")
    return attach(model, _mover())


def attach(model: Any, move: Callable[[Any, bool], bool]) -> Hooks:
    """Put hooks on every module of a model that has parameters or buffers of its own."""
    hooks = Hooks(move)
    for module in model.modules():
        if any(True for _ in _own(module)):
            hooks.handles.append(module.register_forward_pre_hook(hooks.before_forward, with_kwargs=True))
            hooks.handles.append(module.register_forward_hook(hooks.after_forward))
    return hooks


def _mover() -> Callable[[Any, bool], bool]:
    from forebay.cuda import managed
    from forebay.cuda.stream import Mark, create_streams

    # One movement leaves a part of the link idle while the driver maps pages; two, one after the other, fill it.
    beside = cycle([create_streams().up, create_streams().up])
    under_way: dict[int, Mark] = {}  # by address

    def move(tensor: Any, ahead: bool) -> bool:
        where = extent(tensor) if tensor.is_cuda else None
        if where is None:
            return False
        stream = managed.callers_stream("torch")
        if not ahead and where[0] in under_way:  # kernels that came earlier would fault what is about to arrive
            under_way.pop(where[0]).hold(stream)
        about = managed.describe(*where)
        if about["kind"] != "managed" or about.get("prefetched") == "device":
            return False
        if not ahead:
            managed.prefetch(*where, "device", stream)
            return True
        lane = next(beside)
        Mark(stream).hold(lane)  # so that it follows whatever pushed the memory away
        managed.prefetch(*where, "device", lane)
        under_way[where[0]] = Mark(lane)
        return True

    return move


def _own(module: Any) -> Iterable[Any]:
    yield from module.parameters(recurse=False)
    yield from module.buffers(recurse=False)


def _tensors(value: Any) -> Iterable[Any]:
    if isinstance(value, tuple | list):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, Mapping):
        yield from _tensors(list(value.values()))
    elif hasattr(value, "data_ptr"):
        yield value
