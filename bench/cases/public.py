"""Public functions of other people's libraries, with the number of axes that each takes: none was tuned on."""

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

CALLS: dict[str, tuple[int, Callable[[Any, Any], Any]]] = {
    "numpy.cumsum": (3, lambda lib, x: lib.cumsum(x, axis=1)),
    "numpy.gradient": (2, lambda lib, x: lib.gradient(x)[0]),
    "numpy.sort": (2, lambda lib, x: lib.sort(x, axis=0)),
    "numpy.histogram": (2, lambda lib, x: lib.histogram(x, bins=64)[0]),
    "numpy.fft.fft2": (2, lambda lib, x: lib.fft2(x)),
    "numpy.linalg.svd": (2, lambda lib, x: lib.svd(x, full_matrices=False)[1]),
    "scipy.ndimage.gaussian_laplace": (3, lambda lib, x: lib.gaussian_laplace(x, 1.5)),
    "scipy.ndimage.median_filter": (2, lambda lib, x: lib.median_filter(x, 3)),
    "scipy.ndimage.distance_transform_edt": (2, lambda lib, x: lib.distance_transform_edt(x > 0.3)),
    "scipy.ndimage.rotate": (2, lambda lib, x: lib.rotate(x, 30)),
    "scipy.signal.detrend": (3, lambda lib, x: lib.detrend(x)),
    "scipy.signal.stft": (2, lambda lib, x: lib.stft(x, nperseg=32)[2]),
    "scipy.signal.oaconvolve": (2, lambda lib, x: lib.oaconvolve(x, x[:9, :9])),
    "scipy.fft.dctn": (3, lambda lib, x: lib.dctn(x)),
    "scipy.spatial.distance.pdist": (2, lambda lib, x: lib.pdist(x[:, :16])),
    "skimage.filters.sobel": (2, lambda lib, x: lib.sobel(x)),
    "skimage.filters.threshold_otsu": (2, lambda lib, x: lib.threshold_otsu(x)),
    "skimage.restoration.denoise_tv_chambolle": (2, lambda lib, x: lib.denoise_tv_chambolle(x, max_num_iter=3)),
    "skimage.exposure.equalize_hist": (2, lambda lib, x: lib.equalize_hist(x)),
    "skimage.measure.label": (2, lambda lib, x: lib.label(x > 0.6)),
    "skimage.feature.hessian_matrix_det": (2, lambda lib, x: lib.hessian_matrix_det(x)),
    "skimage.transform.resize": (2, lambda lib, x: lib.resize(x, (x.shape[0] // 2, x.shape[1] // 2))),
    "pywt.wavedec2": (2, lambda lib, x: lib.wavedec2(x, "db2", level=2)[0]),
    "pywt.cwt": (1, lambda lib, x: lib.cwt(x, range(1, 9), "mexh")[0]),
    "sklearn.preprocessing.scale": (2, lambda lib, x: lib.scale(x)),
    "sklearn.metrics.pairwise_distances": (2, lambda lib, x: lib.pairwise_distances(x[:, :8])),
    "sklearn.decomposition.PCA": (2, lambda lib, x: lib.PCA(2).fit_transform(x)),
}


class Public:
    """One of them, as a function of an array."""

    def __init__(self, name: str) -> None:
        self.name = self.__name__ = name

    def __call__(self, x: Any) -> Any:
        """Call it, in the module that it is of."""
        return CALLS[self.name][1](import_module(self.name.rpartition(".")[0]), x)


def installed() -> dict[str, tuple[int, Public]]:
    """Return those whose library is there, each with its number of axes."""
    return {name: (ndim, Public(name)) for name, (ndim, _) in CALLS.items() if find_spec(name.partition(".")[0])}
