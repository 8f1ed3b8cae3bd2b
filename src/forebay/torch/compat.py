"""What of torch is private and used here, in one place: each was seen in torch 2.11 and 2.13.

Besides these calls, attributes of tensors, storages and modules are read where they are needed, thousands of times in a
step: `_version`, `_base`, `_cdata`, `_modules`, `_parameters`, `_buffers`, the tables of hooks of a module, `_orig_mod`
and `_compiled_call_impl`.
"""

from collections.abc import Callable
from functools import cache
from types import MethodType
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.modules.conv import _ConvNd
from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode

CONVOLUTION: type[_ConvNd] = _ConvNd
"""What all of torch's convolutions are."""

# Backward passes.


def graph_task() -> int:
    """Return the number of the backward pass that runs in this thread; -1 where none does."""
    return torch._C._current_graph_task_id()


def keeps_graph() -> bool:
    """Tell whether the backward pass that runs leaves the graph for another."""
    return torch._C._autograd._get_current_graph_task_keep_graph()


def at_end_of_pass(call: Callable[[], None]) -> None:
    """Have the backward pass that runs call something at its end."""
    engine: Any = torch.autograd.Variable._execution_engine
    engine.queue_callback(call)


@cache
def saves_tensors(node: type) -> bool:
    """Tell whether nodes of a kind save tensors."""
    return any(name.startswith("_raw_saved") for name in dir(node))


def top_hooks() -> Any:
    """Return the hooks that saved tensors go to now; None where there are none."""
    return torch._C._autograd._top_saved_tensors_default_hooks(False)


# Transforms.


def transformed() -> bool:
    """Tell whether torch.func or forward AD transforms what runs now."""
    return torch._C._functorch.peek_interpreter_stack() is not None or forward_ad._current_level >= 0


def batched(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor stands for many, as vmap and gradients of many outputs at once have it."""
    either = torch._C._functorch.is_batchedtensor(tensor) or torch._C._functorch.is_legacy_batchedtensor(tensor)
    return bool(either)


def differentiated_by_func() -> bool:
    """Tell whether torch.func.grad, or another of its reverse derivatives, is at work."""
    levels = torch._C._functorch.get_interpreter_stack() or []
    return any(level.key() == torch._C._functorch.TransformType.Grad for level in levels)


class Dispatching(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Runs operations as a function says."""

    def __init__(self, run: Callable[[Any, Any, Any], Any]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._run = run

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._run(func, args, kwargs or {})


# Optimizers.


def unhooked_step(optimizer: torch.optim.Optimizer) -> None:
    """Step as the class of an optimizer does, without the hooks of a step."""
    step: Any = type(optimizer).step
    (step.__wrapped__ if getattr(step, "hooked", False) else step)(optimizer)


def put_step(optimizer: torch.optim.Optimizer, step: Callable[..., Any]) -> None:
    """Put another step, with the hooks of a step, in the place of an optimizer's own."""
    hooked: Any = torch.optim.Optimizer.profile_hook_step(step)
    if hasattr(optimizer.step, "_wrapped_by_lr_sched"):  # by a scheduler that was made before
        hooked._wrapped_by_lr_sched = True
    vars(optimizer)["step"] = MethodType(hooked, optimizer)


def note_step(optimizer: torch.optim.Optimizer) -> None:
    """Tell schedulers that were made before another step was put in place that it was called."""
    optimizer._opt_called = True  # type: ignore[attr-defined]


# Tensors and storages.


def version_of(tensor: torch.Tensor) -> int | None:
    """Return the number that grows when a tensor is changed in place; nobody counts for those made for inference."""
    return None if tensor.is_inference() else tensor._version


def check_version(tensor: torch.Tensor, version: int) -> None:
    """Raise as autograd does where a tensor was changed in place after it was saved."""
    if tensor._version != version:
        raise RuntimeError(
            "one of the variables needed for gradient computation has been modified by an inplace operation: a saved "
            f"tensor is at version {tensor._version}; expected version {version} instead. Use the operation that makes "
            "a new tensor, or clone before it"
        )


def sharing_versions() -> Any:
    """Let aliases that are made inside of an operation share its tensor's count of changes, as they do outside."""
    return torch._C._SetExcludeDispatchKeyGuard(torch._C.DispatchKey.ADInplaceOrView, False)


def copy_all(copies: list[torch.Tensor], originals: list[torch.Tensor]) -> None:
    """Copy tensors of one type and device in one call."""
    torch._foreach_copy_(copies, originals)


def strong_storage(weak: StorageWeakRef) -> torch.UntypedStorage | None:
    """Return the storage that is referred to; None where its memory is gone."""
    storage: Any = torch.UntypedStorage
    found: torch.UntypedStorage | None = storage._new_with_weak_ptr(weak.cdata)
    return found
