"""In a homogeneous rock, velocities and pressure are known: our waves must be those."""

import numpy as np
import pytest
from tests.wave.elastic_setups import uniform

from forebay.wave import AcousticModel, Grid, Shot, ricker, simulate

VP, VS, RHO = 3000.0, 1700.0, 2200.0
FREQUENCY, DT = 16.0, 0.0008
PLANE, SPACE = Grid((91, 101), 10.0, absorb=30), Grid((34, 36, 38), 10.0, absorb=12)
SAMPLING = {2: (DT, 350), 3: (0.001, 208)}


class Wavelet:
    """A Ricker wavelet, its derivative and its integral."""

    def __init__(self):
        self.a, self.delay = (np.pi * FREQUENCY) ** 2, 1.5 / FREQUENCY

    def __call__(self, time):
        square = self.a * (time - self.delay) ** 2
        return (1 - 2 * square) * np.exp(-square)

    def derivative(self, time):
        late = time - self.delay
        return self.a * late * (4 * self.a * late**2 - 6) * np.exp(-self.a * late**2)

    def integral(self, time):
        late = time - self.delay
        return late * np.exp(-self.a * late**2)


def velocity_in_space(time, away, force, heard):
    """Return the particle velocity along one axis of a force along another (Aki and Richards, equation 4.23)."""
    wavelet, distance = Wavelet(), np.linalg.norm(away, axis=-1)
    cosines = away[..., force] * away[..., heard] / distance**2
    same = float(force == heard)
    early, late = distance / VP, distance / VS
    near = (
        early * wavelet(time - early)
        - late * wavelet(time - late)
        + wavelet.integral(time - early)
        - wavelet.integral(time - late)
    )
    return (
        (3 * cosines - same) / distance**3 * near
        + cosines / (VP**2 * distance) * wavelet.derivative(time - early)
        - (cosines - same) / (VS**2 * distance) * wavelet.derivative(time - late)
    ) / (4 * np.pi * RHO)


def velocity_in_plane(time, away, force, heard):
    """Add up the forces of a line that extends into the third dimension."""
    beyond = np.linspace(0.0, 2500.0, 5001)
    places = np.stack([*(np.full_like(beyond, one) for one in away), beyond], axis=-1)
    return np.array([2 * np.trapezoid(velocity_in_space(now, places, force, heard), beyond) for now in time])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("grid", "receivers", "solution", "forces"),
    [
        (PLANE, [(450.0, 703.0), (603.0, 322.0), (451.7, 250.9)], velocity_in_plane, "z"),
        pytest.param(
            *(PLANE, [(450.0, 703.0), (603.0, 322.0), (451.7, 250.9)], velocity_in_plane, "x"), marks=pytest.mark.slow
        ),
        pytest.param(
            *(SPACE, [(173.0, 270.0, 190.0), (80.7, 82.3, 152.2)], velocity_in_space, "zyx"), marks=pytest.mark.slow
        ),
    ],
    ids=["2-D z", "2-D x", "3-D all"],
)
def test_velocities_of_forces(grid, receivers, solution, forces):
    """Forces at one place add up; where volumes take long, all are of one run."""
    source, (dt, samples) = tuple(points // 2 * 10.0 + 3.3 for points in grid.shape), SAMPLING[grid.ndim]
    axes = "zx" if grid.ndim == 2 else "zyx"
    sends = [f"force {axis}" for axis in forces]
    hears = [f"velocity {axis}" for axis in axes for _ in receivers]
    sizes = np.arange(1.0, len(forces) + 1)
    sent = ricker(FREQUENCY, dt, samples)[:, None] * sizes
    shot = Shot([source] * len(forces), receivers * grid.ndim, sent, dt, sends=sends, hears=hears)

    data = simulate(shot, uniform(grid))

    every = slice(None, None, 3 if grid.ndim == 2 else 1)
    time = np.arange(samples)[every] * dt
    exact = np.stack(
        [
            sum(
                size * solution(time, np.subtract(receiver, source), axes.index(force), axes.index(axis))
                for size, force in zip(sizes, forces, strict=True)
            )
            for axis in axes
            for receiver in receivers
        ],
        axis=1,
    )
    assert np.linalg.norm(data[every] - exact) < 0.01 * np.linalg.norm(exact)
    loudest = np.linalg.norm(exact, axis=0).max()
    for heard, one in zip(data[every].T, exact.T, strict=True):
        assert np.linalg.norm(heard - one) < 0.03 * np.linalg.norm(one) + 0.003 * loudest


@pytest.mark.parametrize(
    ("grid", "receivers"),
    [
        (PLANE, [(450.0, 703.0), (603.0, 322.0)]),
        pytest.param(SPACE, [(173.0, 270.0, 190.0), (80.7, 82.3, 152.2)], marks=pytest.mark.slow),
    ],
    ids=["2-D", "3-D"],
)
def test_pressure_of_an_explosion(grid, receivers):
    source, (dt, samples) = tuple(points // 2 * 10.0 + 3.3 for points in grid.shape), SAMPLING[grid.ndim]
    shot = Shot(source, receivers, ricker(FREQUENCY, dt, samples), dt)

    data = simulate(shot, uniform(grid))

    # There is no shear: a potential travels as the pressure in a fluid would.
    bulk, time = RHO * (VP**2 - (2 - 2 / grid.ndim) * VS**2), np.arange(samples) * dt
    for heard, receiver in zip(data.T, receivers, strict=True):
        distance = np.linalg.norm(np.subtract(receiver, source))
        exact = bulk**2 / (RHO * VP**4) * pressure_in_fluid(time, distance, grid.ndim)
        assert np.linalg.norm(heard - exact) < 0.01 * np.linalg.norm(exact)


def pressure_in_fluid(time, distance, ndim):
    """Delay and spread in space; in the plane, add up the sources of a line."""
    if ndim == 3:
        return Wavelet()(time - distance / VP) / (4 * np.pi * distance)
    away = np.linspace(0, 6, 4001)
    return np.trapezoid(Wavelet()(time[:, None] - distance / VP * np.cosh(away)), away, axis=1) / (2 * np.pi)


def test_a_fluid_carries_the_acoustic_wave():
    grid = Grid((61, 81), 10.0, absorb=30, free_surface=True)
    shot = Shot((123.0, 400.0), [(218.5, 207.0), (14.0, 450.0)], ricker(FREQUENCY, DT, 300), DT)
    data = simulate(shot, uniform(grid, VP, 0.0, RHO))
    exact = RHO * simulate(shot, AcousticModel(np.full(grid.shape, VP), grid))
    assert np.linalg.norm(data - exact) < 0.02 * np.linalg.norm(exact)
    assert np.linalg.norm(exact[:, 0]) < 5 * np.linalg.norm(exact[:, 1])  # both have a say


def rayleigh_speed():
    """Find the root of the surface wave's equation."""
    ratio = np.linspace(0.8, 0.99, 200001)
    square, slow = ratio**2, (VS / VP) ** 2
    equation = (2 - square) ** 2 - 4 * np.sqrt(1 - square * slow) * np.sqrt(1 - square)
    return VS * ratio[np.abs(equation).argmin()]


@pytest.mark.slow
def test_a_wave_travels_along_a_free_surface_at_its_speed():
    grid = Grid((41, 221), 10.0, absorb=25, free_surface=True)
    near, far, dt = 900.0, 2000.0, 0.002
    receivers, hears = [(0.0, near), (0.0, far)], ["velocity z", "velocity z"]
    shot = Shot((0.0, 150.0), receivers, ricker(9.0, dt, 800), dt, sends="force z", hears=hears)
    one, other = simulate(shot, uniform(grid)).T
    lag = np.fft.irfft(np.conj(np.fft.rfft(one, 32000)) * np.fft.rfft(other, 32000), 320000).argmax() * dt / 10
    assert (far - near) / lag == pytest.approx(rayleigh_speed(), rel=0.005)
    assert np.abs(other).max() > 0.8 * np.abs(one).max()  # it does not spread


@pytest.mark.slow
def test_nothing_pushes_on_a_free_surface():
    """What a surface returns of a pressure wave from straight below is that wave, as velocities, doubled."""
    grid = Grid((61, 201), 10.0, absorb=30, free_surface=True)
    deep = Grid((161, 201), 10.0, (-1000.0, 0.0), absorb=30)
    shot = Shot(
        (500.0, 1000.0), [(0.0, 1000.0)], ricker(12.0, 0.001, 420), 0.001, sends="explosion", hears="velocity z"
    )
    surface, through = simulate(shot, uniform(grid)), simulate(shot, uniform(deep))
    assert np.linalg.norm(surface - 2 * through) < 0.06 * np.linalg.norm(surface)
