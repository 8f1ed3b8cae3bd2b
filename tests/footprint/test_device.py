"""Footprints on a GPU: peaks from the allocators of CuPy and PyTorch, and large shapes foreseen from them."""

from importlib import import_module
from math import prod

import numpy as np
import pytest
from seismic_operators_gpu import OPERATORS

from forebay.cuda.available import gpu_count, why_not
from forebay.footprint import learn
from forebay.footprint.fit.fast_lengths import next_fast_len
from forebay.footprint.measure.gauge import device_gauge
from forebay.footprint.measure.inputs import InputLayout, InputRecipe
from forebay.footprint.measure.process import Child, Workload
from forebay.footprint.measure.sample import Sample
from forebay.units import Budget

on_gpu = [pytest.mark.gpu, pytest.mark.skipif(gpu_count() == 0, reason=why_not())]
LARGEST = 1.2e6
HELD_OUT = [(240, 300, 410), (511, 203, 301), (190, 420, 733)]


def in_blocks(*sizes):
    """Add up what CuPy's allocator gives for each."""
    return sum(-(-size // 512) * 512 for size in sizes)


def padded_in_turn(a, b, c):
    """Two copies padded by 24 beside a volume, at the second axis or at the third."""
    return 12 * a * b * c + max(96 * c * (a + b) + 16 * (b + 24), 96 * a * (b + c) + 16 * (c + 24))


PEAKS = {
    "cupy_envelope": lambda a, b, c: in_blocks(4 * a * b * c, *2 * [8 * a * b * next_fast_len(c)]),
    "cupy_gaussian": lambda a, b, c: in_blocks(*2 * [4 * a * b * c]) + 2048,
    "cupy_gst3d": lambda a, b, c: in_blocks(*19 * [4 * (a - 2) * (b - 2) * (c - 2)], (a - 2) * (b - 2) * (c - 2)),
    "torch_envelope": lambda a, b, c: 12 * a * b * c + 16 * a * b * next_fast_len(c),
    "torch_gaussian": padded_in_turn,
    "torch_gst3d": lambda a, b, c: 77 * (a - 2) * (b - 2) * (c - 2),
}
"""what the allocators were asked for on an H200, to the byte"""


def volume_of(library, shape):
    data = np.cumsum(np.random.default_rng(0).random(shape, dtype=np.float32), axis=1)
    arrays = pytest.importorskip(library)
    if library == "torch":
        return arrays.as_tensor(data, device="cuda" if arrays.cuda.is_available() else "cpu")
    return arrays.asarray(data)


def on_host(array):
    return array.cpu().numpy() if hasattr(array, "cpu") else array.get()


@pytest.mark.parametrize(
    "name",
    [name if library == "torch" else pytest.param(name, marks=on_gpu) for name, (library, _) in OPERATORS.items()],
)
def test_they_compute_what_their_namesakes_do(name):
    pytest.importorskip("scipy")
    import seismic_operators as operators

    library, operator = OPERATORS[name]
    volume = volume_of(library, (21, 24, 32))  # 32 transforms fast as it is
    expected = operators.OPERATORS[name.partition("_")[2]](on_host(volume))
    found = on_host(operator(volume))
    assert found.shape == expected.shape and found.dtype == expected.dtype
    assert np.quantile(np.abs(found - expected), 0.99) < 1e-3 and np.median(np.abs(found - expected)) < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        name
        if name in ("cupy_envelope", "cupy_gst3d", "torch_gaussian")
        else pytest.param(name, marks=pytest.mark.slow)
        for name in OPERATORS
    ],
)
def test_peaks_as_allocators_tell_them_are_foreseen(name, monkeypatch):
    class Told:
        """Knows the peaks without running anything."""

        gauge_name, exact, resolution, gpu, returned, dtypes = "told", True, 128 * 1024, "H200", "ndarray", ("float32",)
        apart, makes_views = True, False

        def __init__(self, work):
            self.trim = 2 if "gst3d" in work.function.__name__ else 0

        def measure(self, lengths, seed=0, timeout=None):
            shape = tuple(length - self.trim for length in lengths)
            inputs = 4 * prod(lengths)
            return Sample(lengths, 0, 0.01, PEAKS[name](*lengths), shape, "float32", seed=seed, inputs=inputs)

        def versions(self):
            return {}

        def close(self):
            pass

    monkeypatch.setattr(import_module("forebay.footprint.learn"), "Child", Told)
    library, operator = OPERATORS[name]
    model = learn(operator, ndim=3, library=library, largest=LARGEST)
    assert model.place == "device" and len(model.samples) <= 10
    for shape in HELD_OUT:
        foreseen, peak = model.predict(shape), PEAKS[name](*shape)
        assert abs(foreseen.bytes / peak - 1) <= 0.01
        assert peak <= foreseen.upper <= 1.08 * peak


@pytest.mark.gpu
@pytest.mark.skipif(gpu_count() == 0, reason=why_not())
class TestOnAGpu:
    @pytest.mark.parametrize("library", ["cupy", "torch"])
    def test_a_gauge_counts_live_bytes(self, library):
        arrays = pytest.importorskip(library)
        gauge = device_gauge(library)
        assert gauge is not None
        where = {"device": "cuda"} if library == "torch" else {}
        kept = arrays.ones(1_000_000, **where)
        gauge.start()
        first = arrays.ones(4_000_000, dtype=arrays.float32, **where)
        del first
        second = arrays.ones(1_000_000, dtype=arrays.float32, **where)
        assert gauge.stop() == pytest.approx(16_000_000, abs=4096)
        del kept, second

    @pytest.mark.parametrize("name", OPERATORS)
    def test_shapes_many_times_larger_are_foreseen(self, name):
        library, operator = OPERATORS[name]
        pytest.importorskip(library)
        model = learn(operator, ndim=3, library=library, largest=LARGEST)
        assert model.place == "device" and len(model.samples) <= 10
        child = Child(Workload(operator, InputRecipe(InputLayout.of(3), "float32", library)))
        try:
            child.measure((16, 16, 16))
            for shape in HELD_OUT:
                assert prod(shape) >= 20 * max(prod(sample.lengths) for sample in model.samples)
                foreseen, run = model.predict(shape), child.measure(shape)
                assert abs(foreseen.bytes / run.device - 1) <= 0.02
                assert run.device <= foreseen.upper <= 1.1 * run.device
                assert foreseen.binds(Budget(device="8GB", host="64GB")) == "device"
        finally:
            child.close()

    @pytest.mark.parametrize("name", ["cupy_gst3d", "torch_gst3d"])
    def test_chunks_stay_inside_a_device_budget(self, name):
        library, operator = OPERATORS[name]
        pytest.importorskip(library)
        model = learn(operator, ndim=3, library=library, largest=LARGEST)
        budget = Budget(device="1GB", host="64GB")
        chunks = model.chunks((651, 951, 462), budget, halo=5)
        with_halo = tuple(length + 10 for length in chunks)
        child = Child(Workload(operator, InputRecipe(InputLayout.of(3), "float32", library)))
        try:
            child.measure((16, 16, 16))
            run = child.measure(with_halo)
        finally:
            child.close()
        assert 0.3e9 < run.device + run.inputs <= 1e9

    @pytest.mark.parametrize("library", ["cupy", "torch"])
    def test_a_model_belongs_to_its_gpu(self, library):
        pytest.importorskip(library)
        operator = OPERATORS[f"{library}_gaussian"][1]
        model = learn(operator, ndim=3, library=library, samples=4)
        assert model.conditions.gpu and model.conditions.changes(operator, "another GPU")
