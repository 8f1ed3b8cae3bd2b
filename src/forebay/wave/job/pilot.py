"""The pilot of a job: two shots with an exact history tell the bound that keeps pictures within an error."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.errors import WaveError
from forebay.units import Budget
from forebay.wave.earth.arrays import on_host
from forebay.wave.job.place import budget_of
from forebay.wave.job.shots.attempt import alone
from forebay.wave.job.stack import PartialImage, check_finite, finish
from forebay.wave.job.work import data_of, faded, model_of, options_of, shot_of
from forebay.wave.job.workspace import Workspace
from forebay.wave.job.workspace.pilot_files import PilotResult, TriedOnShot, exact_parts, keep_pilot
from forebay.wave.pilot import LADDER, SHARE, TriedBound, chosen_bound, codec_name, picture_error, try_bounds
from forebay.wave.survey.geometry import Box
from forebay.wave.survey.shot import Shot
from forebay.wave.survey.traces import without_spoilt

TIGHTER = 1 / 3
"""Of the bound that the second shot is looked at with: another, to know what lies between."""
MOST_CHECKS = 3
"""How often the second shot is migrated at most."""
IMAGES = 2 * len(LADDER) + 2
"""Arrays of an image's size that bounds take: an image and its illumination each, and a record as it comes back."""
BYTES = 4
"""of a number"""


@dataclass(frozen=True)
class ImageCheck:
    """How far images of the job are from exact ones, looked at when all shots are there."""

    errors: dict[int, float]
    """of the pictures of the pilot's shots, as the job has them"""
    stack: float
    """of the picture of all shots, if none changes it more than the pilot's do and all of them alike"""


def run_pilot(root: Path | str, run: str, budget: Budget | None = None, threads: int | None = None) -> None:
    """Find the bound, and write it for the run to take; parameters are those of `try_shot`."""
    workspace = Workspace(Path(root), run)
    with alone(threads):
        pilot = _Pilot(workspace, budget)
        codec = pilot.search()
        keep_pilot(workspace, PilotResult(codec, pilot.tried), pilot.parts)


class _Pilot:
    """What is known so far of pictures and bounds."""

    def __init__(self, workspace: Workspace, budget: Budget | None) -> None:
        self.workspace, self.budget = workspace, budget
        self.tried: list[TriedOnShot] = []
        self.parts: dict[int, PartialImage] = {}
        self.looked_at: set[int] = set()

    def search(self) -> str | None:
        """Return the codec whose bound keeps the pictures of two shots, or None where none does."""
        allowed = self.workspace.described.job.memory.image_error
        assert allowed is not None
        order = self.workspace.geometry.outwards()
        rows = self._try_first(order, [allowed * rung for rung in LADDER])
        if not rows:
            raise WaveError("memory.image_error: no shot has an image to find a bound by: look at the data")
        others = [shot for shot in order[::-1] if shot not in self.looked_at]
        bound = chosen_bound(rows, SHARE * allowed)
        for _ in range(MOST_CHECKS):
            rows = self._try_first(others, [bound, bound * TIGHTER]) if bound is not None else []
            if not rows or rows[0].error <= allowed:
                return None if bound is None else codec_name(bound)
            bound, others = chosen_bound(rows, SHARE * allowed), [self.tried[-1].shot]
            if bound is not None and rows[1].error <= allowed:
                return codec_name(bound)  # it lies between two that were looked at
        return None

    def _try_first(self, shots: Iterable[int], bounds: Sequence[float]) -> list[TriedBound]:
        """Try bounds on the first of some shots that has a picture; none has where nothing is returned."""
        for number in shots:
            self.looked_at.add(number)
            shot = self._with_data(number)
            if shot is not None and (rows := self._try(number, shot, bounds)):
                return rows
        return []

    def _with_data(self, number: int) -> Shot | None:
        """Return a shot, if its data can be read and tell something; the run tells what is wrong with it."""
        shot = shot_of(self.workspace, number)
        try:
            data, _ = without_spoilt(data_of(self.workspace, number, shot))
        except (WaveError, OSError):
            return None
        return shot.with_data(data) if np.any(data) else None

    def _try(self, number: int, shot: Shot, bounds: Sequence[float]) -> list[TriedBound]:
        workspace, box = self.workspace, self.workspace.boxes[number]

        def picture(image: Any, illumination: Any) -> NDArray[Any]:
            part = PartialImage(on_host(image), on_host(illumination), box)
            return picture_of(faded(part, workspace), workspace)

        described = workspace.described
        budget = budget_of(described.job, described.device, self._left(box))
        model, options = model_of(workspace, number, workspace.fields("model", box)), options_of(workspace)
        exact, rows = try_bounds(shot, model, bounds, picture, budget=budget, **options)
        part = PartialImage(on_host(exact.image), on_host(exact.illumination), box)
        try:
            check_finite(part, shot)
        except WaveError:
            return []
        if not part.strength or not all(math.isfinite(row.error) for row in rows):
            return []
        self.parts[number] = faded(part, workspace)
        self.tried += [TriedOnShot(number, row.bound, row.error, row.ratio) for row in rows]
        return rows

    def _left(self, box: Box) -> Budget | None:
        """Return what the budget that a worker was given leaves beside the images of bounds."""
        if self.budget is None or self.workspace.described.job.memory.budget is not None:
            return None
        images = IMAGES * math.prod(side.stop - side.start for side in box)
        return self.budget.with_tier("host", max(1, self.budget["host"] - BYTES * images))


def picture_of(part: PartialImage, workspace: Workspace) -> NDArray[Any]:
    """Make of one shot's image what the job makes of the sum."""
    described = workspace.described
    return finish(part.spread(described.grid.shape), described.grid, described.job.imaging.mute)


def check_images(workspace: Workspace, found: PilotResult, stack: PartialImage, summed: set[int]) -> ImageCheck | None:
    """Compare images of the job with exact ones, where both are there.

    Parameters
    ----------
    workspace, found
        Of the job, and what its pilot found.
    stack
        The sums on the whole model.
    summed
        The shots that were summed.
    """
    described = workspace.described
    grid, mute = described.grid, described.job.imaging.mute
    sums = PartialImage(stack.image.astype(np.float64), stack.illumination.astype(np.float64), stack.box)
    image, errors, shares = finish(sums, grid, mute), {}, []
    for shot, exact in exact_parts(workspace, found.shots).items():
        if shot not in summed:
            continue
        part = workspace.part(shot)
        errors[shot] = picture_error(picture_of(part, workspace), picture_of(exact, workspace))
        change = exact + PartialImage(-part.image, -part.illumination, part.box)
        shares.append(picture_error(image, finish(sums + change, grid, mute)))
    return ImageCheck(errors, len(summed) * max(shares)) if errors else None
