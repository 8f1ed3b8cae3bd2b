"""In a homogeneous medium the pressure is known: our waves must be those."""

import numpy as np
import pytest

from forebay.wave import AcousticModel, Grid, Shot, ricker, simulate

SPEED = 2000.0


def in_space(wavelet, distance):
    """Delay and spread: the solution in three dimensions."""

    def pressure(time):
        return wavelet(time - distance / SPEED) / (4 * np.pi * distance)

    return pressure


def in_plane(wavelet, distance):
    """Add up the sources of a line that extends into the third dimension."""
    away = np.linspace(0, 6, 4001)

    def pressure(time):
        late = time[:, None] - distance / SPEED * np.cosh(away)
        return np.trapezoid(wavelet(late), away, axis=1) / (2 * np.pi)

    return pressure


def ricker_at(frequency):
    def wavelet(time):
        squared = (np.pi * frequency * (time - 1.5 / frequency)) ** 2
        return (1 - 2 * squared) * np.exp(-squared)

    return wavelet


PLANE, SPACE = Grid((71, 81), 10.0, absorb=20), Grid((34, 36, 38), 10.0, absorb=10)


@pytest.mark.parametrize(
    ("solution", "grid", "receivers", "frequency", "dt", "samples"),
    [
        (in_plane, PLANE, [(350.0, 603.0), (503.0, 222.0), (351.7, 100.9)], 14.0, 0.0005, 800),
        pytest.param(
            *(in_space, SPACE, [(173.0, 270.0, 190.0), (100.7, 102.3, 152.2)], 16.0, 0.001, 250), marks=pytest.mark.slow
        ),
    ],
    ids=["2-D", "3-D"],
)
def test_pressure_of_a_point_source(solution, grid, receivers, frequency, dt, samples):
    source = tuple(points // 2 * 10.0 + 3.3 for points in grid.shape)
    shot = Shot(source, receivers, ricker(frequency, dt, samples), dt)

    data = simulate(shot, AcousticModel(np.full(grid.shape, SPEED), grid))

    time = np.arange(samples) * dt
    for heard, receiver in zip(data.T, receivers, strict=True):
        exact = solution(ricker_at(frequency), np.linalg.norm(np.subtract(source, receiver)))(time)
        assert np.linalg.norm(heard - exact) < 0.01 * np.linalg.norm(exact)


def test_a_free_surface_is_a_source_above_it_with_the_other_sign():
    frequency, dt, samples = 14.0, 0.0005, 700
    grid = Grid((61, 81), spacing=10.0, absorb=20, free_surface=True)
    source, receiver = np.array([123.0, 400.0]), np.array([218.5, 207.0])
    shot = Shot(source, receiver, ricker(frequency, dt, samples), dt)

    heard = simulate(shot, AcousticModel(np.full(grid.shape, SPEED), grid))[:, 0]

    time = np.arange(samples) * dt
    direct, ghost = (
        in_plane(ricker_at(frequency), np.linalg.norm(where - receiver))(time) for where in (source, source * (-1, 1))
    )
    assert np.linalg.norm(heard - (direct - ghost)) < 0.01 * np.linalg.norm(direct - ghost)
    assert np.linalg.norm(heard - direct) > 0.3 * np.linalg.norm(direct)
