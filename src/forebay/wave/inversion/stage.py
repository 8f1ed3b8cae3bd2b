"""One search of an inversion: shots up to a frequency, and the way from one model to a better one."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.checksums import checksum_of, raw_bytes
from forebay.errors import WaveError, needs
from forebay.wave.earth.arrays import on_host
from forebay.wave.gradient import Gradient, Misfit, gradient
from forebay.wave.inversion.ledger import EvaluationLedger, Kept
from forebay.wave.inversion.light import light_of
from forebay.wave.inversion.sources import with_wavelets_of
from forebay.wave.inversion.unknowns import Arrays, Unknowns, arrays_of
from forebay.wave.simulate import simulate
from forebay.wave.survey.shot import Shot

TRIES, FEWEST_TRIES = 2, 10
"""Evaluations that an iteration may take, in the mean, and that a search may take: nearly all iterations take one."""
MISFIT, DONE = "misfit", "shots done"
"""Names of what is kept of an evaluation beside derivatives."""
MISFITS, EVALUATIONS = "misfits", "evaluations"
"""Names of what is kept of a stage beside the model's arrays."""
After = Callable[[Any, int, float], None]


@dataclass(frozen=True, eq=False)
class InversionStage:
    """The shots of a search, and how they are compared and computed."""

    name: str
    shots: list[Shot]
    misfit: Misfit
    together: int
    """shots that advance at once"""
    stepping: dict[str, Any]
    """options of `simulate`"""
    reversal: dict[str, Any]
    """options of `forebay.reverse`"""
    bounds: Mapping[str, tuple[float, float]]
    fixed: NDArray[np.bool_] | None
    smooth: float
    precondition: bool
    sources: bool | str
    """whether wavelets are estimated, of all shots or of "each\""""
    ledger: EvaluationLedger

    def run(self, model: Any, iterations: int, after: After) -> Kept:
        """Find a better model from one, and return its arrays with the misfits, evaluations and wavelets.

        `after` is given the model, the iteration and the misfit when each of them ends.
        """
        stage = self
        if self.sources:
            heard = [simulate(shot, model, **self.stepping) for shot in self.shots]
            stage = replace(self, shots=with_wavelets_of(self.shots, heard, each=self.sources == "each"))
        light = light_of(stage.shots, model, **self.stepping) if self.precondition else None
        unknowns = Unknowns(model, self.bounds, self.fixed, self.smooth, light)
        found, misfits, evaluations = stage.search(unknowns, iterations, after)
        wavelets = {wavelet_of(number): np.asarray(shot.wavelet) for number, shot in enumerate(stage.shots)}
        return {MISFITS: np.array(misfits), EVALUATIONS: np.array(evaluations)} | wavelets | arrays_of(found)

    def search(self, unknowns: Unknowns, iterations: int, after: After) -> tuple[Any, list[float], int]:
        """Go down by L-BFGS; return the model found, the misfit before and after each iteration, and evaluations."""
        try:
            from scipy.optimize import Bounds, minimize
        except ImportError as error:
            raise WaveError(needs("an inversion", "scipy", "wave")) from error
        begin, evaluations = np.zeros(unknowns.size), 1
        value, owed = self.evaluate(unknowns.model_at(begin), 0)
        misfits, unit = [value], unknowns.scale(owed)
        first: tuple[float, Arrays] | None = (value, owed)

        def objective(vector: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            nonlocal first, evaluations
            if first is None:
                told = self.evaluate(unknowns.model_at(vector), evaluations)
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

    def evaluate(self, model: Any, number: int) -> tuple[float, Arrays]:
        """Return the misfit of all shots in a model, and its derivatives; what is kept of it is not computed again."""
        of = checksum_of(raw_bytes(values) for values in arrays_of(model).values())
        name = f"{self.name}-evaluation-{number:05d}"
        kept = self.ledger.once(name, of, lambda: self._computed(model, f"{name}-partly", of))
        return float(kept[MISFIT]), {key: kept[key] for key in arrays_of(model)}

    def _computed(self, model: Any, partly: str, of: str) -> Kept:
        """Add up misfit and derivatives, group by group of shots."""
        names = list(arrays_of(model))
        zeros = {MISFIT: np.zeros(()), DONE: np.zeros(())} | {name: np.zeros(model.grid.shape) for name in names}
        total = self.ledger.find(partly, of) or zeros
        while (done := int(total[DONE])) < len(self.shots):
            group = self.shots[done : done + self.together]
            for shot, owed in enumerate(self._gradients(group, model), done):
                if not math.isfinite(owed.misfit):
                    raise WaveError(f"the misfit of shot {shot} is {owed.misfit}: look at its data, or leave it out")
                slopes = owed.gradient if isinstance(owed.gradient, dict) else {names[0]: owed.gradient}
                total[MISFIT] = total[MISFIT] + owed.misfit
                for name in names:
                    total[name] += on_host(slopes[name])
            total[DONE] = np.asarray(done + len(group), np.float64)
            if done + len(group) < len(self.shots):
                self.ledger.keep(partly, total, of)
        self.ledger.forget(partly)
        return total

    def _gradients(self, group: Sequence[Shot], model: Any) -> list[Gradient]:
        options = {"misfit": self.misfit, **self.stepping, **self.reversal}
        return gradient(group, model, **options) if len(group) > 1 else [gradient(group[0], model, **options)]


def wavelet_of(shot: int) -> str:
    """Name what is kept of a shot's wavelet."""
    return f"wavelet {shot}"
