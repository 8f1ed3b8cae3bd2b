"""Learning: from functions whose memory is known by counting, in real processes, and from made-up ones without any."""

import sys
import time
from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest
from tests.footprint import functions

import forebay.footprint as footprint
from forebay.errors import BudgetError
from forebay.footprint import FootprintError, FootprintWarning, Model, Sample, learn
from forebay.footprint.errors import RunError
from forebay.footprint.measure.conditions import Conditions
from forebay.footprint.measure.inputs import InputLayout, InputRecipe
from forebay.footprint.measure.process import Child, Workload
from forebay.footprint.search.search import Search
from forebay.footprint.search.spending import Spending
from forebay.units import Budget

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells exact peaks")
BATCH = 128 * 1024
learning = import_module("forebay.footprint.learn")


class Pretend:
    """Runs nothing: peaks come from a formula."""

    gauge_name, exact, resolution, gpu, returned, dtypes = "pretended", True, BATCH, None, "", ()
    apart, makes_views = True, False

    def __init__(self, peak, seconds=lambda *n: 1e-8 * np.prod(n), output=lambda *n: n, takes=lambda *n: True):
        self.peak, self.seconds, self.output, self.takes = peak, seconds, output, takes
        self.shapes = []
        self.rng = np.random.default_rng(0)

    def measure(self, lengths, seed=0, timeout=None):
        self.shapes.append(lengths)
        if not self.takes(*lengths):
            raise RunError(f"it does not take {lengths}")
        peak = int(self.peak(*lengths) - self.rng.uniform(0, BATCH))
        return Sample(lengths, max(peak, 0), self.seconds(*lengths), None, self.output(*lengths), "float32", seed=seed)

    def versions(self):
        return {}

    def close(self):
        pass


def search(pretend, ndim=3, samples=10, target=None, seconds=1000.0, elements=2**24):
    blank = Model("pretended", InputLayout.of(ndim), np.dtype("float32"), (), Conditions("pretended", True, BATCH, ""))
    limits = Spending(samples, time.perf_counter() + seconds, 0.06, 1, elements, 0.1 * seconds, target)
    return Search(pretend, blank, limits, varied=False).go()


@pytest.fixture(scope="module")
def sixteen():
    """A model of sixteen bytes a voxel."""
    return search(Pretend(lambda a, b, c: 16 * a * b * c))


def test_a_few_tiny_samples_are_enough_and_the_cheapest_come_first(sixteen):
    model = sixteen
    assert len(model.samples) <= 8
    volumes = [np.prod(sample.lengths) for sample in model.samples]
    assert volumes[0] == min(volumes) and volumes[0] < 10_000
    assert max(sample.host for sample in model.samples) < 64e6
    run = model.predict((651, 951, 462))
    true = 16 * 651 * 951 * 462
    assert abs(run.bytes / true - 1) < 0.02 and true <= run.upper <= 1.1 * true


def test_every_axis_is_varied_on_its_own():
    model = search(Pretend(lambda a, b, c: 8 * a * b * c + 1000 * b * c))
    for axis in range(3):
        assert any(
            sample.lengths[axis] > 2 * max(n for other, n in enumerate(sample.lengths) if other != axis)
            for sample in model.samples
        )


@pytest.mark.parametrize("rounds", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_an_even_shape_follows_the_long_ones_which_cannot_tell_squares_from_products(rounds):
    for _ in range(rounds):
        model = search(Pretend(lambda a, b: 16 * a * b + 8 * a * a, output=lambda a, b: (a, a)), ndim=2)
        assert any(max(n) < 2 * min(n) and np.prod(n) > 2e5 for n in (sample.lengths for sample in model.samples))
        assert model.predict((3000, 2000)).upper >= 16 * 3000 * 2000 + 8 * 3000**2


def test_a_single_run_that_also_pays_for_what_a_library_keeps_does_not_pass_for_memory_of_the_data():
    for paying in (3, 4):
        pretend = Pretend(lambda a, b: 16 * a * b)
        pretend.peak = lambda a, b, p=pretend, n=paying: 16 * a * b + (1_500_000 if len(p.shapes) == n else 0)
        model = search(pretend, ndim=2)
        assert model.doubts.notes == () and model.predict((3000, 2000)).upper <= 1.1 * 16 * 3000 * 2000


def test_memory_by_chance_is_found_even_where_two_small_runs_agree():
    pretend = Pretend(lambda a, b: 8 * a * b * {3: 3, 4: 18, 5: 18}.get(len(pretend.shapes), 12 + len(pretend.shapes)))
    model = search(pretend, ndim=2)
    assert "its memory is random" in model.doubts.notes[0] and model.predict((3000, 2000)).upper >= 8 * 22 * 3000 * 2000


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(60, 50, 70), (200, 300, 100), (400, 500, 300)])
def test_samples_are_a_twentieth_of_the_shape_that_matters_but_never_so_small_that_they_drown(shape, monkeypatch):
    pretend = Pretend(lambda a, b, c: 4 * a * b * c + 40 * b * c)
    monkeypatch.setattr(learning, "_runner", lambda *how: (pretend, "pretended", ""))
    learn(functions.double, ndim=3, shape=shape, samples=9)
    most = max(0.05 * np.prod(shape), 2**20)
    largest = max(np.prod(taken) for taken in pretend.shapes)
    assert min(most, np.prod(shape)) / 8 < largest <= most
    assert (shape in pretend.shapes) == (np.prod(shape) <= 2**20)


def test_a_sample_has_the_proportions_of_the_shape_that_matters():
    """Whichever stage leads there leads in it: a twentieth of the elements, or so."""
    pretend = Pretend(lambda a, b: max(24 * a * b, 90 * min(a, b) ** 2))
    model = search(pretend, ndim=2, target=(4000, 2500), elements=5e5)
    alike = [shape for shape in pretend.shapes if shape[0] / shape[1] == pytest.approx(1.6, rel=0.02)]
    assert any(np.prod(shape) > 4e5 for shape in alike)
    run, true = model.predict((4000, 2500)), 90 * 2500**2
    assert run.bytes == pytest.approx(true, rel=0.05) and true <= run.upper


@pytest.mark.slow
@linux
def test_the_bound_for_a_small_shape_that_is_asked_for_holds():
    shape = (651, 951)
    model = learn(functions.where, ndim=2, shape=shape)
    assert model.notes == model.doubts.notes == () and "VmHWM" in model.explain()
    assert model.predict(shape).output_shape == shape and model.predict(shape).output_dtype == np.float32
    child = Child(Workload(functions.where, InputRecipe(InputLayout.of(2), "float32")))
    try:
        child.measure((16, 16))
        assert child.measure(shape).peak <= model.predict(shape).upper <= 1.3 * 13 * 651 * 951
    finally:
        child.close()


@pytest.mark.parametrize("ndim", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_no_sample_is_expected_to_take_more_than_a_share_of_the_seconds_left(ndim):
    pretend = Pretend(lambda *n: 4 * np.prod(n), seconds=lambda *n: 1e-5 * np.prod(n))
    model = search(pretend, ndim=ndim, seconds=20)
    assert max(sample.seconds for sample in model.samples) < 10


def test_steep_memory_is_not_leapt_into():
    model = search(Pretend(lambda n: 8 * n * n), ndim=1)
    assert max(sample.host for sample in model.samples) < 600e6
    assert model.predict((100_000,)).bytes == pytest.approx(8e10, rel=0.02)


def test_a_workspace_larger_than_small_samples_does_not_pass_for_the_whole_memory():
    model = search(Pretend(lambda a, b, c: 10_000_000 + 8 * a * b * c))
    run = model.predict((400, 400, 400))
    assert run.bytes == pytest.approx(10_000_000 + 8 * 400**3, rel=0.03) and run.upper >= 8 * 400**3


@pytest.mark.parametrize("shape", [(3000, 3), pytest.param((1000, 3, 3), marks=pytest.mark.slow)])
def test_an_estimate_is_never_below_the_output(shape):
    model = search(Pretend(lambda *n: 4 * np.prod(n) + BATCH), ndim=len(shape))
    assert model.predict(shape).bytes >= 36_000


def test_memory_that_falls_as_shapes_grow_is_said():
    model = search(Pretend(lambda a, b, c: 20e6 if a * b * c < 50_000 else 4 * a * b * c))
    assert any("not monotone" in note for note in model.doubts.notes)
    run = model.predict((300, 300, 300))
    assert run.upper > 1.3 * run.bytes


@pytest.mark.slow
def test_observing_a_large_run_tightens_the_bound():
    model = search(Pretend(lambda a, b, c: 4 * a * b * c + 30 * b * c))
    far = (600, 500, 400)
    seen = Sample((500, 400, 300), 4 * 500 * 400 * 300 + 30 * 400 * 300, 1.0, None, (500, 400, 300), "float32")
    before, after = model.predict(far), model.observe(seen).predict(far)
    assert after.upper / after.bytes < before.upper / before.bytes


def test_shapes_and_features_are_checked(sixteen):
    for wrong in ((3, 4), (3, 4, 0), "abc", 7):
        with pytest.raises(FootprintError, match="shape"):
            sixteen.predict(wrong)
    with pytest.raises(FootprintError, match="features"):
        sixteen.predict((3, 4, 5), features={"events": 3})


def test_chunks_fit_the_budget(sixteen):
    chunks = sixteen.chunks((651, 951, 462), "1GB", threads=2, halo=(8, 8, 8))
    padded = tuple(min(n + 16, whole) for n, whole in zip(chunks, (651, 951, 462), strict=True))
    assert (np.prod(padded) * 4 + sixteen.predict(padded).upper) * 2 <= 1e9


def test_chunks_take_the_planners_options_and_a_budget_of_tiers(sixteen):
    shape = (65, 95, 46)
    assert sixteen.chunks(shape, "3MB", whole=-1)[2] == 46
    alone, queue = (sixteen.chunks(shape, "3MB", **more) for more in ({}, {"waiting": 3}))
    assert np.prod(queue) < np.prod(alone)
    assert sixteen.chunks(shape, Budget(host="3MB", device="1kB")) == alone


def test_shapes_at_which_a_function_raises_are_left_out_and_told():
    model = search(Pretend(lambda a, b: 16 * a * b, takes=lambda a, b: a <= 2 * b), ndim=2)
    assert len(model.samples) >= 5 and all(a <= 2 * b for a, b in (sample.lengths for sample in model.samples))
    assert any("raises at some shapes" in note for note in model.notes)
    assert model.predict((3000, 4000)).bytes == pytest.approx(16 * 3000 * 4000, rel=0.02)


def test_what_raises_at_small_shapes_or_returns_nothing_is_told():
    raising = search(Pretend(lambda a, b: 16 * a * b, takes=lambda a, b: min(a, b) >= 60), ndim=2)
    assert any("raises at smaller shapes" in note for note in raising.notes)
    silent = Pretend(lambda a, b: 16 * a * b, output=lambda a, b: None)
    silent.returned = "NoneType"
    model = search(silent, ndim=2)
    assert any("returns nothing" in note for note in model.notes) and model.predict((500, 500)).output_shape is None


def test_a_function_of_even_tiles_is_learned_at_lengths_that_it_takes():
    model = search(Pretend(lambda a, b: 16 * a * b, takes=lambda a, b: a % 8 == b % 8 == 0), ndim=2)
    assert any("multiples of 16" in note for note in model.notes)
    assert model.predict((3000, 4000)).bytes == pytest.approx(16 * 3000 * 4000, rel=0.02)


@pytest.mark.slow
def test_temporaries_that_only_small_arrays_need_do_not_widen_the_bound():
    model = search(Pretend(lambda a, b, c: (28 if a * b * c < 100_000 else 20) * a * b * c), target=(400, 500, 300))
    run, true = model.predict((400, 500, 300)), 20 * 400 * 500 * 300
    assert true <= run.upper <= 1.15 * true


@pytest.mark.slow
def test_a_search_that_ends_before_its_axes_were_varied_says_so_and_opens_the_bound():
    """Shapes of few proportions cannot tell a pairwise distance from what grows with its input."""

    def pairwise(a, b, c):
        return 8 * a * b * b + 4 * a * b * c

    model = search(Pretend(pairwise), samples=4)
    assert any("not varied apart" in note for note in model.doubts.notes)
    assert model.predict((20, 20_000, 40)).upper >= pairwise(20, 20_000, 40)
    assert not any("not varied apart" in note for note in search(Pretend(pairwise)).doubts.notes)


@pytest.mark.slow
def test_a_search_that_runs_out_of_seconds_says_so():
    pretend = Pretend(lambda a, b: 16 * a * b)
    measure = pretend.measure
    pretend.measure = lambda *asked, **how: (time.sleep(0.3), measure(*asked, **how))[1]
    model = search(pretend, ndim=2, seconds=1.2)
    assert any("seconds= ran out after" in note for note in model.notes)


SET_UP = {
    (45, 51): 16384,
    (126, 142): 3358720,
    (180, 612): 4100096,
    (135, 51): 3264512,
    (511, 577): 5427200,
    (722, 2442): 17231872,
    (1021, 1151): 12513280,
}
"""peaks of layer_norm and gelu of PyTorch, by VmHWM"""


def test_what_a_library_sets_up_for_all_but_the_tiniest_arrays_is_a_constant():
    samples = tuple(Sample(lengths, peak, 1e-3, None, lengths, "float32") for lengths, peak in SET_UP.items())
    conditions = Conditions("VmHWM", True, BATCH, "")
    model = Model("normalised", InputLayout.of(2), np.dtype("float32"), samples, conditions)
    run, measured = model.predict((5000, 8000)), 323_190_784
    assert run.bytes == pytest.approx(measured, rel=0.03) and measured <= run.upper <= 1.25 * measured


def test_numbers_of_numpy_will_do_and_threads_are_whole():
    assert InputLayout.of(np.int64(3)) == InputLayout.of(3) and InputLayout.of([np.int32(2), 1]) == InputLayout.of(
        [2, 1]
    )
    model = search(Pretend(lambda a, b: 16 * a * b), ndim=np.int64(2))
    assert model.chunks((np.int64(3000), 4000), "10MB", threads=np.int64(2)) == model.chunks(
        (3000, 4000), "10MB", threads=2
    )
    for wrong in (1.5, "2", 0):
        with pytest.raises(FootprintError, match="threads="):
            model.chunks((3000, 4000), "10MB", threads=wrong)


def test_where_the_output_decides_the_explanation_says_so():
    lying = search(Pretend(lambda a, b: 4 * a * b + 10 * BATCH, output=lambda a, b: (a, b)), ndim=2)
    samples = tuple(replace(sample, output_dtype="float32") for sample in lying.samples)
    told = "never less than the output"
    assert told not in replace(lying, samples=samples).explain()
    steep = [(20, 20), (40, 44), (50, 60), (64, 64)]
    below = tuple(Sample(n, BATCH, 1e-6, None, (n[0] * n[1],), "float64") for n in steep)
    model = replace(lying, samples=below)
    assert model.predict((1000, 1000)).bytes == 8_000_000 and f"{told}, float64 (n0*n1)" in model.explain()


def test_the_tier_that_binds_is_named():
    run = footprint.Estimate(10**9, 10**9, 0.01, None, None, 1.0, "device", 10**9, 10**9)
    assert run.binds(Budget(device="8GB", host="64GB")) == "device"
    assert run.binds(Budget(device="8GB", host="2GB")) == "host"


@linux
@pytest.mark.slow
def test_a_function_is_learned_exactly_and_again_the_same():
    model = learn(functions.double, ndim=3, samples=7)
    run = model.predict((300, 400, 500))
    assert run.bytes == pytest.approx(4 * 300 * 400 * 500, rel=0.02) and run.upper >= 4 * 300 * 400 * 500
    assert run.output_shape == (300, 400, 500) and run.output_dtype == np.float32
    assert model.notes == model.doubts.notes == () and "VmHWM" in model.explain()


@linux
@pytest.mark.slow
def test_a_function_that_raises_at_small_shapes_is_learned_at_larger_ones_and_says_so():
    with pytest.warns(FootprintWarning, match="raises at smaller shapes"):
        model = learn(functions.needs_forty, ndim=3, samples=5)
    assert model.predict((400, 300, 200)).output_shape == (360, 300, 200)


@pytest.mark.slow
def test_a_function_that_never_runs_is_an_error_with_its_own_words():
    with pytest.raises(FootprintError, match=r"(?s)smallest=.*no such colour space"):
        learn(functions.never_runs, ndim=2)


@linux
@pytest.mark.slow
def test_a_function_that_returns_nothing_is_learned_without_an_output():
    with pytest.warns(FootprintWarning, match="returns nothing"):
        model = learn(functions.returns_nothing, ndim=2, samples=4)
    assert model.predict((500, 500)).output_shape is None


@linux
@pytest.mark.slow
def test_random_memory_is_said_and_bounded_widely():
    with pytest.warns(FootprintWarning, match="its memory is (random|not monotone)"):
        model = learn(functions.random_memory, ndim=2, samples=7)
    assert model.predict((3000, 3000)).upper > 8 * 21 * 3000 * 3000  # more than its dice can ask for


@linux
@pytest.mark.slow
def test_memory_can_depend_on_features_of_the_data():
    model = learn(
        functions.events,
        ndim=1,
        inputs=functions.sparse,
        features=lambda x: {"found": float((x > 0.5).sum())},
        smallest=20_000,
    )
    few, many = (model.predict((10**6,), features={"found": found}).bytes for found in (1e5, 8e5))
    assert many - few == pytest.approx(7e5 * (16 * 8 + 8 + 8), rel=0.1)
    with pytest.raises(FootprintError, match="found"):
        model.predict((10**6,))
    plans = [
        model.chunks((10**8,), "1GB", features=lambda shape, share=share: {"found": share * shape[0]}, overhead=10**4)
        for share in (0.1, 0.9)
    ]
    assert plans[1] < plans[0]  # few chunks where each costs hours, so as large as they may be


@linux
@pytest.mark.slow
def test_several_inputs_go_by_position_by_keyword_or_through_a_factory():
    named = learn(functions.correlate, ndim={"image": 2, "kernel": 1}, samples=5)
    run = named.predict(image=(3000, 2000), kernel=(50,))
    assert run.bytes == pytest.approx(4 * 3000 * 2000, rel=0.05) and run.output_shape == (3000, 2000)
    with pytest.raises(FootprintError, match="image, kernel"):
        named.predict((3, 3))
    with pytest.raises(FootprintError, match="2, 1 axes, which cannot be cut alike"):
        named.chunks((3000, 2000), "1MB")
    made = learn(functions.product, ndim=3, inputs=functions.matrices, smallest=150, samples=6)
    assert made.predict((3000, 100, 2000)).bytes == pytest.approx(4 * 3000 * 2000, rel=0.1)
    assert made.predict((3000, 100, 2000)).output_shape == (3000, 2000)
    assert made.input_bytes((3000, 100, 2000)) == pytest.approx(4 * (3000 * 100 + 100 * 2000), rel=0.02)


@linux
@pytest.mark.slow
def test_inputs_that_are_alike_leave_little_of_the_budget():
    model = learn(functions.both, ndim=2, inputs=functions.two_alike, samples=4)
    assert model.input_bytes((100, 100)) == 2 * 8 * 100 * 100
    chunks = model.chunks((30_000, 30_000), "240MB", overhead=10**4)
    assert 100e6 < (8 + 8 + 8) * np.prod(chunks) <= 240e6


@pytest.mark.slow
@linux
def test_all_inputs_that_a_factory_makes_are_counted_by_the_planner_and_kept_by_their_dtypes():
    model = learn(functions.both, ndim=2, inputs=functions.mixed, samples=4)
    assert model.input_bytes((100, 100)) == (8 + 2) * 100 * 100
    assert model.conditions.library == "numpy" and model.conditions.dtypes == ("float64", "int16")
    chunks = model.chunks((30_000, 30_000), "240MB", overhead=10**4)  # a chunk costs hours: as large as they may be
    assert 80e6 < (8 + 2 + 8) * np.prod(chunks) <= 240e6


def test_several_inputs_of_one_shape_are_cut_alike():
    firsts = [(20, 30), (90, 70), (200, 40), (60, 210)]
    shapes = list(zip(firsts, [(24, 36), (50, 60), (80, 300), (300, 90)], strict=True))
    samples = tuple(
        Sample((*a, *b), 4 * a[0] * a[1], 1e-6, None, a, "float32", inputs=4 * (a[0] * a[1] + b[0] * b[1]))
        for a, b in shapes
    )
    conditions = Conditions("VmHWM", True, 4096, "")
    model = Model("scale", InputLayout.of([2, 2]), np.dtype("float32"), samples, conditions)
    chunks = model.chunks((5000, 6000), "20MB")
    assert (4 + 4) * np.prod(chunks) + model.predict([chunks, chunks]).upper <= 20e6


@linux
def test_a_command_of_any_language_is_learned():
    model = learn(command=f"{sys.executable} -S -c 'x = bytearray(8 * {{0}} * {{1}} * 100)'", ndim=2, samples=7)
    more = model.predict((600, 1000)).bytes - model.predict((100, 1000)).bytes
    assert more == pytest.approx(800 * 500 * 1000, rel=0.03)


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"ndim": 0}, "number of axes"),
        ({"ndim": 2.5}, "number of axes"),
        ({"ndim": 2, "samples": 1}, "3 or more"),
        ({"ndim": 2, "samples": 3.5}, "samples=3.5: give a whole number"),
        ({"ndim": 2, "smallest": "8"}, "smallest='8': give a whole number"),
        ({"ndim": 2, "largest": "1GB"}, "largest='1GB': give a number"),
        ({"ndim": 2, "shape": (3.5, 4)}, "tuple of ints"),
        ({"ndim": 2, "library": "cudf"}, "numpy, cupy, torch"),
        ({"ndim": 2, "command": "true"}, "not both"),
        ({"ndim": 2, "shape": (3,)}, "2 positive lengths"),
        ({"ndim": 2, "dtype": "flot32"}, "none that NumPy knows"),
        ({"ndim": 2, "dtype": "datetime64[s]"}, "give inputs="),
        ({"ndim": 2, "largest": -1}, "most elements"),
        ({"ndim": 2, "function": "double"}, "not a function"),
        ({"ndim": 2, "function": None}, "either a function or command="),
        ({"ndim": 2, "function": functions.holds_a_lock()}, "cannot be sent"),
        ({"ndim": 2, "function": None, "command": ""}, "is empty"),
        ({"ndim": 2, "function": None, "command": "./op '{0}"}, "write it as for a shell"),
        ({"ndim": 2, "function": None, "command": "./op {0}", "features": len}, "makes its own input"),
    ],
)
def test_what_cannot_be_learned_is_refused_before_anything_runs(how, says):
    with pytest.raises(FootprintError, match=says):
        learn(**{"function": functions.double} | how)


@pytest.mark.slow
def test_features_that_are_no_numbers_by_name_are_refused():
    with pytest.raises(FootprintError, match="dict of numbers by name, and gave 3"):
        learn(functions.double, ndim=2, features=lambda x: 3)


@pytest.mark.slow
def test_a_gauge_that_does_not_exist_is_refused():
    with pytest.raises(FootprintError, match="resident, traced"):
        learn(functions.double, ndim=2, gauge="guess")


def test_errors_of_runs_are_footprint_errors():
    assert issubclass(RunError, FootprintError)


def company(**more):
    """A model of samples that tell more than peaks."""
    lengths = [(20, 30), (90, 70), (200, 40), (600, 210)]
    dense = [Sample(n, 8 * n[0] * n[1], 1e-6, None, n, "float32", inputs=4 * n[0] * n[1], **more) for n in lengths]
    view = replace(dense[-1], host=12 * 600 * 210, strided=True)
    return Model("scale", InputLayout.of(2), np.dtype("float32"), (*dense, view), Conditions("VmHWM", True, 4096, ""))


def test_a_view_with_gaps_is_told_and_asked_for_and_what_chunks_are_planned_for():
    model = company()
    dense, view = model.predict((2000, 3000)), model.predict((2000, 3000), views=True)
    assert dense.bytes == pytest.approx(8 * 6e6, rel=0.02) and view.bytes == pytest.approx(12 * 6e6, rel=0.05)
    assert view.upper >= 12 * 6e6 and any("view with gaps" in note for note in model.doubts.notes)
    assert (4 + 12) * np.prod(model.chunks((2000, 3000), "20MB")) <= 20e6


def test_memory_that_every_call_keeps_is_told_and_counted_for_all_blocks_of_a_worker():
    model = company(kept=0)
    plain = model.chunks((2000, 3000), "60MB")
    kept = (replace(each, kept=4 * each.lengths[0] * each.lengths[1]) for each in model.samples)
    leaking = replace(model, samples=tuple(kept))
    assert leaking.predict((100, 100)).kept == 40_000
    assert any("keeps 4 bytes an element with every call" in note for note in leaking.doubts.notes)
    assert np.prod(leaking.chunks((2000, 3000), "60MB")) < np.prod(plain)
    with pytest.raises(BudgetError, match="kept 24MB"):
        leaking.chunks((2000, 3000), "23MB")


def test_processes_that_a_function_starts_are_told():
    (note,) = (note for note in company(children=1000, started=True).doubts.notes if "processes" in note)
    assert "it starts processes" in note
    assert any("not counted" in note for note in company(started=True).doubts.notes)
