"""One search of an inversion: shots up to a frequency, and the way from one model to a better one."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.checksums import checksum_of, raw_bytes
from forebay.errors import WaveError, needs
from forebay.wave.inversion.ledger import EvaluationLedger, Kept
from forebay.wave.inversion.shots import MISFIT, InversionShots
from forebay.wave.inversion.unknowns import Arrays, Unknowns, arrays_of, with_arrays

TRIES, FEWEST_TRIES = 2, 10
"""Evaluations that an iteration may take, in the mean, and that a search may take: nearly all iterations take one."""
MISFITS, EVALUATIONS = "misfits", "evaluations"
"""Names of what is kept of a stage beside the model's arrays."""
OF_BATCH = 3
"""Iterations with one draw of shots: L-BFGS learns from gradients of the same ones, and begins anew with others."""
After = Callable[[Any, int, float], None]


@dataclass(frozen=True)
class MiniBatches:
    """Shots drawn for a few iterations at a time."""

    size: int
    seed: int

    def draws(self, count: int, stage: int) -> Iterator[list[int]]:
        """Yield the numbers of shots of one draw after the other: no shot comes again before nearly all have come.

        Examples
        --------
        >>> draws = MiniBatches(2, seed=0).draws(5, stage=0)
        >>> [next(draws) for _ in range(3)]
        [[2, 4], [0, 3], [1, 4]]
        """
        rng = np.random.default_rng([self.seed, stage])
        while True:
            order = rng.permutation(count)
            for begin in range(0, max(count - self.size, 0) + 1, self.size):
                yield sorted(order[begin : begin + self.size].tolist())


@dataclass(frozen=True, eq=False)
class InversionStage:
    """The shots of a search, and how it looks for a better model."""

    number: int
    shots: InversionShots
    bounds: Mapping[str, tuple[float, float]]
    fixed: NDArray[np.bool_] | None
    smooth: float
    precondition: bool
    sources: bool | str
    """whether wavelets are estimated, of all shots or of "each\""""
    mini_batches: MiniBatches | None
    """how shots are drawn; None takes all of them"""
    ledger: EvaluationLedger

    @property
    def name(self) -> str:
        """Of what is kept of it."""
        return f"stage-{self.number}"

    def run(self, model: Any, iterations: int, after: After) -> Kept:
        """Find a better model from one, and return its arrays with the misfits, evaluations and wavelets.

        `after` is given the model, the iteration and the misfit when each of them ends.
        """
        shots = self.shots
        if self.sources:
            shots = shots.with_wavelets_found(model, f"{self.name}-sources", each=self.sources == "each")
        light = shots.light(model, f"{self.name}-light") if self.precondition else None
        outcome: Kept = {}
        evaluations = done = 0
        for search, (drawn, count) in enumerate(self._searches(shots, iterations)):
            unknowns = Unknowns(model, self.bounds, self.fixed, self.smooth, light)
            told = lambda now, iteration, misfit, done=done: after(now, done + iteration, misfit)  # noqa: E731
            model, misfits, evaluations = self.search(drawn, unknowns, count, evaluations, told)
            outcome[misfits_of(search)] = np.array(misfits)
            done += len(misfits) - 1
        return outcome | {EVALUATIONS: np.array(evaluations)} | shots.wavelets() | arrays_of(model)

    def _searches(self, shots: InversionShots, iterations: int) -> Iterator[tuple[InversionShots, int]]:
        """Yield the shots of each search, and its iterations."""
        if self.mini_batches is None or self.mini_batches.size >= len(shots):
            yield shots, iterations
            return
        draws = self.mini_batches.draws(len(shots), self.number)
        for begin in range(0, iterations, OF_BATCH):
            yield shots.only(next(draws)), min(OF_BATCH, iterations - begin)

    def search(
        self, shots: InversionShots, unknowns: Unknowns, iterations: int, before: int, after: After
    ) -> tuple[Any, list[float], int]:
        """Go down by L-BFGS, after so many evaluations `before`.

        Return the model found, the misfit before and after each iteration, and evaluations.
        """
        try:
            from scipy.optimize import Bounds, minimize
        except ImportError as error:
            raise WaveError(needs("an inversion", "scipy", "wave")) from error
        begin, evaluations = np.zeros(unknowns.size), before + 1
        value, owed = self.evaluate(shots, unknowns.model_at(begin), before)
        misfits, unit = [value], unknowns.scale(owed)
        first: tuple[float, Arrays] | None = (value, owed)

        def objective(vector: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            nonlocal first, evaluations
            if first is None:
                told = self.evaluate(shots, unknowns.model_at(vector), evaluations)
                evaluations += 1
            else:  # of where the search begins, which is known
                told, first = first, None
            return told[0] / unit, unknowns.slope(vector, told[1]) / unit

        def callback(intermediate_result: Any) -> None:
            misfits.append(intermediate_result.fun * unit)
            after(unknowns.model_at(intermediate_result.x), len(misfits) - 1, misfits[-1])

        limits = unknowns.bounds()
        found = minimize(
            objective,
            begin,
            jac=True,
            method="L-BFGS-B",
            bounds=None if limits is None else Bounds(*limits),
            callback=callback,
            options={
                "maxiter": iterations,
                "maxfun": max(FEWEST_TRIES, TRIES * iterations),
                "ftol": 1e-12,
                "gtol": 0.0,
            },
        )
        if len(misfits) <= iterations:
            self.ledger.notes.append(f"{self.name} ended after {len(misfits) - 1} iterations: {found.message}")
        return unknowns.model_at(found.x), misfits, evaluations

    def evaluate(self, shots: InversionShots, model: Any, number: int) -> tuple[float, Arrays]:
        """Return the misfit of shots in a model, and its derivatives; what is kept of it is not computed again."""
        of = checksum_of(raw_bytes(values) for values in arrays_of(model).values())
        name = f"{self.name}-evaluation-{number:05d}"
        kept = self.ledger.once(name, of, lambda: shots.evaluate(model, name, of))
        return float(kept[MISFIT]), {key: kept[key] for key in arrays_of(model)}


def misfits_of(search: int) -> str:
    """Name what is kept of the misfits of a stage's search."""
    return f"{MISFITS} {search}"


def searches_of(outcome: Kept) -> list[tuple[float, ...]]:
    """Return the misfits of each search of a stage: where it began, and after each iteration."""
    count = sum(name.startswith(f"{MISFITS} ") for name in outcome)
    return [tuple(map(float, outcome[misfits_of(search)])) for search in range(count)]


def run_stages(
    stages: Sequence[InversionStage], counts: Sequence[int], start: Any, ledger: EvaluationLedger, after: After
) -> tuple[Any, list[Kept]]:
    """Run one stage after the other, each from where the one before ended; return the model and all outcomes.

    What a stage has evaluated is removed when its outcome is kept.
    """
    found, outcomes, done = start, list[Kept](), 0
    for stage, count in zip(stages, counts, strict=True):
        told = lambda now, iteration, misfit, done=done: after(now, done + iteration, misfit)  # noqa: E731
        of = checksum_of(raw_bytes(values) for values in arrays_of(found).values())
        outcomes.append(ledger.once(stage.name, of, partial(stage.run, found, count, told)))
        ledger.forget(f"{stage.name}-*")
        found = with_arrays(found, {name: outcomes[-1][name] for name in arrays_of(found)})
        done += sum(len(misfits) - 1 for misfits in searches_of(outcomes[-1]))
    return found, outcomes
