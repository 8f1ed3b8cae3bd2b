"""What a workspace says of its job: the parameters, what follows from them, and what makes it this job and no other."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from forebay.checksums import checksum_of
from forebay.codec.auto import choices
from forebay.version import __version__
from forebay.wave.earth.grid import Grid
from forebay.wave.files.seal import damaged, of_another_version, open_text, sealed_text
from forebay.wave.job.inputs import FIELDS
from forebay.wave.job.job import COMMANDS, Job
from forebay.wave.job.workspace.input_files import Mark, content_of, files_of, with_contents
from forebay.wave.job.workspace.told import ToldJob

FREE: Any = {"run": True, "output": True, "memory": {"directory"}, "imaging": {"include_outliers"}}
"""What may change between two runs of one job: it does not change the image of a shot."""
FREE_MEMORY = ("device", "host", "disk", "checkpoint")
"""What may change too, unless snapshots lose something: their plan then shows in the image."""


@dataclass(frozen=True)
class Description:
    """What a workspace says of its job."""

    job: Job
    """the parameters, as of the last run"""
    frozen: dict[str, Any]
    """those that decide the images of shots, see `frozen`"""
    grid: Grid
    """of the whole model"""
    sampling: float
    """seconds between samples of the data"""
    lead: int
    """samples of the wavelet before the time zero of the data"""
    step: float
    """seconds of a step: the same for all shots, whatever their part of the model"""
    every: int
    """steps from one contribution to an image to the next: the same for all shots, which share a plan"""
    device: str
    """where waves are computed, "cpu" or "gpu": for all shots the same, since both round differently"""
    notes: list[str]
    """what the job might do better"""
    inputs: dict[str, str]
    """the files of model, geometry and wavelet, and the checksum of each"""
    contents: str
    """a checksum of the arrays in them, however files are written"""
    marks: dict[str, Mark]
    """of the files that the last run read, by which its workers see that one is changed"""

    @property
    def identity(self) -> str:
        """What makes it this job, and what its shots carry.

        Parameters, version, grid, steps, device, the arrays of model, geometry and wavelet decide it, and all bytes of
        every file that is read, wherever it lies.
        """
        told = [self.frozen, asdict(self.grid), self.sampling, self.lead, self.step, self.device, self.contents]
        return checksum_of([json.dumps(told, sort_keys=True).encode()])

    def to_json(self) -> str:
        """Return the text of a job.json."""
        told = {**vars(self), "job": self.job.model_dump(mode="json"), "grid": asdict(self.grid)}
        return sealed_text(told, file="job")


def read_description(path: Path) -> Description:
    """Read a job.json, refusing one that is damaged, and one without a seal beside shots: of an earlier version."""
    if _unsealed(path) and any((path.parent / "shots").glob("[0-9]*.npz")):
        raise of_another_version(path)
    content = open_text(path, file="job")
    try:
        told = vars(ToldJob.model_validate(content))
        job, grid = Job.model_validate(content["job"]), Grid(**content["grid"])
    except (KeyError, ValueError, TypeError, AttributeError, OverflowError) as error:
        raise damaged(path, f"it describes no job ({type(error).__name__})") from error
    if not {"geometry.npz", "wavelet.npy", "model/velocity.npy"} <= told["inputs"].keys() <= set(written()):
        raise damaged(path, "it names other files than those of a job")
    return Description(job=job, grid=grid, **told)


def written() -> list[str]:
    """List what a job's directory has of its inputs."""
    fields = [f"{medium}/{name}.npy" for medium in ("model", "true") for name in FIELDS]
    return [*fields, "geometry.npz", "wavelet.npy"]


def _unsealed(path: Path) -> bool:
    """Tell whether a file is a JSON object that never had a seal."""
    try:
        content = json.loads(path.read_bytes()) if path.is_file() else None
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(content, dict) and "seal" not in content


def frozen(job: Job) -> dict[str, Any]:
    """Return the parameters that decide the image, with a checksum of the content in place of each file."""
    files_of(job)
    parameters = job.model_dump(exclude=FREE)
    for table in [name for name in COMMANDS if parameters[name] is None]:
        del parameters[table]  # as if there were none
    optional = ("epsilon", "delta", "tilt", "azimuth", "q", "q_frequency")
    for name in [name for name in optional if parameters["physics"][name] is None]:
        del parameters["physics"][name]  # likewise
    parameters["memory"]["checkpoint"] = job.memory.checkpoint or None  # as if it were not told
    for path in job.memory.weights:
        parameters["memory"]["codec"] = job.memory.codec_with(content_of(path))
    exact = job.memory.image_error is None and not any(codec.lossy for codec in choices(job.memory.codec)[0])
    if exact:
        parameters["memory"] = {key: value for key, value in parameters["memory"].items() if key not in FREE_MEMORY}
    return dict(json.loads(json.dumps(with_contents(parameters) | {"forebay": __version__})))


def differences(old: Any, new: Any, key: str = "") -> list[str]:
    """Name the keys in which two sets of parameters differ."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        keys = []
        for name in sorted(old.keys() | new.keys()):
            keys += differences(old.get(name), new.get(name), f"{key}.{name}".strip("."))
        return keys
    return [] if old == new else [key]
