"""The operators that footprints are shown on compute what they are named after."""

import numpy as np
import pytest

scipy = pytest.importorskip("scipy")

import seismic_operators as operators  # noqa: E402

VOLUME = np.random.default_rng(0).random((12, 14, 40), dtype=np.float32)


@pytest.mark.parametrize("name", operators.OPERATORS)
def test_every_operator_gives_a_finite_volume(name):
    result = operators.OPERATORS[name](VOLUME)
    trimmed = tuple(n - 2 for n in VOLUME.shape)
    assert result.shape == (trimmed if name == "gst3d" else VOLUME.shape)
    assert np.isfinite(result).all()


def test_the_envelope_of_a_tone_is_its_amplitude():
    tone = 3 * np.sin(2 * np.pi * np.arange(400) / 20)
    assert operators.envelope(tone[None])[0, 50:-50] == pytest.approx(3, rel=0.01)


@pytest.mark.parametrize("slope", [0.0, 0.3, 1.0])
def test_the_dip_of_plane_layers_is_their_slope(slope):
    i, _, k = np.meshgrid(*(np.arange(24.0),) * 3, indexing="ij")
    dip = operators.gst3d(np.sin((k - slope * i) / 3).astype(np.float32))
    assert np.median(dip) == pytest.approx(np.degrees(np.arctan(slope)), abs=1.0)


def test_the_filter_keeps_its_band_and_takes_the_rest():
    time = np.arange(1000)
    slow, kept = np.sin(2 * np.pi * time / 400), np.sin(2 * np.pi * time / 10)
    filtered = operators.bandpass((slow + kept).astype(np.float32)[None])[0, 100:-100]
    assert filtered == pytest.approx(kept[100:-100], abs=0.05)


def test_denoising_keeps_what_has_low_rank():
    panel = np.outer(np.arange(1, 15), np.arange(1, 41)).astype(np.float32)[None]
    assert operators.svd_denoise(panel) == pytest.approx(panel, rel=1e-4)


def test_sums_ranks_and_labels():
    assert operators.integral(VOLUME)[-1, -1, -1] == pytest.approx(VOLUME.sum(dtype=float))
    assert (np.sort(operators.order(VOLUME)) == np.arange(40)).all()
    two = np.zeros((8, 8, 8), np.float32)
    two[0, 0, 0] = two[5, 5, 5] = 1
    assert operators.labels(two).max() == 2
