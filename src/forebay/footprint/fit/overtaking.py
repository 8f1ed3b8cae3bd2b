"""What leads where a set of terms does not: other stages of a function, told by the samples that lie above the set."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from forebay.footprint.fit.regression import Array, Data, Posterior, Rows, Sets, guesses, regress
from forebay.footprint.fit.stages import CLEAR, FEWEST

TRIED = 60
"""the sets that another stage is looked for beside"""
ANOTHER = 6.0
"""nats of doubt about another stage"""
PLAUSIBLE, KEPT = 4.0, 48
"""sets of terms within so many nats of the best take part in the bound, and so many at most"""
FEW = 3
"""samples that are too few for a constant beside a term"""
RARE = 3.0
"""nats of doubt up to which terms may be all that another stage needs"""


@dataclass(frozen=True)
class Others:
    """What leads where the plausible sets do not."""

    posterior: Posterior | None = None
    """of all stages that may, those first that the estimate is to know of"""
    leading: int = 0
    """how many those are"""
    excess: float = 0.0
    """bytes by which a sample lies above all of that, where larger ones do not"""
    ratio: float = 1.0
    """how many times larger the largest are than all of that"""


class Overtaking:
    """Other stages, looked for once for each choice of samples."""

    def __init__(self, data: Data, volumes: Array, groups: Sequence[tuple[Sets, Array]], least: float) -> None:
        self._data, self._volumes, self._groups, self._least = data, volumes, groups, least
        self._fitted: dict[bytes, Posterior | None] = {}

    def plausible(self, posterior: Posterior) -> Posterior:
        """Return the plausible sets, the best first: what another stage explains of the samples above a set counts."""
        gains = np.zeros(len(posterior.sets))
        for row in np.argsort(-posterior.scores, kind="stable")[:TRIED].tolist():
            above = self._above(posterior, row)
            if above.sum() > 1 and (stage := self._stage(above, posterior, row)) is not None:
                gains[row] = max(float(stage.chances.max() - guesses(self._data).sum()) - ANOTHER, 0.0)
        gained = replace(posterior, scores=posterior.scores + gains, chances=posterior.chances + gains)
        return gained.best(KEPT, PLAUSIBLE)

    def others(self, posterior: Posterior) -> Others:
        """Return what leads where plausible sets do not, and how far samples lie above what the best and it say."""
        parts = [self._beside(posterior, row) for row in range(len(posterior.sets))]
        leading = [part.only(np.array([0])) for part in parts[0]]
        stages = [*leading, *(part for beside in parts for part in beside)]
        joined = reduce(Posterior.and_also, stages) if stages else None
        peaks, known = self._data.peaks, self._data.columns[:, posterior.sets[0]] @ posterior.means[0]
        for stage in leading:
            known = np.maximum(known, stage.predict(self._data.columns)[0][0])
        higher = self._above(posterior, 0) & (peaks > known + 2 * CLEAR * self._wide(posterior, 0))
        passed = peaks < peaks[~higher].max()
        return Others(
            joined,
            len(leading),
            float((peaks - known)[higher & passed].max(initial=0.0)),
            float((peaks / np.maximum(known, 1.0))[higher & ~passed].max(initial=1.0)),
        )

    def _beside(self, posterior: Posterior, row: int) -> list[Posterior]:
        """List the stages that lead in the samples above a set: one for all of them, or else one for each."""
        above = self._above(posterior, row)
        stages = [self._stage(above, posterior, row)] if above.any() else []
        if stages == [None]:
            stages = [self._stage(alone, posterior, row) for alone in np.diag(above)[above]]
        return [stage.best(KEPT, PLAUSIBLE) for stage in stages if stage is not None]

    def _above(self, posterior: Posterior, row: int) -> Rows:
        """Return the samples that lie above a set, but for smaller ones: these go another way, which ends there."""
        means = self._data.columns[:, posterior.sets[row]] @ posterior.means[row]
        kept = posterior.kept[row]
        clear = self._data.peaks > means + CLEAR * self._wide(posterior, row)
        above: Rows = ~kept & clear & (self._volumes >= self._volumes[kept].min())
        return above

    def _stage(self, above: Rows, posterior: Posterior, row: int) -> Posterior | None:
        """Return what follows these samples, and lies nowhere above what the set explains; None where nothing does."""
        key = above.tobytes()
        if key not in self._fitted:
            self._fitted[key] = self._fit(above)
        fitted = self._fitted[key]
        if fitted is None:
            return None
        off = (fitted.predict(self._data.columns)[0] - self._data.peaks) / self._wide(posterior, row)
        lowest = np.where(above, -2 * CLEAR, -np.inf)
        sound: Rows = np.all((lowest <= off) & (off <= 2 * CLEAR), axis=1)
        return fitted.only(sound) if sound.any() else None

    def _wide(self, posterior: Posterior, row: int) -> Array:
        """Return how far samples may lie off a set."""
        return np.asarray(max(float(posterior.rates[row] / posterior.shapes[row]), 1.0) ** 0.5 * self._data.noise)

    def _fit(self, above: Rows) -> Posterior | None:
        """Return sets of terms that follow samples: as many terms as those can tell, and no rare ones."""
        count, data = int(above.sum()), self._data
        if count < FEW:
            data = replace(data, scales=np.concatenate([[1.0], data.scales[1:]]))
        parts = []
        for sets, doubts in self._groups[: 2 if count < FEWEST else 3]:
            plain = doubts <= RARE
            kept = np.repeat(above[None, :], plain.sum(), axis=0)
            parts.append(regress(data, sets[plain], doubts[plain], kept)[0])
        joined = reduce(Posterior.and_also, parts)
        possible = np.isfinite(joined.chances) & (joined.means[:, 0] >= self._least)
        return joined.only(possible) if possible.any() else None
