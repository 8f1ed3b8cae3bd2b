"""State that a block keeps for itself: a second run computes other values with it, so such a block has to be kept."""

import random
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy, deepcopy
from types import NoneType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from forebay.torch.compat import version_of
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

CONTAINERS = list, dict, set, deque, OrderedDict, defaultdict, Counter

_OWN = frozenset(vars(nn.Module()))
_PLAIN = (bool, int, float, complex, str, bytes, NoneType, *GENERATORS)


class Samples(NamedTuple):
    """Some elements of some of the tensors that a block saves: of the last, which most of it leads to, and some before.

    To look at all would take longer than some blocks do. With every turn it is the next tensors and elements.
    """

    turn: int
    every: int
    left_out: set[int]
    """the identities of buffers, which are lent"""
    rows: dict[int, torch.Tensor]
    """by numbers; those of what the block gave are below zero"""
    last: dict[None, tuple[int, torch.Tensor]]
    """what was saved last, and its number"""

    @classmethod
    def of(cls, parts: Iterable[nn.Module], every: int, turn: int) -> "Samples":
        """Begin to look at what the modules of a block save."""
        return cls(turn, every, {id(buffer) for part in parts for buffer in part._buffers.values()}, {}, {})

    def take(self, number: int, tensor: torch.Tensor) -> None:
        """Look at a tensor that is being saved."""
        base = tensor if tensor._base is None else tensor._base
        if type(base) is not torch.Tensor or tensor.layout is not torch.strided or id(base) in self.left_out:
            return  # as parameters are, which are no plain tensors
        if (number - self.turn) % self.every == 0:
            self.rows[number] = self._row(tensor)
        self.last[None] = number, tensor  # until the next comes

    def end(self, results: Iterable[torch.Tensor]) -> None:
        """Look at the last tensor again and at what the block gave, and hold none."""
        for number, tensor in self.last.values():
            self.rows.setdefault(number, self._row(tensor))
        self.last.clear()
        self.rows.update(self._given(results))

    def same_results(self, results: Iterable[torch.Tensor]) -> bool:
        """Tell whether a second run, where it ran to its end, gave the same values."""
        now = self._given(results)
        known = {number: row for number, row in self.rows.items() if number < 0}
        return not now or (now.keys() == known.keys() and all(alike(row, known[key]) for key, row in now.items()))

    def same(self, values: Sequence[torch.Tensor]) -> bool:
        """Tell whether what a second run saved has the same values."""
        rows = self.rows.items()
        return all(alike(row, self._row(values[number])) for number, row in rows if 0 <= number < len(values))

    def _given(self, results: Iterable[torch.Tensor]) -> dict[int, torch.Tensor]:
        return {~place: self._row(result) for place, result in enumerate(filter(_is_dense, results))}

    def _row(self, tensor: torch.Tensor) -> torch.Tensor:
        """Copy some elements of a tensor, evenly spaced, others in each turn."""
        tensor = tensor.detach()
        if tensor.is_contiguous():
            apart = -(-tensor.numel() // SAMPLED) or 1
            return tensor.view(-1)[self.turn % apart :: apart].clone(memory_format=torch.contiguous_format)
        each = int(SAMPLED ** (1 / max(1, tensor.dim())))
        steps = [-(-length // each) or 1 for length in tensor.shape]
        spaced = tuple([slice(self.turn % step, None, step) for step in steps])
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


class Attributes(NamedTuple):
    """The attributes of modules as they are now, but for torch's own: numbers, small tensors, generators, containers.

    Of those of an iteration that is not measured, `plain`, no containers and nothing else is held, such as what a block
    remembers of the one before, with its graph.
    """

    plain: bool
    noted: list[tuple[dict[str, Any], dict[str, Any]]]
    """of each module, where its attributes are and what they were"""
    containers: list[tuple[Any, Any]]
    """with copies"""
    generators: list[tuple[Any, Any]]
    """with their states"""
    copies: dict[int, tuple[torch.Tensor, int | None, torch.Tensor]]
    """of small tensors, by their identities, and how often these had been changed"""

    @classmethod
    def of(cls, parts: Iterable[nn.Module], plain: bool = False) -> "Attributes":
        """Take note of them."""
        own = (
            vars(part) for part in parts if type(part) is nn.Module or not type(part).__module__.startswith("torch.nn.")
        )
        noted = [(attributes, _more(attributes, plain)) for attributes in own]
        values = {id(value): value for _, more in noted for value in more.values()}.values()
        generators = [(value, state_of(value)) for value in values if isinstance(value, GENERATORS)]
        copies = {
            id(value): (value, version_of(value), value.clone())
            for value in values
            if type(value) is torch.Tensor and not value.requires_grad and value.nbytes < SMALL
        }
        return cls(plain, noted, _containers(values), generators, copies)

    def changed(self) -> bool:
        """Tell whether they are others by now, or were changed in place."""
        if any(version_of(value) != version for value, version, _ in self.copies.values()):
            return True
        if any(_identities(container) != _identities(held) for container, held in self.containers):
            return True
        return any(
            noted.keys() != now.keys() or any(now[name] is not value for name, value in noted.items())
            for noted, now in ((noted, _more(own)) for own, noted in self.noted)
        )

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Let the modules have them again, tensors as copies; and put back what they have now."""
        before = [(own, own.copy()) for own, _ in self.noted]
        filled = _containers(value for own, _ in self.noted for value in _more(own).values())
        drawn = [state_of(generator) for generator, _ in self.generators]
        copies = {key: copy.clone() for key, (*_, copy) in self.copies.items()}
        try:
            for own, noted in self.noted:
                for name in () if self.plain else _more(own).keys() - noted.keys():
                    del own[name]
                own.update({name: copies.get(id(value), value) for name, value in noted.items()})
            for container, held in self.containers:
                _fill(container, held)
            for generator, state in self.generators:
                set_state(generator, state)
            yield
        finally:
            for container, held in filled:
                _fill(container, held)
            for own, now in before:
                own.clear()
                own.update(now)
            for (generator, _), state in zip(self.generators, drawn, strict=True):
                set_state(generator, state)


def _more(attributes: dict[str, Any], plain: bool = False) -> dict[str, Any]:
    """Return those of a module's attributes that not all modules have; of plain ones, numbers and the like."""
    more = {name: value for name, value in attributes.items() if name not in _OWN}
    return {name: value for name, value in more.items() if _is_plain(value)} if plain else more


def _is_plain(value: Any) -> bool:
    if type(value) is torch.Tensor:
        return value.grad_fn is None and value.nbytes < SMALL
    return isinstance(value, _PLAIN)


def _containers(values: Iterable[Any]) -> list[tuple[Any, Any]]:
    """Copy the containers among some values, and those that these hold."""
    copies: dict[int, tuple[Any, Any]] = {}
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        if type(value) in CONTAINERS and id(value) not in copies:
            copies[id(value)] = value, copy(value)
            waiting += value.values() if isinstance(value, dict) else value
        elif type(value) is tuple:
            waiting += value
    return list(copies.values())


def _fill(container: Any, held: Any) -> None:
    container.clear()
    (container.update if isinstance(container, dict | set) else container.extend)(held)


def _identities(container: Any) -> Any:
    """Return what tells whether a container holds the same objects, some of which may not compare."""
    if isinstance(container, dict):
        return [(key, id(value)) for key, value in container.items()]
    return sorted(map(id, container)) if isinstance(container, set) else list(map(id, container))


def state_of(generator: Any) -> Any:
    """Read a generator of torch, Python or NumPy."""
    if isinstance(generator, np.random.Generator):
        return deepcopy(generator.bit_generator.state)
    if isinstance(generator, np.random.RandomState):
        return generator.get_state(legacy=False)
    return generator.get_state() if isinstance(generator, torch.Generator) else generator.getstate()


def set_state(generator: Any, state: Any) -> None:
    """Set one again."""
    if isinstance(generator, np.random.Generator):
        generator.bit_generator.state = state
    elif isinstance(generator, random.Random):
        generator.setstate(state)
    else:
        generator.set_state(state)
