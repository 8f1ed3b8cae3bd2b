"""Statistics of BatchNorm: a block that trains adds to them and, most often, reads none of them.

Then a second run needs no copies of what they were: it adds to others that are thrown away.
"""

import sys
from collections.abc import Mapping, Sequence
from functools import cache
from math import nan
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._pytree import tree_flatten

from forebay.torch.mover import bytes_by_storage

_NORMS = nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d
_STATISTICS = "running_mean", "running_var", "num_batches_tracked"
_OPERATIONS = frozenset(
    getattr(torch.ops.aten, name).default
    for name in ("native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm")
    if hasattr(torch.ops.aten, name)
)
_MEAN, _VARIANCE, _TRAINING = 3, 4, 5
"""The places of their arguments."""


def only_adds(module: nn.Module) -> bool:
    """Tell whether a module is a BatchNorm that trains and does not read its statistics, as torch made it."""
    own = vars(module)
    return (
        type(module) in _NORMS
        and own["training"]
        and not own["_forward_hooks"]
        and not own["_forward_pre_hooks"]
        and "forward" not in own
        and tuple(own["_buffers"]) == _STATISTICS
        and type(None) not in map(type, own["_buffers"].values())
    )


def read_by(operation: Any, arguments: Sequence[Any], named: Mapping[str, Any]) -> frozenset[int]:
    """Return the storages that an operation reads, but for those of statistics that it does no more than add to."""
    left_out: tuple[int, ...] = ()
    if operation in _OPERATIONS and len(arguments) > _TRAINING and arguments[_TRAINING]:
        left_out = _MEAN, _VARIANCE
    elif operation is torch.ops.aten.add_.Tensor and _counts():
        left_out = (0,)
    read = [argument for number, argument in enumerate(arguments) if number not in left_out], list(named.values())
    return frozenset(bytes_by_storage(leaf for leaf in tree_flatten(read)[0] if isinstance(leaf, torch.Tensor)))


def _counts() -> bool:
    """Tell whether a BatchNorm is at work, and not somebody else who counts its batches."""
    frame: Any = sys._getframe()
    while frame is not None and frame.f_code is not _BatchNorm.forward.__code__:
        frame = frame.f_back
    return frame is not None


class _Uncounted:
    """Stands for the batches that a BatchNorm has counted: it takes one more, and tells nobody."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.dtype, self.shape = device, torch.int64, torch.Size(())

    def add_(self, other: Any) -> "_Uncounted":
        return self

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(
            f"a block that was run again reads how many batches a BatchNorm of it has counted ({name}), which it did "
            "not when it was measured: leave it out with blocks=..., or have it count by itself"
        )


def thrown_away(module: nn.Module) -> dict[str, Any]:
    """Make statistics that a BatchNorm adds to in a second run; who reads them after all finds that they are none."""
    mean = module._buffers["running_mean"]
    assert mean is not None
    return _unset(mean.shape, mean.dtype, mean.device)


@cache
def _unset(shape: torch.Size, dtype: torch.dtype, device: torch.device) -> dict[str, Any]:
    mean, variance = (torch.full(shape, nan, dtype=dtype, device=device) for _ in range(2))
    return dict(zip(_STATISTICS, (mean, variance, _Uncounted(device)), strict=True))
