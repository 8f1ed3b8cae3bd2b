"""The shots of a job as an inversion sees them: passes over them, here or on a cluster, kept until added up."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from forebay.errors import CorruptionError, WaveError
from forebay.files import remove
from forebay.wave.earth.arrays import on_host
from forebay.wave.inversion.ledger import EvaluationLedger, Kept
from forebay.wave.inversion.shots import MISFIT, add_shot, nothing_yet, wavelet_of
from forebay.wave.inversion.sources import low_pass, wavelets_from
from forebay.wave.inversion.unknowns import angles_of, arrays_of, names_of
from forebay.wave.job.begin import compute_shots, tell_notes
from forebay.wave.job.inversion.asked import DATA, SENT, PassRequest, asked_name
from forebay.wave.job.progress import ProgressBars
from forebay.wave.job.shots.kinds import kind_of
from forebay.wave.job.verify import damaged_shots
from forebay.wave.job.workspace import ShotWork, Workspace

if TYPE_CHECKING:  # Dask is optional
    from forebay.wave.job.shots.cluster import ShotCluster

LASTING = (DATA.name, "gathers-start", "gathers-found")
"""Passes whose shots are kept to the end."""
LAST = "last"
"""The name of what the last evaluation told of its shots."""


class LostPassError(CorruptionError):
    """What an earlier pass has left, and the next one needs, is not there any more."""


@dataclass(frozen=True, eq=False)
class ShotPasses:
    """Who makes passes over the shots of a job."""

    workspace: Workspace
    client: "ShotCluster | None"
    console: Console
    ledger: EvaluationLedger
    damage: list[str]
    """what was damaged, and is computed again"""

    def over(
        self, work: ShotWork, asked: PassRequest, shots: Sequence[int], needs: Sequence[ShotWork] = ()
    ) -> Workspace:
        """Do some work on shots, but for those of which it is done; return where what they gave is kept.

        What passes before it have left is removed, but for what lasts and what it `needs`.
        """
        if work != DATA:  # which comes first, before what an earlier run has left is gone on with
            self.sweep(work.name, *(need.name for need in needs))
        for need in needs:
            left = self.workspace.doing(need)
            if damage := damaged_shots(left):
                raise LostPassError(next(iter(damage.values())))
            if missing := set(shots) - left.finished():
                raise LostPassError(f"{left.path(min(missing))} is missing")
        workspace, name = self.workspace.doing(work), asked_name(work)
        if self.ledger.find(name, work.of) is None:
            self.ledger.keep(name, asked.kept(), work.of)
        for shot, sentence in damaged_shots(workspace).items():
            self.damage.append(f"{sentence}: it is computed again")
            tell_notes(self.console, self.damage[-1:])
            workspace.damaged.add(shot)
        todo = [shot for shot in shots if shot not in workspace.finished()]
        steps = kind_of(work).steps(workspace)
        with ProgressBars(self.console, len(shots), len(shots) - len(todo), steps, of=work.name) as bars:
            failed = compute_shots(workspace, self.client, todo, bars, self.console)
        if failed:
            shot, reason = next(iter(failed.items()))
            raise WaveError(
                f"{len(failed)} of {len(shots)} shots failed, first shot {shot}: {reason}. The others are kept: put "
                "that right, and give the same command"
            )
        return workspace

    def sweep(self, *names: str) -> None:
        """Remove what passes have left, but for what lasts and those of some names."""
        for folder in [path for path in (self.workspace.root / "shots").iterdir() if path.is_dir()]:
            if folder.name not in (*LASTING, *names):
                remove(folder)
                self.ledger.forget(f"{folder.name}-asked")

    def remember(self, over: Workspace, shots: Sequence[int], seconds: float) -> None:
        """Keep what the shots of a pass of reversals told, for the report; that of the pass before is forgotten."""
        told = [over.told(number) for number in shots]
        tiers = sorted({tier for shot in told for tier in shot["peak"]})
        figures = {key: np.array([shot[key] for shot in told]) for key in ("shot", "seconds", "reversal")}
        peaks = {f"peak {tier}": np.array([shot["peak"].get(tier, 0) for shot in told]) for tier in tiers}
        self.ledger.keep(LAST, figures | peaks | {"clock": np.array(seconds)}, "")


@dataclass(frozen=True, eq=False)
class ShotsOfJob:
    """Some shots of a job up to a frequency, as `InversionShots`."""

    passes: ShotPasses
    numbers: tuple[int, ...]
    limit: float | None
    sent: NDArray[Any] | None = None
    """wavelets that were found, a column for each shot of the job"""

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.numbers)

    def only(self, numbers: Sequence[int]) -> "ShotsOfJob":
        """Return some of them."""
        return replace(self, numbers=tuple(self.numbers[number] for number in numbers))

    def with_wavelets_found(self, model: Any, name: str, *, each: bool) -> "ShotsOfJob":
        """Return them with wavelets found from their data in a model."""
        asked = self._asked(model)

        def found() -> Kept:
            over = self.passes.over(ShotWork("sources", name, asked.checksum), asked, self.numbers)
            spectra = [tuple(over.arrays(number, "crossed", "power")) for number in self.numbers]
            wavelets = wavelets_from(self._wavelets(), spectra, each=each)  # type: ignore[arg-type]
            return {SENT: np.stack(wavelets, axis=1)}

        return replace(self, sent=self.passes.ledger.once(name, asked.checksum, found)[SENT])

    def light(self, model: Any, name: str) -> NDArray[np.float64]:
        """Return the light that they cast in a model, each in its part of it."""
        asked = self._asked(model)

        def added() -> Kept:
            over = self.passes.over(ShotWork("light", name, asked.checksum), asked, self.numbers)
            total = np.zeros(model.grid.shape)
            for number in self.numbers:
                total[over.boxes[number]] += over.arrays(number, "light")[0]
            return {"light": total}

        return self.passes.ledger.once(name, asked.checksum, added)["light"]

    def evaluate(self, model: Any, name: str, of: str) -> Kept:
        """Add up misfit and derivatives, in the order of the shots; remember what the evaluation took."""
        asked, names, total, start = self._asked(model), names_of(model), nothing_yet(model), perf_counter()
        over = self.passes.over(ShotWork("gradient", name, asked.checksum), asked, self.numbers)
        for number in self.numbers:
            misfit, *slopes = over.arrays(number, MISFIT, *names)
            add_shot(total, number, float(misfit), dict(zip(names, slopes, strict=True)), over.boxes[number])
        self.passes.remember(over, self.numbers, perf_counter() - start)
        return total

    def wavelets(self) -> Kept:
        """Return what each shot sends, where that was found."""
        if self.sent is None:
            return {}
        return {wavelet_of(number): self.sent[:, number] for number in self.numbers}

    def gathers(self, model: Any, name: str, shown: Sequence[int]) -> list[tuple[NDArray[Any], NDArray[Any]]]:
        """Return what the receivers of some shots hear in a model, and what they have heard."""
        asked = self._asked(model)
        over = self.passes.over(ShotWork("gathers", name, asked.checksum), asked, shown)
        return [tuple(over.arrays(number, "heard", "observed")) for number in shown]  # type: ignore[misc]

    def _asked(self, model: Any) -> PassRequest:
        arrays = {name: on_host(getattr(model, name)) for name in arrays_of(model)}
        return PassRequest(arrays | angles_of(model), model.max_vel, self.limit, self.sent)

    def _wavelets(self) -> list[NDArray[Any]]:
        """Return what each shot sends before any was found."""
        workspace = self.passes.workspace
        sent = np.reshape(workspace.wavelet, (len(workspace.wavelet), -1))
        sent = np.broadcast_to(sent, (len(sent), workspace.geometry.count))
        return [low_pass(sent[:, number], workspace.described.sampling, self.limit) for number in self.numbers]
