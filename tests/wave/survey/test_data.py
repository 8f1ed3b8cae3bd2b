"""Files, geometries, parts of models, and sums in a fixed order."""

import gc
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.errors import WaveError
from forebay.files import whole
from forebay.wave import Grid, Shot, ricker
from forebay.wave.files.formats import format_of, look_at_shots, read_field, read_shot, write_field, write_shots
from forebay.wave.files.npy import load_array, load_arrays
from forebay.wave.job.stack import PartialImage, tree_sum
from forebay.wave.survey.geometry import Geometry, geometry_of, part_of, spread, windows
from forebay.wave.survey.traces import mute


@pytest.mark.parametrize("suffix", ["npy", "zarr"])
def test_fields_come_back_as_they_were(tmp_path, suffix):
    if suffix == "zarr":
        pytest.importorskip("zarr")
    values = np.random.default_rng(0).normal(size=(40, 30, 20)).astype(np.float32)
    path = tmp_path / f"v.{suffix}"
    for _ in range(2):  # the second time it replaces the first
        write_field(path, values, (5.0, 10.0, 12.5), (0.0, 1.0, 2.0))
    found = read_field(path)
    assert np.array_equal(found.values, values)
    if suffix == "zarr":
        assert found.spacing == (5.0, 10.0, 12.5) and found.origin == (0.0, 1.0, 2.0)
    assert [one.name for one in tmp_path.iterdir()] == [f"v.{suffix}"]


@pytest.mark.parametrize("suffix", ["npy", "zarr"])
def test_shots_come_back_one_at_a_time(tmp_path, suffix):
    if suffix == "zarr":
        pytest.importorskip("zarr")
    geometry = geometry_of([(5.0, 0.0), (5.0, 90.0)], [(10.0, 10.0 * n) for n in range(6)])
    gathers = list(np.random.default_rng(1).normal(size=(2, 50, 6)).astype(np.float32))
    path = tmp_path / f"shots.{suffix}"
    write_shots(path, geometry, gathers, 0.002)
    found = look_at_shots(path, 2)
    assert (found.count, found.samples, found.traces) == (2, 50, 6)
    assert np.array_equal(read_shot(path, 1, np.array([4, 0])), gathers[1][:, [4, 0]])
    if suffix == "zarr":
        assert found.dt == 0.002 and np.array_equal(found.geometry.receivers, geometry.receivers)


@pytest.mark.slow
def test_threads_may_read_files_of_numpy_at_once(tmp_path):
    one, other = np.arange(12.0).reshape(3, 4), np.ones(5)
    np.save(tmp_path / "one.npy", one)
    np.savez(tmp_path / "both.npz", one=one, other=other)

    class Garbage:
        def __init__(self):
            self.itself = self

        def __del__(self):  # a collection may come upon it while a header is parsed, and lets another thread run
            time.sleep(0)

    def read(_):
        Garbage()
        found = [load_array(tmp_path / "one.npy"), *load_arrays(tmp_path / "both.npz", "one", "other")]
        return all(map(np.array_equal, found, (one, one, other)))

    before = gc.get_threshold(), sys.getswitchinterval()
    gc.set_threshold(20, 1, 1)
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            assert all(threads.map(read, range(400)))
    finally:
        gc.set_threshold(*before[0])
        sys.setswitchinterval(before[1])


@pytest.mark.parametrize("dtype", ["complex64", "bool", "U3", [("p", "f4")]], ids=str)
def test_data_that_are_no_real_numbers_are_refused(tmp_path, dtype):
    path = tmp_path / "shots.npy"
    np.save(path, np.ones((2, 50, 6)).astype(dtype))
    for reading in (lambda: look_at_shots(path, 2), lambda: read_shot(path, 0, np.arange(6))):
        with pytest.raises(WaveError, match=r"shots\.npy: values of type .*expected real numbers"):
            reading()


def test_complex_data_in_zarr_are_refused_too(tmp_path):
    zarr = pytest.importorskip("zarr")
    path = tmp_path / "shots.zarr"
    zarr.create_array(str(path), shape=(2, 50, 6), dtype="complex64")[:] = 1j
    for reading in (lambda: look_at_shots(path, 2), lambda: read_shot(path, 0, np.arange(6))):
        with pytest.raises(WaveError, match=r"shots\.zarr: values of type complex64; expected real numbers"):
            reading()


@pytest.mark.parametrize("dtype", ["float16", "float64", ">f4", "int16", "uint8"])
def test_other_real_numbers_are_read(tmp_path, dtype):
    data = np.arange(24).reshape(2, 4, 3).astype(dtype)
    np.save(tmp_path / "shots.npy", data)
    found = read_shot(tmp_path / "shots.npy", 1, np.array([2, 0]))
    assert found.dtype == np.float32 and np.array_equal(found, data[1][:, [2, 0]])


def test_a_file_is_whole_or_not_there(tmp_path):
    path = tmp_path / "v.npy"
    path.write_bytes(b"old")

    def interrupted():
        with whole(path) as unfinished:
            unfinished.write_bytes(b"ne")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_bytes() == b"old" and len(list(tmp_path.iterdir())) == 1


def test_unknown_names_and_missing_files_are_named(tmp_path):
    with pytest.raises(WaveError, match=r"must end in one of \.npy"):
        format_of(tmp_path / "v.bin")
    with pytest.raises(WaveError, match="there is no"):
        read_field(tmp_path / "v.npy")
    (tmp_path / "v.npy").write_bytes(b"junk")
    with pytest.raises(WaveError, match=r"cannot be read as \.npy"):
        read_field(tmp_path / "v.npy")


def test_a_spread_covers_the_surface():
    grid = Grid((20, 31, 41), 10.0, (0.0, 100.0, 0.0))
    found = spread(grid, (2, 4), source_depth=10.0, receiver_depth=20.0, receiver_spacing=50.0)
    assert found.count == 8 and found.ndim == 3
    assert np.array_equal(np.unique(found.sources[:, 1]), [175.0, 325.0])
    receivers = found.receivers_of(3)
    assert receivers.shape == (7 * 9, 3) and (receivers[:, 0] == 20).all() and receivers[:, 1].max() == 400.0
    with pytest.raises(WaveError, match="along each of the 2 horizontal axes"):
        spread(grid, 4, source_depth=10.0, receiver_depth=20.0, receiver_spacing=50.0)


def test_positions_are_real_numbers():
    with pytest.raises(WaveError, match="sources: values of type complex128"):
        geometry_of([(1j, 0)], [(0, 0)])


def test_receivers_beyond_the_largest_offset_are_left_out_with_their_traces():
    found = geometry_of([(0.0, 0.0), (0.0, 100.0)], [(0.0, 10.0 * n) for n in range(11)]).within(35.0)
    assert found.receivers_of(0)[:, 1].tolist() == [0, 10, 20, 30]
    assert found.traces_of(1).tolist() == [7, 8, 9, 10]
    with pytest.raises(WaveError, match="without receivers"):
        geometry_of([(0.0, 0.0)], [(0.0, 50.0)]).within(10.0)


def test_geometries_are_kept_in_files(tmp_path):
    one = geometry_of([(0.0, 0.0), (0.0, 100.0)], [(0.0, 10.0 * n) for n in range(11)]).within(55.0)
    one.save(tmp_path / "g.npz")
    other = Geometry.load(tmp_path / "g.npz")
    for shot in range(2):
        assert np.array_equal(one.receivers_of(shot), other.receivers_of(shot))


@given(
    shots=st.lists(st.tuples(st.floats(0, 990), st.floats(0, 490)), min_size=1, max_size=5),
    reach=st.floats(0, 400),
    aperture=st.floats(0, 600),
)
def test_parts_hold_their_shots_have_one_shape_and_stay_inside(shots, reach, aperture):
    grid = Grid((12, 100, 50), 10.0)
    sources = [(10.0, y, x) for y, x in shots]
    receivers = [[(10.0, y, x), (10.0, min(y + reach, 990.0), x)] for y, x in shots]
    geometry = geometry_of(sources, receivers)
    boxes = windows(geometry, grid, aperture)
    assert len({tuple(one.stop - one.start for one in box) for box in boxes}) == 1
    for shot, box in enumerate(boxes):
        part = part_of(grid, box)
        assert all(0 <= one.start < one.stop <= points for one, points in zip(box, grid.shape, strict=True))
        assert box[0] == slice(0, 12)
        for position in [geometry.sources[shot], *geometry.receivers_of(shot)]:
            low = np.maximum(position[1:] - aperture, grid.origin[1:])
            high = np.minimum(position[1:] + aperture, grid.end[1:])
            assert (np.asarray(part.origin[1:]) <= low + 1e-3).all()
            assert (np.asarray(part.end[1:]) >= high - 1e-3).all()


def test_sums_follow_the_tree_and_keep_parts_in_their_place():
    rng = np.random.default_rng(2)
    parts = []
    for shot in range(7):
        start = 3 * shot
        image, light = rng.normal(size=(2, 4, 10)).astype(np.float32)
        parts.append(PartialImage(image, light, (slice(0, 4), slice(start, start + 10))))
    total = tree_sum(parts).spread((4, 40))
    whole_images = [part.spread((4, 40)).image for part in parts]
    a, b, c, d, e, f, g = whole_images
    assert np.array_equal(total.image, ((a + b) + (c + d)) + ((e + f) + g))
    assert not np.array_equal(total.image, sum(whole_images))  # the order matters, so it is fixed
    some = tree_sum([parts[0], None, None, parts[3]]).spread((4, 40))
    assert np.array_equal(some.image, a + d)
    assert tree_sum([None, None]) is None


def test_several_parts_added_in_one_pass_have_the_bits_of_pairs():
    rng = np.random.default_rng(3)
    numbers = np.array([0.0, -0.0, 1e-45, -1e-45, 1.0, -1.0, 3e37, -3e37, 0.1, 1e-8], np.float32)
    parts = [
        PartialImage(*rng.choice(numbers, size=(2, 4, 300)), (slice(0, 4), slice(9 * shot, 9 * shot + 300)))
        for shot in range(11)
    ]
    pairs = tree_sum(parts, add=PartialImage.__add__)
    total = tree_sum(parts)
    assert total.box == pairs.box
    for name, values in total.arrays.items():
        assert values.tobytes() == pairs.arrays[name].tobytes()


def test_parts_fade_out_towards_sides_inside_of_the_model_alone():
    inside, left = (
        PartialImage(*np.ones((2, 4, 20), np.float32), (slice(0, 4), box)) for box in (slice(10, 30), slice(0, 20))
    )
    faded = inside.faded([0, 6], (4, 40))
    assert np.array_equal(faded.image, faded.image[:, ::-1]) and np.array_equal(faded.image, faded.illumination)
    row = faded.image[0]
    assert (
        faded.image.dtype == np.float32
        and 0 < row[0] < 0.05
        and (np.diff(row[:6]) > 0).all()
        and (row[6:14] == 1).all()
    )
    row = left.faded([0, 6], (4, 40)).image[0]
    assert (row[:14] == 1).all() and (np.diff(row[13:]) < 0).all()
    assert left.faded([0, 50], (4, 40)).image.max() < 0.5  # of a margin wider than the part, what it has
    for margins, shape in (([0, 0], (4, 40)), ([0, 6], (4, 20))):
        assert left.faded(margins, shape).image is left.image


def test_few_sums_are_held_at_a_time():
    alive, most = set(), 0

    def leaves():
        for number in range(100):
            alive.add(number)
            yield (number,)

    def add(one, other):
        nonlocal most
        most = max(most, len(alive))
        alive.discard(other[0])
        return one + other

    assert tree_sum(leaves(), add=add) == tuple(range(100))
    assert most <= 8


def test_the_direct_wave_is_muted_and_what_comes_later_is_not():
    dt, samples = 0.004, 300
    wavelet = ricker(12.0, dt, samples)
    shot = Shot((0.0, 0.0), [(0.0, 150.0), (0.0, 750.0)], wavelet, dt)
    arrivals = [round(offset / 1500 / dt) for offset in (150, 750)]
    direct = np.stack([np.roll(wavelet, shift) for shift in arrivals], axis=1)
    echo = np.stack([np.roll(wavelet, 200), np.roll(wavelet, 220)], axis=1)
    muted = mute(direct + echo, shot, 1500.0)
    assert np.abs(muted[:170]).max() < 0.02
    assert np.abs(muted - echo)[200:].max() < 1e-3
    assert np.array_equal(mute(direct, shot, 1500.0, delay=0.0)[150:], direct[150:])
