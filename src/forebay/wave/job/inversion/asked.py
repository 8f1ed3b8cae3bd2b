"""What a pass over shots is asked, kept where all workers see it, and what is read of a shot before it is computed."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.checksums import checksum_of, raw_bytes
from forebay.wave.files.npy import load_arrays
from forebay.wave.files.seal import open_archive
from forebay.wave.inversion.sources import low_pass
from forebay.wave.inversion.unknowns import names_of, told_by
from forebay.wave.job.inputs import MODELS, beside_arrays
from forebay.wave.job.job import Job
from forebay.wave.job.place import putter
from forebay.wave.job.work import muted, recorded, shot_of
from forebay.wave.job.workspace import ShotWork, Workspace
from forebay.wave.survey.geometry import part_of
from forebay.wave.survey.shot import Shot
from forebay.wave.survey.traces import without_spoilt

FOLDER = "inversion"
"""In the directory of a job: what its passes are asked, and what came of them."""
DATA = ShotWork("data", "data")
"""The pass that models shots, once for all others."""
ARRAYS = {kind: tuple(names_of(model)) for kind, (model, _) in MODELS.items()}
"""Names of the arrays of a model, by the kind of its waves."""
OUTCOME = "outcome"
"""The name of what is kept of a least-squares migration that has ended."""
SENT, FASTEST, LIMIT = "sent", "fastest", "limit"
"""Names of what is asked beside the arrays of a model and what else belongs to a kind of pass."""


@dataclass(frozen=True, eq=False)
class PassRequest:
    """What a pass over shots is asked."""

    arrays: dict[str, NDArray[Any]]
    """of the model, and others that a kind of pass needs"""
    fastest: float
    """the velocity that step and layers are made for"""
    limit: float | None = None
    """Hz up to which wavelets and data are taken"""
    sent: NDArray[Any] | None = None
    """wavelets that were found, a column for each shot"""

    def kept(self) -> dict[str, NDArray[Any]]:
        """Return all of it as arrays by name."""
        told = {FASTEST: np.array(self.fastest), LIMIT: np.array(self.limit or 0.0)}
        return self.arrays | told | ({} if self.sent is None else {SENT: self.sent})

    @property
    def checksum(self) -> str:
        """A checksum of all of it."""
        kept = self.kept()
        words = repr([(name, kept[name].shape, str(kept[name].dtype)) for name in sorted(kept)])
        return checksum_of([words.encode(), *(raw_bytes(kept[name]) for name in sorted(kept))])


@dataclass(frozen=True, eq=False)
class PassInputs:
    """What is read of a shot for a pass."""

    shot: Shot
    """up to the frequency of the stage; without data where the pass is to model them"""
    weight: NDArray[Any] | None
    """of each sample in a comparison: 0 where nothing was recorded or is muted; None where all count"""
    asked: PassRequest


def asked_name(work: ShotWork) -> str:
    """Name the file of what a pass is asked, as the ledger does."""
    return f"{work.name}-asked"


def asked_of(workspace: Workspace) -> PassRequest:
    """Read what the pass of a workspace is asked."""
    name = asked_name(workspace.work)
    path = workspace.root / FOLDER / f"{name}.npz"
    open_archive(path, inversion=workspace.identity, what=name, of=workspace.work.of)
    with np.load(path) as archive:
        names = list(archive.files)
    arrays = dict(zip(names, load_arrays(path, *names), strict=True))
    fastest, limit, sent = float(arrays.pop(FASTEST)), float(arrays.pop(LIMIT)), arrays.pop(SENT, None)
    return PassRequest(arrays, fastest, limit or None, sent)


def arrays_asked(asked: PassRequest) -> list[str]:
    """Return the names of the model's arrays."""
    return [name for name in dict.fromkeys(sum(ARRAYS.values(), ())) if name in asked.arrays]


def model_asked(workspace: Workspace, number: int, asked: PassRequest) -> Any:
    """Return what the waves of a shot travel through, where they are computed."""
    described, box = workspace.described, workspace.boxes[number]
    kind, _ = MODELS[described.job.physics.kind]
    names = [name for name in told_by(kind) if name in asked.arrays]
    put, grid = putter(described.device), part_of(described.grid, box)
    arrays = {name: put(np.ascontiguousarray(asked.arrays[name][box])) for name in names}
    return kind(**arrays, grid=grid, max_vel=asked.fastest, **beside_arrays(described.job))


def inputs_asked(workspace: Workspace, number: int) -> PassInputs:
    """Read a shot and its data, both up to the frequency of the stage, and what of the data counts."""
    asked, sent = asked_of(workspace), shot_of(workspace, number)
    data, weight = _observed(workspace, number, sent)
    wavelet = low_pass(sent.wavelet, sent.dt, asked.limit) if asked.sent is None else asked.sent[:, number]
    shot = replace(sent, wavelet=wavelet, data=low_pass(data, sent.dt, asked.limit))
    return PassInputs(shot, weight, asked)


def _observed(workspace: Workspace, number: int, sent: Shot) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Return the data of a shot, and the weight of each sample."""
    described = workspace.described
    table, weight = described.job.data, np.ones((sent.samples, len(sent.receivers)), np.float32)
    if table.file is None:
        (data,) = data_modelled(workspace, number)
    else:
        read = recorded(workspace, number, sent)
        weight[: described.lead] = 0  # there nobody listened
        weight[:, ~np.isfinite(read).all(axis=0)] = 0
        data, _ = without_spoilt(read)
    weight = muted(workspace, weight, sent)
    return data, None if (weight == 1).all() else weight


def data_modelled(workspace: Workspace, number: int) -> list[NDArray[Any]]:
    """Read the data of a shot that was modelled."""
    return replace(workspace, work=DATA, damaged=set()).arrays(number, "data")


def weighted(values: NDArray[Any], weight: NDArray[Any] | None) -> NDArray[Any]:
    """Return what counts of traces."""
    return values if weight is None else values * weight


def has_ended(job: Job) -> bool:
    """Tell whether the search of a job is over."""
    last = OUTCOME if job.inversion is None else f"stage-{len(job.inversion.stages) - 1}"
    return (job.output.directory / FOLDER / f"{last}.npz").exists()
