"""The shots of an inversion, wherever they are computed: `InversionShots` is all that a search knows of them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from forebay.errors import WaveError
from forebay.wave.earth.arrays import on_host
from forebay.wave.gradient import Gradient, Misfit, gradient
from forebay.wave.inversion.ledger import EvaluationLedger, Kept
from forebay.wave.inversion.light import light_of
from forebay.wave.inversion.sources import Spectra, spectra_of, wavelets_from
from forebay.wave.inversion.unknowns import arrays_of
from forebay.wave.simulate import simulate
from forebay.wave.survey.shot import Shot

MISFIT, DONE = "misfit", "shots done"
"""Names of what is kept of an evaluation beside derivatives."""


class InversionShots(Protocol):
    """Shots up to a frequency, with their data, and how they are compared."""

    def __len__(self) -> int:
        """Return how many there are."""

    def only(self, numbers: Sequence[int]) -> "InversionShots":
        """Return some of them, by their numbers."""

    def with_wavelets_found(self, model: Any, name: str, *, each: bool) -> "InversionShots":
        """Return them with wavelets found from their data in a model: one filter for all, or for `each`."""

    def light(self, model: Any, name: str) -> NDArray[np.float64]:
        """Return the light that they cast in a model."""

    def evaluate(self, model: Any, name: str, of: str) -> Kept:
        """Return the sum of misfits in a model, and of derivatives by array, added up in the shots' order."""

    def wavelets(self) -> Kept:
        """Return what each shot sends, by `wavelet_of`."""


@dataclass(frozen=True, eq=False)
class ShotsHere:
    """Shots in memory, computed by this process one group after the other."""

    shots: list[Shot]
    misfit: Misfit
    together: int
    """shots that advance at once"""
    stepping: dict[str, Any]
    """options of `simulate`"""
    reversal: dict[str, Any]
    """options of `forebay.reverse`"""
    ledger: EvaluationLedger

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.shots)

    def only(self, numbers: Sequence[int]) -> "ShotsHere":
        """Return some of them, by their numbers."""
        return replace(self, shots=[self.shots[number] for number in numbers])

    def with_wavelets_found(self, model: Any, name: str, *, each: bool) -> "ShotsHere":
        """Return them with wavelets found from their data in a model."""
        samples = max(shot.samples for shot in self.shots)
        spectra = [spectra_of(shot, simulate(shot, model, **self.stepping), samples) for shot in self.shots]
        return replace(self, shots=with_found(self.shots, spectra, each=each))

    def light(self, model: Any, name: str) -> NDArray[np.float64]:
        """Return the light that they cast in a model."""
        return light_of(self.shots, model, **self.stepping)

    def evaluate(self, model: Any, name: str, of: str) -> Kept:
        """Add up misfit and derivatives, group by group of shots; the sum so far is kept."""
        partly, names = f"{name}-partly", list(arrays_of(model))
        total = self.ledger.find(partly, of) or nothing_yet(model)
        while (done := int(total[DONE])) < len(self.shots):
            group = self.shots[done : done + self.together]
            for shot, owed in enumerate(self._gradients(group, model), done):
                add_shot(total, shot, owed.misfit, slopes_of(owed, names))
            if done + len(group) < len(self.shots):
                self.ledger.keep(partly, total, of)
        self.ledger.forget(partly)
        return total

    def _gradients(self, group: Sequence[Shot], model: Any) -> list[Gradient]:
        options = {"misfit": self.misfit, **self.stepping, **self.reversal}
        return gradient(group, model, **options) if len(group) > 1 else [gradient(group[0], model, **options)]

    def wavelets(self) -> Kept:
        """Return what each shot sends."""
        return {wavelet_of(number): np.asarray(shot.wavelet) for number, shot in enumerate(self.shots)}


def nothing_yet(model: Any) -> Kept:
    """Return sums of no shot."""
    zeros = {name: np.zeros(model.grid.shape) for name in arrays_of(model)}
    return {MISFIT: np.zeros(()), DONE: np.zeros(())} | zeros


def slopes_of(owed: Gradient, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Return the derivatives of a shot by array, on the host."""
    slopes = owed.gradient if isinstance(owed.gradient, dict) else {names[0]: owed.gradient}
    return {name: on_host(slopes[name]) for name in names}


def add_shot(
    total: Kept, shot: int, misfit: float, slopes: dict[str, NDArray[Any]], box: tuple[slice, ...] | None = None
) -> None:
    """Add what one shot tells to sums, in its part of the model; refuse a misfit that is no number."""
    if not math.isfinite(misfit):
        raise WaveError(f"the misfit of shot {shot} is {misfit}: look at its data, or leave it out")
    total[MISFIT] = total[MISFIT] + misfit
    for name, slope in slopes.items():
        total[name][... if box is None else box] += slope
    total[DONE] = total[DONE] + 1


def with_found(shots: Sequence[Shot], spectra: Sequence[Spectra], *, each: bool) -> list[Shot]:
    """Return shots with the wavelets that spectra tell."""
    found = wavelets_from([np.asarray(shot.wavelet) for shot in shots], spectra, each=each)
    return [replace(shot, wavelet=wavelet) for shot, wavelet in zip(shots, found, strict=True)]


def wavelet_of(shot: int) -> str:
    """Name what is kept of a shot's wavelet."""
    return f"wavelet {shot}"
