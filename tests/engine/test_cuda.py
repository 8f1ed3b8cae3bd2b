"""Reversing on GPU arrays: bit-equal to keeping everything, whatever the plan, with streams of its own."""

import threading
from dataclasses import replace

import numpy as np
import pytest

import forebay as fb
from forebay.codec import get, nvcomp
from forebay.codec.lossless import Lossless
from forebay.cuda.available import gpu_count
from forebay.engine.timing.costing import driver_overhead
from forebay.errors import CodecError, EncodingError, StateError

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(gpu_count() == 0, reason="no GPU")]

POINTS = 1 << 20
SNAPSHOT = 2 * 4 * POINTS
BESIDE, BESIDE_CODECS = (driver_overhead("device", encoded) for encoded in (False, True))
"""Bytes that the driver takes beside snapshots, in a budget on top of them."""
COSTS = fb.Costs(1e-4, 1e-4, 1e12, host=fb.Link(5e10, 5e10), disk=fb.Link(2e9, 2e9))
SLOW = fb.Costs(1.0, 1e-3, 1e12)
BRICK = (40, 48, 64)

needs_nvcomp = pytest.mark.skipif(not nvcomp.available(), reason="nvCOMP is not installed")


class Loop:
    """Two fields stepped in place with their roles swapped, and an image that depends on every bit of each state."""

    def __init__(self, library):
        self.library = library
        rng = np.random.default_rng(0)
        self.start = [rng.standard_normal(POINTS).astype(np.float32) for _ in range(2)]
        self.image = self.array(np.zeros(POINTS, np.float64))
        self.steps = []

    def array(self, values):
        if self.library == "cupy":
            import cupy

            return cupy.asarray(values)
        import torch

        return torch.as_tensor(values).cuda()

    @property
    def state(self):
        return {"p": self.array(self.start[0]), "q": self.array(self.start[1])}

    def forward(self, state, start, stop):
        p, q = state["p"], state["q"]
        roll = self._roll
        for step in range(start, stop):
            q *= -1
            q += 1.9 * p
            q += 0.05 * (roll(p, 1) + roll(p, -1))
            q += 1e-3 * step
            p, q = q, p
        return {"p": p, "q": q}

    def _roll(self, array, shift):
        if self.library == "cupy":
            import cupy

            return cupy.roll(array, shift)
        return array.roll(shift)

    def backward(self, state, step):
        self.steps.append(step)
        self.image *= 0.999
        self.image += state["p"]
        self.image += 0.5 * state["q"]

    def result(self):
        image = self.image.get() if self.library == "cupy" else self.image.cpu().numpy()
        return image.tobytes()


@pytest.fixture(scope="module", params=["cupy", "torch"])
def library(request):
    pytest.importorskip(request.param)
    return request.param


@pytest.fixture(scope="module")
def expected(library):
    """Keep everything in a list, without the engine."""
    loop = Loop(library)
    states, state = [], loop.state
    for step in range(40):
        states.append({key: array.copy() if library == "cupy" else array.clone() for key, array in state.items()})
        state = loop.forward(state, step, step + 1)
    for step in range(39, -1, -1):
        loop.backward(states[step], step)
    return loop.result()


def reverse(loop, **arguments):
    call = {"costs": COSTS, "steps": 40} | arguments
    return fb.reverse(loop.forward, loop.backward, loop.state, **call)


@pytest.mark.parametrize("policy", ["min", "lru"])
@pytest.mark.parametrize(
    ("device", "host", "disk"), [(50, 0, 0), (6, 50, 0), (2, 50, 0), (1, 50, 0), (3, 4, 50), (1, 1, 50)]
)
@pytest.mark.parametrize("schedule", ["storeall", "uniform:9", "zcut:16", "revolve:5", "twolevel:8,3", "auto"])
def test_bit_equal_to_keeping_everything_run_twice(library, expected, schedule, device, host, disk, policy, tmp_path):
    budget = fb.Budget(BESIDE + device * SNAPSHOT, host * SNAPSHOT or None, disk * SNAPSHOT or None)
    for _ in range(2):
        loop = Loop(library)
        result = reverse(loop, budget=budget, schedule=schedule, policy=policy, directory=tmp_path)
        assert loop.steps == list(range(39, -1, -1))
        assert loop.result() == expected
        for tier, peak in result.metrics.peak.items():
            assert peak <= budget[tier]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("codec", ["raw", pytest.param("lossless", marks=needs_nvcomp)])
@pytest.mark.parametrize("assumed", [1.0, 4.0])
@pytest.mark.parametrize(("device", "host", "disk"), [(50, 0, 0), (4, 50, 0), (3, 4, 50)])
@pytest.mark.parametrize("schedule", ["storeall", "revolve:5", "twolevel:8,3", "auto"])
def test_an_exact_codec_is_bit_equal_even_where_its_ratio_was_a_lie(
    library, expected, schedule, device, host, disk, assumed, codec, tmp_path
):
    budget = fb.Budget(BESIDE_CODECS + device * SNAPSHOT, host * SNAPSHOT or None, disk * SNAPSHOT or None)
    known = fb.CodecCost(ratio=assumed, encode=1e15, decode=1e15, worst=1.01)
    loop = Loop(library)
    result = reverse(
        loop,
        budget=budget,
        schedule=schedule,
        codec=codec,
        costs=replace(COSTS, codecs={codec: known}),
        directory=tmp_path,
    )
    assert loop.steps == list(range(39, -1, -1))
    assert loop.result() == expected
    assert assumed == 1.0 or result.plan.codec == codec
    for tier, peak in result.metrics.peak.items():
        assert peak <= budget[tier]


def reverse_wave(library, codec, costs=SLOW, broken=None):
    """Reverse a growing field whose records fit only if they shrink; give the result and the errors backward saw."""
    z, y, x = np.meshgrid(*(np.linspace(0, 3, extent) for extent in BRICK), indexing="ij")
    field = np.sin(x * y + z).astype(np.float32)
    array = Loop(library).array
    exact = [array(field)]
    for _ in range(39):
        exact.append(exact[-1] * 1.001)
    errors = {}

    def forward(state, start, stop):
        for step in range(start, stop):
            state = (state[0] * 1.001, state[1] * 0.999)
            if step == broken:
                state[0][3, 4, 5] = np.nan
        return state

    def backward(record, step):
        span = float(exact[step].max() - exact[step].min())
        errors[step] = float(abs(record[0] - exact[step]).max()) / span

    state = (array(field), array(field[::-1].copy()))
    budget = fb.Budget(26 * field.nbytes + driver_overhead("device", True, arrays=2))
    result = fb.reverse(forward, backward, state, 40, budget=budget, record=(0,), codec=codec, costs=costs)
    return result, errors


@pytest.mark.parametrize(
    ("codec", "allowed"),
    [
        ("cast:float16", 2.0**-11),
        ("zfp:16", 1e-3),
        pytest.param("bitcomp:rel=1e-3", 1e-3, marks=needs_nvcomp),
        pytest.param("bitcomp:sigma=1e-3,algo=default", 1e-3, marks=needs_nvcomp),
    ],
)
def test_a_lossy_codec_is_measured_and_keeps_its_error(library, codec, allowed):
    result, errors = reverse_wave(library, codec)
    assert (result.plan.codec, result.plan.keep) == (get(codec).name, "records")
    assert sorted(errors) == list(range(40))
    assert 0 < max(errors.values()) <= allowed
    assert [sample.step for sample in result.metrics.samples] == [4, 12, 20, 28, 36]
    for sample in result.metrics.samples:
        assert 0 < sample.relative <= 1.001 * errors[sample.step]
    assert result.metrics.ratios.worst > 1.5
    assert {"compress", "decompress"} <= set(result.metrics.phases)


@needs_nvcomp
def test_auto_takes_a_codec_that_keeps_the_error(library):
    result, errors = reverse_wave(library, "auto:1e-3")
    assert result.plan.codec is not None and max(errors.values()) <= 1e-3


def test_what_a_codec_cannot_take_is_reported_before_results_return(library):
    costs = replace(SLOW, codecs={"zfp:8": fb.CodecCost(ratio=4.0, encode=1e12, decode=1e12)})
    with pytest.raises(CodecError, match="NaN or infinities"):
        reverse_wave(library, "zfp:8", costs, broken=20)
    reverse_wave(library, "zfp:8", costs)


class Damaged(Lossless):
    """Finds one bit of one encoding flipped when it is decoded."""

    name = "damaged"
    decoded = 0

    def decode_device(self, payload, out, stream):
        import cupy

        self.decoded += 1
        if self.decoded == 20:
            cupy.asarray(payload)[-1] ^= 4
        super().decode_device(payload, out, stream)


@needs_nvcomp
def test_damage_is_reported_before_results_return():
    pytest.importorskip("cupy")
    costs = replace(SLOW, codecs={"damaged": fb.CodecCost(ratio=2.0, encode=1e12, decode=1e12)})
    codec = Damaged()
    with pytest.raises(EncodingError, match="damaged"):
        reverse_wave("cupy", codec, costs)
    assert codec.decoded > 20
    reverse_wave("cupy", "lossless", replace(SLOW, codecs={"lossless": costs.codecs["damaged"]}))


def test_records_are_kept_and_seen(library):
    loop = Loop(library)
    seen = []
    fb.reverse(
        loop.forward,
        lambda record, step: seen.append(float(record["p"].sum())),
        loop.state,
        40,
        record=("p",),
        every=4,
        budget=fb.Budget(BESIDE + 3 * SNAPSHOT, 50 * SNAPSHOT),
        costs=COSTS,
    )
    state, sums = loop.state, []
    for step in range(0, 40, 4):
        sums.append(float(state["p"].sum()))
        state = loop.forward(state, step, step + 4)
    assert seen == sums[::-1]


def test_costs_are_measured_where_none_are_given(library, expected):
    loop = Loop(library)
    result = reverse(loop, costs=None, budget=fb.Budget(BESIDE + 3 * SNAPSHOT, 50 * SNAPSHOT))
    assert loop.result() == expected
    assert result.plan.costs.host is not None and result.plan.costs.assumed is None
    assert "measured against predicted" in result.explain()


def test_metrics_are_measured_by_events(library):
    metrics = reverse(
        Loop(library), budget=fb.Budget(BESIDE + 3 * SNAPSHOT, 50 * SNAPSHOT), schedule="storeall"
    ).metrics
    assert metrics.moved == {"up 1": 37 * SNAPSHOT, "down 1": 37 * SNAPSHOT}
    assert {"forward", "backward", "save"} <= set(metrics.phases)
    lanes = {span.lane for span in metrics.timeline}
    assert lanes == {"compute", "up 1", "down 1"}
    assert 0 < sum(metrics.phases.values()) <= metrics.seconds
    assert all(0 <= span.start <= span.stop for span in metrics.timeline)


def test_a_callback_on_a_stream_of_its_own_is_made_right_by_synchronous():
    cupy = pytest.importorskip("cupy")
    own = cupy.cuda.Stream(non_blocking=True)
    loop = Loop("cupy")

    def elsewhere(callback):
        def call(*arguments):
            with own:
                result = callback(*arguments)
                own.synchronize()
            return result

        return call

    right = Loop("cupy")
    reverse(right, budget=fb.Budget(BESIDE + 2 * SNAPSHOT, 50 * SNAPSHOT))
    fb.reverse(
        elsewhere(loop.forward),
        elsewhere(loop.backward),
        loop.state,
        40,
        budget=fb.Budget(BESIDE + 2 * SNAPSHOT, 50 * SNAPSHOT),
        costs=COSTS,
        synchronous=True,
    )
    assert loop.result() == right.result()


def test_callbacks_find_the_engines_stream_current(library):
    handles = set()
    loop = Loop(library)

    def forward(state, start, stop):
        if library == "cupy":
            import cupy

            handles.add(cupy.cuda.get_current_stream().ptr)
        else:
            import torch

            handles.add(torch.cuda.current_stream().cuda_stream)
        return loop.forward(state, start, stop)

    fb.reverse(forward, loop.backward, loop.state, 20, budget=fb.Budget(BESIDE + 3 * SNAPSHOT), costs=COSTS)
    assert len(handles) == 1 and 0 not in handles


def test_arrays_with_gaps_are_refused():
    cupy = pytest.importorskip("cupy")
    with pytest.raises(StateError, match="contiguous"):
        fb.reverse(lambda s, a, b: s, lambda s, t: None, (cupy.zeros((4, 4))[:, ::2],), 5, budget="1MB")
    with pytest.raises(StateError, match="move them to one place"):
        fb.reverse(lambda s, a, b: s, lambda s, t: None, (cupy.zeros(4), np.zeros(4)), 5, budget="1MB")


def test_exceptions_give_everything_back(library, tmp_path, monkeypatch):
    from forebay.cuda import slab as cuda

    slabs = []

    class Noted(cuda.DeviceSlab):
        def __init__(self, nbytes):
            super().__init__(nbytes)
            slabs.append(self)

    monkeypatch.setattr(cuda, "DeviceSlab", Noted)
    loop = Loop(library)
    budget = fb.Budget(BESIDE + 20 * SNAPSHOT, 30 * SNAPSHOT, 40 * SNAPSHOT)

    def fail(state, step):
        raise ZeroDivisionError

    reverse(loop, budget=budget, directory=tmp_path)  # threads that stay afterwards are the libraries'
    threads = set(threading.enumerate())
    with pytest.raises(ZeroDivisionError):
        fb.reverse(
            loop.forward, fail, loop.state, 40, budget=budget, schedule="storeall", costs=COSTS, directory=tmp_path
        )
    assert len(slabs) == 2 and not any(slab.pointer for slab in slabs)
    assert not list(tmp_path.iterdir()) and set(threading.enumerate()) <= threads


@pytest.mark.parametrize(("device", "host", "disk"), [(5, 0, 0), (2, 4, 0), (1, 1, 3)])
def test_a_loop_of_unknown_end_is_bit_equal_and_keeps_to_its_budget(library, expected, device, host, disk, tmp_path):
    budget = fb.Budget(BESIDE + device * SNAPSHOT, host * SNAPSHOT or None, disk * SNAPSHOT or None)
    for late in (False, True):
        loop = Loop(library)

        def forward(state, start, stop, loop=loop, late=late):
            reached = min(stop, 40)
            state = loop.forward(state, start, reached)
            return fb.Ended(state, reached) if reached == 40 and (reached < stop or not late) else state

        result = fb.reverse(forward, loop.backward, loop.state, None, budget=budget, costs=COSTS, directory=tmp_path)
        assert loop.steps == list(range(39, -1, -1)) and loop.result() == expected
        assert result.plan.steps == 40
        for tier, peak in result.metrics.peak.items():
            assert peak <= budget[tier]


@pytest.mark.parametrize("schedule", ["storeall", "revolve:5", "twolevel:8,3"])
@pytest.mark.parametrize(("device", "host", "disk"), [(50, 0, 0), (2, 50, 0), (3, 4, 50)])
def test_several_adjoints_of_one_forward(library, expected, schedule, device, host, disk, tmp_path):
    budget = fb.Budget(BESIDE + device * SNAPSHOT, host * SNAPSHOT or None, disk * SNAPSHOT or None)
    loops = [Loop(library) for _ in range(3)]
    options = {"budget": budget, "schedule": schedule, "costs": COSTS, "directory": tmp_path}
    with fb.prepare(loops[0].forward, loops[0].state, 40, **options) as reversal:
        reversal.forward()
        for loop in loops:  # each on the caller's stream in between
            result = reversal.backward(loop.backward, retain=loop is not loops[-1])
            assert loop.result() == expected
    assert max(span.stop for span in result.metrics.timeline) <= result.metrics.seconds + 1e-3


@pytest.mark.parametrize(("device", "host", "disk"), [(5, 0, 0), (2, 4, 0), (1, 1, 3)])
def test_steps_whose_costs_are_learned_are_bit_equal(library, expected, device, host, disk, tmp_path):
    budget = fb.Budget(BESIDE + device * SNAPSHOT, host * SNAPSHOT or None, disk * SNAPSHOT or None)
    loop = Loop(library)
    options = {"costs": SLOW if not host else replace(COSTS, forward=1.0), "step_costs": "learn", "directory": tmp_path}
    result = fb.reverse(loop.forward, loop.backward, loop.state, 40, budget=budget, **options)
    assert loop.steps == list(range(39, -1, -1)) and loop.result() == expected
    assert len(set(result.costs.steps)) > 20
