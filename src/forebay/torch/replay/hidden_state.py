"""State that a block keeps for itself: a second run computes other values with it, so such a block has to be kept."""

import pickle
import random
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable, Sequence
from types import NoneType
from typing import Any

import numpy as np
import torch
from torch import nn

from forebay.torch.replay.module_state import SMALL

SAMPLED = 256
"""So many elements of a tensor are compared, at most."""
EVERY = 8, 64
"""So many tensors apart are those that are compared before the last: when a block is measured, and later."""
FIRST, APART = 8, 16
"""On a GPU, which comparing makes the host wait for, the first runs of a block are compared, and one in so many."""
ROUNDING = 8
"""On a GPU, where sums may be in another order, values that differ by so many units in the last place are the same."""

GENERATORS = torch.Generator, random.Random, np.random.Generator, np.random.RandomState

CONTAINERS = tuple, list, dict, set, deque, OrderedDict, defaultdict, Counter

_OWN = frozenset(vars(nn.Module()))
_PLAIN = bool, int, float, complex, str, bytes, NoneType


class Samples:
    """Some elements of some of the tensors that a block saves: of the last, which most of it leads to, and some before.

    To look at all would take longer than some blocks do. With every turn it is the next tensors and elements.
    """

    __slots__ = ("_last", "_left_out", "_place", "_rows")

    def __init__(self, parts: Iterable[nn.Module], every: int, turn: int) -> None:
        self._place = turn, every
        self._left_out = {id(buffer) for part in parts for buffer in part._buffers.values()}
        self._rows: dict[int, torch.Tensor] = {}  # by numbers; those of what the block gave are below zero
        self._last: tuple[int, torch.Tensor] | None = None

    def take(self, number: int, tensor: torch.Tensor) -> None:
        """Look at a tensor that is being saved."""
        base = tensor if tensor._base is None else tensor._base
        if type(base) is not torch.Tensor or tensor.layout is not torch.strided or id(base) in self._left_out:
            return  # as parameters are, which are no plain tensors, and buffers, which are lent
        turn, every = self._place
        if (number - turn) % every == 0:
            self._rows[number] = self._row(tensor)
        self._last = number, tensor  # until the next comes

    def end(self, results: Iterable[torch.Tensor]) -> None:
        """Look at the last tensor again and at what the block gave, and hold none."""
        if self._last is not None and self._last[0] not in self._rows:
            self._rows[self._last[0]] = self._row(self._last[1])
        self._last = None
        self._rows |= self._given(results)

    def same_results(self, results: Iterable[torch.Tensor]) -> bool:
        """Tell whether a second run, where it ran to its end, gave the same values."""
        now = self._given(results)
        known = {number: row for number, row in self._rows.items() if number < 0}
        return not now or (now.keys() == known.keys() and all(alike(row, known[key]) for key, row in now.items()))

    def same(self, values: Sequence[torch.Tensor]) -> bool:
        """Tell whether what a second run saved has the same values."""
        rows = self._rows.items()
        return all(alike(row, self._row(values[number])) for number, row in rows if 0 <= number < len(values))

    def _given(self, results: Iterable[torch.Tensor]) -> dict[int, torch.Tensor]:
        return {~place: self._row(result) for place, result in enumerate(filter(_is_dense, results))}

    def _row(self, tensor: torch.Tensor) -> torch.Tensor:
        """Copy some elements of a tensor, evenly spaced, others in each turn."""
        tensor, (turn, _) = tensor.detach(), self._place
        if tensor.is_contiguous():
            apart = -(-tensor.numel() // SAMPLED) or 1
            return tensor.view(-1)[turn % apart :: apart].clone(memory_format=torch.contiguous_format)
        each = int(SAMPLED ** (1 / max(1, tensor.dim())))
        steps = [-(-length // each) or 1 for length in tensor.shape]
        spaced = tuple([slice(turn % step, None, step) for step in steps])
        return tensor[spaced].reshape(-1).clone()


def _is_dense(tensor: torch.Tensor) -> bool:
    plain = type(tensor) is torch.Tensor and tensor.layout is torch.strided
    return plain and not (tensor.is_quantized or tensor.is_meta)


def alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Tell whether two rows have the same values, on a GPU but for rounding."""
    if torch.equal(one.view(torch.uint8), other.view(torch.uint8)):
        return True
    if one.is_cpu or not one.is_floating_point():
        return False
    most = one.abs().nan_to_num(0.0, 0.0).max().item() if one.numel() else 0.0
    return torch.allclose(one, other, rtol=0.0, atol=ROUNDING * torch.finfo(one.dtype).eps * most, equal_nan=True)


def looked_at(turn: int, device: torch.device) -> bool:
    """Tell whether what a block saves is looked at in its run of this number."""
    return device.type != "cuda" or turn < FIRST or turn % APART == 0


def attributes_of(parts: Iterable[nn.Module]) -> list[tuple[str, Any]]:
    """List what modules keep for themselves: numbers, small tensors and generators, in containers too.

    What a second run of theirs changes once more is hidden state; what it only sets again, as caches are, is none.
    """
    own = (vars(part) for part in parts if type(part) is nn.Module or not type(part).__module__.startswith("torch.nn."))
    waiting = [(name, value) for attributes in own for name, value in attributes.items() if name not in _OWN]
    noted: list[tuple[str, Any]] = []
    visited: set[int] = set()
    while waiting:
        name, value = waiting.pop()
        if type(value) in CONTAINERS and id(value) not in visited:
            visited.add(id(value))
            noted.append((name, len(value)))
            inner = value.items() if isinstance(value, dict) else enumerate(value)
            waiting += [(f"{name}.{key}", item) for key, item in inner]
        elif isinstance(value, torch.Generator):
            noted.append((name, value.get_state()))
        elif isinstance(value, GENERATORS):
            noted.append((name, pickle.dumps(value)))
        elif isinstance(value, torch.Tensor) and _is_dense(value) and value.nbytes < SMALL:
            noted.append((name, value.detach().reshape(-1).clone()))
        elif isinstance(value, _PLAIN):
            noted.append((name, value))
    return noted


def same_attributes(noted: list[tuple[str, Any]], now: list[tuple[str, Any]]) -> bool:
    """Tell whether modules keep the same as they did."""
    return len(noted) == len(now) and all(
        name == other and _same(value, present) for (name, value), (other, present) in zip(noted, now, strict=True)
    )


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.dtype is other.dtype and one.shape == other.shape and alike(one, other)
    return type(one) is type(other) and bool(one == other or (one != one and other != other))
