"""What is advised and moved: whole arrays, of any order, on the stream of their library, and no more than there is."""

import importlib
import sys
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("cuda.core")

from forebay.cuda import driver, managed, stream
from forebay.errors import BudgetError, StateError
from forebay.memory import managed_empty, prefetch, where

advise = importlib.import_module("forebay.memory.unified.advise")
GB = 10**9


class OnDevice:
    """What a library of the GPU says of an array."""

    def __init__(self, shape, strides=None):
        self.__cuda_array_interface__ = {"shape": shape, "typestr": "<f4", "data": (4096, False), "strides": strides}
        self.shape = shape

    def data_ptr(self):
        return 4096

    def element_size(self):
        return 4

    def stride(self):
        return (1,)


class TestExtent:
    @pytest.mark.parametrize(
        "change",
        [
            lambda array: array,
            lambda array: array.T,
            lambda array: array.transpose(1, 0, 2),
            lambda array: array[:1],
            lambda array: array[:, :, None],
            lambda array: array[1:],
        ],
    )
    def test_arrays_of_any_order_without_gaps_are_taken(self, change):
        array = change(np.zeros((2, 3, 4), "float32"))
        assert advise.extent(array) == (array.ctypes.data, array.nbytes)

    @pytest.mark.parametrize(
        "change",
        [
            lambda array: array[:, ::2],
            lambda array: array[:, :2],
            lambda array: array[::-1],
            lambda array: np.broadcast_to(array[0], (5, 3, 4)),
        ],
    )
    def test_arrays_with_gaps_are_refused(self, change):
        array = change(np.zeros((2, 3, 4), "float32"))
        assert advise.extent(array) is None
        with pytest.raises(StateError, match="the array has gaps"):
            where(array)

    def test_arrays_of_the_device(self):
        assert advise.extent(OnDevice((2, 3))) == (4096, 24)
        assert advise.extent(OnDevice((2, 3), (4, 8))) == (4096, 24)
        assert advise.extent(OnDevice((2, 3), (16, 4))) is None
        assert advise.extent(OnDevice((0, 3), (16, 4))) == (4096, 0)

    def test_tensors(self):
        torch = pytest.importorskip("torch")
        images = torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last)
        assert advise.extent(images) == (images.data_ptr(), 480)
        assert advise.extent(images[:, :2]) is None


class TestStream:
    @pytest.fixture
    def moved(self, monkeypatch):
        """Streams on which arrays were moved, by handle; CuPy's is 1 and torch's 2."""
        cupy = SimpleNamespace(cuda=SimpleNamespace(get_current_stream=lambda device=None: SimpleNamespace(ptr=1)))
        cuda = SimpleNamespace(
            is_initialized=lambda: True, current_stream=lambda device=None: SimpleNamespace(cuda_stream=2)
        )
        monkeypatch.setitem(sys.modules, "cupy", cupy)
        monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda, Tensor=()))
        made = SimpleNamespace(from_handle=lambda handle: SimpleNamespace(handle=handle))
        monkeypatch.setattr(stream, "Stream", made)
        monkeypatch.setattr(managed, "describe", lambda pointer, nbytes: {"kind": "managed"})
        found = []
        monkeypatch.setattr(managed, "prefetch", lambda pointer, nbytes, to, on: found.append(on.handle))
        return found

    def test_it_is_that_of_the_arrays_library(self, moved, monkeypatch):
        for library in ("torch", "cupy", "numba"):
            kind = type("Array", (OnDevice,), {"__module__": f"{library}.arrays"})
            prefetch(kind((3,)), "host")
        prefetch(np.zeros(3), "host")
        assert moved == [2, 1, 1, 1]
        monkeypatch.delitem(sys.modules, "cupy")
        prefetch(np.zeros(3), "host")
        assert moved[-1] == 2


class TestPlace:
    @pytest.mark.parametrize(("number", "place"), [(-1, "host"), (-2, None), (0, "device"), (3, "device")])
    def test_it_is_told_by_the_number_of_a_device(self, monkeypatch, number, place):
        asked = []

        def answer(size, attribute, pointer, nbytes):
            asked.append((size, attribute.name.removeprefix("CU_MEM_RANGE_ATTRIBUTE_"), pointer, nbytes))
            return managed.driver.CUresult.CUDA_SUCCESS, number

        monkeypatch.setattr(managed.driver, "cuMemRangeGetAttribute", answer)
        monkeypatch.setattr(managed, "_kind", lambda pointer: "managed")
        found = where(OnDevice((2, 3)))
        assert (found.kind, found.prefetched, found.preferred) == ("managed", place, place)
        # Those that every version of the bindings knows.
        assert {name for _, name, _, _ in asked} == {"LAST_PREFETCH_LOCATION", "PREFERRED_LOCATION", "READ_MOSTLY"}
        assert {(size, pointer, nbytes) for size, _, pointer, nbytes in asked} == {(4, 4096, 24)}


class TestGuard:
    @pytest.fixture
    def memory(self, monkeypatch):
        """A device with 100 GB free, of which managed memory takes none before it is touched."""
        state = SimpleNamespace(free=100 * GB, alive=[], moved=set())
        monkeypatch.setattr(driver, "device_memory", lambda: (state.free, 140 * GB))
        monkeypatch.setattr(managed, "_place", lambda what, at, nbytes: "device" if at in state.moved else None)
        monkeypatch.setattr(managed, "current_device", lambda: None)
        monkeypatch.setattr(managed, "current_context", lambda: None)
        monkeypatch.setattr(managed, "release", lambda context, call, pointer: state.alive.remove(pointer))
        monkeypatch.setattr(managed, "_alive", {})

        def take(nbytes, flags):
            room = np.empty(1, np.uint8)
            state.alive.append(room.ctypes.data)
            state.keep = room
            return None, room.ctypes.data

        fake = SimpleNamespace(
            cuMemAllocManaged=take, cuMemFree=None, CUmemAttach_flags=managed.driver.CUmemAttach_flags
        )
        fake.CUmem_range_attribute = managed.driver.CUmem_range_attribute
        fake.CUresult = managed.driver.CUresult
        monkeypatch.setattr(managed, "driver", fake)
        monkeypatch.setattr(managed, "checked", lambda result, doing: result[1])
        return state

    def test_what_was_handed_out_counts_before_it_is_touched(self, memory):
        kept = managed_empty(90 * GB, "u1")
        with pytest.raises(BudgetError, match="has 10GB free"):
            managed_empty(20 * GB, "u1")
        del kept
        assert not memory.alive
        managed_empty(90 * GB, "u1")

    def test_it_counts_once_when_it_was_moved_to_the_device(self, memory):
        kept = managed_empty(60 * GB, "u1")
        memory.free = 40 * GB
        memory.moved.add(kept.ctypes.data)
        more = managed_empty(30 * GB, "u1")
        with pytest.raises(BudgetError, match="has 10GB free"):
            managed_empty(20 * GB, "u1")
        assert kept.nbytes + more.nbytes == 90 * GB

    def test_what_others_take_and_free_later_counts(self, memory):
        kept = managed_empty(60 * GB, "u1")
        memory.free = 70 * GB  # others have taken 30
        with pytest.raises(BudgetError, match="has 10GB free"):
            managed_empty(20 * GB, "u1")
        memory.free = 139 * GB  # and given all back, and more
        assert kept.nbytes + managed_empty(70 * GB, "u1").nbytes == 130 * GB
