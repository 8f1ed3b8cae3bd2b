"""The GPU's elastic loops against their CPU twins: on a GPU, and everywhere through an emulator of one.

The GPU averages the medium in float32 as it goes, where the CPU reads averages made in float64; and derivatives along
depth are divided by the spacing after they are summed. So both compute in media that differ in the last bit, and fields
agree to a few bits of their largest values after some dozens of steps.
"""

import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from types import SimpleNamespace

import numpy as np
import pytest
from tests.wave import twins
from tests.wave.elastic_setups import mixed_shot, random_rock, smooth_rock, surface_shot
from tests.wave.emulator import GPP, Emulator

from forebay.cuda.available import gpu_count
from forebay.errors import DeviceError, WaveError
from forebay.wave import Adjoint, Elastic, ElasticModel, Loop, gradient, migrate, simulate
from forebay.wave.acoustic import gpu as acoustic_gpu
from forebay.wave.earth.arrays import on_host
from forebay.wave.elastic import gpu as elastic_gpu
from forebay.wave.elastic import gpu_images as elastic_gpu_images
from forebay.wave.elastic import propagator as elastic
from forebay.wave.elastic.gpu import FASTEST, STRESS, VELOCITY, ElasticGpuKernels, ElasticVariant
from forebay.wave.elastic.gpu_images import POINTS
from forebay.wave.kernels.variant import tiles_of

TOLERANCE = 2e-6
SHAPES = {"2-D": (25, 29), "3-D": (13, 15, 14)}
TWINS = [
    ("2-D", False, 8),
    ("2-D", True, 8),
    *(
        pytest.param(*case, marks=pytest.mark.slow)
        for case in (
            ("3-D", True, 8),
            ("2-D", False, 4),
            ("2-D", True, 4),
            ("3-D", False, 4),
            ("3-D", True, 4),
            ("3-D", False, 8),
        )
    ),
]
"""Axes, whether there is a free surface, and the order: another one compiles all loops of the CPU anew."""
BOXES = [
    ("2-D", False),
    ("3-D", True),
    *(pytest.param(*case, marks=pytest.mark.slow) for case in (("2-D", True), ("3-D", False))),
]
"""Axes, and whether there is a free surface."""
SMALL = ElasticVariant(block=(8, 4), fixed_extents=False)
VARIANTS = {
    "points": ElasticVariant(block=(16, 4), fixed_extents=False, width=1),
    "wide": ElasticVariant(block=(4, 2), fixed_extents=False, width=4),
    "not early": ElasticVariant(block=(8, 4), early=False, fixed_extents=False),
    "ahead": ElasticVariant(block=(8, 4), ahead=2, fixed_extents=True),
    "halves": ElasticVariant(
        block=(8, 4), fixed_extents=False, chunks=5, stress=ElasticVariant(block=(4, 2), fixed_extents=False)
    ),
}
MORE = "struct alignas(8) float2 { float x, y; };\n"


@cache
def complete(source):
    """Put what the emulator's header lacks before a source, and its own header where the compiler finds it."""
    text = source.read_text().replace('#include "', f'#include "{source.parent}/')
    path = Path(mkdtemp(prefix="forebay-elastic-")) / source.name
    path.write_text(MORE + text)
    return path


class ElasticEmulator(Emulator):
    def kernel(self, source, name, defines):
        return super().kernel(complete(source), name, defines)


class Emulated:
    """Moves models to the emulator, whose launches are counted."""

    def __init__(self, monkeypatch, variant=SMALL):
        self.emulator, choose = ElasticEmulator(), elastic._kernels

        def kernels(model, radius, dtype):
            if isinstance(model.arrays[0], twins.OnDevice):
                return ElasticGpuKernels(model.grid, radius, dtype, self.emulator, variant)
            return choose(model, radius, dtype)

        monkeypatch.setattr(elastic, "_kernels", kernels)
        for module in (acoustic_gpu, elastic_gpu, elastic_gpu_images):
            monkeypatch.setattr(module, "THREADS", 32)  # each of which is started anew for every launch

    def __call__(self, model):
        return ElasticModel(*(values.view(twins.OnDevice) for values in (model.vp, model.vs, model.rho)), model.grid)


class Real:
    """Moves models to a GPU."""

    def __call__(self, model):
        import cupy

        return ElasticModel(*(cupy.asarray(values) for values in (model.vp, model.vs, model.rho)), model.grid)


@pytest.fixture(
    params=[
        pytest.param("emulated", marks=pytest.mark.skipif(GPP is None, reason="g++ is not installed")),
        pytest.param("gpu", marks=[pytest.mark.gpu, pytest.mark.skipif(gpu_count() == 0, reason="no GPU")]),
    ]
)
def there(request, monkeypatch):
    """Return what moves a model to where the kernels under test are."""
    return Emulated(monkeypatch) if request.param == "emulated" else Real()


@pytest.fixture
def any_wavelet(monkeypatch):
    """Let grids and steps be too coarse for what is sent: both twins are wrong alike, in fewer steps."""
    monkeypatch.setattr("forebay.wave.loop.frequencies_of", lambda shots: [0.0] * len(shots))


def agree(one, other, tolerance=TOLERANCE):
    twins.agree(one, other, tolerance)


def run(model, order=8, samples=40, steps=None):
    """Send noise of every kind through a model, and give what is heard and all fields."""
    shot = mixed_shot(model, samples=samples)
    loop = Loop(shot, Elastic(model, 0.8 * shot.dt, order))
    values = np.random.default_rng(5).standard_normal(loop.sent.shape)
    values *= np.where([kind == "explosion" for kind in shot.sends], 1e-6, 1.0)
    loop.sent = loop.kernels.put(values)
    state = loop.forward(loop.propagator.zeros(), 0, steps or loop.steps)
    return loop.kernels.get(loop.heard), fields_of(loop, state), loop


def fields_of(loop, state):
    """Return velocities and stresses; the memory of layers lies in another order on a GPU."""
    names = (*loop.propagator.velocities, *loop.propagator.stresses)
    return {name: loop.propagator.layout.cut(loop.kernels.get(state[name])) for name in names}


@pytest.mark.parametrize(("axes", "free_surface", "order"), TWINS)
def test_fields_and_what_is_heard_are_those_of_the_cpu(there, axes, free_surface, order):
    model = random_rock(SHAPES[axes], free_surface=free_surface)
    expected, found = run(model, order), run(there(model), order)
    for column, twin in zip(found[0].T, expected[0].T, strict=True):
        agree(column, twin, 2 * TOLERANCE)
    for name, twin in expected[1].items():
        agree(found[1][name], twin)


@pytest.mark.parametrize("width", range(15, 20))
def test_rows_of_every_width_leave_their_margins_zero(there, width):
    model = random_rock((14, width), absorb=3)
    expected, (_, fields, loop) = run(model), run(there(model))
    state = loop.forward(loop.propagator.zeros(), 0, loop.steps)
    for name, twin in expected[1].items():
        agree(fields[name], twin)
        whole = loop.kernels.get(state[name])
        last = loop.propagator.layout.before + loop.propagator.halo + width + 6
        assert whole[:, last - 1].any() and not whole[:, last:].any() and not whole[:, :4].any()


@pytest.mark.slow
@pytest.mark.skipif(GPP is None, reason="g++ is not installed")
@pytest.mark.parametrize(
    "variant", [name if name in ("wide", "halves") else pytest.param(name, marks=pytest.mark.slow) for name in VARIANTS]
)
@pytest.mark.parametrize("axes", ["2-D", pytest.param("3-D", marks=pytest.mark.slow)])  # each is compiled
def test_every_variant_gives_the_same_bits(monkeypatch, axes, variant):
    model = random_rock(SHAPES[axes], free_surface=True)
    one, other = (run(Emulated(monkeypatch, chosen)(model), samples=15) for chosen in (SMALL, VARIANTS[variant]))
    assert np.array_equal(one[0], other[0])
    assert all(np.array_equal(field, other[1][name]) for name, field in one[1].items())


@pytest.mark.parametrize(
    ("axes", "free_surface"), [BOXES[0], pytest.param(*BOXES[1], marks=pytest.mark.slow), *BOXES[2:]]
)
def test_dot_products_agree(there, axes, free_surface):
    model = there(random_rock(SHAPES[axes], free_surface=free_surface))
    shot = mixed_shot(model)
    loop = Loop(shot, Elastic(model, shot.dt))
    rng, kernels = np.random.default_rng(5), loop.kernels
    sizes = [np.where([kind == word for kind in kinds], 1e-6, 1.0) for kinds, word in
             ((shot.sends, "explosion"), (shot.hears, "pressure"))]  # fmt: skip
    sent, weights = rng.standard_normal(loop.sent.shape) * sizes[0], rng.standard_normal(loop.heard.shape) * sizes[1]
    loop.sent = kernels.put(sent)
    loop.forward(loop.propagator.zeros(), 0, loop.steps)
    adjoint, arrived = Adjoint(loop, weights), kernels.zeros(loop.sent.shape)
    for step in reversed(range(loop.steps)):
        loop.propagator.record(adjoint.back_to(step + 1), loop.sources, arrived[step], still=True)
        loop.propagator.record(adjoint.back_to(step), loop.sources, arrived[step], still=False)
    heard, arrived = loop.data().astype(float), kernels.get(arrived).astype(float)
    size = np.sqrt(np.sum(np.linalg.norm(heard, axis=0) ** 2 * np.linalg.norm(weights, axis=0) ** 2))
    assert abs(np.vdot(heard, weights) - np.vdot(sent, arrived)) < 1e-5 * size
    assert abs(np.vdot(heard, weights)) > 1e-3 * size


@pytest.mark.parametrize(
    "free_surface", [pytest.param(False, marks=pytest.mark.slow), True], ids=["open", "free surface"]
)
def test_single_steps_are_those_of_a_run(there, free_surface):
    model = there(random_rock(SHAPES["2-D"], free_surface=free_surface))
    heard, fields, loop = run(model, samples=9, steps=7)
    propagator, state = loop.propagator, loop.propagator.zeros()
    loop.heard = loop.kernels.zeros(loop.heard.shape)
    for step in range(7):
        propagator.record(state, loop.receivers, loop.heard[step], still=True)
        state = propagator.step(state, loop.sources, loop.sent[step])
        propagator.record(state, loop.receivers, loop.heard[step], still=False)
    assert np.array_equal(loop.kernels.get(loop.heard), heard)
    for name, field in fields_of(loop, state).items():
        assert np.array_equal(field, fields[name])


@pytest.mark.parametrize(
    "free_surface", [pytest.param(False, marks=pytest.mark.slow), True], ids=["open", "free surface"]
)
def test_what_is_scattered_agrees(there, free_surface):
    model = random_rock(SHAPES["2-D"], free_surface=free_surface)
    shot, rng = mixed_shot(model), np.random.default_rng(5)
    sizes = np.where([kind == "explosion" for kind in shot.sends], 1e-6, 1.0)
    sent = rng.standard_normal((shot.samples, len(sizes))) * sizes
    change = ElasticModel(*(values * (1 + 0.1 * rng.random(values.shape)) for values in model.arrays), model.grid)
    heard = []
    for medium, moved in ((model, change), (there(model), there(change))):
        loop = Loop(shot, Elastic(medium, shot.dt))
        loop.sent, propagator = loop.kernels.put(sent), loop.propagator
        change_of = {name: getattr(moved, name) - getattr(medium, name) for name in ("vp", "vs", "rho")}
        waves = propagator.zeros(), propagator.zeros()
        strength = propagator.scatterers(change_of, "velocity")
        hears = loop.receivers, loop.heard
        propagator.advance_scattered(waves, strength, loop.sources, loop.sent, range(loop.steps), hears)
        heard.append(loop.data())
    for kind in {*shot.hears}:
        own = [each == kind for each in shot.hears]
        twins.agree(heard[1][:, own], heard[0][:, own], 2e-5)


@pytest.fixture(scope="module", params=[pytest.param("pressure", marks=pytest.mark.slow), "velocity z"])
def seen(request):
    """Return a model and a shot with its data."""
    model = smooth_rock((40, 47))
    shot = surface_shot(model, hears=request.param, samples=100, frequency=11.0)
    # Next to receivers, what they send back cancels at the source: there a float32 image is 2.5e-5 from a float64 one.
    shot = replace(shot, source=np.array([(151.0, 188.0)]))
    true = ElasticModel(0.97 * model.vp, 0.95 * model.vs, model.rho, model.grid)
    return model, shot.with_data(simulate(shot, true))


@pytest.mark.slow
@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.slow), 4])
def test_images_are_those_of_the_cpu(there, seen, every):
    model, shot = seen
    options = {"every": every, "images": ("pp", "velocity"), "budget": "64MB"}
    expected, found = (migrate(shot, one, **options) for one in (model, there(model)))
    for name, pair in expected.images.items():
        for one, other in zip(found.images[name], pair, strict=True):
            agree(one, other, 2e-5)  # sums of products, and over all steps


@pytest.mark.slow  # nine seconds of compilers
@pytest.mark.parametrize("order", [4, 8])
def test_images_in_three_dimensions(there, any_wavelet, order):
    model = random_rock((13, 14, 17), absorb=6, free_surface=True, fluid=False)
    quiet = mixed_shot(model, samples=40)
    wavelet = np.sin(0.2 * np.arange(40.0))[:, None] * np.hanning(40)[:, None] * np.array([1e-6, 1, 1, 1])
    shot = mixed_shot(model, samples=40, wavelet=wavelet)
    shot = shot.with_data(np.random.default_rng(3).standard_normal((40, len(quiet.receivers))))
    options = {"every": 2, "images": ("velocity", "pp"), "budget": "64MB", "order": order}
    expected, found = (migrate(shot, one, **options) for one in (model, there(model)))
    for name, pair in expected.images.items():
        for one, other in zip(found.images[name], pair, strict=True):
            agree(one, other, 2e-5)


@pytest.mark.slow  # budgets are the engine's, which has tests of its own
def test_budgets_change_no_bit(there, seen):
    model, shot = seen
    options = {"every": 3, "images": ("pp", "velocity")}
    kept, tight = (migrate(shot, there(model), budget=budget, **options) for budget in ("64MB", "700kB"))
    for name, pair in kept.images.items():
        assert all(np.array_equal(*map(on_host, both)) for both in zip(pair, tight.images[name], strict=True))


@pytest.mark.slow
def test_a_condition_sees_the_model_and_nothing_else(there, seen):
    model, shot = seen
    shapes, totals = set(), []

    def condition(source, receiver, step):
        shapes.update((name, one.shape) for wave in (source, receiver) for name, one in wave.items())
        totals.append(float((source["div"] * receiver["div"]).sum()))

    found = migrate(shot, there(model), every=5, images=("pp", "velocity"), budget="64MB", condition=condition)
    rows, width = model.grid.shape
    assert shapes == {("div", (rows, width)), ("vz", (rows + 1, width)), ("vx", (rows, width + 1))}
    assert sum(totals) * 5 * found.dt == pytest.approx(float(found.image.sum(dtype=float)), rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("axes", "free_surface"), [BOXES[0], pytest.param(*BOXES[1], marks=pytest.mark.slow), *BOXES[2:]]
)
def test_gradients_are_those_of_the_cpu(there, any_wavelet, axes, free_surface):
    model = random_rock(SHAPES[axes], free_surface=free_surface, absorb=6)
    wavelet = np.sin(0.2 * np.arange(30.0))[:, None] * np.ones(len(SHAPES[axes]) + 1)
    wavelet[:, 0] *= 1e-6
    shot = mixed_shot(model, samples=30, wavelet=wavelet)
    observed = np.random.default_rng(3).standard_normal((30, len(shot.receivers)))
    shot, scale = shot.with_data(observed), np.where([kind == "pressure" for kind in shot.hears], 1e-6, 1.0)

    def misfit(data, observed):
        return float(np.sum(scale * data * observed)), scale * observed

    options = {"misfit": misfit, "dt": shot.dt, "budget": "64MB"}
    expected, found = (gradient(shot, one, **options) for one in (model, there(model)))
    agree(found.data, expected.data, 2 * TOLERANCE)
    for name, one in expected.gradient.items():
        agree(found.gradient[name], one, 5e-5)


@pytest.mark.slow
@pytest.mark.skipif(GPP is None, reason="g++ is not installed")
def test_a_step_has_as_few_launches_as_there_are_things_to_wait_for(monkeypatch, seen):
    model, shot = seen
    there = Emulated(monkeypatch)
    plan = migrate(shot, there(model), every=3, budget="64MB", schedule="storeall").result.plan
    there.emulator.launches.clear()  # those of steps that were timed for the plan
    found = migrate(shot, there(model), every=3, plan=plan)
    launched, images = there.emulator.launches, len(range(0, found.result.plan.steps, 3))
    halves = [
        sum(launched.count(name) for name in names)
        for names in (("move", "move_back"), ("strain", "strain_back", "strain_and_image"))
    ]
    assert launched.count("strain_and_image") == images <= launched.count("divergence") <= images + 2
    assert halves == [launched.count("points")] * 2  # nothing is sent or heard in one of them
    forward_and_back = {"move", "strain", "move_back", "strain_back", "strain_and_image"}
    assert {*launched} == {*forward_and_back, "points", "divergence"}


@pytest.mark.skipif(GPP is None, reason="g++ is not installed")
@pytest.mark.parametrize(("options", "reason"), [({"order": 10}, "at most 8"), ({"dtype": np.float64}, "float32")])
def test_what_only_the_cpu_can_is_refused(monkeypatch, options, reason):
    with pytest.raises(WaveError, match=reason):
        Elastic(Emulated(monkeypatch)(random_rock((20, 20))), 1e-4, **options)


def test_arrays_that_are_neither_here_nor_there_are_refused():
    with pytest.raises(WaveError, match="vs of type memoryview: give an array of NumPy, or one on a GPU"):
        replace(random_rock((20, 20)), vs=memoryview(b""))


class Tensor:
    """As much of a tensor of another library on a GPU as a model sees before it is taken for one of CuPy."""

    def __init__(self, values):
        self.values, self.shape = values, values.shape

    @property
    def __cuda_array_interface__(self):
        return self.values.__array_interface__


@pytest.mark.slow
@pytest.mark.skipif(GPP is None, reason="g++ is not installed")
def test_arrays_of_other_libraries_are_computed_with_as_those_of_cupy(monkeypatch, seen):
    model, shot = seen
    there = Emulated(monkeypatch)(model)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(asarray=lambda tensor: tensor.values))
    tensors = ElasticModel(*map(Tensor, there.arrays), model.grid)
    assert (tensors.slowest, tensors.fastest, tensors.layer_velocity) == (
        model.slowest,
        model.fastest,
        model.layer_velocity,
    )
    expected, found = (migrate(shot, own, every=5, budget="64MB") for own in (there, tensors))
    assert np.array_equal(found.image, expected.image) and found.image.any()
    expected, found = (gradient(shot, own, budget="64MB").gradient for own in (there, tensors))
    assert found.keys() == expected.keys()
    assert all(np.array_equal(found[name], values) and values.any() for name, values in expected.items())


def test_arrays_in_two_memories_are_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(asarray=lambda tensor: memoryview(b"")))
    rock = random_rock((20, 20))
    with pytest.raises(WaveError, match="not all in the same memory: give all as NumPy's or all on the GPU"):
        replace(rock, rho=Tensor(rock.rho))


@pytest.mark.gpu
@pytest.mark.parametrize("library", ["cupy", "torch"])
def test_results_are_of_the_library_and_in_the_memory_of_the_model(library, seen):
    cupy, arrays = pytest.importorskip("cupy"), pytest.importorskip(library)
    model, shot = seen
    rock = [arrays.asarray(values, dtype=arrays.float32) for values in model.arrays]
    rock = [values.cuda() for values in rock] if library == "torch" else rock
    there = ElasticModel(*rock, model.grid)
    expected, found = (migrate(shot, own, every=5, budget="64MB") for own in (model, there))
    slopes = [gradient(shot, own, budget="64MB").gradient for own in (model, there)]
    for array in (found.image, found.illumination, found.clean(), *slopes[1].values()):
        assert type(array) is type(rock[0]) and cupy.asarray(array).device.id == 0
    agree(found.clean(), expected.clean(), 2e-4)  # the Laplacian of a float32 image is 1e-4 from that of a float64 one
    for name, values in slopes[0].items():
        agree(slopes[1][name], values, 5e-5)
    assert isinstance(simulate(shot, there), np.ndarray)


@pytest.mark.parametrize("sizes", [(7, 8, 16), (40, 3, 5), (1, 64, 64)])
@pytest.mark.parametrize("low_and_high", [(9, 21), (4, 30), (18, 12), (4, 21)], ids=["both", "none", "thin", "after"])
def test_thread_blocks_compute_each_point_once_and_know_the_layers_there(sizes, low_and_high):
    low, high = low_and_high
    spans = [(4, low, high, 30), (4, low + 1, high, 30), (2, low, high - 1, 32)]
    times, known = np.zeros((30, 30, 32), int), np.zeros((3, 30, 30, 32), bool)
    for x, x_end, y, y_end, z, z_end, along, axes in tiles_of(spans, sizes):
        assert x_end - x <= along and y_end - y <= sizes[1] and z_end - z <= sizes[0]
        times[z:z_end, y:y_end, x:x_end] += 1
        for axis in range(3):
            known[axis, z:z_end, y:y_end, x:x_end] = axes >> axis & 1
    assert (times[4:, 4:, 2:] == 1).all() and times.sum() == 26 * 26 * 30
    for axis, (first, end, begin, last) in enumerate(spans):
        there = np.moveaxis(known[axis], axis, 0)
        other = np.moveaxis(times, axis, 0)[first:last] == 1
        layered = (np.arange(first, last) < end) | (np.arange(first, last) >= begin)
        assert (there[first:last][layered] | ~other[layered]).all()
        if axis == 0 and end < begin:  # planes are cut where layers end
            assert not there[first:last][~layered].any()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("axes", "radius", "arch", "parts"),
    [
        (2, 2, "sm_90", 2),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in ((2, 4, "sm_90", 15), (3, 2, "sm_90", 15), (3, 4, "sm_90", 15), (3, 4, "sm_80", 15))
        ),
    ],
)
def test_the_sources_compile(axes, radius, arch, parts):
    compile_only = pytest.importorskip("forebay.cuda.kernels").compile_only
    few, parts = {"AXES": axes, "RADIUS": radius}, {"PARTS": parts}
    for source, macros, names in (
        (VELOCITY, FASTEST.defines(axes, radius, 40, 12) | parts, ("move", "move_back", "sense_move")),
        (
            STRESS,
            FASTEST.stress_back.defines(axes, radius, 40, 12) | parts,
            ("strain", "strain_back", "strain_and_image", "sense_strain"),
        ),
        (POINTS, few, ("points", "crop", "divergence", "meet")),
    ):
        try:
            code = compile_only(source, arch, fmad=False, defines=macros)
        except DeviceError as error:
            pytest.skip(str(error))
        assert all(name.encode() in code for name in names)
