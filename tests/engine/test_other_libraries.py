"""Arrays of libraries that are not here, or have no GPU here, by ones that stand for them."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from forebay.engine import host_copies
from forebay.engine.states import sharing
from forebay.machine.spec import JaxKind


def test_an_array_that_cannot_be_written_to_is_made_anew_from_its_bytes(monkeypatch):
    elements = np.arange(12.0).reshape(3, 4).T
    monkeypatch.setattr(host_copies, "array_in", lambda data, spec: (data, spec))
    spec = SimpleNamespace(kind=JaxKind(*[None] * len(JaxKind._fields)))
    data, its = host_copies.refilled("old", spec, elements)
    assert its is spec and (data.dtype, data.shape) == (np.uint8, (96,)) and data.tobytes() == elements.tobytes()


class OnGpu:
    """An array of torch, or of CuPy, on a GPU that there is not."""

    def __init__(self, dtype=None):
        self.dtype, self.given = dtype, []
        if dtype is not None:
            self.detach = lambda: SimpleNamespace(cpu=lambda: np.ones(3))
            self.copy_ = self.given.append

    def get(self):
        return np.zeros(3)

    def __setitem__(self, key, value):
        self.given.append((key, value))


def test_arrays_on_a_gpu_come_to_the_host_and_are_filled_from_there(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(asarray=lambda array: array))
    monkeypatch.setattr(host_copies, "view_of", lambda array: array)
    assert [host_copies.to_host(array).sum() for array in (OnGpu(), OnGpu("its own"))] == [0.0, 3.0]
    alike, other, of_cupy, elements = OnGpu(torch.float32), OnGpu(torch.int32), OnGpu(), np.ones(3, np.float32)
    for array in (alike, other, of_cupy):
        host_copies.fill(array, elements)
    assert alike.given[0].tolist() == [1.0] * 3 and alike.given[0].data_ptr() == elements.ctypes.data
    assert other.given[0].dtype == torch.int32 and other.given[0].tolist() == elements.view(np.int32).tolist()
    assert of_cupy.given == [(..., elements)]


def test_arrays_on_a_gpu_share_memory_where_one_begins_before_another_ends(monkeypatch):
    monkeypatch.setattr(sharing, "array_library", lambda array: SimpleNamespace(address=lambda array: array.address))
    monkeypatch.setattr(sharing, "view_of", lambda array: array)
    for other, shared in ((159, (0, 1)), (160, None), (None, None)):
        arrays = [SimpleNamespace(address=address) for address in (100, other)]
        assert sharing.sharing_with_gaps(arrays, (60, 8)) == shared
