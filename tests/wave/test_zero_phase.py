"""Images of zero phase: the picture of a step in velocity has its peak there, and the sign of the step."""

import numpy as np
import pytest
from tests.wave.job.jobs import job_text

from forebay.wave import AcousticModel, ElasticModel, Grid, Shot, migrate, ricker, simulate
from forebay.wave.job import parse, run_job

STEP = 40
"""The first row of the faster ground: the step lies half a row above."""

pytestmark = pytest.mark.filterwarnings("ignore::forebay.wave.WaveWarning")


def peak_of(column, first=15):
    """Return where a column is strongest below the first rows, between its points, and how strong."""
    row = first + int(np.abs(column[first:]).argmax())
    above, there, below = column[row - 1 : row + 2]
    return row + 0.5 * (above - below) / (above - 2 * there + below), there


def models(kind, below, shape):
    """Make a model with a step, and one without."""
    grid = Grid(shape, 10.0, absorb=12)
    for velocity in (below, 2000.0):
        vp = np.full(shape, 2000.0, np.float32)
        vp[STEP:] = velocity
        other = np.float32(1150.0) * np.ones_like(vp), np.full_like(vp, 2000.0)
        yield AcousticModel(vp, grid) if kind == "acoustic" else ElasticModel(vp, *other, grid)


@pytest.mark.parametrize(
    ("kind", "below", "shape"),
    [
        ("acoustic", 2500.0, (60, 70)),
        ("acoustic", 1700.0, (60, 70)),
        ("pp", 2500.0, (60, 70)),
        ("velocity", 2500.0, (60, 70)),
        # Receivers have to reach beyond the Fresnel zone of the step: with 48 points a side the peak lies 0.9 below it.
        pytest.param("acoustic", 2500.0, (56, 72, 72), marks=pytest.mark.slow),
    ],
)
def test_the_peak_is_at_the_step_and_has_its_sign(kind, below, shape):
    true, smooth = models(kind, below, shape)
    ends = [10.0 * points for points in shape[1:]]
    places = np.stack(np.meshgrid(*(np.arange(0, end, 10.0) for end in ends), indexing="ij"), -1).reshape(-1, len(ends))
    receivers = np.column_stack([np.full(len(places), 60.0), places])
    hears = "velocity z" if kind == "velocity" else "pressure"
    shot = Shot([60.0, *(end / 2 for end in ends)], receivers, ricker(10, 0.004, 150), 0.004, hears=hears)
    shot = shot.with_data(simulate(shot, true) - simulate(shot, smooth))
    images = ("velocity",) if kind == "velocity" else ("pp",)
    found = migrate(shot, smooth, images=images, zero_phase=True, budget="200MB")
    middle = tuple(points // 2 for points in shape[1:])
    place, height = peak_of(found.clean()[(slice(None), *middle)])
    assert abs(place - (STEP - 0.5)) < 0.6 and (height > 0) == (below > 2000)
    if kind == "acoustic" and len(shape) == 2:
        adjoint = migrate(shot, smooth, budget="200MB")
        assert abs(peak_of(adjoint.clean()[:, middle[0]])[0] - (STEP - 0.5)) > 1.2


def test_the_image_of_a_job_has_its_peak_there_on_request(tmp_path):
    velocity = np.full((60, 90), 2000.0, np.float32)
    np.save(tmp_path / "guess.npy", velocity)
    velocity[STEP:] = 2400.0
    np.save(tmp_path / "true.npy", velocity)
    tables = {
        "model": 'velocity = "guess.npy"\ntrue = "true.npy"\nspacing = 20.0',
        "geometry": "shots = 3\nsource_depth = 60.0\nreceiver_depth = 60.0\nreceiver_spacing = 40.0",
        "data": "dt = 0.004\nlength = 1.2\nmute_velocity = 2000.0",
        "wavelet": "frequency = 6.0",
        "imaging": "zero_phase = true",
        "memory": 'host = "50MB"',
    }
    image = run_job(parse(job_text(**tables), tmp_path)).image
    found = [peak_of(image[:, column], first=25) for column in (30, 45, 60)]
    assert all(abs(place - (STEP - 0.5)) < 0.6 and height > 0 for place, height in found)
