"""The pool on a GPU: the same programs as on the virtual machine, to the last bit, with CuPy's and torch's arrays."""

import warnings
from contextlib import nullcontext

import numpy as np
import pytest

import forebay as fb
from forebay.errors import StateError
from forebay.memory import Pool, ThrashWarning
from tests.memory.pool.programs import at_random, initial, sweeps

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::forebay.memory.pool.thrash.ThrashWarning")]

KINDS = ("read", "write", "chain", "there and back", "pairs", "looked at", "looked at ahead", "renewed")
LIBRARIES = ("cupy", "torch")
LENGTH = 1 << 18
ARRAY = 8 * LENGTH


def compute(step, number, reads, writes, overwrites):
    """Make every element that is written depend on one of each array that is read; exact in binary."""
    for array in writes:
        array *= 0.5
        array += number
        for source in reads:
            array += source[: len(array)] if len(source) >= len(array) else source.sum() * 0
    for offset, array in enumerate(overwrites):
        array[:] = number + offset
        for source in (*reads, *writes):
            part = min(len(source), len(array))
            array[:part] += source[:part] * 0.25


def run_plain(program):
    arrays = initial(program.lengths)
    for number, step in enumerate(program.steps):
        if step.renew is not None:
            arrays[step.renew] = np.full(program.lengths[step.renew], number / 8)
        elif step.get is None:
            compute(step, number, *([arrays[n] for n in group] for group in (step.reads, step.writes, step.overwrites)))
    return arrays


def run_pool(program, device, library, codec=None, streams=()):
    pool = Pool(fb.Budget(device=device, host="2GB"), codec, library)
    arrays = [pool.put(array) for array in initial(program.lengths)]
    for number, step in enumerate(program.steps):
        if step.get is not None:
            pool.get(arrays[step.get])
        elif step.renew is not None:
            arrays[step.renew] = None
            arrays[step.renew] = pool.put(np.full(program.lengths[step.renew], number / 8))
        else:
            use(pool, arrays, step, number, streams[number % len(streams)] if streams else None)
    pool.wait()
    found = [np.asarray(pool.get(array)) for array in arrays]
    metrics = pool.metrics
    pool.close()
    return found, metrics


def use(pool, arrays, step, number, stream):
    given = [[arrays[n] for n in group] for group in (step.reads, step.writes, step.overwrites)]
    first, second = len(step.reads), len(step.reads) + len(step.writes)
    with stream or nullcontext(), pool.use(*given) as handed:
        compute(step, number, handed[:first], handed[first:second], handed[second:])


@pytest.fixture(params=LIBRARIES)
def library(request):
    pytest.importorskip(request.param)
    return request.param


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("slots", [2, 4])
def test_sweeps_give_what_plain_arrays_give(kind, slots, library):
    program = sweeps(9, LENGTH, 4, kind)
    found, metrics = run_pool(program, slots * ARRAY, library)
    assert all(np.array_equal(a, b) for a, b in zip(found, run_plain(program), strict=True))
    assert metrics.peak_device <= slots * ARRAY


@pytest.mark.parametrize("seed", range(6))
def test_programs_at_random_give_what_plain_arrays_give(seed, library):
    program = at_random(seed, steps=120)
    large = type(program)(tuple(2048 * length for length in program.lengths), program.steps)
    found, _ = run_pool(large, 3 * 1024 * 2048, library)
    assert all(np.array_equal(a, b) for a, b in zip(found, run_plain(large), strict=True))


@pytest.mark.parametrize("codec", ["raw", "lossless"])
@pytest.mark.parametrize("kind", ["write", "chain", "pairs"])
def test_exact_codecs_change_nothing(codec, kind):
    pytest.importorskip("cupy")
    if codec == "lossless":
        from forebay.codec import nvcomp

        if not nvcomp.available():
            pytest.skip("nvCOMP is not installed")
    program = sweeps(9, LENGTH, 4, kind)
    found, metrics = run_pool(program, 12 * ARRAY, "cupy", codec)
    assert all(np.array_equal(a, b) for a, b in zip(found, run_plain(program), strict=True))
    assert metrics.peak_device <= 12 * ARRAY


def test_a_lossy_codec_keeps_its_bound_and_moves_less():
    cupy = pytest.importorskip("cupy")
    shape = (64, 64, 64)
    axis = np.linspace(0, 3, 64)
    smooth = np.sin(axis[:, None, None] + axis[None, :, None] * axis[None, None, :]).astype("float32")
    pool = Pool(fb.Budget(device=16 * smooth.nbytes, host="1GB"), "bounded:1e-4", "cupy")
    arrays = [pool.put(smooth + np.float32(number)) for number in range(24)]
    for _ in range(4):
        for array in arrays:
            with pool.use(reads=[array]) as (values,):
                assert values.shape == shape and isinstance(values, cupy.ndarray)
    pool.wait()
    assert pool.metrics.mean_ratio > 4
    for number, array in enumerate(arrays):
        assert np.abs(pool.get(array) - (smooth + np.float32(number))).max() <= 1e-4 * np.ptp(smooth) * 1.001
    pool.close()


def test_blocks_on_changing_streams_keep_their_order():
    cupy = pytest.importorskip("cupy")
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(3)]
    program = sweeps(9, LENGTH, 4, "pairs")
    found, _ = run_pool(program, 4 * ARRAY, "cupy", streams=streams)
    assert all(np.array_equal(a, b) for a, b in zip(found, run_plain(program), strict=True))


def test_blocks_inside_others_keep_their_order_on_streams_of_their_own(library):
    module = pytest.importorskip(library)
    if library == "cupy":
        outer, inner = (module.cuda.Stream(non_blocking=True) for _ in range(2))
        busy, settle = module.ones(1 << 24, "float32"), module.cuda.Device().synchronize
    else:
        outer, inner = (module.cuda.stream(module.cuda.Stream()) for _ in range(2))
        busy, settle = module.ones(1 << 24, device="cuda"), module.cuda.synchronize
    with Pool(fb.Budget(device=2 * ARRAY, host="1GB"), arrays=library) as pool:
        seen = pool.put(np.full(20, -1.0))
        for number in range(20):
            read, written = pool.put(np.zeros(LENGTH // 2)), pool.put(np.zeros(LENGTH // 2))
            settle()
            with outer, pool.use(reads=[read]), inner, pool.use(writes=[written]) as (values,):
                for _ in range(30):  # so that the other stream comes first unless it waits
                    busy = module.sin(busy)
                values += number
            with outer, pool.use(reads=[written], writes=[seen]) as (values, all_seen):
                all_seen[number : number + 1] = values[-1:]
        assert np.asarray(pool.get(seen)).tolist() == list(range(20))


def test_a_stream_for_every_block_keeps_the_order():
    cupy = pytest.importorskip("cupy")
    with Pool(fb.Budget(device=2 * ARRAY, host="1GB"), arrays="cupy") as pool:
        array = pool.put(np.zeros(LENGTH))
        for _ in range(200):  # each is destroyed before the next is made, which may get its handle
            with cupy.cuda.Stream(non_blocking=True), pool.use(writes=[array]) as (values,):
                for _ in range(5):
                    values += 0.2
                values[:] = cupy.round(values)
        assert (pool.get(array) == 200).all()


def test_gradients_of_a_handed_out_tensor_stay_with_it():
    torch = pytest.importorskip("torch")
    with Pool(fb.Budget(device=ARRAY, host="1GB"), arrays="torch") as pool:
        a, b = pool.put(np.zeros(LENGTH)), pool.put(np.ones(LENGTH))
        with torch.inference_mode(), pool.use(reads=[a]) as (values,):
            assert not values.any()
        with pool.use(writes=[a]) as (values,):
            values.requires_grad_()
            (2 * values).sum().backward()
        with pool.use(writes=[b]) as (values,):
            assert not values.requires_grad and values.grad is None
            values.requires_grad_()
            (3 * values).sum().backward()
            assert float(values.grad[0]) == 3


@pytest.mark.parametrize("kind", ["bfloat16", "float16", "float32", "int64", "bool"])
def test_torch_keeps_its_types(kind):
    torch = pytest.importorskip("torch")
    dtype = getattr(torch, kind)
    pool = Pool(fb.Budget(device="1MB", host="8MB"), arrays="torch")
    values = (torch.arange(3000) % 2).to(dtype).reshape(30, 100)
    for source in (values, values.cuda(), values.cuda().requires_grad_() if dtype.is_floating_point else values):
        array = pool.put(source)
        with pool.use(reads=[array]) as (handed,):
            assert handed.dtype is dtype and handed.is_cuda and torch.equal(handed.cpu(), values)
        back = pool.get(array)
        assert back.dtype is dtype and torch.equal(back, values)
    empty = pool.empty((4, 4), dtype)
    with pool.use(overwrites=[empty]) as (handed,):
        handed.zero_()
    assert not pool.get(empty).any()
    pool.close()


def test_arrays_of_other_libraries_become_the_pools_own(library):
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    values = np.arange(300, dtype="float32").reshape(3, 100)
    cpu = jax.devices("cpu")[0]
    with Pool(fb.Budget(device="1MB", host="8MB"), arrays=library) as pool:
        for source in (jax.device_put(values, cpu), torch.from_numpy(values), torch.from_numpy(values).cuda()):
            array = pool.put(source)
            with pool.use(writes=[array]) as (handed,):
                assert type(handed).__module__.partition(".")[0] == library
                handed += 1
            back = pool.get(array)
            assert isinstance(back, torch.Tensor if library == "torch" else np.ndarray)
            assert np.array_equal(np.asarray(back), values + 1)
        with pytest.raises(StateError, match="bfloat16"):
            pool.put(jax.device_put(jax.numpy.zeros(4, "bfloat16"), cpu))
        if library == "cupy":
            with pytest.raises(StateError, match="CuPy has no bfloat16"):
                pool.put(torch.zeros(4, dtype=torch.bfloat16))


def test_what_is_put_from_the_device_is_copied_in_order():
    cupy = pytest.importorskip("cupy")
    pool = Pool(fb.Budget(device="64MB", host="256MB"), arrays="cupy")
    arrays = []
    for number in range(16):
        source = cupy.full(1 << 20, number, "float32")
        arrays.append(pool.put(source))
        source[:] = -1
        del source
    assert [float(pool.get(array)[0]) for array in arrays] == list(range(16))
    pool.close()


def test_arrays_with_gaps_on_the_device_are_refused():
    cupy = pytest.importorskip("cupy")
    with (
        Pool(fb.Budget(device="1MB", host="1MB"), arrays="cupy") as pool,
        pytest.raises(StateError, match="contiguous"),
    ):
        pool.put(cupy.zeros((8, 8))[:, ::2])


def test_the_timeline_has_the_lanes_and_times_of_what_was_done():
    pytest.importorskip("cupy")
    program = sweeps(9, LENGTH, 6, "write")
    _, metrics = run_pool(program, 4 * ARRAY, "cupy")
    lanes = {span.lane for span in metrics.timeline}
    assert lanes == {"compute", "up 1", "down 1"}
    assert all(0 <= span.start <= span.stop <= metrics.seconds for span in metrics.timeline)
    assert metrics.phases["use"] > 0 and metrics.misses > 0
    for lane in ("up 1", "down 1"):
        assert sum(span.lane == lane for span in metrics.timeline) * ARRAY == metrics.moved[lane]


def test_both_directions_of_the_link_are_busy_at_once():
    cupy = pytest.importorskip("cupy")
    pool = Pool(fb.Budget(device="256MB", host="2GB"), arrays="cupy")
    arrays = [pool.put(cupy.full(1 << 22, number, "float32")) for number in range(48)]
    for _ in range(5):
        for array in arrays:
            with pool.use(writes=[array]) as (values,):
                values += 1
    pool.wait()
    spans = [span for span in pool.metrics.timeline if span.start > 0.5 * pool.metrics.seconds]
    ups = [span for span in spans if span.lane == "up 1"]
    downs = [span for span in spans if span.lane == "down 1"]
    together = sum(max(0.0, min(u.stop, d.stop) - max(u.start, d.start)) for u in ups for d in downs)
    assert together > 0.5 * sum(span.stop - span.start for span in ups)
    pool.close()


def test_memory_comes_back():
    pytest.importorskip("cupy")
    from forebay.cuda.managed import describe

    with Pool(fb.Budget(device="1GB", host="64MB"), arrays="cupy") as pool:
        pool.put(np.zeros(1000))
        pointers = [slab.pointer for slab in (pool._machine.region(0, 0, 1), *pool._pager.host._slabs)]
        assert [describe(pointer, 0)["kind"] for pointer in pointers] == ["device", "pinned"]
    assert [describe(pointer, 0)["kind"] for pointer in pointers] == ["host", "host"]  # unknown to the driver


def test_thrashing_is_told_with_the_share_of_time_lost():
    cupy = pytest.importorskip("cupy")
    pool = Pool(fb.Budget(device="128MB", host="2GB"), arrays="cupy")
    arrays = [pool.put(cupy.zeros(1 << 22, "float32")) for _ in range(40)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(8):
            for array in arrays:
                with pool.use(writes=[array]) as (values,):
                    values += 1
            pool.wait()
    messages = [str(one.message) for one in caught if one.category is ThrashWarning]
    assert messages and "stood still for" in messages[0] and "A device budget of 672MB" in messages[0]
    pool.close()
