"""The first shots of a new job: a GPU models their data from memory, while the model is still written."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.tasks import ThreadTask, Workers
from forebay.wave.job.checks import CheckedInputs
from forebay.wave.job.inputs import Fields
from forebay.wave.job.place import stream_apart
from forebay.wave.job.work import ShotInputs, inputs_of
from forebay.wave.job.workspace import Workspace
from forebay.wave.job.workspace.description import Description
from forebay.wave.survey.geometry import Box, Geometry

FIRST = 2
"""Shots that are modelled before there is a plan, side by side: the host's part of one beside the GPU's of another."""


@dataclass(frozen=True, kw_only=True)
class Unwritten(Workspace):
    """A new job of which nothing is written yet: what its shots need is in memory."""

    says: Description
    made: CheckedInputs

    @cached_property
    def described(self) -> Description:
        """What it says of its job."""
        return self.says

    @cached_property
    def geometry(self) -> Geometry:
        """Where the shots are."""
        return self.made.acquisition.geometry

    @cached_property
    def wavelet(self) -> NDArray[Any]:
        """What the sources send."""
        return self.made.wavelet.values

    def fields(self, medium: str, box: Box | None = None) -> Fields:
        """Copy a part of the "model" that is migrated through, or of the "true" one."""
        part = ... if box is None else box
        return {name: np.array(values[part], order="C") for name, values in self.made.media[medium].items()}


def is_modelled_first(described: Description) -> bool:
    """Tell whether a GPU models data of the first shot that need nothing of the disk, before it computes another.

    In two dimensions shots advance together, and of a job with a pilot another one comes first.
    """
    memory, alone = described.job.memory, described.device == "gpu" and described.grid.ndim == 3
    return alone and described.job.data.file is None and memory.image_error is None and not memory.checkpoint


def begin_first(unwritten: Unwritten, threads: Workers) -> Mapping[int, ThreadTask[ShotInputs]]:
    """Have threads read the first shots of a job and model their data, where a GPU can; return them by their numbers.

    On the GPU that takes what shots take for it at any time, and before anything is kept in the budget: who makes the
    plan waits for it.
    """
    if not is_modelled_first(unwritten.described) or unwritten.shot_files():
        return {}
    stream = stream_apart(unwritten.described.device, first=True)  # that of the shots themselves, whose memory it takes

    def read(shot: int) -> ShotInputs:
        with stream():
            return inputs_of(unwritten, shot, models=True)

    return {shot: threads.submit(read, shot) for shot in range(min(FIRST, unwritten.geometry.count))}
