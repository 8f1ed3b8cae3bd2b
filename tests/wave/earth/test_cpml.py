"""The profiles of absorbing layers: where they stretch, how much they leave, and what they must not follow from."""

import numpy as np
import pytest

from forebay.wave import AcousticModel, ElasticModel, Grid, WaveError
from forebay.wave.earth.cpml import RETURN, stretching, stretchings


def test_layers_stretch_outside_of_the_model_only():
    grid = Grid((30, 40), (10.0, 5.0), absorb=20, free_surface=True)
    z, x = stretchings(grid, 0.001, 2000.0)
    assert not z.a[:30].any() and not z.half_a[:30].any() and not x.half_a[21:60].any()  # 9.5 lies in a layer
    assert (z.a[30:] < 0).all() and (z.half_a[30:] < 0).all() and ((x.b[:20] > 0) & (x.b[:20] < 1)).all()
    assert np.array_equal(x.a, x.a[::-1]) and np.array_equal(x.half_b, x.half_b[::-1])


def test_a_wave_of_the_velocity_they_are_made_for_leaves_what_is_promised():
    axis, dt, velocity, spacing = stretching(10, 400, 0, 1.0, 1e-7, 2000.0), 1e-7, 2000.0, 1.0
    sigma = -axis.a / (1 - axis.b) * -np.log(axis.b, where=axis.b > 0, out=np.zeros_like(axis.b)) / dt
    assert np.exp(-2 * np.nansum(sigma) * spacing / velocity) == pytest.approx(RETURN, rel=0.1)


def test_no_layers_stretch_nothing():
    axis = stretching(10, 0, 0, 1.0, 0.001, 2000.0)
    assert not axis.a.any() and not axis.half_a.any()


def test_one_cell_does_not_change_the_layers_and_a_largest_velocity_fixes_them():
    grid, plain = Grid((60, 70), 10.0), np.full((60, 70), 2000.0)
    spot = plain.copy()
    spot[50, 60] = 4500.0
    one, other = (AcousticModel(values, grid) for values in (plain, spot))
    assert one.layer_velocity == other.layer_velocity and one.fastest < other.fastest
    one, other = (ElasticModel(values, 0.5 * plain, plain, grid, max_vel=5000.0) for values in (plain, spot))
    assert one.fastest == other.fastest == one.layer_velocity == 5000.0
    for max_vel in (4499.0, np.inf, np.nan):
        with pytest.raises(WaveError, match=r"up to 4500 m/s: give that or more"):
            AcousticModel(spot, grid, max_vel=max_vel)
