"""Sources and receivers between grid points, and traces between samples: accurate, and exactly transposed."""

import numpy as np
import pytest

from forebay.wave import Grid, Resampler, highest_frequency, ricker
from forebay.wave.kernels.points import gather, scatter
from forebay.wave.survey import points as survey_points
from forebay.wave.survey.points import locate

HALO = 4


def read(points, field, threads=False):
    out = np.zeros(points.count)
    gather[threads](field.reshape(-1), points.starts, points.cells, points.weights, out)
    return out


def write(points, shape, values, threads=False):
    field = np.zeros(shape)
    factors = np.ones(len(points.touched))
    scatter[threads](
        field.reshape(-1), points.touched, points.shares, points.sharers, points.share_weights, values, factors
    )
    return field


@pytest.mark.parametrize("shape", [(20, 24), (12, 14, 13)], ids=["2-D", "3-D"])
def test_waves_are_read_between_grid_points(shape):
    grid = Grid(shape, spacing=2.0, origin=1.0, absorb=6)
    rng = np.random.default_rng(0)
    positions = np.asarray(grid.origin) + rng.random((40, grid.ndim)) * (np.asarray(shape) - 1) * 2.0
    points = locate(positions, grid, HALO)
    number = 2 * np.pi / (5 * 2.0)  # five points a wavelength along each axis
    axes = [1.0 + 2.0 * (np.arange(n) - HALO - 6) for n in grid.fields(HALO)]
    field = np.sin(number * sum(np.meshgrid(*axes, indexing="ij")) + 0.3)
    assert np.abs(read(points, field) - np.sin(number * positions.sum(axis=1) + 0.3)).max() < 3e-3


@pytest.mark.parametrize("free_surface", [False, True])
def test_weights_are_ordered_by_point_and_cell_and_by_cell_and_point(free_surface):
    grid = Grid((30, 40), spacing=10.0, absorb=5, free_surface=free_surface)
    positions = np.random.default_rng(1).uniform((3.0, 0.0), (290.0, 390.0), (40, 2))
    points = locate(positions, grid, HALO)
    point = np.repeat(np.arange(points.count), np.diff(points.starts))
    cell = np.repeat(points.touched, np.diff(points.shares))
    order = np.lexsort((points.cells, point))
    assert np.array_equal(order, np.arange(len(order))) and len(set(zip(point, points.cells, strict=True))) == len(
        order
    )
    by_cell = np.lexsort((point, points.cells))
    assert np.array_equal(points.cells[by_cell], cell) and np.array_equal(points.sharers, point[by_cell])
    assert np.array_equal(points.share_weights, points.weights[by_cell])


def test_a_position_on_the_grid_is_one_point_of_it():
    grid = Grid((10, 10), spacing=10.0, absorb=5)
    points = locate([(30.0, 70.0 + 1e-7)], grid, HALO)
    assert points.weights.tolist() == [1.0]
    assert np.unravel_index(points.cells[0], grid.fields(HALO)) == (HALO + 5 + 3, HALO + 5 + 7)


@pytest.mark.parametrize("threads", [False, True], ids=["one thread", "several"])
@pytest.mark.parametrize("free_surface", [False, True], ids=["open", "free surface"])
def test_writing_is_the_transpose_of_reading(free_surface, threads):
    grid = Grid((10, 12), spacing=10.0, absorb=2, free_surface=free_surface)
    rng = np.random.default_rng(1)
    positions = 5.0 + rng.random((30, 2)) * 80  # so close together that they share cells
    points = locate(positions, grid, HALO)
    field, values = rng.standard_normal(grid.fields(HALO)), rng.standard_normal(30)
    written = write(points, field.shape, values, threads)
    assert np.vdot(read(points, field, threads), values) == pytest.approx(np.vdot(field, written))
    assert not written[:HALO].any()  # the halo is nobody's


def test_above_a_free_surface_a_window_is_mirrored_with_its_sign_changed():
    grid = Grid((10, 12), spacing=10.0, absorb=5, free_surface=True)
    depth = np.arange(-HALO, grid.fields(HALO)[0] - HALO) * 10.0
    odd = np.sin(2 * np.pi * depth / 60.0)[:, None] + np.zeros(grid.fields(HALO))
    below = odd.copy()
    below[:HALO] = np.nan  # not looked at
    points = locate([(4.0, 50.0), (13.0, 61.0)], grid, HALO)
    assert read(points, below) == pytest.approx(np.sin(2 * np.pi * np.array([4.0, 13.0]) / 60.0), abs=3e-3)


@pytest.mark.parametrize(("old", "new"), [((100, 0.004), (367, 0.0011)), ((367, 0.0011), (100, 0.004))])
def test_traces_keep_what_both_samplings_hold_and_the_transpose_is_exact(old, new):
    resampler = Resampler(*old, *new)
    time, new_time = np.arange(old[0]) * old[1], np.arange(new[0]) * new[1]

    def pulse(t):
        return np.exp(-(((t - 0.2) / 0.03) ** 2)) * np.cos(2 * np.pi * 60 * (t - 0.2))

    assert np.abs(resampler(pulse(time)[:, None])[:, 0] - pulse(new_time)).max() < 2e-3
    rng = np.random.default_rng(2)
    x, y = rng.standard_normal((old[0], 3)), rng.standard_normal((new[0], 3))
    assert np.vdot(resampler(x), y) == pytest.approx(np.vdot(x, resampler.transpose(y)), rel=1e-12)


def test_what_the_coarser_sampling_cannot_hold_is_left_out():
    resampler = Resampler(1000, 0.001, 250, 0.004)
    high = np.sin(2 * np.pi * 180 * np.arange(1000) * 0.001)[:, None]  # Nyquist is 125 Hz
    assert np.abs(resampler(high)[20:-20]).max() < 2e-3


def test_the_band_of_a_wavelet():
    assert highest_frequency(ricker(10.0, 0.001, 800), 0.001) == pytest.approx(27.6, rel=0.02)
    assert highest_frequency(ricker(20.0, 0.001, 800), 0.001) == pytest.approx(55.2, rel=0.02)
    assert highest_frequency(np.stack([ricker(5.0, 0.001, 800), ricker(20.0, 0.001, 800)], 1), 0.001) > 45
    assert highest_frequency(np.zeros(100), 0.001) == 0


def test_points_that_were_found_last_are_not_looked_for_again(monkeypatch):
    monkeypatch.setattr(survey_points, "_LOCATED", {})
    looked, real = [], survey_points._located
    monkeypatch.setattr(survey_points, "_located", lambda *asked: looked.append(asked) or real(*asked))
    grids = [Grid((20, 24), spacing=2.0, origin=float(start), absorb=6) for start in range(survey_points.KEPT)]
    places = np.array([[10.0, 20.0], [12.5, 21.0]])
    first = [locate(places, grid, HALO) for grid in grids]
    assert all(locate(places.copy(), grid, HALO) is points for grid, points in zip(grids, first, strict=True))
    assert len(looked) == len(grids)
    others = [
        (places + 1, grids[0], HALO, {}),
        (places, grids[0], HALO + 1, {}),
        (places, Grid((20, 24), 2.0), HALO, {}),
    ]
    others += [(places, grids[0], HALO, {"offset": (0.5, 0.0)}), (places, grids[0], HALO, {"mirrored": False})]
    for number, (*asked, options) in enumerate(others, len(grids) + 1):
        points = locate(*asked, **options)
        assert len(looked) == number and len(survey_points._LOCATED) == survey_points.KEPT
        again = real(*looked[-1])
        assert all((value == getattr(again, name)).all() for name, value in vars(points).items())
    assert locate(places, grids[0], HALO) is not first[0]  # the one that was kept longest makes room
    monkeypatch.setattr(survey_points, "LARGEST", 0)
    assert locate(places - 1, grids[1], HALO) is not locate(places - 1, grids[1], HALO)
