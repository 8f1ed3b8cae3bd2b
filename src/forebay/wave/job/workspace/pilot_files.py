"""What the pilot of a job leaves in its workspace: the bound that it found, and the exact images of its shots.

The images are in `pilot.npz`. The bound, and what it was found by, is in `pilot.json`: written last, so that what is
there is whole.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from forebay.files import sync
from forebay.wave.files.seal import arrays_in, damaged, open_archive, open_told, seal_archive, sealed_text
from forebay.wave.job.stack import PartialImage
from forebay.wave.job.workspace.told import ToldPilot
from forebay.wave.job.workspace.workspace import Workspace

FILES = ("pilot.npz", "pilot.json")


@dataclass(frozen=True)
class TriedOnShot:
    """What a bound did to the picture of a shot."""

    shot: int
    bound: float
    error: float
    ratio: float


@dataclass(frozen=True)
class PilotResult:
    """What the pilot of a job found."""

    codec: str | None
    """for all shots; None where their history is kept exactly"""
    tried: list[TriedOnShot]

    @property
    def shots(self) -> list[int]:
        """The shots that were migrated with an exact history."""
        return list(dict.fromkeys(entry.shot for entry in self.tried))

    def explain(self) -> list[str]:
        """Return a sentence for each shot, and one for what follows."""
        sentences = []
        for shot in self.shots:
            looked = [f"{entry.error:.2%} with {entry.bound:.2g}" for entry in self.tried if entry.shot == shot]
            sentences.append(f"the image of shot {shot} is off by {', '.join(looked)} of the range as a bound")
        exact = "no bound that is of use keeps images so close: histories are kept exactly"
        return [*sentences, exact if self.codec is None else f"{self.codec} keeps the image for all shots"]


def pilot_of(workspace: Workspace) -> PilotResult | None:
    """Return what the pilot found, once it has."""
    path = workspace.root / "pilot.json"
    told = open_told(path, ToldPilot, file="pilot", job=workspace.identity)
    if told is None:
        return None
    if any(entry[0] >= workspace.geometry.count for entry in told.tried):
        raise damaged(path, "it tells of shots that the job has not")
    return PilotResult(told.codec, [TriedOnShot(*entry) for entry in told.tried])


def exact_parts(workspace: Workspace, shots: list[int]) -> dict[int, PartialImage]:
    """Read the exact images of the pilot's shots; none where there are none."""
    path = workspace.root / "pilot.npz"
    if not path.exists():
        return {}
    open_archive(path, job=workspace.identity, file="pilot")
    parts = {}
    for shot in shots:
        box = workspace.boxes[shot]
        image, illumination = arrays_in(path, f"image{shot}", f"illumination{shot}")
        shape = tuple(side.stop - side.start for side in box)
        if (image.shape, illumination.shape) != (shape, shape) or not np.isfinite([image, illumination]).all():
            raise damaged(path, f"its images are not those of shot {shot}")
        parts[shot] = PartialImage(image, illumination, box)
    return parts


def keep_pilot(workspace: Workspace, found: PilotResult, parts: Mapping[int, PartialImage]) -> None:
    """Write what a pilot found, for the run to take."""
    arrays = {f"image{shot}": part.image for shot, part in parts.items()}
    arrays |= {f"illumination{shot}": part.illumination for shot, part in parts.items()}
    with workspace.draft("pilot.npz") as path:
        with path.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
        seal_archive(path, job=workspace.identity, file="pilot")
    told = {"codec": found.codec, "tried": [list(asdict(entry).values()) for entry in found.tried]}
    with workspace.draft("pilot.json") as path:
        path.write_text(sealed_text(told, file="pilot", job=workspace.identity))


def take_pilot(workspace: Workspace) -> None:
    """Take over what the pilot of this run found."""
    open_archive(workspace.drafts / "pilot.npz", job=workspace.identity, file="pilot")
    for name in FILES:
        place: Path = workspace.root / name
        (workspace.drafts / name).replace(place)
        sync(place.parent)
