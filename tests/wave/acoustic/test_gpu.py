"""The GPU's acoustic loops against their CPU twins: on a GPU, and everywhere through an emulator of one.

Both order all sums alike but for two: the CPU's compiler chooses which products of the Laplacian's axes to contract,
and a warp adds what a point hears in 32 parts. So fields agree to the last bits of their largest values: 1e-6 of those
after some dozens of steps, ten times the rounding of one number.
"""

import re
from dataclasses import replace

import numpy as np
import pytest
from tests.wave import twins
from tests.wave.emulator import GPP, Emulator
from tests.wave.setups import random_model, random_shot, smooth_model, surface_shot

import forebay as fb
from forebay.codec import get
from forebay.errors import DeviceError, WaveError
from forebay.wave import (
    Acoustic,
    AcousticModel,
    Adjoint,
    Grid,
    Loop,
    gradient,
    largest_dt,
    migrate,
    ricker,
    simulate,
)
from forebay.wave.acoustic import gpu as acoustic_gpu
from forebay.wave.acoustic import plane, volume
from forebay.wave.acoustic import propagator as acoustic
from forebay.wave.acoustic.volume import gpu_kernels
from forebay.wave.earth.arrays import on_host
from forebay.wave.kernels.variant import Variant, chunk_of

TOLERANCE = 1e-6
CODECS = {name: fb.CodecCost(4, 1e12, 1e12, worst=1.1) for name in ("bounded:0.0001", "cast:bfloat16")}
COSTS = fb.Costs(1e-3, 1e-3, 1e9, host=fb.Link(1e9, 1e9), codecs=CODECS)
SHAPES = {"2-D": (31, 37), "3-D": (17, 19, 18)}
TWINS = [
    ("2-D", False, 8),
    ("2-D", True, 8),
    ("3-D", True, 8),
    *(
        pytest.param(*case, marks=pytest.mark.slow)
        for case in (("2-D", False, 4), ("2-D", True, 4), ("3-D", False, 4), ("3-D", True, 4), ("3-D", False, 8))
    ),
]
"""Axes, whether there is a free surface, and the order: another one compiles all loops of the CPU anew."""
BOXES = [
    ("2-D", False),
    ("3-D", True),
    *(pytest.param(*case, marks=pytest.mark.slow) for case in (("2-D", True), ("3-D", False))),
]
"""Axes, and whether there is a free surface."""
SMALL = Variant(block=(8, 4), fixed_extents=False)
VARIANTS = {
    "narrow": Variant(block=(4, 2), fixed_extents=False),
    "not early": Variant(block=(8, 4), early=False, fixed_extents=False),
    "ahead": Variant(block=(8, 4), ahead=2, fixed_extents=False),
    "fixed extents": Variant(block=(8, 4), fixed_extents=True),
    "chunks": Variant(block=(8, 4), fixed_extents=False, chunks=5),
}


class Emulated:
    """Moves models to the emulator, whose launches are counted."""

    def __init__(self, monkeypatch, variant=SMALL):
        self.emulator, choose = Emulator(), acoustic.kernels_of

        def kernels(array, grid, radius, dtype, shots):
            if isinstance(array, twins.OnDevice):
                return gpu_kernels(grid, radius, dtype, shots, device=self.emulator, variant=variant)
            return choose(array, grid, radius, dtype, shots)

        monkeypatch.setattr(acoustic, "kernels_of", kernels)
        monkeypatch.setattr(acoustic_gpu, "THREADS", 32)  # each of which is started anew for every launch

    def __call__(self, model):
        return AcousticModel(model.velocity.view(twins.OnDevice), model.grid)


class Real:
    """Moves models to a GPU."""

    def __call__(self, model):
        import cupy

        return AcousticModel(cupy.asarray(model.velocity), model.grid)


@pytest.fixture(params=twins.PLACES)
def there(request, monkeypatch):
    """Return what moves a model to where the kernels under test are."""
    return Emulated(monkeypatch) if request.param == "emulated" else Real()


def agree(one, other, tolerance=TOLERANCE):
    twins.agree(one, other, tolerance)


def run(model, shot, order, steps=None):
    """Send noise through a model, and return what is heard, both fields, and the propagator."""
    loop = Loop(shot, Acoustic(model, 0.8 * shot.dt, order))
    values = np.random.default_rng(5).standard_normal(loop.sent.shape).astype(np.float32)
    loop.sent = loop.kernels.put(values)
    state = loop.forward(loop.propagator.zeros(), 0, steps or loop.steps)
    p, p_old = (loop.kernels.get(state[name]) for name in ("p", "p_old"))
    return loop.kernels.get(loop.heard), p, p_old, loop.propagator


@pytest.mark.parametrize(("axes", "free_surface", "order"), TWINS)
def test_fields_and_what_is_heard_are_those_of_the_cpu(there, axes, free_surface, order):
    model = random_model(SHAPES[axes], free_surface=free_surface)
    shot = random_shot(model)
    expected, found = run(model, shot, order), run(there(model), shot, order)
    agree(found[0], expected[0])
    for field, twin in zip(found[1:3], expected[1:3], strict=True):
        agree(found[3].rows.cut(field), twin)


@pytest.mark.parametrize("shape", [(2, 3), (9, 2), pytest.param((3, 5, 2), marks=pytest.mark.slow)])
def test_models_thinner_than_a_stencil_have_the_layers_of_the_cpu(there, shape):
    model = random_model(shape, absorb=5)
    shot = random_shot(model, samples=30)
    expected, found = run(model, shot, 8), run(there(model), shot, 8)
    agree(found[0], expected[0])
    agree(found[3].rows.cut(found[1]), expected[1])


@pytest.mark.parametrize("width", range(15, 20))
def test_rows_of_every_width_leave_their_margins_zero(there, width):
    model = random_model((14, width), absorb=3)
    shot = random_shot(model, samples=30)
    expected, (_, field, _, propagator) = run(model, shot, 8), run(there(model), shot, 8)
    agree(propagator.rows.cut(field), expected[1])
    last = propagator.rows.before + propagator.halo + width + 6
    assert field[:, last - 1].any() and not field[:, last:].any() and not field[:, :4].any()


@pytest.mark.slow
@pytest.mark.skipif(GPP is None, reason="g++ is not installed")
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("axes", ["2-D", pytest.param("3-D", marks=pytest.mark.slow)])  # each is compiled
def test_every_variant_gives_the_same_bits(monkeypatch, axes, variant):
    model = random_model(SHAPES[axes], free_surface=True)
    shot = random_shot(model, samples=25)
    one, other = (run(Emulated(monkeypatch, chosen)(model), shot, 8)[:3] for chosen in (SMALL, VARIANTS[variant]))
    assert all(np.array_equal(*pair) for pair in zip(one, other, strict=True))


@pytest.mark.parametrize(("axes", "free_surface"), BOXES)
def test_dot_products_agree(there, axes, free_surface):
    model = there(random_model(SHAPES[axes], free_surface=free_surface))
    shot = random_shot(model)
    loop = Loop(shot, Acoustic(model, shot.dt))
    rng, kernels = np.random.default_rng(5), loop.kernels
    sent, weights = rng.standard_normal(loop.sent.shape).astype(np.float32), rng.standard_normal(loop.heard.shape)
    loop.sent = kernels.put(sent)
    loop.forward(loop.propagator.zeros(), 0, loop.steps)
    adjoint, arrived = Adjoint(loop, weights), kernels.zeros(loop.sent.shape)
    for step in reversed(range(loop.steps)):
        adjoint.back_to(step + 1)
        loop.propagator.record(adjoint.state, loop.sources, arrived[step])
    heard, arrived = loop.data().astype(float), kernels.get(arrived).astype(float)
    difference = abs(np.vdot(heard, weights) - np.vdot(sent, arrived))
    assert difference < 1e-5 * np.linalg.norm(heard) * np.linalg.norm(weights)


@pytest.mark.parametrize(
    "free_surface", [pytest.param(False, marks=pytest.mark.slow), True], ids=["open", "free surface"]
)
def test_single_steps_are_those_of_a_run(there, free_surface):
    model = there(random_model(SHAPES["2-D"], free_surface=free_surface))
    shot = random_shot(model, samples=9)
    heard, p, p_old, propagator = run(model, shot, 8, 7)
    kernels, again = propagator.kernels, Loop(shot, Acoustic(model, propagator.dt, 8))
    sent = np.random.default_rng(5).standard_normal(again.sent.shape).astype(np.float32)
    again.sent, state = kernels.put(sent), propagator.zeros()
    for step in range(7):
        propagator.record(state, again.receivers, again.heard[step])
        state = propagator.step(state, again.sources, again.sent[step])
    assert np.array_equal(kernels.get(state["p"]), p) and np.array_equal(kernels.get(state["p_old"]), p_old)
    assert np.array_equal(kernels.get(again.heard), heard)


@pytest.fixture(scope="module")
def seen():
    """Return a model and a shot with its data."""
    model = smooth_model((50, 57))
    shot = surface_shot(model, samples=90)
    return model, shot.with_data(simulate(shot, AcousticModel(0.97 * model.velocity, model.grid)))


@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.slow), 4])
def test_images_are_those_of_the_cpu(there, seen, every):
    model, shot = seen
    expected, found = (migrate(shot, one, every=every, budget="64MB") for one in (model, there(model)))
    agree(found.image, expected.image, 1e-5)  # sums of products, and over all steps
    agree(found.illumination, expected.illumination, 1e-5)


@pytest.mark.slow  # nine seconds of a compiler
def test_images_in_three_dimensions(there):
    grid = Grid((14, 15, 17), 10.0, absorb=6, free_surface=True)
    model = AcousticModel(2000.0 + 20.0 * np.arange(17.0) + np.zeros(grid.shape), grid)
    shot = random_shot(
        model, sources=1, wavelet=np.sin(0.7 * np.arange(40.0))[:, None] * np.hanning(40)[:, None], samples=40
    )
    shot = replace(shot, dt=4 * shot.dt).with_data(np.random.default_rng(3).standard_normal((40, 5)))
    expected, found = (
        migrate(shot, one, dt=shot.dt / 4, every=2, budget="64MB", order=4) for one in (model, there(model))
    )
    agree(found.image, expected.image, 1e-5)
    agree(found.illumination, expected.illumination, 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["bounded:1e-4", "cast:bfloat16"])
def test_records_encoded_where_they_lie_give_the_image_of_copies(there, seen, codec, monkeypatch):
    model, shot = seen
    how = {"every": 3, "budget": "64MB", "codec": codec, "schedule": "storeall", "costs": COSTS}
    windows = migrate(shot, there(model), **how)
    monkeypatch.setattr(Acoustic, "image_window", Acoustic.image_record)
    copies = migrate(shot, there(model), **how)
    assert (windows.result.plan.keep, windows.result.plan.codec) == ("records", get(codec).name)
    for name in ("image", "illumination"):
        assert np.array_equal(on_host(getattr(windows, name)), on_host(getattr(copies, name)))


@pytest.mark.slow  # nine seconds of a compiler
@pytest.mark.parametrize("kept", ["1.4MB", "2.5MB"])
def test_records_are_multiplied_as_they_are_kept_in_three_dimensions(there, kept, monkeypatch):
    grid = Grid((17, 19, 36), 10.0, absorb=6, free_surface=True)
    model = there(AcousticModel(2000.0 + 20.0 * np.arange(36.0) + np.zeros(grid.shape), grid))
    shot = random_shot(
        model, sources=1, wavelet=np.sin(0.7 * np.arange(40.0))[:, None] * np.hanning(40)[:, None], samples=40
    )
    shot = replace(shot, dt=4 * shot.dt).with_data(np.random.default_rng(3).standard_normal((40, 5)))
    budget = kept if isinstance(there, Emulated) else "64MB"  # on a GPU the driver takes more than all records
    how = {"dt": shot.dt / 4, "every": 2, "budget": budget, "order": 4, "codec": "bounded:1e-4", "schedule": "storeall"}
    met = migrate(shot, model, costs=COSTS, **how)
    assert (met.result.plan.keep, met.result.plan.codec) == ("records", "bounded:0.0001")
    if isinstance(there, Emulated):
        launched, steps = there.emulator.launches, met.result.plan.schedule.steps
        assert launched.count("multiply") == steps - launched.count("correlate") > steps // 2
    monkeypatch.setattr(Acoustic, "correlates_encoded", lambda self, codec: False)
    decoded = migrate(shot, model, costs=COSTS, **how)
    for name in ("image", "illumination"):
        assert np.array_equal(on_host(getattr(met, name)), on_host(getattr(decoded, name)))
        assert on_host(getattr(met, name)).any()


@pytest.mark.slow
def test_budgets_change_no_bit(there, seen):
    model, shot = seen
    kept, tight = (migrate(shot, there(model), every=3, budget=budget) for budget in ("64MB", "600kB"))
    for name in ("image", "illumination"):
        assert np.array_equal(on_host(getattr(kept, name)), on_host(getattr(tight, name)))


def test_codecs_are_compared_where_the_adjoint_already_is(there, seen):
    model, shot = seen
    found = migrate(shot, there(model), every=5, budget="64MB", compare=["raw"])
    agree(found.compared["raw"].image, found.image, 1e-6)
    agree(found.compared["raw"].illumination, found.illumination, 1e-6)


def test_a_condition_sees_the_model_and_nothing_else(there, seen):
    model, shot = seen
    shapes, totals = set(), []

    def condition(source, receiver, step):
        shapes.update((source.shape, receiver.shape))
        totals.append(float((source * receiver).sum()))

    found = migrate(shot, there(model), every=5, budget="64MB", condition=condition)
    assert shapes == {model.grid.shape}
    assert sum(totals) * 5 * found.dt == pytest.approx(float(found.image.sum(dtype=float)), rel=1e-3)


@pytest.mark.parametrize(
    "free_surface", [pytest.param(False, marks=pytest.mark.slow), True], ids=["open", "free surface"]
)
def test_gradients_are_those_of_the_cpu(there, free_surface):
    model = smooth_model((40, 45), free_surface=free_surface)
    shot = surface_shot(model, samples=60)
    shot = shot.with_data(simulate(shot, AcousticModel(0.97 * model.velocity, model.grid)))
    expected, found = (gradient(shot, one, budget="64MB") for one in (model, there(model)))
    agree(found.data, expected.data)
    agree(found.gradient, expected.gradient, 2e-5)


@pytest.mark.slow
def test_gradients_in_three_dimensions(there):
    model = random_model((13, 14, 15), absorb=5)
    sent = ricker(15.0, 0.9 * largest_dt(model), 120)[:, None]
    shot = random_shot(model, sources=1, samples=120, wavelet=sent)
    shot = shot.with_data(simulate(shot, AcousticModel(0.97 * model.velocity, model.grid)))
    expected, found = (gradient(shot, one, budget="64MB") for one in (model, there(model)))
    agree(found.data, expected.data)
    agree(found.gradient, expected.gradient, 2e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("library", ["cupy", "torch"])
def test_results_are_of_the_library_and_in_the_memory_of_the_model(library, seen):
    cupy, arrays = pytest.importorskip("cupy"), pytest.importorskip(library)
    model, shot = seen
    velocity = arrays.asarray(model.velocity, dtype=arrays.float32)
    velocity = velocity.cuda() if library == "torch" else velocity
    there = AcousticModel(velocity, model.grid)
    expected, found = (migrate(shot, own, every=5, budget="64MB") for own in (model, there))
    slopes = [gradient(shot, own, budget="64MB").gradient for own in (model, there)]
    for array in (found.image, found.illumination, found.clean(), slopes[1]):
        assert type(array) is type(velocity) and cupy.asarray(array).device.id == 0
    agree(found.clean(), expected.clean(), 1e-4)
    agree(slopes[1], slopes[0], 2e-5)
    assert isinstance(simulate(shot, there), np.ndarray)


@pytest.mark.slow
@pytest.mark.skipif(GPP is None, reason="g++ is not installed")
def test_a_step_is_three_launches(monkeypatch, seen):
    model, shot = seen
    there = Emulated(monkeypatch)
    measured = migrate(shot, there(model), every=3, budget="64MB", schedule="storeall")
    launched = there.emulator.launches
    launched.clear()  # with a plan there is nothing to rehearse
    found = migrate(shot, there(model), every=3, plan=measured.result.plan)
    images = len(range(0, found.result.plan.steps, 3))
    assert launched.count("advance_and_image") == images <= launched.count("crop") <= images + 2
    assert launched.count("points") == launched.count("advance") + images
    assert launched.count("points") == launched.count("change") + launched.count("change_back")
    assert {*launched} == {"change", "change_back", "advance", "advance_and_image", "points", "crop"}


@pytest.mark.skipif(GPP is None, reason="g++ is not installed")
@pytest.mark.parametrize(("options", "reason"), [({"order": 10}, "at most 8"), ({"dtype": np.float64}, "float32")])
def test_what_only_the_cpu_can_is_refused(monkeypatch, options, reason):
    with pytest.raises(WaveError, match=reason):
        Acoustic(Emulated(monkeypatch)(random_model((20, 20))), 1e-4, **options)


@pytest.mark.parametrize("planes", [1, 3, 7, 100, 513])
@pytest.mark.parametrize("axes", [2, 3])
def test_chunks_cover_every_plane_and_are_not_short(axes, planes):
    for slots in (4, 264):
        chunk = chunk_of(axes, (3, 5), planes, slots, Variant())
        assert min(planes, 4) <= chunk <= planes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("axes", "radius", "arch"),
    [
        (2, 2, "sm_90"),
        (3, 4, "sm_90"),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in ((2, 4, "sm_90"), (3, 2, "sm_90"), (3, 4, "sm_80"))),
    ],
)
def test_the_source_compiles(axes, radius, arch):
    compile_only = pytest.importorskip("forebay.cuda.kernels").compile_only
    try:
        source = plane.SOURCE if axes == 2 else volume.SOURCE
        chosen = Variant().defines(axes, radius, 1, 12) if axes == 2 else {"RADIUS": radius, "EDGE": 16}
        code = compile_only(source, arch, fmad=False, defines=chosen)
        code += compile_only(acoustic_gpu.SOURCE, arch, fmad=False, defines={"AXES": axes, "RADIUS": radius})
    except DeviceError as error:
        pytest.skip(str(error))
    own = (b"advance_and_image", b"curvature") if axes == 2 else (b"correlate", b"retreat_and_sense")
    assert all(name in code for name in (b"change", b"change_back", b"advance", *own, b"crop"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "change",
        "change_back",
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("advance", "retreat", "retreat_and_sense")),
    ],
)
def test_a_kernel_of_volumes_compiles_alone(name):
    compile_only = pytest.importorskip("forebay.cuda.kernels").compile_only
    try:
        code = compile_only(volume.SOURCE, fmad=False, defines={"RADIUS": 2, "ONE_KERNEL": 1, name.upper(): 1})
    except DeviceError as error:
        pytest.skip(str(error))
    assert set(re.findall(rb"\.text\.(\w+)", code)) == {name.encode()}


def test_a_migration_asks_for_no_kernel_that_is_not_compiled_ahead(monkeypatch):
    move = Emulated(monkeypatch)
    asked, real = [], move.emulator.kernel

    def kernel(source, name, defines, *shared):
        asked.append((source.name, name, tuple(sorted(defines.items()))))
        return real(source, name, defines, *shared)

    monkeypatch.setattr(move.emulator, "kernel", kernel)
    model = random_model(SHAPES["3-D"], free_surface=True)
    shot = random_shot(model, samples=6)
    loop = Loop(shot, Acoustic(move(model), shot.dt, 8))
    waves = loop.propagator
    waves.kernels.compile_ahead(waves.layers)
    ahead = set(asked)
    record = waves.image_record(loop.forward(waves.zeros(), 0, 4), ("pp",))
    adjoint = Adjoint(loop, np.zeros(loop.data().shape, np.float32))
    adjoint.back_to(1)
    waves.add_image(adjoint, 0, waves.image_sums(("pp",)), record, shot.dt, None)
    assert {each for each in asked if each[0] == volume.SOURCE.name} == ahead and len(ahead) == 4
