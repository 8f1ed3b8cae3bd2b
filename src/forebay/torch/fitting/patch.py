"""What modules of a fitted model hold of ours: calls that stand in for theirs, which no copy of a module has."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn
from weakref import ref

import torch
from torch import nn

from forebay.errors import PlanError
from forebay.torch.replay.block import Call

_REDUCE, _REPLICATE = "__reduce_ex__", "_replicate_for_data_parallel"


class Attachment:
    """What a module of a fitted model holds of ours as an attribute: copies and pickles of the module are plain."""

    def attach(self, module: nn.Module, name: str) -> None:
        """Be an attribute of a module."""
        object.__setattr__(module, name, self)
        object.__setattr__(module, _REDUCE, partial(_reduce_plain, ref(module)))

    def leave(self, attributes: dict[str, Any]) -> None:
        """Make the attributes of a module, or a copy of these, what they would be without it."""
        attributes.pop(_REDUCE, None)

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise PlanError(
            "a module of a fitted model is copied or pickled in a way of its own, with what fit has put there: call "
            "unfit(model) first, or copy it before fit"
        )


def _reduce_plain(reference: "ref[nn.Module]", protocol: Any) -> Any:
    """Stand for the method of a module that `copy.deepcopy` and pickle call."""
    module: Any = reference()
    kind: Any = type(module)
    reduced = kind.__reduce_ex__(module, protocol)
    if not isinstance(reduced, tuple) or len(reduced) < 3 or not isinstance(reduced[2], dict):
        return reduced
    attributes = dict(reduced[2])
    for value in reduced[2].values():
        if isinstance(value, Attachment):
            value.leave(attributes)
    return *reduced[:2], attributes, *reduced[3:]


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _tell_of_compiling() -> None:
    warnings.warn(
        "a fitted model was compiled around its blocks, which are left uncompiled, and most of what is around them "
        "with them: compile the blocks (block.compile() for each) before fit instead",
        stacklevel=2,
    )


def _refuse_replica() -> NoReturn:
    """Stand for what `nn.DataParallel` calls: a replica would run with the parameters of the original."""
    raise PlanError(
        "nn.DataParallel cannot replicate a fitted model: use DistributedDataParallel, one process for each GPU, or "
        "unfit(model)"
    )


@dataclass(frozen=True, eq=False)
class Patch(Attachment):
    """The call that a block has until it is given back; its parameters, hooks and names stay as they are.

    What is needed to give it back is held by the block alone, and goes with it.
    """

    module: nn.Module
    name: str
    """of the attribute that it is"""
    own: Any
    """what was in its place; None where that was a method of the class"""
    call: Call

    @classmethod
    def onto(cls, module: nn.Module, make: Callable[[Call], Call]) -> "Patch":
        """Have a module called as a function says that is made from its own call."""
        # What `module.compile()` made is called in place of `forward`, hooks and all.
        name = "_compiled_call_impl" if getattr(module, "_compiled_call_impl", None) is not None else "forward"
        # A graph that was captured around it would hold the plan of its day for ever.
        call: Call = torch.compiler.disable(make(getattr(module, name)))  # type: ignore[no-untyped-call]
        patch = cls(module, name, vars(module).get(name), call)
        patch.attach(module, name)
        object.__setattr__(module, _REPLICATE, _refuse_replica)
        return patch

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the block as the plan says."""
        if torch.compiler.is_compiling():
            _tell_of_compiling()
        return self.call(*args, **kwargs)

    def undo(self) -> None:
        """Restore the module as it was."""
        self.leave(vars(self.module))

    def leave(self, attributes: dict[str, Any]) -> None:
        """Put the block's own call back, unless others have set one since."""
        super().leave(attributes)
        if attributes.get(_REPLICATE) is _refuse_replica:
            del attributes[_REPLICATE]
        if attributes.get(self.name) is self:
            del attributes[self.name]
            if self.own is not None:
                attributes[self.name] = self.own
