"""The device is that of the arrays: chosen from them, made current for the run, and given back afterwards."""

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import forebay as fb
from forebay.cuda.available import gpu_count
from forebay.engine.array_memory import memory_of
from forebay.errors import StateError

pytest.importorskip("cuda.core")

from forebay.cuda import driver
from forebay.machine import cuda, cuda_clock, cuda_reversal
from forebay.machine.arrays import cupy_arrays


class OnDevice(np.ndarray):
    """An array that says it is on a device: on the one that its first element says."""

    __cuda_array_interface__ = property(lambda self: self.__array_interface__)


def on(device, length=4):
    return np.full(length, device, np.int64).view(OnDevice)


class Gpus:
    """Two GPUs, and which of them is current; a context is the number of its GPU, plus one."""

    def __init__(self, current):
        self.context = 0 if current is None else current + 1

    def device(self, index=None):
        index = max(0, self.context - 1) if index is None else index
        return SimpleNamespace(device_id=index, set_current=lambda: setattr(self, "context", index + 1))

    def set_context(self, context):
        self.context = context
        return (driver._SUCCESS,)


@pytest.fixture
def gpus(monkeypatch):
    """Give the thread a current GPU, the first."""
    made = Gpus(0)
    calls = SimpleNamespace(
        cuCtxGetCurrent=lambda: (driver._SUCCESS, made.context), cuCtxSetCurrent=lambda c: made.set_context(c)
    )
    monkeypatch.setattr(driver, "driver", calls)
    monkeypatch.setattr(driver, "Device", made.device)
    monkeypatch.setattr(driver, "gpu_count", lambda: 2)
    arrays = {}
    monkeypatch.setattr(cupy_arrays, "device_at", lambda pointer: arrays[pointer])
    made.put = lambda array: arrays.__setitem__(array.ctypes.data, int(array[0])) or array
    return made


def test_another_gpu_is_current_for_a_while(gpus):
    with driver.on_device(1):
        assert gpus.context == 2
    assert gpus.context == 1


@pytest.mark.parametrize("before", [None, 1])
def test_a_thread_that_had_none_or_the_same_keeps_it(gpus, before):
    gpus.context = 0 if before is None else before + 1
    with driver.on_device(1):
        pass
    assert gpus.context == 2


def test_a_gpu_is_given_back_after_an_error(gpus):
    with pytest.raises(ZeroDivisionError), driver.on_device(1):
        raise ZeroDivisionError
    assert gpus.context == 1


def test_arrays_of_several_gpus_are_refused_before_the_first_step(gpus):
    state = {"u": gpus.put(on(0)), "v": gpus.put(on(1))}
    with pytest.raises(StateError, match="on cuda:0 and cuda:1: move them to one GPU"):
        fb.reverse(lambda *_: pytest.fail("a step"), lambda *_: None, state, 10, budget="1MB")


def test_an_array_without_elements_is_wherever_the_others_are(gpus):
    empty = SimpleNamespace(__cuda_array_interface__={"shape": (0,), "typestr": "<f4", "data": (0, False)})
    assert memory_of((gpus.put(on(1)), empty)).tier == "device"


@pytest.mark.parametrize(("shape", "device"), [((3,), "cuda:1"), ((0,), "cuda:0")])
def test_a_tensor_is_made_on_the_gpu_whose_memory_it_is(monkeypatch, shape, device):
    torch = pytest.importorskip("torch")
    from forebay.machine.arrays import torch_arrays

    made, spec = [], torch_arrays.TorchArrays().spec_of(shape, torch.float32)
    monkeypatch.setattr(driver, "device_at", {4096: 1}.__getitem__)
    monkeypatch.setattr(torch_arrays.TorchArrays, "current_device", lambda self: 0)
    monkeypatch.setattr(torch, "as_tensor", lambda view, device: made.append(str(device)) or torch.empty(view.shape))
    torch_arrays.TorchArrays().array_at(4096 if shape[0] else 2**20, spec)  # no driver knows where nothing lies
    assert made == [device]


class Stream:
    handle = 1

    def wait(self, other):
        pass

    def record(self):
        return SimpleNamespace(sync=lambda: None)


class Moment:
    def __init__(self, stream, spare=None):
        pass


@pytest.fixture
def streams(monkeypatch, gpus):
    """Streams that do nothing, each made while some GPU is current."""
    made_on = []

    def streams_here():
        made_on.append(gpus.context - 1)
        return nullcontext(SimpleNamespace(compute=Stream(), up=Stream(), down=Stream()))

    monkeypatch.setattr(cuda, "kept_streams", streams_here)
    monkeypatch.setattr(cuda_reversal, "callers_streams", lambda device: ())
    monkeypatch.setattr(cuda_reversal, "current", nullcontext)
    monkeypatch.setattr(cuda_clock, "spare_events", list)
    monkeypatch.setattr(cuda_clock, "Mark", Moment)
    return made_on


def test_a_reversal_runs_on_the_gpu_of_its_arrays_and_gives_the_callers_back(gpus, streams):
    memory = memory_of((gpus.put(on(1)),))
    machine = memory.machine(Path(), False)
    assert (machine.device, streams, gpus.context) == (1, [1], 2)
    machine.leave()
    assert gpus.context == 1
    machine.enter()
    assert gpus.context == 2
    machine.close()
    assert gpus.context == 1


def test_one_that_is_given_up_while_it_waits_leaves_the_callers_gpu_current(gpus, streams):
    machine = memory_of((gpus.put(on(1)),)).machine(Path(), False)
    machine.leave()
    machine.close()
    assert gpus.context == 1


@pytest.mark.gpu
@pytest.mark.skipif(gpu_count() < 2, reason="needs two GPUs")
class TestOnTwoGpus:
    def run(self, device):
        cupy = pytest.importorskip("cupy")
        with cupy.cuda.Device(device):
            state, total = (cupy.arange(1000.0),), cupy.zeros(1000)

        def forward(state, start, stop):
            for _ in range(start, stop):
                state = (0.5 * state[0] + 1,)
            return state

        def backward(state, step):
            total[...] += state[0]

        budget = fb.Budget(device="40kB", host="1MB")
        fb.reverse(forward, backward, state, 30, budget=budget, schedule="storeall", codec="cast:float16")
        return total.get().tolist(), cupy.cuda.Device().id

    def test_both_from_one_process_are_right(self):
        first, second, again = self.run(0), self.run(1), self.run(0)
        assert first == second == again and first[1] == 0

    def test_mixed_arrays_are_refused(self):
        torch = pytest.importorskip("torch")
        state = torch.ones(4, device="cuda:0"), torch.ones(4, device="cuda:1")
        with pytest.raises(StateError, match="move them to one GPU"):
            fb.reverse(lambda s, a, b: s, lambda s, t: None, state, 5, budget="1MB")

    def test_a_pool_stays_on_its_gpu(self):
        cupy = pytest.importorskip("cupy")
        with cupy.cuda.Device(1):
            pool = fb.memory.Pool(fb.Budget(device="64kB", host="1MB"))
            array = pool.put(cupy.ones(1000))
        with pool.use(writes=[array]) as (values,), cupy.cuda.Device(1):  # entered while the first GPU is current
            values += 1
        assert pool.get(array).tolist() == [2.0] * 1000
        with pytest.raises(StateError, match="on cuda:0, but the pool is on cuda:1"):
            pool.put(cupy.ones(3))
        pool.close()
