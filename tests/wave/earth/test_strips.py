"""Strips: all cores work on a model, its data and its image, and their number and the cuts show in no bit."""

import platform
import subprocess
import sys

import numpy as np
import pytest

from forebay.wave import imaging
from forebay.wave.earth import builtin, strips
from forebay.wave.earth.builtin import make
from forebay.wave.earth.grid import Grid
from forebay.wave.earth.smoothing import smooth
from forebay.wave.imaging import laplacian_filter, normalise
from forebay.wave.survey.resample import Resampler
from forebay.wave.survey.shot import Shot
from forebay.wave.survey.traces import mute
from forebay.wave.survey.wavelet import band_limited, ricker, time_derivative


def everything():
    """Do all that is done in strips, to a small model of three dimensions."""
    velocity = make("salt", shape=(12, 14, 11)).values
    smoothed = smooth(velocity, (10.0, 10.0, 10.0), 20.0)
    image = normalise(smoothed - velocity, smoothed)
    heard = np.random.default_rng(0).normal(size=(60, 23)).astype(np.float32)
    shot = Shot((10.0, 50.0), [(10.0, 10.0 * x) for x in range(23)], ricker(12, 0.004, 60, 0.1), 0.004)
    resampler = Resampler(60, 0.004, 100, 0.0024)
    finer = resampler(heard)
    filtered = laplacian_filter(image, Grid(velocity.shape, (10.0, 20.0, 5.0)))
    limited = band_limited(heard, 0.004, 20.0), time_derivative(heard, 0.004)
    return velocity, smoothed, image, filtered, finer, resampler.transpose(finer), *limited, mute(heard, shot, 1500.0)


def test_the_cuts_and_the_number_of_cores_show_in_no_bit(monkeypatch):
    whole = everything()
    monkeypatch.setattr(strips, "POINTS", 300)
    monkeypatch.setattr(builtin, "STRIP", 300)
    monkeypatch.setattr(builtin, "SLAB", 100)
    for cores in (1, 3):
        monkeypatch.setattr(strips, "processors", lambda cores=cores: cores)
        for one, other in zip(everything(), whole, strict=True):
            assert np.array_equal(one, other)


FAULTS = """
import resource
import numpy as np
from forebay.wave.earth import strips

strips.processors = lambda: 2
ones = np.ones(2**18)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
strips.in_strips(lambda part: [len([ones * ones for _ in range(6)]) for _ in range(20)], (10,), points=1)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="memory is kept by the rules of glibc")
def test_threads_ask_the_system_for_their_pieces_once():
    found = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True)
    assert int(found.stdout) < 20_000  # twice 6 pieces of 512 pages are needed


LIGHTS = {
    "of an even number": lambda random: random.gamma(0.3, size=(31, 40)),
    "of an odd number": lambda random: random.gamma(0.3, size=(31, 41)),
    "with many the same": lambda random: random.integers(0, 4, size=(31, 40)).astype(float),
    "of one value": lambda random: np.ones((3, 5)),
    "of few": lambda random: random.normal(size=(2, 2)),
    # Every 201st value is looked at, and is none of the others.
    "of which a sample says nothing": lambda random: np.where(np.arange(20000) % 201, 0, 9) + random.random(20000),
    "that a sample does not see": lambda random: np.where(np.arange(20000) % 201, random.random(20000), -1.0),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("light", LIGHTS)
def test_the_median_of_what_is_lit_has_the_bits_of_numpy(monkeypatch, light, dtype):
    monkeypatch.setattr(strips, "POINTS", 300)
    monkeypatch.setattr(imaging, "SAMPLE", 100)
    values = LIGHTS[light](np.random.default_rng(0)).astype(dtype)
    for least in (0.0, 0.25):
        found = imaging._median_above(values, dtype(least))
        assert found.dtype == dtype and found == np.median(values[values > least])


def test_where_nothing_is_lit_there_is_no_median():
    assert imaging._median_above(np.zeros((4, 5), np.float32), np.float32(0)) is None
    assert np.array_equal(normalise(np.ones((4, 5)), np.zeros((4, 5))), np.ones((4, 5)))


def test_what_goes_wrong_in_a_strip_is_raised(monkeypatch):
    monkeypatch.setattr(strips, "processors", lambda: 3)
    done = []

    def work(rows):
        done.append(rows.start)
        if rows.start == 4:
            raise MemoryError("no more")

    with pytest.raises(MemoryError, match="no more"):
        strips.in_strips(work, (10, strips.POINTS))
    assert set(done) >= set(range(4))
    strips.in_strips(done.append, (0, 5))
