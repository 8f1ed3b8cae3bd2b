"""Where waves are computed, and what they may keep there: to the last byte, point and shot."""

import sys
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
from tests.wave.job.jobs import job_text

from forebay.errors import WaveError
from forebay.tier.capacity import Capacity
from forebay.units import Budget
from forebay.wave.earth.grid import Grid
from forebay.wave.job import parse, place

PART = Grid((392, 242), 10.0, absorb=0)
"""Of 400 x 250 points with the halo of an operator of order 8."""


def job_of(**tables):
    return parse(job_text(**{"run": "", "memory": "", **tables}))


@pytest.mark.parametrize(
    ("kind", "wanted", "order", "gpus", "device"),
    [
        ("acoustic", "auto", 8, 1, "gpu"),
        ("acoustic", "auto", 8, 0, "cpu"),
        ("acoustic", "cpu", 8, 1, "cpu"),
        ("acoustic", "gpu", 8, 2, "gpu"),
        ("acoustic", "auto", 10, 1, "cpu"),
        ("elastic", "auto", 8, 1, "gpu"),
        ("elastic", "auto", 10, 1, "cpu"),
        ("elastic", "gpu", 10, 1, None),
        ("acoustic", "gpu", 8, 0, None),
    ],
)
def test_a_gpu_is_used_where_its_kernels_know_the_physics(kind, wanted, order, gpus, device):
    job = job_of(run=f'device = "{wanted}"', physics=f'kind = "{kind}"\norder = {order}')
    if device is None:
        with pytest.raises(WaveError, match=r"run\.device: a GPU cannot be used"):
            place.device_of(job, gpus)
    else:
        assert place.device_of(job, gpus) == device


@pytest.mark.parametrize("kind", ["acoustic", "density", "vti", "tti", "visco", "elastic"])
def test_orders_without_kernels_are_computed_on_the_cpu(kind):
    shale, clay = 'epsilon = "e.npy"\ndelta = "d.npy"', 'q = "q.npy"\nq_frequency = 8.0'
    files = {"vti": shale, "tti": shale + '\ntilt = "t.npy"', "visco": clay}.get(kind, "")
    physics = f'kind = "{kind}"\norder = 10\n{files}'
    assert place.device_of(job_of(physics=physics), 1) == "cpu"
    with pytest.raises(WaveError, match=r"physics\.order is 10, and at most 8 there"):
        place.device_of(job_of(run='device = "gpu"', physics=physics), 1)


@pytest.mark.parametrize(
    ("device", "memory", "refused"),
    [
        ("cpu", "host = 1", None),
        ("cpu", "", None),
        ("cpu", "host = 1\ndisk = 1", None),
        ("cpu", "disk = 1", r"memory\.host: expected beside memory\.disk"),
        ("cpu", "host = 1\ndevice = 1", r"memory\.device: waves are computed on the CPU"),
        ("gpu", "device = 1\ndisk = 1", None),
        ("gpu", "disk = 1", None),
    ],
)
def test_a_budget_begins_where_waves_are_computed(device, memory, refused):
    if refused is None:
        place.check_memory(job_of(memory=memory), device)
    else:
        with pytest.raises(WaveError, match=refused):
            place.check_memory(job_of(memory=memory), device)


def test_tools_that_are_not_asked_for_may_be_missing(monkeypatch):
    asked = []
    monkeypatch.setattr(place, "find_spec", lambda name: asked.append(name) or True)
    place.check_tools(job_of(model='name = "layers"', output='formats = ["segy"]'))
    assert set(asked) == {"numpy", "numba"}
    asked.clear()
    place.check_tools(job_of(run='scheduler = "tcp://a:1"', output='formats = ["zarr"]'))
    assert set(asked) == {"zarr", "distributed", "scipy"}
    monkeypatch.setattr(place, "find_spec", lambda name: None if name == "distributed" else True)
    for run in ("workers = 1", 'scheduler = "tcp://a:1"'):
        with pytest.raises(WaveError, match=r"run\.workers, run\.scheduler: they need Dask"):
            place.check_tools(job_of(run=run))
    place.check_tools(job_of())


POINTS = 400 * 250
HISTORY = 4 * POINTS * (34 + 12)
"""Bytes of 34 records, of 100 steps of which every third counts, and of the fields that a shot works with."""


@pytest.mark.parametrize(
    ("memory", "free", "together"),
    [
        (f"device = {HISTORY}\nhost = {HISTORY}", None, 2),
        (f"device = {HISTORY}\nhost = {HISTORY - 1}", None, 1),
        (f"device = {HISTORY - 1}", None, 1),
        (f"device = {1000 * HISTORY}", None, 120),  # which fill the GPU
        ("", 6 * HISTORY, 3),  # half of what is free
        ("", 6 * HISTORY - 1, 2),
        ("", None, 1),
    ],
)
def test_as_many_shots_advance_together_as_the_memory_keeps(monkeypatch, memory, free, together):
    monkeypatch.setattr(place, "device_capacity", lambda: None if free is None else Capacity(10**12, free))
    assert place.batch_of(job_of(memory=memory), "gpu", PART, 100, 3) == together


@pytest.mark.parametrize(
    ("shape", "count"), [((3992, 2992), 1), ((3992, 2991), 2), ((3992, 1492), 2), ((3992, 1491), 3)]
)
def test_shots_advance_together_until_a_gpu_is_full(shape, count):
    """Parts of 12 million points fill it: the last one that is needed for that takes part."""
    job = job_of(memory='device = "4TB"')
    assert place.batch_of(job, "gpu", Grid(shape, 10.0, absorb=0), 100, 3) == count


@pytest.mark.parametrize(
    ("device", "part", "physics", "together"),
    [
        ("gpu", PART, "", 120),
        ("cpu", PART, "", 1),
        ("gpu", Grid((40, 25, 100), 10.0, absorb=0), "", 1),
        ("gpu", PART, 'kind = "elastic"', 1),
        ("gpu", Grid((388, 238), 10.0, absorb=2), "", 120),  # with its layers
    ],
)
def test_only_acoustic_sections_advance_together(device, part, physics, together):
    assert place.batch_of(job_of(memory='device = "4TB"', physics=physics), device, part, 100, 3) == together


@pytest.mark.parametrize(
    ("codec", "tier", "nbytes", "room"),
    [
        (None, "host", 900, True),
        (None, "host", 901, False),
        ("bounded:1e-4", "host", 850, True),  # of which snapshots may take half as much again
        ("bounded:1e-4", "host", 851, False),
        (None, "disk", 50, True),
        (None, "disk", 51, False),
        (None, "device", 10**12, True),
    ],
)
def test_a_plan_leaves_what_it_has_not_planned_with(codec, tier, nbytes, room):
    plan = SimpleNamespace(codec=codec, budget=Budget(host=1000, disk=50), peak_bytes={"host": 100})
    assert place.leaves(plan, tier, nbytes) is room


def test_arrays_go_where_waves_are_computed(monkeypatch):
    assert place.putter("cpu") is np.asarray
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(asarray="to the GPU"))
    assert place.putter("gpu") == "to the GPU"


def test_another_thread_computes_on_the_same_gpu_in_a_stream_of_its_own(monkeypatch):
    from forebay.cuda import driver, stream

    entered = []

    def entering(name, value=None):
        @contextmanager
        def context(*about):
            entered.append((name, *about))
            yield value
            entered.append(f"{name} left")

        return context

    monkeypatch.setattr(driver, "current_device", lambda: SimpleNamespace(device_id=3))
    monkeypatch.setattr(driver, "on_device", entering("device"))
    monkeypatch.setattr(stream, "kept_streams", entering("streams", SimpleNamespace(compute="ours")))
    monkeypatch.setattr(stream, "current", entering("stream"))
    apart = place.stream_apart("gpu")
    assert entered == []
    with apart():
        assert entered == [("device", 3), ("streams", stream.Urgency.BESIDE), ("stream", "ours")]
    assert entered[3:] == ["stream left", "streams left", "device left"]
    with place.stream_apart("gpu", first=True)():
        assert entered[7] == ("streams", stream.Urgency.FIRST)
    del entered[6:]
    with place.stream_apart("cpu")():
        assert len(entered) == 6
