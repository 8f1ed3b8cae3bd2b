"""What tests of GPU loops beside their CPU twins share: where the former run, and how near both have to be."""

import numpy as np
import pytest
from tests.wave.emulator import GPP

from forebay.cuda.available import gpu_count
from forebay.wave.earth.arrays import on_host

PLACES = [
    pytest.param("emulated", marks=pytest.mark.skipif(GPP is None, reason="g++ is not installed")),
    pytest.param("gpu", marks=[pytest.mark.gpu, pytest.mark.skipif(gpu_count() == 0, reason="no GPU")]),
]


class OnDevice(np.ndarray):
    """An array that the emulator takes for one on a GPU."""


def agree(one, other, tolerance):
    """Hold an array to another one that is not zero, within a share of its largest value."""
    one, other = on_host(one), on_host(other)
    assert one.shape == other.shape and np.isfinite(one).all()
    assert np.abs(other).max() > 0
    assert np.abs(one - other).max() <= tolerance * np.abs(other).max()
