"""Zarr arrays of ours: what is damaged or missing is named, and never taken for values."""

import numpy as np
import pytest

from forebay.errors import WaveError
from forebay.wave.files.formats import look_at_shots, read_field, read_shot, write_field, write_shots
from forebay.wave.survey.geometry import geometry_of

zarr = pytest.importorskip("zarr")

SPACING, ORIGIN = (10.0, 12.5), (0.0, 100.0)


@pytest.fixture
def image(tmp_path):
    values = np.random.default_rng(0).normal(size=(30, 40)).astype(np.float32)
    values[:, 20:] = 0
    write_field(tmp_path / "image.zarr", values, SPACING, ORIGIN)
    return tmp_path / "image.zarr", values


@pytest.fixture
def shots(tmp_path):
    data = np.random.default_rng(1).normal(size=(3, 20, 6)).astype(np.float32)
    data[1] = 0
    geometry = geometry_of([(10, 0), (10, 50), (10, 100)], [(10, 20 * x) for x in range(6)])
    write_shots(tmp_path / "shots.zarr", geometry, list(data), 0.004)
    return tmp_path / "shots.zarr", data


def silent_flips(folder, same, count):
    """Flip bits of a folder's files, one at a time and all over them, and count those that change what is read."""
    random, files = np.random.default_rng(2), sorted(path for path in folder.rglob("*") if path.is_file())
    named = silent = 0
    for number in range(count):
        path = files[number % len(files)]
        sound = path.read_bytes()
        damaged = bytearray(sound)
        damaged[random.integers(len(sound))] ^= 1 << random.integers(8)
        path.write_bytes(damaged)
        try:
            silent += not same()
        except WaveError:
            named += 1
        path.write_bytes(sound)
    assert same()
    return named, silent


def test_a_flipped_bit_of_an_image_is_named(image):
    path, values = image

    def same():
        volume = read_field(path)
        return np.array_equal(volume.values, values) and (volume.spacing, volume.origin) == (SPACING, ORIGIN)

    named, silent = silent_flips(path, same, 100)
    assert silent == 0 and named > 80  # the others are in words of the metadata that change nothing


def test_a_flipped_bit_of_shots_is_named(shots):
    path, data = shots

    def same():
        found = look_at_shots(path, 2)
        gathers = [read_shot(path, shot, np.arange(6)) for shot in range(3)]
        placed = found.geometry.sources.tolist() == [[10, 0], [10, 50], [10, 100]]
        return np.array_equal(gathers, data) and found.dt == 0.004 and placed

    named, silent = silent_flips(path, same, 100)
    assert silent == 0 and named > 70


def test_a_chunk_that_is_missing_is_not_zeros(image, shots):
    for path, look in (
        (image[0], lambda: read_field(image[0])),
        (shots[0] / "data", lambda: [read_shot(shots[0], shot, np.arange(6)) for shot in range(3)]),
        (shots[0] / "sources", lambda: look_at_shots(shots[0], 2)),
    ):
        for chunk in sorted(entry for entry in (path / "c").rglob("*") if entry.is_file()):
            sound = chunk.read_bytes()
            chunk.unlink()
            assert np.isnan(zarr.open(str(path), mode="r")[:]).any()  # to others
            with pytest.raises(WaveError, match="is damaged"):
                look()
            chunk.write_bytes(sound)
        look()


def test_arrays_of_others_are_read_as_they_are(tmp_path):
    array = zarr.create_array(str(tmp_path / "v.zarr"), shape=(4, 5), chunks=(2, 5), dtype="float32")
    array[:2] = 1.0
    assert read_field(tmp_path / "v.zarr").values.sum() == 10
