"""Prefetching the parameters of a torch model before its kernels need them, where they are in managed memory.

Modules run in an order that the first pass shows. From then on the parameters of the next module are moved while
those of this one are used, and only if the driver has them elsewhere: asking is cheap, moving what is there is not.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Self

from penstock.errors import StateError


@dataclass(eq=False)
class Hooks:
    """The hooks of a model; made by `prefetch_hooks`. As a context manager it removes them."""

    move: Callable[[Any, bool], bool]
    """moves a tensor to the device where it is elsewhere, beside the computation or before it; tells if it moved"""
    handles: list[Any] = field(default_factory=list)
    following: dict[int, Any] = field(default_factory=dict)
    """the module that ran after each, forward; by identity"""
    preceding: dict[int, Any] = field(default_factory=dict)
    """and backward"""
    moved: int = 0
    """tensors that were moved"""
    _last: dict[str, Any] = field(default_factory=dict)

    def before_forward(self, module: Any, inputs: Any) -> None:
        """Have what a module needs on its way before its kernels, and what the next one needs beside them."""
        self._before(module, self.following, "forward")
        for tensor in _tensors(inputs):
            self.moved += self.move(tensor, False)

    def before_backward(self, module: Any, gradients: Any) -> None:
        """Do the same on the way back."""
        self._before(module, self.preceding, "backward")

    def remove(self) -> None:
        """Take the hooks off the model."""
        while self.handles:
            self.handles.pop().remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.remove()

    def _before(self, module: Any, after: dict[int, Any], direction: str) -> None:
        last = self._last.get(direction)
        if last is not None:
            after[id(last)] = module
        self._last[direction] = module
        for tensor in _own(module):
            self.moved += self.move(tensor, False)
        following = after.get(id(module))
        if following is not None:
            for tensor in _own(following):
                self.moved += self.move(tensor, True)


def prefetch_hooks(model: Any) -> Hooks:
    """Have the parameters of a torch model prefetched before they are used, wherever the driver has moved them.

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
            hooks.handles.append(module.register_forward_pre_hook(hooks.before_forward))
            hooks.handles.append(module.register_full_backward_pre_hook(hooks.before_backward))
    return hooks


def _mover() -> Callable[[Any, bool], bool]:
    from penstock.cuda import managed
    from penstock.cuda.stream import Mark, create_streams

    beside = create_streams().up
    under_way: dict[int, Mark] = {}  # by address

    def move(tensor: Any, ahead: bool) -> bool:
        if not tensor.is_cuda or not tensor.is_contiguous():
            return False
        pointer, nbytes = tensor.data_ptr(), tensor.numel() * tensor.element_size()
        if not ahead and pointer in under_way:  # kernels that came earlier would fault what is about to arrive
            under_way.pop(pointer).hold(managed.callers_stream())
            return False
        about = managed.describe(pointer, nbytes)
        if about["kind"] != "managed" or about.get("prefetched") == "device":
            return False
        stream = managed.callers_stream()
        if ahead:
            Mark(stream).hold(beside)  # so that it follows whatever pushed the memory away
        managed.prefetch(pointer, nbytes, "device", beside if ahead else stream)
        if ahead:
            under_way[pointer] = Mark(beside)
        return True

    return move


def _own(module: Any) -> Iterable[Any]:
    yield from module.parameters(recurse=False)
    yield from module.buffers(recurse=False)


def _tensors(inputs: Any) -> Iterable[Any]:
    if isinstance(inputs, tuple | list):
        for item in inputs:
            yield from _tensors(item)
    elif hasattr(inputs, "data_ptr"):
        yield inputs
