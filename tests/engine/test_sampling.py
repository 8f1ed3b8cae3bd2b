"""Errors of a lossy codec are measured where backward sees them, and only there."""

import math

import numpy as np
import pytest

import forebay as fb
from forebay.engine.layout import Layout
from forebay.engine.sampling import Sampler

SLOW = fb.Costs(1.0, 1.0, 1e9, codecs={"cast:bfloat16": fb.CodecCost(1.9, 1e9, 1e9)})


def reverse(growth, **arguments):
    """Reverse a loop that lets an error grow, and give the largest error of what backward saw."""
    field = np.random.default_rng(0).standard_normal((20, 30)).astype(np.float32)
    exact = [field]
    for _ in range(60):
        exact.append(exact[-1] * np.float32(growth))
    errors = {}

    def forward(state, start, stop):
        for _ in range(start, stop):
            state = (state[0] * np.float32(growth), state[1] + 1)
        return state

    def backward(state, step):
        errors[step] = float(np.abs(state[0] - exact[step]).max())

    state = (field, np.arange(10))
    call = {"budget": "45kB", "codec": "cast:bfloat16", "costs": SLOW} | arguments
    return fb.reverse(forward, backward, state, 60, **call), errors


@pytest.mark.parametrize("growth", [1.0, 1.05])
@pytest.mark.parametrize("arguments", [{}, {"record": (0,), "budget": "150kB"}, {"schedule": "revolve:12"}], ids=str)
def test_the_samples_are_errors_that_backward_saw(growth, arguments):
    result, errors = reverse(growth, **arguments)
    assert result.plan.codec == "cast:bfloat16"
    samples = result.metrics.samples
    assert [sample.step for sample in samples] == [6, 18, 30, 42, 54]
    for sample in samples:
        assert 0 < sample.max_error <= errors[sample.step]
        assert sample.max_error >= 0.5 * errors[sample.step]  # most of a small array is looked at
        assert 0 < sample.relative < 0.01 and 40 < sample.psnr < 80 and 0.99 < sample.ssim <= 1
    assert "sampled steps" in result.explain()
    assert ("carries its error on" in result.explain()) == (result.plan.keep == "states")


def test_without_a_lossy_codec_nothing_is_sampled():
    result, errors = reverse(1.05, codec=None)
    assert result.metrics.samples == [] and set(errors.values()) == {0.0}


def test_what_is_exact_has_no_error():
    tree = {"u": np.zeros((3, 4, 5, 6)), "empty": np.zeros((0, 3)), "flag": np.array(True), "clock": np.array(0.5)}
    sampler = Sampler(Layout.of(tree), 10)
    for step in sampler.stops(0, 10):
        sampler.keep(step, tree)
        sampler.see(step, tree)
    assert {(s.max_error, s.relative, s.psnr, s.ssim) for s in sampler.samples()} == {(0.0, 0.0, math.inf, 1.0)}
    tree["u"][0, 0, 0, 0] = 1
    sampler = Sampler(Layout.of(tree), 3)
    assert list(sampler.stops(0, 2)) == [0, 1] and list(sampler.stops(0, 3)) == [2]


@pytest.mark.parametrize("more", [np.array(0.5), np.array([0.5]), np.full((1, 1), 0.5), np.array([0.5, 0.3])], ids=str)
@pytest.mark.parametrize("spoilt", [None, np.nan, np.inf])
def test_small_arrays_and_values_that_are_not_finite_spoil_no_report(more, spoilt):
    field = np.sin(np.arange(20000.0) / 50)
    if spoilt is not None:
        field[7] = spoilt
    result = fb.reverse(
        lambda state, start, stop: (state[0] * 0.999 ** (stop - start), state[1] * 1.0001 ** (stop - start)),
        lambda state, step: None,
        (field, more),
        30,
        budget="2MB",
        codec="cast:float16",
        costs=fb.Costs(1.0, 1.0, 1e9, codecs={"cast:float16": fb.CodecCost(3.9, 1e9, 1e9, worst=0.3)}),
    )
    assert result.plan.codec == "cast:float16"
    assert all(0 < sample.relative < 1e-2 and 20 < sample.psnr < 120 for sample in result.metrics.samples)
