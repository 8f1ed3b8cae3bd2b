"""Operators, gathers, least-squares migration, inversion and autograd on a GPU, beside the same on a CPU."""

from dataclasses import replace

import numpy as np
import pytest
from tests.wave import inversion_setups
from tests.wave.density_setups import random_fluid
from tests.wave.elastic_setups import mixed_shot, random_rock
from tests.wave.setups import random_model, random_shot
from tests.wave.vti_setups import random_shale

from forebay.cuda.available import gpu_count
from forebay.wave import AcousticModel, Grid, Shot, WaveError, born, gathers, invert, jacobian, lsrtm, modelling, ricker
from forebay.wave.earth.arrays import on_host
from forebay.wave.inversion.unknowns import names_of

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(gpu_count() == 0, reason="no GPU")]

LIBRARIES = ["cupy", "torch"]
SHAPES = [(40, 47), (24, 25, 26)]


def on_gpu(values, library):
    """Return an array as one of a library, in the memory of a GPU."""
    array = pytest.importorskip(library).asarray(values)
    return array.cuda() if library == "torch" else array


def there(model, library):
    """Return a model whose arrays are in the memory of a GPU."""
    return replace(model, **{name: on_gpu(getattr(model, name), library) for name in names_of(model)})


def smooth(shape):
    """Return a model, a shot in it, and a change of it."""
    grid, rng = Grid(shape, 10.0, absorb=8), np.random.default_rng(3)
    model = AcousticModel(2000.0 + 50.0 * rng.random(shape), grid, max_vel=2400.0)
    middle = [5.0 * (extent - 1) for extent in shape[1:]]
    receivers = [(20.0, *(0.1 * place * end for end in grid.end[1:])) for place in range(10)]
    shot = Shot((20.0, *middle), receivers, ricker(18.0, 0.0015, 200), 0.0015)
    return model, shot, rng.standard_normal(shape)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_gpu_scatters_what_a_cpu_does(library, shape):
    model, shot, change = smooth(shape)
    expected, found = born(shot, model, change), born(shot, there(model, library), on_gpu(change, library))
    assert isinstance(found, np.ndarray) and np.abs(found - expected).max() < 1e-4 * np.abs(expected).max()


@pytest.mark.parametrize("shape", SHAPES)
def test_its_transpose_is_exact_within_rounding(shape):
    model, shot, _ = smooth(shape)
    derivative = jacobian(shot, there(model, "cupy"), budget="64MB")
    rng = np.random.default_rng(6)
    change, data = rng.standard_normal(derivative.shape[1]), rng.standard_normal(derivative.shape[0])
    assert data @ (derivative @ change) == pytest.approx((derivative.T @ data) @ change, rel=1e-4)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("make", [random_model, random_fluid, random_shale, random_rock])
def test_an_operator_of_what_is_sent_is_that_of_a_cpu(make, shape):
    model = make(shape)
    shot = (mixed_shot if make is random_rock else random_shot)(model, samples=60)
    sending, other = (modelling(shot, own, dt=shot.dt) for own in (model, there(model, "cupy")))
    rng, sizes = np.random.default_rng(4), np.where([kind == "pressure" for kind in shot.hears], 1e-6, 1.0)
    wavelet, data = rng.standard_normal(sending.shape[1]), rng.standard_normal((60, len(sizes))) * sizes
    for expected, found in (
        (sending @ wavelet, other @ wavelet),
        (sending.T @ data.ravel(), other.T @ data.ravel()),
    ):
        expected, found = expected.reshape(60, -1), found.reshape(60, -1)  # a column for each point
        assert (np.abs(found - expected).max(axis=0) < 1e-3 * np.abs(expected).max(axis=0)).all()


@pytest.mark.parametrize("library", LIBRARIES)
def test_images_are_gathered_as_on_a_cpu(library):
    model, shot, change = smooth(SHAPES[0])
    shot = shot.with_data(born(shot, model, change))
    expected, found = (gathers(shot, own, [0.0, 60.0, 200.0], budget="64MB") for own in (model, there(model, library)))
    for name in ("images", "illuminations", "scattered"):
        own, other = getattr(found, name), getattr(expected, name)
        assert type(own) is type(on_gpu(change, library))
        assert np.abs(on_host(own) - other).max() < 1e-3 * np.abs(other).max()
    assert np.abs(on_host(found.clean()) - expected.clean()).max() < 1e-3 * np.abs(expected.clean()).max()


def test_a_change_in_another_memory_is_refused():
    model, shot, change = smooth(SHAPES[0])
    with pytest.raises(WaveError, match="a change in another memory than the model's, which is cupy's"):
        born(shot, there(model, "cupy"), change)


@pytest.mark.parametrize("library", LIBRARIES)
def test_echoes_are_inverted_as_on_a_cpu(library):
    model, shot, change = smooth(SHAPES[0])
    echoes = shot.with_data(born(shot, model, change))
    expected, found = (lsrtm(echoes, own, iterations=3, budget="64MB") for own in (model, there(model, library)))
    assert type(found.change) is type(on_gpu(change, library))
    assert np.abs(on_host(found.change) - expected.change).max() < 1e-3 * np.abs(expected.change).max()
    assert found.residuals == pytest.approx(expected.residuals, rel=1e-3)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("together", [1, 3])
def test_an_inversion_comes_to_the_model_of_a_cpu(library, together):
    shots, options = inversion_setups.shots(), {"bounds": (1700.0, inversion_setups.FASTEST), "budget": "64MB"}
    options |= {"iterations": 2, "frequencies": (12.0, None), "together": together, "progress": False}
    expected = invert(shots, inversion_setups.start(), **options)
    start = there(inversion_setups.start(), library)
    found = invert(shots, start, **options)
    assert type(found.model.velocity) is type(start.velocity)
    for own, other in zip(found.misfits, expected.misfits, strict=True):
        assert own == pytest.approx(other, rel=1e-3)
    assert np.abs(on_host(found.model.velocity) - expected.model.velocity).max() < 1.0


def test_autograd_goes_through_waves_on_a_gpu():
    torch = pytest.importorskip("torch")
    from forebay.wave.torch import propagate

    shot, slopes = inversion_setups.shots(1)[0], []
    for device in ("cpu", "cuda"):
        velocity = torch.tensor(inversion_setups.start().velocity, device=device, requires_grad=True)
        data = propagate(velocity, inversion_setups.GRID, shot, max_vel=inversion_setups.FASTEST, budget="16MB")
        assert data.device == velocity.device and data.dtype == velocity.dtype
        (data - torch.tensor(shot.data, device=device)).square().sum().backward()
        assert velocity.grad.device == velocity.device
        slopes.append(velocity.grad.cpu().numpy())
    assert np.abs(slopes[1] - slopes[0]).max() < 1e-3 * np.abs(slopes[0]).max()
