"""Models held to what was observed: bounds follow what chunks needed, and nothing that was not theirs."""

from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

from forebay.dask.measuring import Observation
from forebay.footprint.chunks.predictor import Predictor, input_bytes, place_of
from forebay.footprint.estimate import Estimate

LEAST = 0.02
"""The margin that a bound keeps however much was observed: other shapes of the same size differ a little."""

ENOUGH = 3
"""Runs of about one size that are believed against the model: garbage that goes meanwhile hides a part of some."""


@dataclass(frozen=True)
class ObservedModel:
    """A model held to what was observed: near observed sizes its bound follows them, elsewhere it stays.

    No terms are learned from observations: others of the process blur each, and terms that fit them may say too little
    of any other size. Where a run has outgrown the bound, what it took more counts at all sizes.
    """

    model: Predictor
    observations: tuple[Observation, ...]
    """of processes that were warm"""

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self.model.ndim

    @property
    def dtype(self) -> Any:
        """The dtype of the input."""
        return self.model.dtype

    @property
    def place(self) -> str:
        """Where the bytes are: on the host, or on a device."""
        return place_of(self.model)

    def predict(self, shape: tuple[int, ...], /) -> Estimate:
        """Return the model's estimate; near observed sizes its bound is the largest excess observed."""
        estimate = self.model.predict(shape)
        near = [excess for volume, excess in self._excesses if 0.5 <= volume / max(1, prod(shape)) <= 2]
        if not near:
            return replace(estimate, upper=max(estimate.upper, int(estimate.bytes * self._outgrown)))
        own, typical = estimate.upper / max(1, estimate.bytes), near[len(near) // 2]
        # Few runs have not shown the worst: a share of the model's own margin stays, less with each of them.
        most = (near[-1] if len(near) >= ENOUGH else max(1.0, near[-1])) + LEAST
        left = max(0.0, own - most) / (len(near) + 1)
        likeliest = int(estimate.bytes * typical) if len(near) >= ENOUGH else estimate.bytes
        return replace(estimate, bytes=likeliest, upper=int(estimate.bytes * (most + left)))

    def input_bytes(self, shape: tuple[int, ...]) -> int:
        """Bytes of the input, or of all inputs."""
        return input_bytes(self.model, shape)

    @cached_property
    def _excesses(self) -> list[tuple[int, float]]:
        """The elements of each run, and what it took over what the model thought likeliest; the least first."""
        pairs = (
            (prod(run.shape), run.bytes / max(1, self.model.predict(run.shape).bytes)) for run in self.observations
        )
        return sorted(pairs, key=lambda pair: pair[1])

    @cached_property
    def _outgrown(self) -> float:
        """The largest excess, with a margin, where the model's bound did not cover all runs; else 0."""
        covered = all(run.bytes <= self.model.predict(run.shape).upper for run in self.observations)
        return 0.0 if covered else self._excesses[-1][1] + LEAST


def tighten(model: Predictor, observations: list[Observation]) -> Predictor:
    """Return the model, held to what chunks needed once their process was warm."""
    warm = tuple(run for run in observations if not run.first)
    return ObservedModel(model, warm) if warm else model
