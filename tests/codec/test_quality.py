"""Errors, PSNR and SSIM are what their definitions say, on the CPU and on a GPU."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from forebay.codec.quality import Quality, compare, max_error, measure, psnr, ssim
from forebay.cuda.available import gpu_count
from forebay.errors import CodecError


def pair():
    z, y, x = np.meshgrid(*(np.arange(n) for n in (12, 16, 20)), indexing="ij")
    a = np.sin(z / 3) + np.cos(y / 4) * x / 10
    return a, a + 0.05 * np.cos(7 * x + 3 * y + z)


@given(arrays(np.float64, array_shapes(max_dims=3, max_side=5), elements=st.floats(-1e6, 1e6)))
def test_errors_are_those_of_numpy(a):
    b = np.roll(a, 1)
    assert max_error(a, b) == np.abs(a - b).max()
    mse, span = np.mean((a - b) ** 2), np.ptp(a)
    if mse > 1e-290:  # below, squares lose their digits
        assert psnr(a, b) == pytest.approx(10 * math.log10(span**2 / mse), abs=1e-9)
    elif mse == 0:
        assert psnr(a, b) == math.inf


def test_errors_are_taken_in_float64():
    a = np.array([1e8, 0, 0], np.float32)
    b = np.array([1e8, 2e-9, 0], np.float32)
    assert max_error(a, b) == float(b[1])
    assert max_error(np.ones(1, np.float32), b[1:2]) == 1 - float(b[1]) < 1
    assert max_error(np.array([200], np.uint8), np.array([250], np.uint8)) == 50


def test_what_is_not_finite_in_both_is_equal():
    a = np.array([np.nan, np.inf, -np.inf, 1.0, 2.0])
    assert max_error(a, a.copy()) == 0 and psnr(a, a.copy()) == math.inf
    b = a.copy()
    b[3] = 1.5
    assert max_error(a, b) == 0.5
    assert compare(a, b).span == 1.0


@pytest.mark.parametrize(
    ("here", "there"), [(np.nan, 0.0), (0.0, np.nan), (np.inf, -np.inf), (np.inf, np.nan), (0.0, np.inf)]
)
def test_what_is_not_finite_in_one_is_infinitely_wrong(here, there):
    a, b = np.array([here, 1.0, 2.0]), np.array([there, 1.0, 2.0])
    assert max_error(a, b) == math.inf
    assert psnr(a, b) == -math.inf


def test_ssim_is_that_of_scikit_image():
    a, b = pair()  # values of structural_similarity, scikit-image 0.26, data_range = max - min of the first
    assert ssim(a, b) == pytest.approx(0.9971567552513603, abs=1e-12)
    assert ssim(a, b, window=5) == pytest.approx(0.9949490487589197, abs=1e-12)
    assert ssim(a[3], b[3]) == pytest.approx(0.9930410460595537, abs=1e-12)
    assert ssim(a[3, 4], b[3, 4]) == pytest.approx(0.9506042603436414, abs=1e-12)


def test_what_is_quiet_is_judged_by_the_range_of_the_whole():
    quiet = 1e-6 * np.random.default_rng(3).random((16, 16))
    other = quiet + 1e-5 * np.random.default_rng(4).random((16, 16))
    assert ssim(quiet, other) < 0.2 and ssim(quiet, other, span=1.0) > 0.999
    assert ssim(np.zeros((9, 9)), np.full((9, 9), 1e-5), span=1.0) > 0.999


def test_ssim_far_from_zero_keeps_its_digits():
    a, b = pair()
    far = ssim(a + 1e6, b + 1e6)
    assert 0.99 < far < 1
    assert ssim((a + 1e6) / 4, (b + 1e6) / 4) == pytest.approx(far, abs=1e-9)


def test_ssim_agrees_with_its_definition_window_by_window():
    rng = np.random.default_rng(0)
    a = rng.standard_normal((5, 6, 7)).astype(np.float32)
    b = a + rng.standard_normal(a.shape).astype(np.float32)
    windows = [
        np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), (3, 3, 3)).reshape(-1, 27) for x in (a, b)
    ]
    span = float(np.ptp(a.astype(np.float64)))
    c1, c2 = (0.01 * span) ** 2, (0.03 * span) ** 2
    values = []
    for one, two in zip(*windows, strict=True):
        covariance = np.cov(one, two)
        ua, ub = one.mean(), two.mean()
        top = (2 * ua * ub + c1) * (2 * covariance[0, 1] + c2)
        values.append(top / ((ua**2 + ub**2 + c1) * (covariance[0, 0] + covariance[1, 1] + c2)))
    assert ssim(a, b, window=3) == pytest.approx(np.mean(values), abs=1e-12)


def test_ssim_of_arrays_that_are_equal_is_one():
    a, _ = pair()
    a[2, 2, 2], a[3, 3, 3] = np.nan, np.inf
    assert ssim(a, a.copy()) == pytest.approx(1.0, abs=1e-12)
    assert ssim(np.ones((9, 9)), np.ones((9, 9))) == 1.0
    assert ssim(np.ones((9, 9)), np.zeros((9, 9))) == 0.0


def test_ssim_is_nan_where_a_value_is_lost():
    a, b = pair()
    b[6, 6, 6] = np.nan
    assert math.isnan(ssim(a, b))


def test_axes_of_one_element_do_not_count():
    a, b = pair()
    assert ssim(a[3:4], b[3:4]) == ssim(a[3], b[3])
    assert ssim(a[:, :1], b[:, :1]) == pytest.approx(ssim(a[:, 0], b[:, 0]), abs=1e-14)


@pytest.mark.parametrize(
    ("shape", "window"), [((5, 9), 7), ((9, 9), 4), ((9, 9), 1), ((2, 9, 9, 9), 3), ((1, 1), 3), ((0, 9), 3)]
)
def test_windows_that_do_not_fit_are_refused(shape, window):
    with pytest.raises(CodecError):
        ssim(np.zeros(shape), np.ones(shape), window=window)


def test_arrays_that_are_not_alike_are_refused():
    with pytest.raises(CodecError, match="cannot be compared"):
        max_error(np.zeros(3), np.zeros(4))
    with pytest.raises(CodecError, match="cannot be compared"):
        max_error(np.zeros(3), np.zeros(3, np.float32))
    with pytest.raises(CodecError, match="real numbers"):
        max_error(np.zeros(3, complex), np.zeros(3, complex))
    for pair in ((np.zeros(3), SimpleNamespace(shape=(3,))), (SimpleNamespace(shape=(3,)), np.zeros(3))):
        with pytest.raises(CodecError, match="one array is on the host and one on a GPU"):
            max_error(*pair)


def test_all_is_measured_at_once():
    a, b = pair()
    assert measure(a, b, a.nbytes // 4) == Quality(max_error(a, b), psnr(a, b), ssim(a, b), 4.0)


@pytest.mark.gpu
@pytest.mark.skipif(gpu_count() == 0, reason="no GPU")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(70, 37, 71), (8, 300), (64, 64, 64), (1, 40, 41), (500,)])
def test_a_gpu_finds_the_same(dtype, shape):
    cupy = pytest.importorskip("cupy")
    rng = np.random.default_rng(0)
    a = np.cumsum(rng.standard_normal(shape), axis=-1).astype(dtype)
    b = (a + 0.3 * rng.standard_normal(shape)).astype(dtype)
    for special in (False, True):
        if special:
            a.reshape(-1)[[5, 50]] = b.reshape(-1)[[5, 50]] = np.nan, -np.inf
        there = [cupy.asarray(x) for x in (a, b)]
        assert max_error(*there) == max_error(a, b)
        assert psnr(*there) == pytest.approx(psnr(a, b), abs=1e-9)
        assert ssim(*there) == pytest.approx(ssim(a, b), abs=1e-11)
        assert ssim(*there, window=3) == pytest.approx(ssim(a, b, window=3), abs=1e-11)
    b.reshape(-1)[7] = np.nan
    assert max_error(cupy.asarray(a), cupy.asarray(b)) == math.inf
    assert math.isnan(ssim(cupy.asarray(a), cupy.asarray(b)))


@pytest.mark.parametrize("scale", [1e-300, 1e-100, 1.0, 1e100, 1e300])
def test_ssim_does_not_depend_on_the_scale(scale):
    image = np.outer(np.sin(np.arange(12.0)), np.cos(np.arange(12.0)))
    worse = image + 0.05 * np.outer(np.cos(np.arange(12.0)), np.ones(12))
    assert ssim(scale * image, scale * worse) == pytest.approx(ssim(image, worse), rel=1e-9)
