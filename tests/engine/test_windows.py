"""Records that are windows of larger arrays: encoded where they lie, and bit-equal to copies of them."""

import numpy as np
import pytest

import forebay as fb
from forebay.codec import get
from forebay.cuda.available import gpu_count
from forebay.engine.layout import Layout
from forebay.machine.packing import Packing
from tests.engine.windows import WINDOW, field, seen

RATIOS = {"bounded:0.0001": 4, "bounded:1e-07": 20, "cast:float16": 2, "dense:1e-4": 4}
"""What plans believe of codecs, so that they are the same in all runs: of the second far too much."""
CODECS = {name: fb.CodecCost(ratio, 1e9, 1e9, worst=1.1) for name, ratio in RATIOS.items()}
COSTS = fb.Costs(1.0, 1.0, 1e9, codecs=CODECS)


@pytest.mark.parametrize(
    ("codec", "budget", "replans"),
    [("bounded:0.0001", "400kB", False), ("bounded:1e-07", "260kB", True), (None, "4MB", False)],
)
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_windows_give_what_copies_of_them_give(library, codec, budget, replans):
    arrays = pytest.importorskip(library)
    copy = arrays.clone if library == "torch" else np.copy
    dense = arrays.Tensor.contiguous if library == "torch" else np.ascontiguousarray
    how = {"budget": budget, "costs": COSTS, "schedule": "storeall"}
    records, result, _ = seen(field(arrays), lambda window: window, codec, **how)
    expected, _, _ = seen(field(arrays), lambda window: dense(copy(window)), codec, **how)
    assert [step for step, _ in records] == [step for step, _ in expected]
    assert all(bool((one == other).all()) for (_, one), (_, other) in zip(records, expected, strict=True))
    assert (result.plan.keep, result.plan.codec, result.metrics.replanned) == ("records", codec, replans)


@pytest.mark.parametrize(
    ("codec", "budget", "replans"), [("bounded:0.0001", "400kB", 0), ("bounded:1e-07", "260kB", 1)]
)
def test_records_are_handed_over_as_they_are_kept(codec, budget, replans):
    how = {"budget": budget, "costs": COSTS, "schedule": "storeall"}
    expected, decoded, none = seen(field(np), lambda window: window, codec, **how)
    records, result, encoded = seen(field(np), lambda window: window, codec, encoded=True, **how)
    sampled = len(result.metrics.samples)  # of which bricks are compared
    assert not none and sampled and (len(encoded) == len(records) - sampled or replans) and encoded
    assert [step for step, _ in records] == [step for step, _ in expected]
    assert all((one == other).all() for (_, one), (_, other) in zip(records, expected, strict=True))
    assert result.metrics.samples == decoded.metrics.samples and result.metrics.replanned == replans
    assert result.plan.prediction.restore < decoded.plan.prediction.restore


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_windows_stay_where_they_lie_and_all_else_is_copied(library):
    arrays = pytest.importorskip(library)
    whole = field(arrays)
    window = whole[WINDOW]
    layout = Layout.of({"p": window}, "record")
    for _ in range(2):
        record = layout.match_record({"p": window}, windows=True)
        assert record["p"] is window and layout.check(record, windows=True)[0] is window
        assert layout.windows([window]) == [(30 * 44 * 4, 44 * 4, 4)]
    steps = arrays.concatenate([whole, whole], -1)[(*WINDOW[:2], slice(4, 76, 2))]
    turned = arrays.swapaxes(arrays.swapaxes(whole, 0, 2).reshape(-1).reshape(44, 30, 24), 0, 2)[WINDOW]
    for other in (steps, turned, layout.match_record({"p": window})["p"]):
        kept = layout.match_record({"p": other}, windows=True)["p"]
        assert layout.windows([kept]) == [None] and bool((kept == other).all())


def test_devices_need_codecs_that_read_windows():
    leaves = Layout.of({"p": np.zeros((17, 21, 36), np.float32)}).leaves
    reads = {(name, tier): Packing.of(leaves, get(name), tier).windows for name, tier in NAMES}
    assert reads == NAMES


NAMES = {
    ("bounded:1e-4", "device"): True,
    ("dense:1e-4", "device"): True,
    ("cast:bfloat16", "device"): False,
    ("cast:bfloat16", "host"): True,
}


@pytest.mark.gpu
@pytest.mark.skipif(gpu_count() == 0, reason="no GPU")
@pytest.mark.parametrize("codec", ["bounded:0.0001", "dense:1e-4", "cast:float16", None])
@pytest.mark.parametrize(("budget", "steps"), [("64MB", 12), ("9MB", 200)])
@pytest.mark.parametrize("library", ["cupy", "torch"])
def test_windows_of_a_gpu_give_what_copies_of_them_give(library, budget, steps, codec):
    arrays = pytest.importorskip(library)
    if library == "cupy":
        whole, dense = lambda: field(arrays), arrays.ascontiguousarray
    else:
        whole, dense = lambda: field(arrays).cuda(), arrays.Tensor.contiguous
    how = {"steps": steps, "budget": budget, "costs": COSTS, "schedule": "storeall" if budget == "64MB" else "auto"}
    records, result, _ = seen(whole(), lambda window: window, codec, **how)
    expected, _, _ = seen(whole(), dense, codec, **how)
    assert [step for step, _ in records] == [step for step, _ in expected]
    assert all(bool((one == other).all()) for (_, one), (_, other) in zip(records, expected, strict=True))
    if codec == "bounded:0.0001":  # records that all fit as they are need none
        assert (result.plan.keep, result.plan.codec) == ("records", codec if budget == "9MB" else None)
