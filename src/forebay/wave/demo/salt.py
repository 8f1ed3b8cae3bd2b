"""A line of shots over a salt body: what the demo migrates."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from forebay.wave.earth.grid import Grid
from forebay.wave.earth.model import AcousticModel
from forebay.wave.job.checks import checked_inputs
from forebay.wave.job.inputs import medium_of
from forebay.wave.job.job import Job, parse
from forebay.wave.migrate import migrate
from forebay.wave.simulate import simulate
from forebay.wave.survey.geometry import Geometry
from forebay.wave.survey.shot import Shot
from forebay.wave.survey.traces import mute
from forebay.wave.survey.wavelet import ricker

JOB = """\
# A salt body in sediments, in two dimensions: 13.5 km wide and 6.2 km deep. Shots are modelled with the true velocity
# and migrated with a smoothed one.

[model]
name = "salt"
shape = [217, 473]
smooth = 100.0            # metres

[geometry]
shots = 6
source_depth = 30.0
receiver_depth = 30.0
receiver_spacing = 60.0

[data]
dt = 0.005                # seconds
length = 5.5
mute_velocity = 1500.0    # the direct wave in the water

[wavelet]
frequency = 4.9           # Hz

[imaging]
mute = 900.0              # metres at the top, between the sources

[memory]                  # for the history of a shot's wave
host = "8.25MB"           # a tenth of what it takes to keep all of it

[output]
directory = "rtm"
formats = ["npy", "png"]
"""


@dataclass(frozen=True, eq=False)
class RecordedLine:
    """Shots with their data, and what they travel through."""

    job: Job
    grid: Grid
    true: Any
    """the model that sent the data"""
    smooth: Any
    """the model that is migrated through"""
    geometry: Geometry
    shots: list[Shot]
    step: float
    """seconds"""
    steps: int
    """of one way through a shot"""
    every: int
    """steps between two contributions to the image"""

    @property
    def history(self) -> int:
        """Bytes of all that the image of a shot needs of its wave."""
        return int(np.prod(self.grid.shape)) * 4 * -(-self.steps // self.every)

    @property
    def options(self) -> dict[str, Any]:
        """What all migrations of a shot are told."""
        return {"dt": self.step, "every": self.every, "order": self.job.physics.order}


def record(text: str, folder: Path, tell: Callable[[int], object]) -> RecordedLine:
    """Model what the receivers of a job hear, shot by shot; `tell` hears the number of each before it begins."""
    job = parse(text, folder)
    inputs = checked_inputs(job)
    geometry, grid = inputs.acquisition.geometry, inputs.grid
    true, smooth = (medium_of(job, inputs.media[name], grid) for name in ("true", "model"))
    shots = []
    for number in range(geometry.count):
        tell(number)
        receivers = geometry.receivers_of(number)
        shot = Shot(geometry.sources[number], receivers, inputs.wavelet.values, dt=inputs.acquisition.dt)
        data = simulate(shot, true, dt=inputs.step, order=job.physics.order)
        if job.data.mute_velocity is not None:
            data = mute(data, shot, job.data.mute_velocity)
        shots.append(shot.with_data(data))
    return RecordedLine(job, grid, true, smooth, geometry, shots, inputs.step, inputs.steps, inputs.every)


def warm_up(codec: str) -> None:
    """Model and migrate a shot of a few steps: everything is compiled that the demo needs, and kept for later runs."""
    grid = Grid((40, 60), spacing=20.0, absorb=20)
    model = AcousticModel(np.full(grid.shape, 2000.0, np.float32), grid)
    receivers = np.stack([np.full(30, 40.0), np.arange(30) * 40.0], axis=1)
    shot = Shot(np.array([40.0, 600.0]), receivers, ricker(8.0, 0.005, 80), dt=0.005)
    data = mute(simulate(shot, model), shot, 1500.0)
    record_bytes = 4 * 40 * 60
    migrate(shot.with_data(data), model, budget=f"{400 * record_bytes}B", codec=codec)
    migrate(shot.with_data(data), model, budget=f"{60 * record_bytes}B")
