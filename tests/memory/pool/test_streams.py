"""The order of the caller's streams under a pool, on streams that only remember who waits for what."""

from types import SimpleNamespace

import numpy as np
import pytest

import forebay as fb

pytest.importorskip("cuda.core")

from forebay.errors import StateError
from forebay.machine import cuda_pool as device
from forebay.machine import libraries
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

    def __init__(self, stream):
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


class Arrays(libraries.Cupy):
    """CuPy's part, played by NumPy."""

    def array_at(self, pointer, form):
        return np.zeros(form.shape, form.dtype)

    def stream(self):
        return self.module.current

    def view(self, array):
        return SimpleNamespace(pointer=0, nbytes=array.nbytes)


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
    """The caller, whose `current` stream is one of `streams`."""
    streams = {handle: Stream(handle) for handle in (1, 2)}
    made = SimpleNamespace(current=1, streams=streams)
    monkeypatch.setattr(device, "library", lambda name: Arrays(made))
    monkeypatch.setattr(device, "current_device", lambda: None)
    lanes = SimpleNamespace(up=Stream("up"), down=Stream("down"), compute=Stream("codec"))
    monkeypatch.setattr(device, "create_streams", lambda: lanes)
    monkeypatch.setattr(device, "Mark", Mark)
    monkeypatch.setattr(device, "DeviceSlab", Slab)
    monkeypatch.setattr(device, "PinnedSlab", Slab)
    monkeypatch.setattr(device, "copy_async", lambda *_: None)
    monkeypatch.setattr(device, "Stream", SimpleNamespace(from_handle=streams.__getitem__))
    monkeypatch.setattr(device, "callers_streams", lambda: ())
    return made


@pytest.fixture
def pool(caller):
    with Pool(fb.Budget(device="4kB", host="1MB"), arrays="cupy") as made:
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


def test_what_is_done_to_a_handed_out_array_ends_with_the_block(caller):
    class Tensors(libraries.Torch):
        def array_at(self, pointer, form):
            return torch.zeros(form.shape)

        def stream(self):
            return 1

    torch = pytest.importorskip("torch")
    pool = Pool(fb.Budget(device=1024, host="1MB"), arrays="cupy")
    pool._machine._library = Tensors(torch)
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
