"""Arrays of libraries that are not here, or have no GPU here, by ones that stand for them."""

from types import SimpleNamespace

import numpy as np

from forebay.engine import host_copies
from forebay.engine.states import sharing
from forebay.machine.spec import JaxKind


def test_an_array_that_cannot_be_written_to_is_made_anew_from_its_bytes(monkeypatch):
    elements = np.arange(12.0).reshape(3, 4).T
    monkeypatch.setattr(host_copies, "array_in", lambda data, spec: (data, spec))
    spec = SimpleNamespace(kind=JaxKind(*[None] * len(JaxKind._fields)))
    data, its = host_copies.refilled("old", spec, elements)
    assert its is spec and (data.dtype, data.shape) == (np.uint8, (96,)) and data.tobytes() == elements.tobytes()


def test_arrays_on_a_gpu_share_memory_where_one_begins_before_another_ends(monkeypatch):
    monkeypatch.setattr(sharing, "array_library", lambda array: SimpleNamespace(address=lambda array: array.address))
    monkeypatch.setattr(sharing, "view_of", lambda array: array)
    for other, shared in ((159, (0, 1)), (160, None), (None, None)):
        arrays = [SimpleNamespace(address=address) for address in (100, other)]
        assert sharing.sharing_with_gaps(arrays, (60, 8)) == shared
