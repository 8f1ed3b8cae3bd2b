"""SEG-Y: positions with their scalars, whoever wrote them, traces in any order, and what we write read by others."""

import numpy as np
import pytest

segyio = pytest.importorskip("segyio")
from segyio import BinField, TraceField  # noqa: E402

from forebay.errors import WaveError  # noqa: E402
from forebay.wave.files.formats import look_at_shots, read_field, read_shot, write_field, write_shots  # noqa: E402
from forebay.wave.survey.geometry import geometry_of  # noqa: E402

IBM, IEEE = 1, 5


def write(path, traces, headers, *, interval, kind=IEEE):
    """Write a file by segyio alone."""
    spec = segyio.spec()
    spec.format, spec.samples, spec.tracecount = kind, np.arange(traces.shape[1]), len(traces)
    with segyio.create(str(path), spec) as file:
        file.bin.update({BinField.Interval: interval, BinField.Samples: traces.shape[1], BinField.Format: kind})
        for number, (trace, header) in enumerate(zip(traces, headers, strict=True)):
            file.header[number] = header
            file.trace[number] = np.ascontiguousarray(trace, np.float32)


@pytest.mark.parametrize(("scalar", "factor"), [(-10, 10.0), (1, 1.0), (0, 1.0), (2, 0.5)])
@pytest.mark.parametrize("kind", [IBM, IEEE])
def test_shots_come_with_scaled_positions_and_in_any_order(tmp_path, scalar, factor, kind):
    rng = np.random.default_rng(0)
    sources, receivers = np.array([400.0, 100.0]), np.array([0.0, 200.0, 600.0])
    pairs = rng.permutation([(s, r) for s in range(2) for r in range(3)]).tolist()
    traces = rng.normal(size=(6, 50)).astype(np.float32)
    headers = [
        {
            TraceField.SourceX: int(sources[s] * factor),
            TraceField.GroupX: int(receivers[r] * factor),
            TraceField.SourceGroupScalar: scalar,
            TraceField.SourceDepth: int(10 * factor),
            TraceField.ReceiverGroupElevation: -int(20 * factor),
            TraceField.ElevationScalar: scalar,
        }
        for s, r in pairs
    ]
    path = tmp_path / "shots.sgy"
    write(path, traces, headers, interval=4000, kind=kind)
    found = look_at_shots(path, 2)
    assert (found.count, found.samples, found.traces) == (2, 50, 3) and found.dt == pytest.approx(0.004)
    for shot in range(2):
        place = found.geometry.sources[shot]
        assert place[0] == 10 and place[1] in sources
        data = read_shot(path, shot, found.geometry.traces_of(shot))
        for column, position in enumerate(found.geometry.receivers_of(shot)):
            assert position[0] == 20
            pair = [sources.tolist().index(place[1]), receivers.tolist().index(position[1])]
            wanted = traces[pairs.index(pair)]
            assert np.allclose(data[:, column], wanted, rtol=1e-5)
    first = pairs[0][0]
    assert found.geometry.sources[0][1] == sources[first]  # numbered as they come


def test_a_volume_is_sorted_by_its_positions(tmp_path):
    rng = np.random.default_rng(1)
    values = rng.normal(3000, 300, (20, 3, 4)).astype(np.float32)  # depth, y, x
    places = rng.permutation([(j, k) for j in range(3) for k in range(4)]).tolist()
    headers = [
        {TraceField.CDP_X: 1000 + 250 * k, TraceField.CDP_Y: 5000 + 500 * j, TraceField.SourceGroupScalar: -10}
        for j, k in places
    ]
    write(tmp_path / "v.segy", np.stack([values[:, j, k] for j, k in places]), headers, interval=10000)
    found = read_field(tmp_path / "v.segy")
    assert np.array_equal(found.values, values)
    assert found.spacing == (10.0, 50.0, 25.0) and found.origin == (0.0, 500.0, 100.0)


def test_a_file_without_positions_leaves_the_spacing_to_the_user(tmp_path):
    values = np.arange(12, dtype=np.float32).reshape(4, 3)
    write(tmp_path / "v.segy", values.T, [{TraceField.CDP: n + 1} for n in range(3)], interval=10000)
    found = read_field(tmp_path / "v.segy")
    assert np.array_equal(found.values, values) and found.spacing == (10.0, None)


def test_holes_and_uneven_spacings_are_refused(tmp_path):
    for name, places, message in (
        ("hole", [(0, 0), (0, 10), (10, 0)], "do not fill a rectangle"),
        ("uneven", [(0, 0), (10, 0), (40, 0)], "10 to 30 m apart"),
    ):
        headers = [{TraceField.CDP_X: x, TraceField.CDP_Y: y, TraceField.SourceGroupScalar: 1} for x, y in places]
        write(tmp_path / f"{name}.segy", np.ones((3, 5), np.float32), headers, interval=4000)
        with pytest.raises(WaveError, match=message):
            read_field(tmp_path / f"{name}.segy")
    (tmp_path / "not.segy").write_bytes(b"no")
    with pytest.raises(WaveError, match="cannot be read as SEG-Y"):
        read_field(tmp_path / "not.segy")


@pytest.mark.parametrize("shape", [(30, 7), (30, 4, 6)])
def test_an_image_goes_out_and_comes_back(tmp_path, shape):
    values = np.random.default_rng(2).normal(size=shape).astype(np.float32)
    spacing, origin = (5.0, 12.5, 6.25)[: len(shape)], (0.0, 1000.5, -300.0)[: len(shape)]
    write_field(tmp_path / "image.segy", values, spacing, origin)
    found = read_field(tmp_path / "image.segy")
    assert np.array_equal(found.values, values)
    assert np.allclose(found.spacing, spacing, atol=0.01) and np.allclose(found.origin, origin, atol=0.01)
    with segyio.open(str(tmp_path / "image.segy"), ignore_geometry=True) as file:  # as others read it
        assert file.bin[BinField.Format] == IEEE and file.tracecount == values[0].size
        assert file.header[1][TraceField.SourceGroupScalar] == -100
        assert np.array_equal(file.trace[0], values.reshape(30, -1)[:, 0])
        if len(shape) == 3:
            assert np.ptp(file.attributes(TraceField.CROSSLINE_3D)[:]) == 5


def test_shots_go_out_and_come_back(tmp_path):
    geometry = geometry_of([(5.0, 100.25, 7.0), (5.0, 50.0, 90.5)], [(10.0, 10.0 * n, 5.0 * n) for n in range(4)])
    gathers = list(np.random.default_rng(3).normal(size=(2, 60, 4)).astype(np.float32))
    write_shots(tmp_path / "shots.segy", geometry, gathers, 0.002)
    found = look_at_shots(tmp_path / "shots.segy", 3)
    assert np.allclose(found.geometry.sources, geometry.sources) and found.dt == pytest.approx(0.002)
    assert np.allclose(found.geometry.receivers, geometry.receivers)
    for shot in range(2):
        assert np.array_equal(read_shot(tmp_path / "shots.segy", shot, found.geometry.traces_of(shot)), gathers[shot])


def line(path, places, interval=4000, **header):
    """Write one trace of two samples for each pair of a source's and a receiver's (x, y)."""
    headers = [
        {
            TraceField.SourceX: source[0],
            TraceField.SourceY: source[1],
            TraceField.GroupX: group[0],
            TraceField.GroupY: group[1],
        }
        | {getattr(TraceField, name): value for name, value in header.items()}
        for source, group in places
    ]
    write(path, np.ones((len(places), 2), np.float32), headers, interval=interval)


def test_a_line_runs_along_x_or_along_y(tmp_path):
    along = [(s, r) for s in (300, 600) for r in (0, 50, 100)]
    line(tmp_path / "x.sgy", [((s, 7), (r, 7)) for s, r in along])
    line(tmp_path / "y.sgy", [((7, s), (7, r)) for s, r in along])
    for name in ("x.sgy", "y.sgy"):
        found = look_at_shots(tmp_path / name, 2).geometry
        assert found.sources[:, 1].tolist() == [300, 600]
        assert found.receivers_of(1)[:, 1].tolist() == [0, 50, 100]
    line(tmp_path / "oblique.sgy", [((s, s), (r, r)) for s, r in along])
    with pytest.raises(WaveError, match="SourceX and GroupX vary, and so do SourceY and GroupY"):
        look_at_shots(tmp_path / "oblique.sgy", 2)
    assert look_at_shots(tmp_path / "oblique.sgy", 3).count == 2


@pytest.mark.parametrize(
    ("header", "complaint"),
    [
        ({"DelayRecordingTime": 100}, "DelayRecordingTime of trace 1 is 100: pad or cut"),
        ({"CoordinateUnits": 2}, "CoordinateUnits of trace 1 is 2: project the coordinates"),
        ({"TRACE_SAMPLE_INTERVAL": 2000}, "TRACE_SAMPLE_INTERVAL of trace 1 is 2000: .* Interval is 4000"),
    ],
)
def test_headers_that_would_be_misread_are_refused_by_name(tmp_path, header, complaint):
    line(tmp_path / "s.sgy", [((0, 0), (50, 0))], **header)
    with pytest.raises(WaveError, match=complaint):
        look_at_shots(tmp_path / "s.sgy", 2)


def test_feet_are_refused(tmp_path):
    line(tmp_path / "s.sgy", [((0, 0), (50, 0))], CoordinateUnits=1, TRACE_SAMPLE_INTERVAL=4000)
    assert look_at_shots(tmp_path / "s.sgy", 2).count == 1
    with segyio.open(str(tmp_path / "s.sgy"), "r+", ignore_geometry=True) as file:
        file.bin.update({BinField.MeasurementSystem: 2})
    with pytest.raises(WaveError, match="MeasurementSystem is feet"):
        look_at_shots(tmp_path / "s.sgy", 2)


def test_sampling_intervals_of_two_bytes_are_read_and_written_without_a_sign(tmp_path):
    write_field(tmp_path / "image.segy", np.ones((5, 4), np.float32), (40.0, 40.0), (0.0, 0.0))
    assert read_field(tmp_path / "image.segy").spacing == (40.0, 40.0)
    geometry = geometry_of([(5.0, 0.0)], [(5.0, 10.0)])
    write_shots(tmp_path / "shots.segy", geometry, [np.ones((9, 1), np.float32)], 0.05)
    assert look_at_shots(tmp_path / "shots.segy", 2).dt == pytest.approx(0.05)


@pytest.mark.parametrize(("spacing", "depth"), [(70.0, 0.0), (0.0104, 0.0), (10.0, 100.0)])
def test_a_grid_that_headers_cannot_tell_is_refused_and_nothing_is_written(tmp_path, spacing, depth):
    with pytest.raises(WaveError, match="take npy or zarr"):
        write_field(tmp_path / "image.segy", np.ones((50, 4), np.float32), (spacing, 10.0), (depth, 0.0))
    with pytest.raises(WaveError, match=r"whole µs up to 65535, not 1562\.5"):
        write_shots(tmp_path / "s.segy", geometry_of([(5.0, 0.0)], [(5.0, 10.0)]), [np.ones((700, 1))], 0.0015625)
    assert not list(tmp_path.iterdir())
