"""SEG-Y: positions with their scalars, whoever wrote them, traces in any order, and what we write read by others."""

import numpy as np
import pytest
from tests.wave.job.jobs import job_text

segyio = pytest.importorskip("segyio")
from segyio import BinField, TraceField  # noqa: E402

from forebay.errors import WaveError  # noqa: E402
from forebay.wave.files.formats import look_at_shots, read_field, read_shot, write_field, write_shots  # noqa: E402
from forebay.wave.files.segy.dialect import Dialect, HeaderWord  # noqa: E402
from forebay.wave.job import parse  # noqa: E402
from forebay.wave.job.inputs import acquisition_of, media_of  # noqa: E402
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
    with pytest.raises(WaveError, match=r"data\.line: .* SourceX and GroupX .* vary, and so do SourceY and GroupY"):
        look_at_shots(tmp_path / "oblique.sgy", 2)
    assert look_at_shots(tmp_path / "oblique.sgy", 3).count == 2


@pytest.mark.parametrize(
    ("header", "complaint"),
    [
        ({"CoordinateUnits": 2}, r"data\.units: .*: CoordinateUnits of trace 1 is 2: project the coordinates"),
        (
            {"TRACE_SAMPLE_INTERVAL": 2000},
            r"data\.dt: .*: TRACE_SAMPLE_INTERVAL of trace 1 is 2000: .* Interval is 4000",
        ),
    ],
)
def test_headers_that_would_be_misread_are_refused_by_name(tmp_path, header, complaint):
    line(tmp_path / "s.sgy", [((0, 0), (50, 0))], **header)
    with pytest.raises(WaveError, match=complaint):
        look_at_shots(tmp_path / "s.sgy", 2)


def test_a_velocity_in_feet_is_read_where_the_job_says_what_is_in_feet(tmp_path):
    velocity = np.full((60, 5), 8000.0, np.float32)
    headers = [{TraceField.CDP_X: 100 * n, TraceField.SourceGroupScalar: 1} for n in range(5)]
    write(tmp_path / "v.segy", velocity.T, headers, interval=50000)
    with segyio.open(str(tmp_path / "v.segy"), "r+", ignore_geometry=True) as file:
        file.bin.update({BinField.MeasurementSystem: 2})
    text = job_text(model='velocity = "v.segy"{}')
    with pytest.raises(WaveError, match=r"model\.units: expected, since the MeasurementSystem of .* is feet"):
        media_of(parse(text.format(""), tmp_path))
    for units, metres in (("feet", 0.3048), ("metres", 1.0)):
        grid, media = media_of(parse(text.format(f'\nunits = "{units}"'), tmp_path))
        assert np.allclose(grid.spacing, (50 * metres, 100 * metres))
        assert np.allclose(media["model"]["velocity"], 8000 * metres)


def test_shots_are_projected_onto_the_line_of_an_oblique_section(tmp_path):
    along = 25.0 * np.arange(41)
    places = [(int(450000 + 0.6 * far), int(6700000 + 0.8 * far)) for far in along]
    headers = [{TraceField.CDP_X: x, TraceField.CDP_Y: y, TraceField.SourceGroupScalar: 1} for x, y in places]
    write(tmp_path / "v.segy", np.full((41, 30), 2000.0), headers, interval=25000)
    line(tmp_path / "s.sgy", [(places[8], place) for place in places])
    job = parse(job_text(model='velocity = "v.segy"', geometry=None, data='file = "s.sgy"'), tmp_path)
    grid, _ = media_of(job)
    assert grid.shape == (30, 41) and np.allclose(grid.spacing, 25.0, atol=0.05)
    shots = acquisition_of(job, grid)
    assert np.allclose(shots.geometry.sources, [(0, along[8])], atol=1)
    assert np.allclose(shots.geometry.receivers[:, 1], along, atol=1)
    # A survey elsewhere is not migrated as if it were here.
    line(tmp_path / "s.sgy", [((x + 900, y), (x + 900 + n, y)) for n, (x, y) in enumerate(places)])
    with pytest.raises(WaveError, match=r"data\.line: .* runs up to \d+.* m off the section of the model"):
        acquisition_of(job, grid)


def test_depth_that_headers_begin_elsewhere_is_not_taken_to_begin_at_0(tmp_path):
    headers = [{TraceField.CDP_X: 25 * n, TraceField.DelayRecordingTime: 200} for n in range(4)]
    write(tmp_path / "v.segy", np.full((4, 5), 2000.0), headers, interval=25000)
    with pytest.raises(WaveError, match=r"^model\.headers\.delay: .* trace 1 is 200, .* set headers\.delay to 0"):
        read_field(tmp_path / "v.segy")
    assert read_field(tmp_path / "v.segy", Dialect("model", {"delay": HeaderWord(0, "int16")})).values.shape == (5, 4)


def test_a_section_along_x_keeps_its_origin_though_headers_jitter(tmp_path):
    headers = [{TraceField.CDP_X: 100000 + 2500 * n, TraceField.CDP_Y: n % 3} for n in range(30)]
    headers = [header | {TraceField.SourceGroupScalar: -100} for header in headers]
    write(tmp_path / "v.segy", np.full((30, 5), 2000.0), headers, interval=25000)
    section = read_field(tmp_path / "v.segy")
    assert section.origin == (0.0, 1000.0) and section.spacing == (25.0, 25.0) and section.line is None


def test_what_is_written_says_what_it_is(tmp_path):
    write_field(tmp_path / "v.segy", np.ones((30, 4, 6), np.float32), (5.0, 12.5, 6.25), (0.0, 0.0, 100.0))
    write_shots(tmp_path / "s.segy", geometry_of([(5.0, 0.0)], [(5.0, 10.0)]), [np.ones((9, 1))], 0.004)
    for name, words in (("v", "30 by 4 by 6 points"), ("s", "1 shots, 1 traces of 9 samples of 4000 microseconds")):
        with segyio.open(str(tmp_path / f"{name}.segy"), ignore_geometry=True) as file:
            text = file.text[0].decode()
            assert words in text and text.startswith("C 1 Written by Forebay") and "END TEXTUAL HEADER" in text
            assert file.bin[BinField.MeasurementSystem] == 1 and file.bin[BinField.SEGYRevision] == 1
            for field in (TraceField.TraceIdentificationCode, TraceField.CoordinateUnits):
                assert (file.attributes(field)[:] == 1).all()


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
    with pytest.raises(WaveError, match="up to 65535 samples of a trace, not 70000"):
        write_field(tmp_path / "image.segy", np.ones((70000, 1), np.float32), (1.0, 10.0), (0.0, 0.0))
    with pytest.raises(WaveError, match=r"positions up to 21474836 m"):
        write_field(tmp_path / "image.segy", np.ones((5, 1), np.float32), (1.0, 10.0), (0.0, 3e7))
    for apart in (0.004, 0.015, 0.125):
        with pytest.raises(WaveError, match=f"positions in centimetres, and traces are {apart} m apart"):
            write_field(tmp_path / "image.segy", np.ones((5, 30), np.float32), (1.0, apart), (0.0, 0.0))
    with pytest.raises(WaveError, match="SU is read and not written"):
        write_field(tmp_path / "image.su", np.ones((5, 4), np.float32), (1.0, 10.0), (0.0, 0.0))
    assert not list(tmp_path.iterdir())
