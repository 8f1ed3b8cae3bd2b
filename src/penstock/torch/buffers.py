"""Buffers that a block changes as it runs, such as the statistics of BatchNorm: changed once, however often it runs."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

Place = tuple[nn.Module, str]
Values = dict[Place, torch.Tensor]


class Buffers:
    """The buffers of a block that its forward changes.

    Those of normalisations with running statistics are known; others are noticed by the count of their changes the
    first time that the block runs, and a second run then begins from the values that the first began with.
    """

    def __init__(self, module: nn.Module) -> None:
        self._statistics: list[Place] = []
        self._others: list[Place] = []
        for part in module.modules():
            known = isinstance(part, _NormBase)
            for name, buffer in part._buffers.items():
                if buffer is not None:
                    (self._statistics if known else self._others).append((part, name))
        self._changing: set[Place] | None = None  # not known before the first run

    def values(self) -> Values:
        """Copy the values that a second run may have to begin with."""
        places = self._others if self._changing is None else self._changing
        return {place: _buffer(place).detach().clone() for place in places}

    @contextmanager
    def watched(self, values: Values) -> Iterator[None]:
        """Notice which of the others change, and leave their values alone among those given."""
        before = {place: _buffer(place)._version for place in self._others}
        yield
        changed = {place for place, version in before.items() if _buffer(place)._version != version}
        if changed - values.keys():
            names = ", ".join(name for _, name in changed - values.keys())
            raise RuntimeError(
                f"a block changed a buffer ({names}) that it had left alone before, and cannot be run again from the "
                "values before: leave it out with blocks=..., or do the iteration again"
            )
        self._changing = changed | (self._changing or set())
        for place in values.keys() - self._changing:
            del values[place]

    @contextmanager
    def lent(self, values: Values) -> Iterator[None]:
        """Let a second run change copies, and put the buffers themselves back."""
        own = {place: _buffer(place) for place in (*self._statistics, *values)}
        try:
            for (part, name), buffer in own.items():
                part._buffers[name] = values.get((part, name), buffer).detach().clone()
            yield
        finally:
            for (part, name), buffer in own.items():
                part._buffers[name] = buffer


def _buffer(place: Place) -> torch.Tensor:
    part, name = place
    buffer = part._buffers[name]
    assert buffer is not None
    return buffer
