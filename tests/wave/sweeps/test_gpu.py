"""The GPU's loops of density, VTI and TTI waves against their CPU twins: on a GPU, and everywhere through an emulator.

Both add in about the same order, but not to the last bit: fields agree to a few bits of their largest values.
"""

import re
from dataclasses import replace

import numpy as np
import pytest
from tests.wave import twins
from tests.wave.emulator import GPP, Emulator
from tests.wave.setups import random_shot, surface_shot
from tests.wave.sweeps_setups import KINDS, arrays_of, model_of, slower

from forebay.errors import DeviceError, WaveError
from forebay.wave import Grid, Loop, gradient, migrate, simulate
from forebay.wave.acoustic import gpu as acoustic_gpu
from forebay.wave.earth.arrays import on_host
from forebay.wave.kernels.variant import Variant
from forebay.wave.sweeps import gpu as sweeps_gpu

SHAPES = {"2-D": (25, 29), "3-D": (13, 15, 14)}
TWINS = [
    ("2-D", False, 8),
    *(
        pytest.param(*case, marks=pytest.mark.slow)
        for case in (
            ("3-D", True, 8),
            ("2-D", True, 8),
            ("3-D", False, 8),
            ("2-D", False, 4),
            ("2-D", True, 4),
            ("3-D", False, 4),
            ("3-D", True, 4),
        )
    ),
]
"""Axes, whether there is a free surface, and the order: another one compiles all loops of the CPU anew."""
SMALL = Variant(block=(32, 4), blocks=1, ahead=2)
IN_SHARED_MEMORY = [kind for kind in KINDS if (kind.kernels.folder / "volume.cu").exists()]
"""Kinds whose thread blocks share memory in three dimensions."""


class Emulated:
    """Moves models to the emulator, whose launches are counted."""

    def __init__(self, kind, monkeypatch):
        self.emulator, choose = Emulator(), kind.module.kernels_of

        def kernels(array, grid, radius, dtype):
            if isinstance(array, twins.OnDevice):
                variant = SMALL if grid.ndim == 3 else Variant(block=(32, 1))
                return kind.kernels(grid, radius, dtype, device=self.emulator, variant=variant)
            return choose(array, grid, radius, dtype)

        monkeypatch.setattr(kind.module, "kernels_of", kernels)
        monkeypatch.setattr(acoustic_gpu, "THREADS", 32)  # each of which is started anew for every launch
        monkeypatch.setattr(sweeps_gpu, "SHORTEST", 6)  # so that planes are parted

    def __call__(self, model):
        return model_of(model, {name: values.view(twins.OnDevice) for name, values in arrays_of(model).items()})


class Real:
    """Moves models to a GPU."""

    def __call__(self, model):
        import cupy

        return model_of(model, {name: cupy.asarray(values) for name, values in arrays_of(model).items()})


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name, scope="module")
def kind(request):
    """Return which waves are under test."""
    return request.param


@pytest.fixture(params=twins.PLACES)
def there(request, kind, monkeypatch):
    """Return what moves a model to where the kernels under test are."""
    return Emulated(kind, monkeypatch) if request.param == "emulated" else Real()


agree = twins.agree


def run(kind, model, shot, order):
    """Send noise through a model, and return what is heard, two fields, and the propagator."""
    loop = Loop(shot, kind.waves(model, 0.8 * shot.dt, order))
    values = np.random.default_rng(5).standard_normal(loop.sent.shape).astype(np.float32)
    loop.sent = loop.kernels.put(values)
    state = loop.forward(loop.propagator.zeros(), 0, loop.steps)
    one, other = (loop.kernels.get(state[name]) for name in kind.fields)
    return loop.kernels.get(loop.heard), one, other, loop.propagator


@pytest.mark.parametrize(("axes", "free_surface", "order"), TWINS)
def test_fields_and_what_is_heard_are_those_of_the_cpu(kind, there, axes, free_surface, order):
    model = kind.random(SHAPES[axes], free_surface=free_surface)
    shot = random_shot(model, samples=40)
    expected, found = run(kind, model, shot, order), run(kind, there(model), shot, order)
    agree(found[0], expected[0], kind.tolerance)
    for field, twin in zip(found[1:3], expected[1:3], strict=True):
        agree(found[3].rows.cut(field), twin, kind.tolerance)


@pytest.mark.parametrize("shape", [(2, 3), pytest.param((9, 2), marks=pytest.mark.slow)])
def test_models_thinner_than_a_stencil_have_the_layers_of_the_cpu(kind, there, shape):
    model = kind.random(shape, absorb=5)
    shot = random_shot(model, samples=30)
    expected, found = run(kind, model, shot, 8), run(kind, there(model), shot, 8)
    agree(found[0], expected[0], kind.tolerance)
    agree(found[3].rows.cut(found[1]), expected[1], kind.tolerance)


@pytest.mark.parametrize("width", [15, pytest.param(18, marks=pytest.mark.slow)])
def test_rows_of_every_width_leave_their_margins_zero(kind, there, width):
    model = kind.random((14, width), absorb=3)
    shot = random_shot(model, samples=30)
    expected, (_, field, _, propagator) = run(kind, model, shot, 8), run(kind, there(model), shot, 8)
    agree(propagator.rows.cut(field), expected[1], kind.tolerance)
    last = propagator.rows.before + propagator.halo + width + 6
    assert field[:, last - 1].any() and not field[:, last:].any() and not field[:, :4].any()


@pytest.mark.parametrize(
    ("axes", "free_surface"), [("2-D", True), pytest.param("3-D", True, marks=pytest.mark.slow)], ids=["2-D", "3-D"]
)
def test_dot_products_agree(kind, there, axes, free_surface):
    model = there(kind.random(SHAPES[axes], free_surface=free_surface))
    shot = random_shot(model, samples=40)
    loop = Loop(shot, kind.waves(model, shot.dt))
    rng = np.random.default_rng(5)
    sent, weights = rng.standard_normal(loop.sent.shape).astype(np.float32), rng.standard_normal((shot.samples, 5))
    loop.sent = loop.kernels.put(sent)
    loop.forward(loop.propagator.zeros(), 0, loop.steps)
    heard, arrived = loop.data().astype(float), kind.transpose(loop, weights)
    difference = abs(np.vdot(heard, weights) - np.vdot(sent, arrived))
    assert difference < 1e-5 * np.linalg.norm(heard) * np.linalg.norm(weights)


@pytest.fixture(scope="module")
def seen(kind):
    """Return a model and a shot with its data."""
    model = kind.smooth((40, 45), absorb=8)
    shot = surface_shot(model, samples=60)
    return model, shot.with_data(simulate(shot, slower(model)))


@pytest.mark.slow
def test_images_are_those_of_the_cpu(kind, there, seen):
    model, shot = seen
    expected, found = (migrate(shot, one, every=4, budget="64MB") for one in (model, there(model)))
    agree(found.image, expected.image, 1e-5)  # sums of products, and over all steps
    agree(found.illumination, expected.illumination, 1e-5)


@pytest.mark.slow
def test_budgets_change_no_bit(kind, there, seen):
    model, shot = seen
    kept, tight = (gradient(shot, there(model), budget=budget) for budget in ("64MB", kind.tight))
    assert tight.result.plan.schedule.forward_steps > kept.result.plan.schedule.forward_steps
    for name in kind.names:
        assert np.array_equal(on_host(kept.gradient[name]), on_host(tight.gradient[name]))


@pytest.mark.slow
@pytest.mark.parametrize(
    "free_surface", [pytest.param(False, marks=pytest.mark.slow), True], ids=["open", "free surface"]
)
def test_gradients_are_those_of_the_cpu(kind, there, free_surface):
    model = kind.smooth((30, 35), absorb=8, free_surface=free_surface)
    shot = surface_shot(model, samples=50)
    shot = shot.with_data(simulate(shot, slower(model)))
    expected, found = (gradient(shot, one, budget="64MB") for one in (model, there(model)))
    agree(found.data, expected.data, 1e-5)
    for name in kind.names:
        agree(found.gradient[name], expected.gradient[name], kind.slopes)


@pytest.mark.slow
def test_gradients_in_three_dimensions(kind, there):
    model = kind.random((13, 14, 15), absorb=5)
    shot = random_shot(model, sources=1, samples=20, wavelet=np.hanning(20)[:, None])
    shot = replace(shot, dt=4 * shot.dt).with_data(np.random.default_rng(2).standard_normal((20, 5)))
    expected, found = (gradient(shot, one, budget="64MB", dt=shot.dt / 4) for one in (model, there(model)))
    agree(found.data, expected.data, kind.tolerance)
    for name in kind.names:
        agree(found.gradient[name], expected.gradient[name], kind.slopes)


@pytest.mark.gpu
@pytest.mark.parametrize("library", ["cupy", "torch"])
def test_results_are_of_the_library_and_in_the_memory_of_the_model(kind, library, seen):
    cupy, arrays = pytest.importorskip("cupy"), pytest.importorskip(library)
    model, shot = seen
    medium = {name: arrays.asarray(values, dtype=arrays.float32) for name, values in arrays_of(model).items()}
    medium = {name: values.cuda() if library == "torch" else values for name, values in medium.items()}
    there = model_of(model, medium)
    expected, found = (migrate(shot, own, every=5, budget="64MB") for own in (model, there))
    slopes = [gradient(shot, own, budget="64MB").gradient for own in (model, there)]
    for array in (found.image, found.illumination, found.clean(), *slopes[1].values()):
        assert type(array) is type(medium["velocity"]) and cupy.asarray(array).device.id == 0
    agree(found.clean(), expected.clean(), 1e-4)
    for name in kind.names:
        agree(slopes[1][name], slopes[0][name], kind.slopes)
    assert isinstance(simulate(shot, there), np.ndarray)


@pytest.mark.skipif(GPP is None, reason="g++ is not installed")
def test_a_step_is_a_few_launches(kind, monkeypatch):
    model = kind.random((20, 24))
    shot, there = random_shot(model, samples=8), Emulated(kind, monkeypatch)
    loop = Loop(shot, kind.waves(there(model), shot.dt))
    loop.forward(loop.propagator.zeros(), 0, loop.steps)
    assert there.emulator.launches == list(kind.launches) * loop.steps


@pytest.mark.parametrize("kind", IN_SHARED_MEMORY, ids=lambda kind: kind.name)
@pytest.mark.parametrize("kilobytes", [227, 163, 99])
def test_thread_blocks_have_the_shared_memory_of_the_device(kind, kilobytes):
    device = Emulator()
    device.shared = 1024 * kilobytes
    kernels = kind.kernels(Grid((40, 50, 60), 10.0), 4, np.dtype("float32"), device=device)
    taken = sweeps_gpu.WORD_BYTES * kernels._shared()
    assert taken <= device.shared < 2 * taken


@pytest.mark.skipif(GPP is None, reason="g++ is not installed")
@pytest.mark.parametrize(("options", "reason"), [({"order": 10}, "at most 8"), ({"dtype": np.float64}, "float32")])
def test_what_only_the_cpu_can_is_refused(kind, monkeypatch, options, reason):
    with pytest.raises(WaveError, match=reason):
        kind.waves(Emulated(kind, monkeypatch)(kind.random((20, 20))), 1e-4, **options)


def test_sources_have_no_generic_lambda():
    """NVRTC 12.8 and 13.0 take one for a function of the host, and refuse it; 13.5 does not."""
    for source in [path for kind in KINDS for path in kind.kernels.folder.glob("*.cu")]:
        assert not re.search(r"\[&?\]\([^)]*\bauto\b", source.read_text(encoding="utf-8")), source


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, *(pytest.param(number, marks=pytest.mark.slow) for number in (1, 2))])
@pytest.mark.parametrize("radius", [4, pytest.param(2, marks=pytest.mark.slow)])
def test_the_source_compiles(kind, number, radius):
    compile_only = pytest.importorskip("forebay.cuda.kernels").compile_only
    if number == len(kind.sources):
        pytest.skip("waves of this kind have fewer sources")
    source, axes, names = kind.sources[number]
    of_sweep, of_volume = {"AXES": axes, "BLOCK_X": 32}, {"STAGES": 2}
    defines = {"RADIUS": radius, "BLOCKS": 1, "BLOCK_Y": 16 if axes == 3 else 1}
    defines |= of_sweep if source == "sweep.cu" else of_volume
    try:
        code = compile_only(kind.kernels.folder / source, "sm_90", fmad=False, defines=defines)
    except DeviceError as error:
        pytest.skip(str(error))
    assert all(name.encode() in code for name in names)
