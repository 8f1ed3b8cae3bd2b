"""Errors of a lossy codec are measured where backward sees them, and only there."""

import math

import numpy as np
import pytest

import forebay as fb
from forebay.codec import quality
from forebay.engine import sampling
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
        assert start < stop
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


def test_the_worst_of_all_arrays_is_told_each_by_its_own_range():
    smooth, flat = np.add.outer(np.arange(8.0), np.arange(8.0)), np.full((8, 8), 4.0)
    tree = {"wide": smooth, "narrow": smooth / 100, "flat": flat, "whole": np.arange(64).reshape(8, 8)}
    errors = {"wide": 0.7, "narrow": 0.014, "flat": 0.1, "whole": 3}
    sampler = Sampler(Layout.of(tree), 1)
    assert list(sampler.stops(0, 1)) == [0]
    sampler.keep(0, tree)
    sampler.see(1, tree)  # of a step that is no sampled one
    checks = np.where(np.add.outer(np.arange(8), np.arange(8)) % 2, 1, -1)
    seen = {name: tree[name] + (error * checks).astype(tree[name].dtype) for name, error in errors.items()}
    sampler.see(0, seen)
    (sample,) = sampler.samples()
    assert (sample.step, sample.max_error, sample.relative) == (0, pytest.approx(0.7), pytest.approx(0.1))
    assert sample.psnr == pytest.approx(20.0)
    alike = [
        quality.ssim(tree[name], seen[name], 7, span) for name, span in (("wide", 14), ("narrow", 0.14), ("flat", 4))
    ]
    assert sample.ssim == pytest.approx(min(alike)) and len({round(each, 3) for each in alike}) == 3


def test_of_a_large_array_a_few_bricks_are_looked_at():
    field = np.add.outer(np.arange(200.0), np.arange(200.0))
    for wrong, found in ((np.s_[:], True), (np.s_[::199, ::199], False)):
        seen = field.copy()
        seen[wrong] += 0.5
        sampler = Sampler(Layout.of((field,)), 1)
        sampler.keep(0, (field,))
        sampler.see(0, (seen,))
        assert sampler.samples()[0].max_error == (0.5 if found else 0.0)


@pytest.mark.parametrize(
    ("shape", "window"), [((8, 8), 7), ((7, 9), 7), ((5, 9), 5), ((4, 9), 3), ((3, 3), 3), ((2, 9), None), ((1, 9), 7)]
)
def test_likeness_is_told_in_windows_that_fit_into_an_array(shape, window):
    field = np.add.outer(np.arange(float(shape[0])), np.arange(float(shape[1])) ** 2)
    seen = field + 0.3 * np.where(np.add.outer(*map(np.arange, shape)) % 2, 1, -1)
    sampler = Sampler(Layout.of((field,)), 1)
    sampler.keep(0, (field,))
    sampler.see(0, (seen,))
    expected = 1.0 if window is None else quality.ssim(field, seen, window, np.ptp(field))
    assert sampler.samples()[0].ssim == pytest.approx(expected) and (expected < 1) == (window is not None)


def test_the_range_of_an_array_is_that_of_its_first_pass():
    for spread, relative in ((2.0, 0.05), (0.0, 0.025)):  # the size counts where all values are the same
        field = np.array([[4.0, 4.0 - spread]] * 3)
        sampler = Sampler(Layout.of((field,)), 1)
        sampler.keep(0, (field,))
        sampler.see(0, (field + 0.1,))
        assert sampler.samples()[0].relative == pytest.approx(relative)


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


@pytest.mark.parametrize("shape", [(2, 16, 16, 16), (2, 3, 8, 9, 9)])
def test_bricks_of_more_than_three_axes_are_looked_at_in_planes(shape):
    exact = np.random.default_rng(0).standard_normal(shape)
    lossy, planes = exact + 0.3 * np.sin(exact * 9), (-1, *shape[-2:])
    similar = sampling._similarity(exact, lossy, 5.0)
    assert similar == sampling._similarity(exact.reshape(planes), lossy.reshape(planes), 5.0) < 0.999
