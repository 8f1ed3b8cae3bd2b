"""`auto:E` offers every codec that keeps an error, and the planner chooses by what each did to real data."""

from importlib import import_module

import numpy as np
import pytest

import forebay as fb
from forebay.codec import get
from forebay.codec.auto import choices
from forebay.errors import CodecError

GRID = np.linspace(-3, 3, 40, dtype=np.float32)


def test_all_codecs_that_keep_an_error_are_offered():
    offered, error = choices("auto:1e-3")
    assert error == 1e-3
    assert {codec.name.partition(":")[0] for codec in offered} >= {"bounded", "lossless"}


def test_what_was_named_is_what_is_offered():
    assert choices(None) == ([], None)
    assert [codec.name for codec in choices(["cast:float16", get("raw")])[0]] == ["cast:float16", "raw"]


@pytest.mark.parametrize("name", ["auto", "auto:", "auto:much", "auto:0", "auto:2", "auto:nan"])
def test_an_error_has_to_be_said(name):
    with pytest.raises(CodecError, match="auto:1e-4"):
        choices(name)


def test_a_reversal_takes_the_best_and_keeps_the_error():
    start = np.exp(-(GRID[:, None, None] ** 2 + GRID[:, None] ** 2 + GRID**2)).astype(np.float32)
    exact, worst = {}, 0.0
    state = start
    for step in range(50):
        exact[step] = state
        state = step_forward((state,), step, step + 1)[0]

    def backward(record, step):
        nonlocal worst
        range_ = exact[step].max() - exact[step].min()
        worst = max(worst, float(np.abs(record[0] - exact[step]).max() / range_))

    result = fb.reverse(
        step_forward,
        backward,
        (start,),
        50,
        budget="9MB",
        record=(0,),
        codec="auto:1e-3",
        costs=fb.Costs(forward=1.0, backward=1.0, copy=1e10),
    )
    measured = result.plan.costs.codecs
    small = {name: 1 / one.encode + 1 / one.decode for name, one in measured.items() if one.ratio > 2}
    assert result.plan.codec == min(small, key=small.get) and any(name.startswith("bounded") for name in small)
    assert str(result.plan.schedule) == "storeall"  # the error would pass through recomputation
    assert 0 < worst <= 1e-3
    assert {name.partition(":")[0] for name in measured} >= {"bounded", "lossless"}


@pytest.mark.slow
def test_a_slow_disk_takes_the_codec_of_the_smallest_encodings(tmp_path):
    start = np.exp(-(GRID[:, None, None] ** 2 + GRID[:, None] ** 2 + GRID**2)).astype(np.float32)
    budget = fb.Budget(host="1.2MB", disk="20MB")
    result = fb.reverse(
        step_forward,
        lambda record, step: None,
        (start,),
        50,
        budget=budget,
        record=(0,),
        codec="auto:1e-3",
        costs=fb.Costs(forward=0.1, backward=0.1, copy=1e10, disk=fb.Link(3e5, 3e5)),
        directory=tmp_path,
    )
    assert result.plan.codec == "dense:0.001"
    ratios = {name.partition(":")[0]: cost.ratio for name, cost in result.plan.costs.codecs.items()}
    assert 4 <= ratios["bounded"] < ratios["dense"] <= 8  # the first steps tell how codecs compare
    known = {"costs": result.plan.costs, "record_bytes": start.nbytes, "encode_states": False}
    bounded, dense = (
        fb.plan(50, start.nbytes, budget, codec=name, **known) for name in ("bounded:0.001", "dense:0.001")
    )
    assert dense.seconds < 0.9 * bounded.seconds


def test_a_codec_that_does_not_keep_the_error_is_not_chosen(monkeypatch):
    module = import_module("forebay.engine.reverse")  # `forebay.engine.reverse` is the function
    monkeypatch.setattr(module, "choices", lambda asked: ([get("cast:bfloat16"), get("raw")], 1e-4))
    start = np.linspace(0, 1, 40_000, dtype=np.float32)
    result = fb.reverse(
        step_forward,
        lambda state, step: None,
        (start,),
        20,
        budget="2MB",
        codec="auto:1e-4",
        costs=fb.Costs(forward=1.0, backward=1.0, copy=1e10),
    )
    assert set(result.plan.costs.codecs) == {"raw"}


def step_forward(state, start, stop):
    field = state[0]
    for _ in range(start, stop):
        field = (0.6 * field + 0.4 * np.roll(field, 1, 0)).astype(np.float32)
    return (field,)
