"""What a codec takes of the device for itself is known before, and is not given to snapshots."""

import numpy as np
import pytest

import forebay as fb
from forebay.codec import get
from forebay.codec.raw import Raw
from forebay.engine.layout import Layout
from forebay.engine.spilling import rooms_of
from forebay.machine.packing import Packing

FIELD = np.zeros((16, 32, 32), np.float32)


class Greedy(Raw):
    """Takes some of the device for itself, for each kind of array."""

    name = "greedy"
    fixed = False

    def __init__(self, scratch):
        self.scratch = scratch

    def scratch_bytes(self, shape, dtype):
        return self.scratch


def packing(codec, tier, *arrays):
    return Packing.of(Layout.of(tuple(arrays)).leaves, codec, tier)


def test_arrays_that_are_alike_share_what_their_codec_takes():
    assert packing(Greedy(1000), "device", FIELD, FIELD, FIELD).scratch == 1000
    assert packing(Greedy(1000), "device", FIELD, FIELD.astype(np.float64), FIELD[:8]).scratch == 3000


def test_nothing_is_taken_of_a_device_that_is_not_there():
    assert packing(Greedy(1000), "host", FIELD).scratch == 0


@pytest.mark.parametrize("name", ["bounded:1e-3", "cast:float16", "zfp:8", "raw"])
def test_codecs_of_ours_take_nothing(name):
    assert packing(get(name), "device", FIELD).scratch == 0


def test_arrays_that_a_codec_does_not_know_take_nothing():
    assert packing(get("bitcomp:abs=1e-3"), "device", np.zeros(1000, np.int32)).scratch == 0


@pytest.mark.parametrize("share", [0, 1, 2])
def test_snapshots_get_what_their_codec_leaves(share):
    layout = Layout.of((FIELD,))
    codec = Greedy(share * layout.nbytes)
    one = packing(codec, "device", FIELD)
    link = fb.Link(1e9, 1e9)
    costs = fb.Costs(1.0, 1.0, 1e12, host=link, codecs={"greedy": fb.CodecCost(1.0, 1e9, 1e9, 1.0, 1.0)})
    budget = fb.Budget(device=4 * layout.nbytes, host=100 * layout.nbytes)
    plan = fb.plan(30, layout.nbytes, budget, costs=costs, schedule="storeall", codec="greedy", slots=3)
    rooms = rooms_of(plan, layout, one, 0).most
    # Two are always needed: one that is kept, and one that is being encoded.
    assert rooms[0] == max(4 - share, 2) * layout.nbytes


@pytest.mark.parametrize("kind", ["bfloat16", "float16", "complex64"])
def test_tensors_of_narrow_and_complex_types_are_encoded_within_the_bound(kind):
    torch = pytest.importorskip("torch")
    dtype, phase = getattr(torch, kind), torch.linspace(0, 9, 8192)
    first = torch.exp(1j * phase).to(dtype) if dtype.is_complex else torch.sin(phase).to(dtype)
    exact, worst = [first], []
    for _ in range(40):
        exact.append(exact[-1].roll(1))

    def forward(state, start, stop):
        return (state[0].roll(stop - start),)

    def backward(state, step):
        assert state[0].dtype == dtype
        difference = state[0].to(torch.complex128) - exact[step].to(torch.complex128)
        worst.append(max(float(difference.real.abs().max()), float(difference.imag.abs().max())))

    budget = 20 * first.nbytes  # too little for all states as they are
    result = fb.reverse(forward, backward, (first,), 40, budget=budget, codec="bounded:1e-2", schedule="storeall")
    assert result.plan.codec == "bounded:0.01" and result.metrics.ratios.worst > 1.5
    assert result.metrics.peak["host"] <= budget
    assert len(worst) == 40 and 0 < max(worst) <= 2e-2
