"""A hundred public functions of other people's libraries, and five of PyTorch.

The list was written before any of them was learned. Each has the number of its axes, the most elements of a sample (by
how long it takes: the shapes held out are 20 to 55 times larger), and the axes that have a length of their own.
"""

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

LIGHT, MIDDLE, HEAVY = 1e6, 3e5, 1e5
"""elements of a sample at most: below 0.1, below 0.5 and below 2 microseconds an element, as one would guess"""


class Case(NamedTuple):
    """One call."""

    ndim: int
    largest: float
    call: Callable[[Any, Any], Any]
    """of the module and an array"""
    axes: dict[int, int] | None = None
    """lengths that axes always have"""


CALLS: dict[str, Case] = {
    "numpy.cumsum": Case(3, LIGHT, lambda lib, x: lib.cumsum(x, axis=1)),
    "numpy.gradient": Case(2, LIGHT, lambda lib, x: lib.gradient(x)[0]),
    "numpy.sort": Case(2, LIGHT, lambda lib, x: lib.sort(x, axis=0)),
    "numpy.argsort": Case(2, LIGHT, lambda lib, x: lib.argsort(x, axis=1)),
    "numpy.histogram": Case(2, LIGHT, lambda lib, x: lib.histogram(x, bins=64)[0]),
    "numpy.percentile": Case(3, LIGHT, lambda lib, x: lib.percentile(x, [5, 95], axis=2)),
    "numpy.median": Case(3, LIGHT, lambda lib, x: lib.median(x, axis=0)),
    "numpy.unique": Case(2, LIGHT, lambda lib, x: lib.unique(x)),
    "numpy.pad": Case(3, LIGHT, lambda lib, x: lib.pad(x, 4, mode="reflect")),
    "numpy.roll": Case(3, LIGHT, lambda lib, x: lib.roll(x, 5, axis=1)),
    "numpy.std": Case(3, LIGHT, lambda lib, x: lib.std(x, axis=2)),
    "numpy.corrcoef": Case(2, LIGHT, lambda lib, x: lib.corrcoef(x)),
    "numpy.convolve": Case(1, LIGHT, lambda lib, x: lib.convolve(x, x[:33], mode="same")),
    "numpy.interp": Case(1, LIGHT, lambda lib, x: lib.interp(x, lib.linspace(0, 1, 50), lib.ones(50))),
    "numpy.nanmean": Case(3, LIGHT, lambda lib, x: lib.nanmean(x, axis=1)),
    "numpy.fft.fft2": Case(2, LIGHT, lambda lib, x: lib.fft2(x)),
    "numpy.fft.rfftn": Case(3, LIGHT, lambda lib, x: lib.rfftn(x)),
    "numpy.linalg.svd": Case(2, HEAVY, lambda lib, x: lib.svd(x, full_matrices=False)[1]),
    "numpy.linalg.qr": Case(2, HEAVY, lambda lib, x: lib.qr(x)[1]),
    "numpy.linalg.pinv": Case(2, HEAVY, lambda lib, x: lib.pinv(x)),
    "numpy.linalg.eigh": Case(2, HEAVY, lambda lib, x: lib.eigh(x @ x.T)[0]),
    "scipy.ndimage.gaussian_laplace": Case(3, MIDDLE, lambda lib, x: lib.gaussian_laplace(x, 1.5)),
    "scipy.ndimage.gaussian_gradient_magnitude": Case(3, MIDDLE, lambda lib, x: lib.gaussian_gradient_magnitude(x, 2)),
    "scipy.ndimage.median_filter": Case(2, MIDDLE, lambda lib, x: lib.median_filter(x, 3)),
    "scipy.ndimage.distance_transform_edt": Case(2, MIDDLE, lambda lib, x: lib.distance_transform_edt(x > 0.3)),
    "scipy.ndimage.rotate": Case(2, MIDDLE, lambda lib, x: lib.rotate(x, 30)),
    "scipy.ndimage.zoom": Case(2, MIDDLE, lambda lib, x: lib.zoom(x, 1.5)),
    "scipy.ndimage.shift": Case(3, MIDDLE, lambda lib, x: lib.shift(x, 0.5)),
    "scipy.ndimage.label": Case(3, MIDDLE, lambda lib, x: lib.label(x > 0.7)[0]),
    "scipy.ndimage.sobel": Case(3, LIGHT, lambda lib, x: lib.sobel(x)),
    "scipy.ndimage.uniform_filter": Case(3, LIGHT, lambda lib, x: lib.uniform_filter(x, 7)),
    "scipy.ndimage.maximum_filter": Case(3, MIDDLE, lambda lib, x: lib.maximum_filter(x, 5)),
    "scipy.ndimage.grey_opening": Case(2, MIDDLE, lambda lib, x: lib.grey_opening(x, 5)),
    "scipy.ndimage.white_tophat": Case(2, MIDDLE, lambda lib, x: lib.white_tophat(x, 5)),
    "scipy.ndimage.binary_fill_holes": Case(2, HEAVY, lambda lib, x: lib.binary_fill_holes(x > 0.4)),
    "scipy.ndimage.spline_filter": Case(3, MIDDLE, lambda lib, x: lib.spline_filter(x)),
    "scipy.ndimage.fourier_gaussian": Case(2, MIDDLE, lambda lib, x: lib.fourier_gaussian(x, 3)),
    "scipy.signal.detrend": Case(3, MIDDLE, lambda lib, x: lib.detrend(x)),
    "scipy.signal.stft": Case(2, MIDDLE, lambda lib, x: lib.stft(x, nperseg=32)[2]),
    "scipy.signal.welch": Case(2, LIGHT, lambda lib, x: lib.welch(x, nperseg=32)[1]),
    "scipy.signal.oaconvolve": Case(2, MIDDLE, lambda lib, x: lib.oaconvolve(x, x[:9, :9])),
    "scipy.signal.fftconvolve": Case(2, MIDDLE, lambda lib, x: lib.fftconvolve(x, x[:15, :15], mode="same")),
    "scipy.signal.hilbert": Case(3, MIDDLE, lambda lib, x: lib.hilbert(x)),
    "scipy.signal.sosfiltfilt": Case(2, MIDDLE, lambda lib, x: lib.sosfiltfilt(lib.butter(4, 0.2, output="sos"), x)),
    "scipy.signal.savgol_filter": Case(2, LIGHT, lambda lib, x: lib.savgol_filter(x, 11, 3)),
    "scipy.signal.decimate": Case(2, MIDDLE, lambda lib, x: lib.decimate(x, 4)),
    "scipy.signal.resample": Case(2, MIDDLE, lambda lib, x: lib.resample(x, 2 * x.shape[1], axis=1)),
    "scipy.signal.wiener": Case(2, MIDDLE, lambda lib, x: lib.wiener(x, 5)),
    "scipy.signal.lfilter": Case(2, LIGHT, lambda lib, x: lib.lfilter([0.2, 0.3], [1, -0.5], x)),
    "scipy.linalg.svdvals": Case(2, HEAVY, lambda lib, x: lib.svdvals(x)),
    "scipy.linalg.lu": Case(2, HEAVY, lambda lib, x: lib.lu(x)[2]),
    "scipy.linalg.lstsq": Case(2, HEAVY, lambda lib, x: lib.lstsq(x, x[:, 0])[0]),
    "scipy.linalg.toeplitz": Case(1, 1e3, lambda lib, x: lib.toeplitz(x)),
    "scipy.fft.dctn": Case(3, MIDDLE, lambda lib, x: lib.dctn(x)),
    "scipy.fft.rfft2": Case(3, MIDDLE, lambda lib, x: lib.rfft2(x)),
    "scipy.spatial.distance.pdist": Case(2, 3e4, lambda lib, x: lib.pdist(x[:, :16])),
    "scipy.interpolate.CubicSpline": Case(
        2, MIDDLE, lambda lib, x: lib.CubicSpline(range(x.shape[0]), x)(x.shape[0] / 2)
    ),
    "scipy.integrate.cumulative_trapezoid": Case(3, LIGHT, lambda lib, x: lib.cumulative_trapezoid(x, axis=1)),
    "scipy.stats.rankdata": Case(2, MIDDLE, lambda lib, x: lib.rankdata(x, axis=1)),
    "scipy.stats.zscore": Case(3, MIDDLE, lambda lib, x: lib.zscore(x, axis=2)),
    "scipy.stats.skew": Case(2, MIDDLE, lambda lib, x: lib.skew(x, axis=0)),
    "skimage.filters.sobel": Case(2, MIDDLE, lambda lib, x: lib.sobel(x)),
    "skimage.filters.gaussian": Case(3, MIDDLE, lambda lib, x: lib.gaussian(x, 2)),
    "skimage.filters.threshold_otsu": Case(2, LIGHT, lambda lib, x: lib.threshold_otsu(x)),
    "skimage.filters.unsharp_mask": Case(2, MIDDLE, lambda lib, x: lib.unsharp_mask(x, 2)),
    "skimage.restoration.denoise_tv_chambolle": Case(
        2, MIDDLE, lambda lib, x: lib.denoise_tv_chambolle(x, max_num_iter=3)
    ),
    "skimage.restoration.denoise_wavelet": Case(2, MIDDLE, lambda lib, x: lib.denoise_wavelet(x)),
    "skimage.restoration.unwrap_phase": Case(2, HEAVY, lambda lib, x: lib.unwrap_phase(6 * x)),
    "skimage.exposure.equalize_hist": Case(2, MIDDLE, lambda lib, x: lib.equalize_hist(x)),
    "skimage.exposure.equalize_adapthist": Case(2, MIDDLE, lambda lib, x: lib.equalize_adapthist(x)),
    "skimage.measure.label": Case(2, MIDDLE, lambda lib, x: lib.label(x > 0.6)),
    "skimage.measure.block_reduce": Case(2, LIGHT, lambda lib, x: lib.block_reduce(x, (3, 3))),
    "skimage.feature.hessian_matrix_det": Case(2, MIDDLE, lambda lib, x: lib.hessian_matrix_det(x)),
    "skimage.feature.canny": Case(2, MIDDLE, lambda lib, x: lib.canny(x)),
    "skimage.feature.local_binary_pattern": Case(2, HEAVY, lambda lib, x: lib.local_binary_pattern(x, 8, 1)),
    "skimage.feature.corner_harris": Case(2, MIDDLE, lambda lib, x: lib.corner_harris(x)),
    "skimage.transform.resize": Case(2, MIDDLE, lambda lib, x: lib.resize(x, (x.shape[0] // 2, x.shape[1] // 2))),
    "skimage.transform.pyramid_reduce": Case(2, MIDDLE, lambda lib, x: lib.pyramid_reduce(x)),
    "skimage.transform.integral_image": Case(2, LIGHT, lambda lib, x: lib.integral_image(x)),
    "skimage.segmentation.watershed": Case(2, HEAVY, lambda lib, x: lib.watershed(x, markers=9)),
    "skimage.morphology.skeletonize": Case(2, HEAVY, lambda lib, x: lib.skeletonize(x > 0.3)),
    "skimage.color.rgb2gray": Case(3, LIGHT, lambda lib, x: lib.rgb2gray(x), {2: 3}),
    "skimage.color.rgb2lab": Case(3, MIDDLE, lambda lib, x: lib.rgb2lab(x), {2: 3}),
    "skimage.color.rgb2hsv": Case(3, MIDDLE, lambda lib, x: lib.rgb2hsv(x), {2: 3}),
    "pywt.wavedec2": Case(2, MIDDLE, lambda lib, x: lib.wavedec2(x, "db2", level=2)[0]),
    "pywt.dwtn": Case(3, MIDDLE, lambda lib, x: lib.dwtn(x, "haar")["aaa"]),
    "pywt.swt2": Case(2, MIDDLE, lambda lib, x: lib.swt2(x, "haar", level=2)[0][0]),
    "pywt.cwt": Case(1, MIDDLE, lambda lib, x: lib.cwt(x, range(1, 9), "mexh")[0]),
    "sklearn.preprocessing.scale": Case(2, LIGHT, lambda lib, x: lib.scale(x)),
    "sklearn.preprocessing.normalize": Case(2, LIGHT, lambda lib, x: lib.normalize(x)),
    "sklearn.preprocessing.quantile_transform": Case(2, MIDDLE, lambda lib, x: lib.quantile_transform(x)),
    "sklearn.preprocessing.PolynomialFeatures": Case(2, 1e4, lambda lib, x: lib.PolynomialFeatures(2).fit_transform(x)),
    "sklearn.metrics.pairwise_distances": Case(2, 3e4, lambda lib, x: lib.pairwise_distances(x[:, :8])),
    "sklearn.metrics.pairwise.rbf_kernel": Case(2, HEAVY, lambda lib, x: lib.rbf_kernel(x)),
    "sklearn.decomposition.PCA": Case(2, HEAVY, lambda lib, x: lib.PCA(2).fit_transform(x)),
    "sklearn.covariance.ledoit_wolf": Case(2, HEAVY, lambda lib, x: lib.ledoit_wolf(x)[0]),
    "sklearn.cluster.KMeans": Case(2, HEAVY, lambda lib, x: lib.KMeans(4, n_init=1, random_state=0).fit(x).labels_),
    "sklearn.linear_model.Ridge": Case(2, MIDDLE, lambda lib, x: lib.Ridge().fit(x, x[:, 0]).coef_),
    "numba.vectorize": Case(2, LIGHT, lambda lib, x: compiled(lib)[0](x)),
    "numba.stencil": Case(2, LIGHT, lambda lib, x: compiled(lib)[1](x)),
}
ON_TORCH: dict[str, Case] = {
    "torch.nn.functional.unfold": Case(4, MIDDLE, lambda lib, x: lib.unfold(x, 3)),
    "torch.nn.functional.conv3d": Case(4, MIDDLE, lambda lib, x: lib.conv3d(x[None], weights(x), padding=1)),
    "torch.nn.functional.scaled_dot_product_attention": Case(
        4, MIDDLE, lambda lib, x: lib.scaled_dot_product_attention(x, x, x)
    ),
    "torch.nn.functional.layer_norm": Case(3, LIGHT, lambda lib, x: lib.layer_norm(x, x.shape[-1:])),
    "torch.nn.functional.avg_pool3d": Case(4, LIGHT, lambda lib, x: lib.avg_pool3d(x, 3, 1, 1)),
}


def weights(x: Any) -> Any:
    """Return the kernels of a convolution from the channels of an array to four."""
    return import_module("torch").ones(4, x.shape[0], 3, 3, 3)


_compiled: list[Any] = []


def compiled(lib: Any) -> list[Any]:
    """Return what Numba makes of two small functions, once a process."""
    if not _compiled:
        stencil = lib.stencil(lambda a: 0.25 * (a[0, 1] + a[1, 0] + a[0, -1] + a[-1, 0]))
        _compiled[:] = lib.vectorize(["float32(float32)"])(lambda v: v * v + 1), lib.njit(lambda a: stencil(a))
    return _compiled


class Public:
    """One of them, as a function of an array."""

    def __init__(self, name: str) -> None:
        self.name = self.__name__ = name

    @property
    def case(self) -> Case:
        """How it is called."""
        return (CALLS | ON_TORCH)[self.name]

    def __call__(self, x: Any) -> Any:
        """Call it, in the module that it is of."""
        return self.case.call(import_module(self.name.rpartition(".")[0]), x)


def installed() -> dict[str, Public]:
    """Return those whose library is there."""
    return {name: Public(name) for name in ON_TORCH | CALLS if find_spec(name.partition(".")[0])}
