"""Halo and whole axes: found on small arrays, and refused where blocks are not the whole."""

import numpy as np
import pytest

from forebay.footprint import CutError, FootprintError, Reach, find_reach
from forebay.footprint.reach import in_blocks

ndimage = pytest.importorskip("scipy.ndimage")


def gaussian(x):
    return ndimage.gaussian_filter(x, 1.5, truncate=4)


def envelope(x):
    return np.abs(np.fft.ifft(np.fft.fft(x, axis=1) * (np.arange(x.shape[1]) <= x.shape[1] // 2), axis=1))


def late(x):
    """Look three rows back."""
    return np.concatenate([x[:3], x[:-3]])


@pytest.mark.parametrize(
    ("function", "dtype", "reach"),
    [
        (np.sqrt, "float32", Reach((0, 0))),
        (gaussian, "float64", Reach((6, 6))),
        (lambda x: ndimage.median_filter(x, (5, 3)), "float32", Reach((2, 1))),
        (lambda x: ndimage.grey_opening(x, (5, 3)), "uint8", Reach((4, 2))),
        (lambda x: ndimage.binary_dilation(x, iterations=2), "bool", Reach((2, 2))),
        (late, "float32", Reach((3, 0))),
        (envelope, "float32", Reach((0, 0), (1,))),
        (lambda x: np.sort(x, axis=0), "float32", Reach((0, 0), (0,))),
        (lambda x: np.cumsum(x, axis=1), "float64", Reach((0, 0), (1,))),
    ],
)
def test_halo_and_whole_axes_are_found(function, dtype, reach):
    assert find_reach(function, ndim=2, dtype=dtype) == reach


def otsu(x):
    """Take what is above the level that parts an array best, as Otsu's method does."""
    counts, edges = np.histogram(x, 32)
    weights, means = counts.cumsum(), (counts * edges[1:]).cumsum()
    rest = weights[-1] - weights
    apart = np.divide((means[-1] * weights - means * weights[-1]) ** 2, weights * rest, where=rest > 0, out=0 * means)
    return x > edges[1 + apart.argmax()]


def pca(x):
    """Keep two principal components."""
    values, scale, axes = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)
    return (values[:, :2] * scale[:2]) @ axes[:2]


@pytest.mark.parametrize(
    "function",
    [
        np.fft.fftn,
        otsu,
        pca,
        lambda x: np.linalg.svd(x - x.mean(axis=0), full_matrices=False)[0][:, :2],
        lambda x: x / np.abs(x).max(),
        lambda x: x + np.arange(len(x))[:, None],
        lambda x: ndimage.distance_transform_edt(x > 0.5),
        lambda x: ndimage.label(x > 0.6)[0],
        lambda x: x.sum(),
    ],
)
def test_what_blocks_do_not_give_is_refused(function):
    with pytest.raises(CutError):
        find_reach(function, ndim=2, side=64)


def test_what_cannot_be_told_is_no_refusal_to_cut():
    for function, says in ((lambda x: x[1:-1] * 2, "keeps the shape"), (lambda x: 1 / 0, "ZeroDivisionError")):
        with pytest.raises(FootprintError, match=says) as refused:
            find_reach(function, ndim=2)
        assert not isinstance(refused.value, CutError)


def test_a_reach_of_more_than_a_third_needs_larger_arrays():
    def wide(x):
        return ndimage.uniform_filter1d(x, 61, axis=0)

    assert find_reach(wide, ndim=2, side=60) == Reach((0, 0), (0,))
    assert find_reach(wide, ndim=2) == Reach((30, 0))


def test_three_axes_in_blocks_are_the_whole():
    array = np.random.default_rng(0).random((40, 30, 35))
    reach = find_reach(gaussian, ndim=3, dtype="float64")
    assert reach == Reach((6, 6, 6))
    assert np.allclose(in_blocks(gaussian, array, reach), gaussian(array))
