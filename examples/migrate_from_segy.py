"""A survey as it comes: velocity and shots in SEG-Y files, migrated by a job that names them.

The files are made here, by modelling; with your own, begin at the job. Needs ``forebay[wave]``.

Run ``python examples/migrate_from_segy.py [FOLDER]``.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

from forebay import wave
from forebay.wave.earth.builtin import make
from forebay.wave.earth.smoothing import smooth
from forebay.wave.files.formats import write_field, write_shots
from forebay.wave.job import parse, run_job
from forebay.wave.job.results import write_image
from forebay.wave.survey.geometry import spread

JOB = """
[model]
velocity = "velocity.segy"
[data]
file = "shots.segy"
mute_velocity = 1500.0
[wavelet]
frequency = 5.0
[memory]
host = "8MB"
[output]
directory = "image"
"""


def record(folder):
    """Model four shots over layers, and write them and a smooth velocity as SEG-Y."""
    true = make("layers", shape=(96, 192))
    grid = wave.Grid(true.values.shape, true.spacing)
    geometry = spread(grid, 4, source_depth=25.0, receiver_depth=25.0, receiver_spacing=50.0)
    wavelet = wave.ricker(5.0, 0.004, 500)
    gathers = [
        wave.simulate(
            wave.Shot(geometry.sources[shot], geometry.receivers_of(shot), wavelet, 0.004),
            wave.AcousticModel(true.values, grid),
        )
        for shot in range(geometry.count)
    ]
    write_shots(folder / "shots.segy", geometry, gathers, 0.004)
    write_field(folder / "velocity.segy", smooth(true.values, true.spacing, 75.0), true.spacing, true.origin)


def main(folder):
    """Record, migrate, and write the image."""
    record(folder)
    survey = run_job(parse(JOB, folder))
    written = write_image(survey, folder / "image", ["npy", "segy", "png"])
    strongest = np.abs(survey.image).mean(axis=1)[20:].argmax() + 20
    depth = strongest * survey.workspace.described.grid.spacing[0]
    print(f"{len(survey.summaries)} shots; most is reflected near {depth:.0f} m")
    print("wrote", ", ".join(path.name for path in written))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
