"""Layers around an elastic model let waves go as if it went on, at every angle, and for ever."""

import numpy as np
import pytest
from tests.wave.elastic_setups import uniform

from forebay.wave import Elastic, ElasticModel, Grid, Shot, largest_dt, ricker, simulate

SHAPE = (31, 61)
MORE = 60
"""Points that are added on every side of a model: from there nothing comes back in time."""


def layered(more, absorb):
    """Make three layers of rock with a fault, which go on as they are outside."""
    z, x = np.meshgrid(*(np.arange(points) for points in SHAPE), indexing="ij")
    vp = np.where(z + 6 * (x > 30) > 19, 3500.0, np.where(z > 9, 2500.0, 2000.0))
    grid = Grid(np.add(SHAPE, 2 * more), 10.0, -10.0 * more, absorb=absorb)
    return ElasticModel(*(np.pad(values, more, mode="edge") for values in (vp, vp / 1.8, 310 * vp**0.25)), grid)


def heard(model, sends, frequency=10.0, samples=200):
    """Hear pressure and velocities all along two sides of a model, of a source two points below its edge."""
    places = [(20.0, x) for x in np.linspace(0.0, 600.0, 9)] + [(z, 583.0) for z in np.linspace(50.0, 300.0, 4)]
    hears = [kind for kind in ("pressure", "velocity z", "velocity x") for _ in places]
    shot = Shot((20.0, 240.0), places * 3, ricker(frequency, 0.002, samples), 0.002, sends=sends, hears=hears)
    return np.split(simulate(shot, model, dt=0.001), 3, axis=1)


@pytest.mark.slow
@pytest.mark.parametrize("sends", [pytest.param("explosion", marks=pytest.mark.slow), "force z"])
def test_twenty_points_change_data_by_less_than_a_thousandth(sends):
    exact = heard(layered(MORE, 40), sends)
    errors = {
        absorb: max(
            np.linalg.norm(ours - theirs) / np.linalg.norm(theirs)
            for ours, theirs in zip(heard(layered(0, absorb), sends), exact, strict=True)
        )
        for absorb in (10, 20)
    }
    assert errors[20] < 1e-3 and errors[20] < 0.1 * errors[10]


@pytest.mark.slow
def test_twenty_points_change_long_waves_in_long_records_as_little():
    exact, found = (heard(layered(more, 20), "force x", 3.0, 500) for more in (150, 0))
    for kinds in (slice(0, 1), slice(1, 3)):  # pressure, and the motion of particles
        ours, theirs = np.hstack(found[kinds]), np.hstack(exact[kinds])
        assert np.linalg.norm(ours - theirs) < 1e-3 * np.linalg.norm(theirs)


def test_a_cell_that_no_wave_reaches_changes_nothing():
    grid = Grid((31, 181), 10.0, absorb=20)
    model = uniform(grid)
    vp = model.vp.copy()
    vp[15, 175] *= 1.5
    shot = Shot((100.0, 200.0), [(20.0, 400.0)], ricker(12.0, 0.002, 200), 0.002, hears="velocity z")
    one, other = (
        simulate(shot, ElasticModel(values, model.vs, model.rho, grid), dt=0.001) for values in (model.vp, vp)
    )
    assert np.abs(one - other).max() < 1e-6 * np.abs(one).max()


def sea(grid):
    """Make water above mud, in which shear waves are eight times slower than pressure waves, above rock."""
    depth = np.arange(grid.shape[0])[:, None] + np.zeros(grid.shape)
    values = ((1500.0, 1600.0, 3500.0), (0.0, 200.0, 1900.0), (1000.0, 1600.0, 2300.0))
    return ElasticModel(*(np.select([depth < 8, depth < 20], [*first], last) for *first, last in values), grid)


OPEN, FREE = {"absorb": 20}, {"absorb": 20, "free_surface": True}
RUNS = {
    "grazing": lambda: (uniform(Grid((16, 120), 10.0, **OPEN)), "force z", (75.0, 20.0), 10.0),
    "soft": lambda: (uniform(Grid((24, 40), 10.0, **FREE), vs=300.0), "force x", (0.0, 90.0), 2.0),
    "sea": lambda: (sea(Grid((30, 40), 10.0, **FREE)), "explosion", (40.0, 90.0), 2.0),
    "volume": lambda: (uniform(Grid((10, 12, 24), 10.0, **FREE)), "force y", (30.0, 50.0, 20.0), 10.0),
}
"""A model, what is sent, where, and its frequency."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("grazing", 4000),
        ("sea", 4000),
        *(pytest.param(name, 3000 if name == "volume" else 20_000, marks=pytest.mark.slow) for name in RUNS),
    ],
)
def test_waves_fade_in_long_runs(name, steps):
    model, sends, place, frequency = RUNS[name]()
    dt = 0.95 * largest_dt(model)
    propagator = Elastic(model, dt)
    source, sent = propagator.antenna(place, [sends]), np.zeros((steps, 1), np.float32)
    wavelet = ricker(frequency, dt, int(3 / frequency / dt))
    sent[: len(wavelet), 0] = wavelet * (1e-6 if sends == "explosion" else 1.0)
    state, loudness = propagator.zeros(), []
    for start in range(0, steps, 500):
        state = propagator.advance(state, source, sent, range(start, start + 500))
        loudness.append(max(np.abs(state[field]).max() for field in propagator.velocities))
    assert max(loudness[len(loudness) // 2 :]) < 0.1 * max(loudness)
    assert loudness[-1] < max(loudness[len(loudness) // 2 :]) * 1.01
