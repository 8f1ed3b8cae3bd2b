"""The order of the caller's streams under a pool, on streams that only remember who waits for what."""

from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

import forebay as fb

pytest.importorskip("cuda.core")

from forebay.errors import StateError
from forebay.machine import cuda, cuda_clock, cuda_pool
from forebay.machine.arrays import cupy_arrays
from forebay.machine.arrays.cupy_arrays import CupyArrays
from forebay.machine.cuda_pool import CudaPool
from forebay.memory import Pool


class Stream:
    """Remembers the marks that it was made to wait for, and was given."""

    def __init__(self, handle):
        self.handle, self.history = handle, []

    def wait(self, other):
        self.history.append(Mark(other))


class Mark:
    """A moment in a stream: whoever has come past it has come past all that was there before."""

    is_done = False

    def __init__(self, stream, spare=None):
        self.before = list(stream.history)
        stream.history.append(self)

    def hold(self, stream):
        stream.history.append(self)

    def sync(self):
        pass

    def since(self, start):
        return 0.0

    def covers(self, other):
        return other is self or any(one.covers(other) for one in self.before)


class Arrays(CupyArrays):
    """CuPy's part, played by NumPy."""

    def __init__(self, caller):
        self.caller = caller

    def array_at(self, pointer, spec):
        return np.zeros(spec.shape, spec.dtype)

    def stream(self, device):
        return self.caller.current

    def current_device(self):
        return self.caller.current_gpu

    def on_device(self, device):
        self.caller.entered.append(device)
        return nullcontext()


class OnDevice(np.ndarray):
    """An array that says it is on the device."""

    __cuda_array_interface__ = property(lambda self: self.__array_interface__)


class Slab:
    """Memory that is never touched."""

    def __init__(self, nbytes):
        self.array = np.zeros(nbytes, np.uint8)
        self.pointer, self.nbytes = self.array.ctypes.data, nbytes

    def close(self):
        pass


@pytest.fixture
def caller(monkeypatch):
    """The caller, whose `current` stream is one of `streams`, and whose arrays are on `gpu`."""
    streams = {handle: Stream(handle) for handle in (1, 2)}
    made = SimpleNamespace(current=1, streams=streams, gpu=0, current_gpu=0, entered=[])
    lanes = SimpleNamespace(up=Stream("up"), down=Stream("down"), compute=Stream("codec"))
    for name, value in {
        "on_device": lambda device: nullcontext(),
        "create_streams": lambda: lanes,
        "current_context": lambda: 1,
        "driver": SimpleNamespace(cuCtxSetCurrent=lambda context: (0,)),
        "checked": lambda result, doing: None,
        "DeviceSlab": Slab,
        "PinnedSlab": Slab,
        "Stream": SimpleNamespace(from_handle=streams.__getitem__),
    }.items():
        monkeypatch.setattr(cuda, name, value)
    monkeypatch.setattr(cuda_clock, "spare_events", list)
    monkeypatch.setattr(cuda_clock, "Mark", Mark)
    monkeypatch.setattr(cuda, "copy_async", lambda *_: None)
    monkeypatch.setattr(cuda_pool, "copy_async", lambda *_: None)
    monkeypatch.setattr(cuda_pool, "callers_streams", lambda device: ())
    monkeypatch.setattr(cupy_arrays, "device_at", lambda pointer: made.gpu)
    return made


@pytest.fixture
def pool(caller):
    with Pool(fb.Budget(device="4kB", host="1MB"), arrays=CudaPool(0, Arrays(caller))) as made:
        yield made


def compute(caller):
    """Have the current stream do something, and give the moment at which it has."""
    return Mark(caller.streams[caller.current])


def test_what_a_block_inside_another_wrote_is_waited_for_after_both(caller, pool):
    read, written = pool.put(np.zeros(128)), pool.put(np.zeros(128))
    with pool.use(reads=[read]):
        caller.current = 2
        with pool.use(writes=[written]):
            wrote = compute(caller)
        caller.current = 1
    with pool.use(reads=[written]):
        assert compute(caller).covers(wrote)


def test_an_array_that_two_open_blocks_read_does_not_leave_before_both_have(caller, pool):
    array = pool.put(np.zeros(128))
    with pool.use(reads=[array]):
        caller.current = 2
        with pool.use(reads=[array]):
            inner = compute(caller)
        caller.current = 1
        outer = compute(caller)
    for moment in (inner, outer):
        assert any(event.covers(moment) for event in array._page.events)


def test_an_array_of_the_device_put_inside_a_block_is_waited_for_after_it(caller, pool):
    read = pool.put(np.zeros(128))
    with pool.use(reads=[read]):
        caller.current = 2
        put = pool.put(np.zeros(128).view(OnDevice))
        filled = put._page.events[0]
        caller.current = 1
    with pool.use(reads=[put]):
        assert compute(caller).covers(filled)


def test_blocks_left_in_another_order_are_waited_for_too(caller, pool):
    a, b = pool.put(np.zeros(128)), pool.put(np.zeros(128))
    first, second = pool.use(writes=[a]), pool.use(writes=[b])
    first.__enter__()
    caller.current = 2
    second.__enter__()
    in_second = compute(caller)
    caller.current = 1
    in_first = compute(caller)
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)
    for array, moment in ((a, in_first), (b, in_second)):
        assert any(event.covers(moment) for event in array._page.events)
    with pool.use(reads=[a, b]):
        last = compute(caller)
    assert last.covers(in_first) and last.covers(in_second)


def test_a_stream_that_got_the_handle_of_another_waits_for_it(caller, pool):
    array = pool.put(np.zeros(128))
    with pool.use(writes=[array]):
        wrote = compute(caller)
    caller.streams[1].history.clear()  # it was destroyed, and this is a new one
    with pool.use(reads=[array]):
        assert compute(caller).covers(wrote)


def test_what_is_done_to_a_handed_out_array_ends_with_the_use(caller):
    arrays = Arrays(caller)
    torch = pytest.importorskip("torch")
    from forebay.machine.arrays.torch_arrays import TorchArrays

    class Tensors(TorchArrays):
        def array_at(self, pointer, spec):
            return torch.zeros(spec.shape)

        stream, current_device, on_device = arrays.stream, arrays.current_device, arrays.on_device

    pool = Pool(fb.Budget(device=1024, host="1MB"), arrays=CudaPool(0, Tensors()))
    a, b = pool.put(np.zeros(128)), pool.put(np.ones(128))  # one after the other at the same place
    with pool.use(writes=[a]) as (values,):
        values.requires_grad_()
        (2 * values).sum().backward()
    with pool.use(writes=[b]) as (values,):
        assert not values.requires_grad and values.grad is None
        values += 1
        values.requires_grad_()
        (3 * values).sum().backward()
        assert values.grad[0] == 3
    with pool.use(writes=[a]) as (values,):
        values.mul_(torch.ones(1, requires_grad=True))
    with pool.use(writes=[a]) as (values,):
        assert not values.requires_grad
    pool.close()


@pytest.mark.parametrize("dtype", ["datetime64[s]", "timedelta64[s]", "U3", "longdouble", ">f4", "O"])
def test_types_that_no_gpu_has_are_refused_before_anything_is_taken(pool, dtype):
    with pytest.raises(StateError, match="cannot be on a GPU"):
        pool.empty(3, dtype)
    with pytest.raises(StateError, match=r"cannot be on a GPU|Python objects"):
        pool.put(np.zeros(3, dtype))
    assert not pool._pager.pages and not pool._pager.host.held


def test_an_array_of_another_gpu_is_refused(caller, pool):
    caller.gpu = 1
    with pytest.raises(StateError, match="on cuda:1, but the pool is on cuda:0"):
        pool.put(np.zeros(128).view(OnDevice))
    assert not pool._pager.pages and not pool._pager.host.held


def test_a_pool_makes_its_gpu_current_where_another_is(caller, pool):
    array = pool.put(np.zeros(128))
    caller.entered.clear()
    with pool.use(writes=[array]):
        pass
    assert not caller.entered  # this thread is there already
    caller.current_gpu = 1
    with pool.use(writes=[array]):
        pass
    assert set(caller.entered) == {0}
