"""The GPU's loops of a standard linear solid against their CPU twins: on a GPU, and everywhere through an emulator."""

from dataclasses import replace

import numpy as np
import pytest
from tests.wave import twins
from tests.wave.emulator import GPP, Emulator
from tests.wave.setups import random_shot, surface_shot
from tests.wave.visco_setups import NAMES, random_clay, smooth_clay

from forebay.errors import DeviceError, WaveError
from forebay.wave import Adjoint, Loop, Visco, gradient, migrate, simulate
from forebay.wave.acoustic import gpu as acoustic_gpu
from forebay.wave.earth.arrays import on_host
from forebay.wave.kernels.variant import Variant
from forebay.wave.visco import gpu as visco_gpu
from forebay.wave.visco import propagator as visco

TOLERANCE = 2e-6
SHAPES = {"2-D": (25, 29), "3-D": (13, 15, 14)}
TWINS = [
    ("2-D", True, 8),
    *(
        pytest.param(*case, marks=pytest.mark.slow)
        for case in (("2-D", False, 8), ("2-D", True, 4), ("3-D", True, 8), ("3-D", False, 8), ("3-D", True, 4))
    ),
]
"""Axes, whether there is a free surface, and the order: another one compiles all loops of the CPU anew."""
SMALL = Variant(block=(8, 4), fixed_extents=False)


def moved(model, put):
    """Return a model whose arrays are elsewhere."""
    return replace(model, **{name: put(getattr(model, name)) for name in NAMES})


class Emulated:
    """Moves models to the emulator, whose launches are counted."""

    def __init__(self, monkeypatch):
        self.emulator, choose = Emulator(), visco.kernels_of

        def kernels(array, grid, radius, dtype, shots):
            if isinstance(array, twins.OnDevice):
                return visco_gpu.visco_kernels(grid, radius, dtype, shots, device=self.emulator, variant=SMALL)
            return choose(array, grid, radius, dtype, shots)

        monkeypatch.setattr(visco, "kernels_of", kernels)
        monkeypatch.setattr(acoustic_gpu, "THREADS", 32)  # each of which is started anew for every launch

    def __call__(self, model):
        return moved(model, lambda values: values.view(twins.OnDevice))


class Real:
    """Moves models to a GPU."""

    def __call__(self, model):
        import cupy

        return moved(model, cupy.asarray)


@pytest.fixture(params=twins.PLACES)
def there(request, monkeypatch):
    """Return what moves a model to where the kernels under test are."""
    return Emulated(monkeypatch) if request.param == "emulated" else Real()


agree = twins.agree


def run(model, shot, order):
    """Send noise through a model, and return what is heard, two fields, and the propagator."""
    loop = Loop(shot, Visco(model, 0.8 * shot.dt, order))
    values = np.random.default_rng(5).standard_normal(loop.sent.shape).astype(np.float32)
    loop.sent = loop.kernels.put(values)
    state = loop.forward(loop.propagator.zeros(), 0, loop.steps)
    return loop.kernels.get(loop.heard), *(loop.kernels.get(state[name]) for name in ("p", "lag")), loop.propagator


@pytest.mark.parametrize(("axes", "free_surface", "order"), TWINS)
def test_fields_and_what_is_heard_are_those_of_the_cpu(there, axes, free_surface, order):
    model = random_clay(SHAPES[axes], free_surface=free_surface)
    shot = random_shot(model, samples=40)
    expected, found = run(model, shot, order), run(there(model), shot, order)
    agree(found[0], expected[0], TOLERANCE)
    for field, twin in zip(found[1:3], expected[1:3], strict=True):
        agree(found[3].rows.cut(field), twin, TOLERANCE)


@pytest.mark.parametrize(
    ("axes", "free_surface"), [("2-D", True), pytest.param("3-D", True, marks=pytest.mark.slow)], ids=["2-D", "3-D"]
)
def test_dot_products_agree(there, axes, free_surface):
    model = there(random_clay(SHAPES[axes], free_surface=free_surface))
    shot = random_shot(model, samples=40)
    loop = Loop(shot, Visco(model, shot.dt))
    rng = np.random.default_rng(5)
    sent, weights = rng.standard_normal(loop.sent.shape).astype(np.float32), rng.standard_normal((shot.samples, 5))
    loop.sent = loop.kernels.put(sent)
    loop.forward(loop.propagator.zeros(), 0, loop.steps)
    heard, arrived = loop.data().astype(float), loop.kernels.get(Adjoint(loop, weights).at_sources()).astype(float)
    difference = abs(np.vdot(heard, weights) - np.vdot(sent, arrived))
    assert difference < 1e-5 * np.linalg.norm(heard) * np.linalg.norm(weights)


@pytest.mark.slow
def test_single_steps_are_those_of_a_run(there):
    model = there(random_clay(SHAPES["2-D"], free_surface=True))
    shot = random_shot(model, samples=9)
    heard, p, lag, propagator = run(model, shot, 8)
    kernels, again = propagator.kernels, Loop(shot, Visco(model, propagator.dt))
    again.sent = kernels.put(np.random.default_rng(5).standard_normal(again.sent.shape).astype(np.float32))
    state = propagator.zeros()
    for step in range(again.steps):
        state = propagator.step(state, again.sources, again.sent[step])
    assert np.array_equal(kernels.get(state["p"]), p) and np.array_equal(kernels.get(state["lag"]), lag)
    assert p.any() and lag.any() and heard.any()


@pytest.fixture(scope="module")
def seen():
    """Return a model and a shot with its data."""
    model = smooth_clay((40, 45), absorb=8)
    shot = surface_shot(model, samples=60)
    return model, shot.with_data(simulate(shot, replace(model, velocity=0.97 * model.velocity)))


@pytest.mark.slow
def test_images_are_those_of_the_cpu(there, seen):
    model, shot = seen
    expected, found = (migrate(shot, one, every=4, budget="64MB") for one in (model, there(model)))
    agree(found.image, expected.image, 1e-5)  # sums of products, and over all steps
    agree(found.illumination, expected.illumination, 1e-5)


@pytest.mark.slow
def test_budgets_change_no_bit(there, seen):
    model, shot = seen
    kept, tight = (gradient(shot, there(model), budget=budget) for budget in ("64MB", "500kB"))
    assert tight.result.plan.schedule.forward_steps > kept.result.plan.schedule.forward_steps
    for name in NAMES:
        assert np.array_equal(on_host(kept.gradient[name]), on_host(tight.gradient[name]))


@pytest.mark.slow
@pytest.mark.parametrize("free_surface", [False, True], ids=["open", "free surface"])
def test_gradients_are_those_of_the_cpu(there, free_surface):
    model = smooth_clay((30, 35), absorb=8, free_surface=free_surface)
    shot = surface_shot(model, samples=50)
    shot = shot.with_data(simulate(shot, replace(model, velocity=0.97 * model.velocity)))
    expected, found = (gradient(shot, one, budget="64MB") for one in (model, there(model)))
    agree(found.data, expected.data, 1e-5)
    for name in NAMES:
        agree(found.gradient[name], expected.gradient[name], 2e-5)


@pytest.mark.slow
def test_gradients_in_three_dimensions(there):
    model = random_clay((13, 14, 15), absorb=5)
    shot = random_shot(model, sources=1, samples=20, wavelet=np.hanning(20)[:, None])
    shot = replace(shot, dt=4 * shot.dt).with_data(np.random.default_rng(2).standard_normal((20, 5)))
    expected, found = (gradient(shot, one, budget="64MB", dt=shot.dt / 4) for one in (model, there(model)))
    agree(found.data, expected.data, TOLERANCE)
    for name in NAMES:
        agree(found.gradient[name], expected.gradient[name], 5e-5)  # single precision itself is as far from double


@pytest.mark.slow
def test_shots_together_have_the_bits_that_they_have_alone(there):
    soft = smooth_clay((24, 30), absorb=8)
    models = [there(soft), there(replace(soft, attenuation=0.5 * soft.attenuation, frequency=10.0))]
    shots = [surface_shot(soft, samples=60, frequency=frequency) for frequency in (12.0, 10.0)]
    for media in (models, [models[0]] * 2):
        alone = [simulate(shot, model, dt=0.001) for shot, model in zip(shots, media, strict=True)]
        assert all(np.array_equal(*pair) for pair in zip(simulate(shots, media, dt=0.001), alone, strict=True))
        heard = [shot.with_data(0.9 * own) for shot, own in zip(shots, alone, strict=True)]
        together = gradient(heard, media, budget="64MB", dt=0.001)
        for own, shot, model in zip(together, heard, media, strict=True):
            expected = gradient(shot, model, budget="64MB", dt=0.001).gradient
            assert all(np.array_equal(on_host(own.gradient[name]), on_host(expected[name])) for name in NAMES)


@pytest.mark.gpu
@pytest.mark.parametrize("library", ["cupy", "torch"])
def test_results_are_of_the_library_and_in_the_memory_of_the_model(library, seen):
    cupy, arrays = pytest.importorskip("cupy"), pytest.importorskip(library)
    model, shot = seen
    put = arrays.asarray if library == "cupy" else lambda values: arrays.asarray(values).cuda()
    there = moved(model, lambda values: put(values.astype(np.float32)))
    expected, found = (migrate(shot, own, every=5, budget="64MB") for own in (model, there))
    slopes = [gradient(shot, own, budget="64MB").gradient for own in (model, there)]
    for array in (found.image, found.illumination, found.clean(), *slopes[1].values()):
        assert type(array) is type(there.velocity) and cupy.asarray(array).device.id == 0
    agree(found.clean(), expected.clean(), 1e-4)
    for name in NAMES:
        agree(slopes[1][name], slopes[0][name], 2e-5)


@pytest.mark.skipif(GPP is None, reason="g++ is not installed")
def test_a_step_has_one_launch_more_than_an_acoustic_one(monkeypatch):
    model = random_clay(SHAPES["2-D"], free_surface=True)
    shot, there = random_shot(model, samples=8), Emulated(monkeypatch)
    loop = Loop(shot, Visco(there(model), shot.dt))
    loop.forward(loop.propagator.zeros(), 0, loop.steps)
    assert there.emulator.launches == ["relax", "change", "advance", "points"] * loop.steps


@pytest.mark.skipif(GPP is None, reason="g++ is not installed")
@pytest.mark.parametrize(("options", "reason"), [({"order": 10}, "at most 8"), ({"dtype": np.float64}, "float32")])
def test_what_only_the_cpu_can_is_refused(monkeypatch, options, reason):
    with pytest.raises(WaveError, match=reason):
        Visco(Emulated(monkeypatch)(random_clay((20, 20))), 1e-4, **options)


@pytest.mark.slow
def test_the_source_compiles():
    compile_only = pytest.importorskip("forebay.cuda.kernels").compile_only
    try:
        code = compile_only(visco_gpu.SOURCE, "sm_90", fmad=False)
    except DeviceError as error:
        pytest.skip(str(error))
    assert b"relax" in code and b"sense" in code
