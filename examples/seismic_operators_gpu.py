"""Three seismic operators for arrays on a GPU, of CuPy and of PyTorch, as a workload for footprints on the device.

They compute what their namesakes of `seismic_operators` do, and are written as is usual on a GPU: whole arrays at a
time, traces padded to lengths that transform fast (so that `envelope` differs where traces have other lengths), and the
dip from closed forms instead of an eigensolver.
"""

from collections.abc import Callable
from importlib import import_module
from itertools import combinations
from typing import Any

from forebay.footprint.fit.fast_lengths import next_fast_len

PAIRS = ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2))


def cupy_envelope(volume: Any) -> Any:
    """Instantaneous amplitude of every trace: the modulus of its analytic signal."""
    cupy: Any = import_module("cupy")
    length = volume.shape[-1]
    spectrum = _one_sided(cupy.fft.fft(volume, next_fast_len(length), axis=-1))
    return cupy.abs(cupy.fft.ifft(spectrum, axis=-1)[..., :length])


def cupy_gaussian(volume: Any, sigma: float = 3.0) -> Any:
    """Smooth with a Gaussian along every axis."""
    ndimage: Any = import_module("cupyx.scipy.ndimage")
    return ndimage.gaussian_filter(volume, sigma)


def cupy_gst3d(volume: Any, sigma: float = 1.0) -> Any:
    """Dip in degrees of the layers at every voxel but the outermost, from the gradient structure tensor."""
    return _dip(import_module("cupy"), volume, lambda product: cupy_gaussian(product, sigma))


def torch_envelope(volume: Any) -> Any:
    """Instantaneous amplitude of every trace: the modulus of its analytic signal."""
    torch: Any = import_module("torch")
    length = volume.shape[-1]
    spectrum = _one_sided(torch.fft.fft(volume, next_fast_len(length), dim=-1))
    return torch.abs(torch.fft.ifft(spectrum, dim=-1)[..., :length])


def torch_gaussian(volume: Any, sigma: float = 3.0) -> Any:
    """Smooth with a Gaussian along every axis, mirrored at the ends, by adding shifted copies."""
    torch: Any = import_module("torch")
    radius = int(4 * sigma + 0.5)
    steps = torch.arange(-radius, radius + 1, dtype=torch.float64)
    weights = torch.exp(-0.5 * (steps / sigma) ** 2)
    shares = (weights / weights.sum()).tolist()
    for axis in range(volume.ndim):
        length = volume.shape[axis]
        places = torch.arange(-radius, length + radius, device=volume.device) % (2 * length)
        mirrored = torch.minimum(places, 2 * length - 1 - places)
        padded = volume.index_select(axis, mirrored)
        volume = torch.zeros_like(volume)
        for start, share in enumerate(shares):
            volume.add_(padded.narrow(axis, start, length), alpha=share)
    return volume


def torch_gst3d(volume: Any, sigma: float = 1.0) -> Any:
    """Dip in degrees of the layers at every voxel but the outermost, from the gradient structure tensor."""
    return _dip(import_module("torch"), volume, lambda product: torch_gaussian(product, sigma))


def _one_sided(spectrum: Any) -> Any:
    """Double the positive frequencies and drop the negative ones, in place."""
    length = spectrum.shape[-1]
    spectrum[..., 1 : (length + 1) // 2] *= 2
    spectrum[..., length // 2 + 1 :] = 0
    return spectrum


def _dip(library: Any, volume: Any, smooth: Callable[[Any], Any]) -> Any:
    """Return the angle between the last axis and the eigenvector of the tensor's largest eigenvalue."""
    inner, before, after = slice(1, -1), slice(None, -2), slice(2, None)
    derivatives = [
        0.5 * (volume[after, inner, inner] - volume[before, inner, inner]),
        0.5 * (volume[inner, after, inner] - volume[inner, before, inner]),
        0.5 * (volume[inner, inner, after] - volume[inner, inner, before]),
    ]
    xx, xy, xz, yy, yz, zz = (smooth(derivatives[i] * derivatives[j]) for i, j in PAIRS)
    del derivatives
    largest = _largest_eigenvalue(library, xx, xy, xz, yy, yz, zz)
    xx, yy, zz = xx - largest, yy - largest, zz - largest
    # The eigenvector is orthogonal to all rows of the shifted matrix: of three cross products the longest is surest.
    rows = (xx, xy, xz), (xy, yy, yz), (xz, yz, zz)
    best = across = along = library.zeros_like(xx)
    for first, second in combinations(rows, 2):
        (a, b, c), (d, e, f) = first, second
        x, y, z = b * f - c * e, c * d - a * f, a * e - b * d
        size = x * x + y * y + z * z
        longer = size > best
        across = library.where(longer, library.sqrt(x * x + y * y), across)
        along = library.where(longer, library.abs(z), along)
        best = library.where(longer, size, best)
    return library.arctan2(across, along) * 57.29577951308232


def _largest_eigenvalue(library: Any, xx: Any, xy: Any, xz: Any, yy: Any, yz: Any, zz: Any) -> Any:
    """Solve the characteristic cubic of symmetric 3 x 3 matrices by its trigonometric form."""
    mean = (xx + yy + zz) / 3
    xx, yy, zz = xx - mean, yy - mean, zz - mean
    spread = library.sqrt((xx * xx + yy * yy + zz * zz + 2 * (xy * xy + xz * xz + yz * yz)) / 6)
    determinant = xx * (yy * zz - yz * yz) - xy * (xy * zz - yz * xz) + xz * (xy * yz - yy * xz)
    cosine = library.clip(determinant / library.clip(2 * spread**3, 1e-30, None), -1, 1)
    return mean + 2 * spread * library.cos(library.arccos(cosine) / 3)


OPERATORS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    operator.__name__: (operator.__name__.partition("_")[0], operator)
    for operator in (cupy_envelope, cupy_gaussian, cupy_gst3d, torch_envelope, torch_gaussian, torch_gst3d)
}
"""All of them, by name, with the library whose arrays they take."""
