"""Whether there is a GPU that can be used, asked of the driver itself: cheap where there is none."""

import ctypes
from functools import cache
from importlib.util import find_spec

INSTALL = "install Forebay with its extra cuda12 or cuda13"
"""What fetches the libraries of the GPU side."""
KEPT_FROM, KEPT_PIECE = 2**32, 2**25
"""Bytes of a reversal's device memory from which the process keeps it, and in whose multiples it is taken then."""

_NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE


def gpu_count() -> int:
    """Count the GPUs that Forebay can use; 0 where the driver or ``cuda-core`` is missing.

    Examples
    --------
    >>> gpu_count() >= 0
    True
    """
    return _look()[0]


def why_not() -> str:
    """Say why no GPU can be used and what to do about it; empty where one can.

    Examples
    --------
    >>> (why_not() == "") == (gpu_count() > 0)
    True
    """
    return _look()[1]


@cache
def _look() -> tuple[int, str]:
    """Ask once: neither drivers nor visible devices change while a process runs."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0, f"no NVIDIA driver (libcuda.so.1) was found: install the driver of your GPU, then {INSTALL}"
    error = driver.cuInit(0)
    count = ctypes.c_int(0)
    if error == 0:
        error = driver.cuDeviceGetCount(ctypes.byref(count))
    if error == _NO_DEVICE or (error == 0 and count.value == 0):
        return 0, "the NVIDIA driver shows no GPU: look at `nvidia-smi` and at the variable CUDA_VISIBLE_DEVICES"
    if error != 0:
        return 0, f"the NVIDIA driver does not start (cuInit gives error {error}): look at `nvidia-smi`"
    if missing := [module for module in ("cuda.bindings", "cuda.core") if not _installed(module)]:
        return 0, f"{count.value} GPU(s), but {' and '.join(missing)} cannot be imported: {INSTALL}"
    return count.value, ""


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # the parent package is missing too, or is no package
        return False
