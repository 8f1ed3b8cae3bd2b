"""The loops compute the stencil they promise, at every order and along every axis."""

import numpy as np
import pytest

from forebay.wave import AcousticModel, ElasticModel, Grid, ricker
from forebay.wave.acoustic.cpu import MANY, CpuKernels, correlate
from forebay.wave.acoustic.layers import AcousticLayers
from forebay.wave.kernels.stencil import second_derivative, symbol
from forebay.wave.physics import physics_of


@pytest.mark.parametrize("order", [2, 4, 8, 14])
def test_coefficients_differentiate_polynomials_exactly(order):
    coefficients, k = second_derivative(order), np.arange(1, order // 2 + 1)
    for power in range(0, order + 2, 2):
        total = coefficients[0] * (power == 0) + 2 * np.sum(coefficients[1:] * k.astype(float) ** power)
        assert total == pytest.approx(2.0 if power == 2 else 0.0, abs=1e-9 * float(k[-1]) ** power)


@pytest.mark.parametrize(
    ("shape", "order", "threads"),
    [
        ((24, 31), 2, "one"),
        ((24, 31), 6, "one"),
        ((260, 270), 8, "several"),
        ((14, 17, 21), 8, "one"),
        pytest.param((40, 42, 44), 8, "several", marks=pytest.mark.slow),  # three seconds of the compiler
    ],
)
def test_a_step_of_a_plane_wave(shape, order, threads):
    assert (np.prod(shape) >= MANY) == (threads == "several")
    radius, rng = order // 2, np.random.default_rng(order)
    kernels = CpuKernels(Grid(shape, 1.0), radius, np.dtype(np.float64))
    angles, weights = rng.uniform(0.3, 1.2, len(shape)), tuple(rng.uniform(0.5, 2.0, len(shape)))
    places = np.meshgrid(*(np.arange(n) for n in shape), indexing="ij")
    p = np.cos(sum(angle * place for angle, place in zip(angles, places, strict=True)))
    old, squared = rng.standard_normal((2, *shape))
    lap = p * sum(w * symbol(second_derivative(order), angle) for w, angle in zip(weights, angles, strict=True))
    expected = 2 * p - old + squared * lap

    new = old.copy()
    kernels.advance(p, new, squared, weights, AcousticLayers(()), None)

    inner = (slice(radius, -radius),) * len(shape)
    assert np.allclose(new[inner], expected[inner], rtol=1e-12, atol=1e-12)
    new[inner] = old[inner]
    assert np.array_equal(new, old)  # the halo is left alone


def test_a_record_that_is_read_only_is_of_no_other_type():
    kernels = CpuKernels(Grid((24, 31), 1.0), 4, np.dtype(np.float32))
    image, light, record = np.zeros((3, 24, 31), np.float32)
    field = np.ones((32, 39), np.float32)[4:-4, 4:-4]
    kernels.correlate(image, light, record, field, 1.0)
    compiled = set(correlate[False].signatures)
    record.flags.writeable = False
    kernels.correlate(image, light, record, field, 1.0)
    assert set(correlate[False].signatures) == compiled


@pytest.mark.parametrize("physics", ["acoustic", pytest.param("elastic", marks=pytest.mark.slow)])
def test_values_below_the_normal_ones_are_zero_and_only_in_the_loops(physics):
    speed, grid = np.full((40, 50), 2000.0), Grid((40, 50), 10.0)
    model = AcousticModel(speed, grid) if physics == "acoustic" else ElasticModel(speed, speed / 2, speed, grid)
    propagator = physics_of(model)(model, 0.002)
    state, source = propagator.zeros(), propagator.antenna([(200.0, 250.0)], ["explosion"])
    for value in ricker(20.0, 0.002, 60).astype(np.float32)[:, None]:
        state = propagator.step(state, source, value)

    least = np.finfo(np.float32).tiny
    for field in state.values():
        assert field.any()
        assert not np.any((field != 0) & (abs(field) < least))
    assert least * np.float32(0.5) > 0  # Python's thread goes on as it was
