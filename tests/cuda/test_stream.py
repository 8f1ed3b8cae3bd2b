import sys
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("cuda.core")

from cuda.core import LEGACY_DEFAULT_STREAM

from forebay.cuda.copy import copy_async
from forebay.cuda.slab import DeviceSlab, PinnedSlab
from forebay.cuda.stream import callers_streams, current, mark, seconds

LONG = 300_000_000  # nanoseconds: far longer than anything it must hold up or be overtaken by


class Fake:
    """A CuPy or torch that only knows its current stream."""

    def __init__(self):
        self.now = "default"

    @contextmanager
    def switched(self, stream):
        before, self.now = self.now, stream
        try:
            yield
        finally:
            self.now = before


@pytest.fixture
def libraries(monkeypatch):
    cupy, torch = Fake(), Fake()
    cupy.cuda = SimpleNamespace(Stream=SimpleNamespace(from_external=lambda stream: cupy.switched(int(stream.handle))))
    torch.cuda = SimpleNamespace(
        is_available=lambda: True, ExternalStream=lambda handle, device: handle, stream=torch.switched
    )
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setitem(sys.modules, "torch", torch)
    return cupy, torch


STREAM = SimpleNamespace(handle=7, device=SimpleNamespace(device_id=0))


def test_current_switches_what_is_imported_and_restores_it(libraries):
    with current(STREAM):
        assert [library.now for library in libraries] == [7, 7]
    assert [library.now for library in libraries] == ["default", "default"]


def test_current_restores_after_an_error(libraries):
    with pytest.raises(KeyError), current(STREAM):
        raise KeyError
    assert [library.now for library in libraries] == ["default", "default"]


def test_current_imports_nothing(monkeypatch):
    for name in ("cupy", "torch"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    with current(STREAM):
        assert not {"cupy", "torch"} & set(sys.modules)


@pytest.mark.gpu
def test_streams_are_three_and_non_blocking(streams):
    made = (streams.compute, streams.up, streams.down)
    assert len({int(stream.handle) for stream in made}) == 3
    assert all(stream.is_nonblocking for stream in made)


@pytest.mark.gpu
def test_streams_overlap_until_an_event_orders_them(streams, probe):
    probe.launch("spin", 1, 1, (LONG,), streams.compute)
    long = streams.compute.record()
    probe.launch("spin", 1, 1, (1000,), streams.up)
    short = streams.up.record()
    short.sync()
    assert not long.is_done, "the stream up waited for the compute stream"
    streams.up.wait(long)
    after = streams.up.record()
    after.sync()
    assert long.is_done


@pytest.mark.gpu
def test_a_copy_that_waits_for_an_event_sees_what_came_before_it(streams, probe):
    nbytes = 1 << 20
    with DeviceSlab(nbytes) as device, PinnedSlab(nbytes) as host:
        for value in (1, 2, 3):
            probe.launch("spin", 1, 1, (LONG // 10,), streams.compute)
            probe.launch("fill", 64, 256, (device.pointer, value, nbytes), streams.compute)
            streams.down.wait(streams.compute.record())
            copy_async(host.pointer, device.pointer, nbytes, streams.down)
            streams.compute.wait(streams.down.record())
            streams.down.sync()
            assert np.all(host.array == value)
        streams.compute.sync()


@pytest.mark.gpu
def test_nothing_waits_for_the_default_stream(streams, probe):
    nbytes = 1 << 20
    with DeviceSlab(nbytes) as device, PinnedSlab(nbytes) as host:
        probe.launch("fill", 64, 256, (device.pointer, 1, nbytes), streams.compute)
        streams.compute.sync()
        probe.launch("spin", 1, 1, (LONG,), LEGACY_DEFAULT_STREAM)
        default = LEGACY_DEFAULT_STREAM.record()
        probe.launch("fill", 64, 256, (device.pointer, 9, nbytes), streams.compute)
        streams.down.wait(streams.compute.record())
        copy_async(host.pointer, device.pointer, nbytes, streams.down)
        copied = streams.down.record()
        copied.sync()
        assert not default.is_done, "work of an engine waited for the default stream"
        assert np.all(host.array == 9)
        default.sync()


@pytest.mark.gpu
def test_seconds_between_marks(streams, probe):
    start = mark(streams.compute)
    probe.launch("spin", 1, 1, (20_000_000,), streams.compute)
    assert seconds(start, mark(streams.compute)) >= 0.019


@pytest.mark.gpu
def test_current_in_cupy(streams, probe):
    cupy = pytest.importorskip("cupy")
    before = cupy.cuda.get_current_stream().ptr
    x = cupy.zeros(1000)
    x += 1  # so that the kernel is compiled
    LEGACY_DEFAULT_STREAM.sync()
    with current(streams.compute):
        assert cupy.cuda.get_current_stream().ptr == int(streams.compute.handle)
        with current(streams.up):
            assert cupy.cuda.get_current_stream().ptr == int(streams.up.handle)
        assert cupy.cuda.get_current_stream().ptr == int(streams.compute.handle)
        assert int(streams.compute.handle) in [int(stream.handle) for stream in callers_streams()]
        probe.launch("spin", 1, 1, (LONG,), streams.compute)
        held = streams.compute.record()
        x += 1
        done = streams.compute.record()
        assert not held.is_done and not done.is_done
        done.sync()
        assert float(x.sum()) == 2000
    assert cupy.cuda.get_current_stream().ptr == before


@pytest.mark.gpu
def test_current_in_torch(streams, probe):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    before = torch.cuda.current_stream().cuda_stream
    x = torch.zeros(1000, device="cuda")
    x += 1
    torch.cuda.current_stream().synchronize()
    with current(streams.compute):
        assert torch.cuda.current_stream().cuda_stream == int(streams.compute.handle)
        assert int(streams.compute.handle) in [int(stream.handle) for stream in callers_streams()]
        probe.launch("spin", 1, 1, (LONG,), streams.compute)
        held = streams.compute.record()
        x += 1
        done = streams.compute.record()
        assert not held.is_done and not done.is_done
        done.sync()
        assert float(x.sum()) == 2000
    assert torch.cuda.current_stream().cuda_stream == before


@pytest.mark.gpu
def test_callers_streams_order_an_engine_after_the_default_stream(streams, probe):
    cupy = pytest.importorskip("cupy")
    with cupy.cuda.Stream.null:
        probe.launch("spin", 1, 1, (LONG // 10,), LEGACY_DEFAULT_STREAM)
        default = LEGACY_DEFAULT_STREAM.record()
        for stream in callers_streams():
            streams.compute.wait(stream)
    streams.compute.record().sync()
    assert default.is_done


@pytest.mark.gpu
def test_a_mark_holds_another_stream_and_its_event_is_used_again(streams, probe):
    probe.launch("spin", 1, 1, (LONG,), streams.compute)
    long = mark(streams.compute)
    long.hold(streams.up)
    after = mark(streams.up)
    assert not long.is_done and not after.is_done
    after.sync()
    assert long.is_done and after.since(long) >= 0
    event = after._event
    del after
    assert mark(streams.up)._event is event
