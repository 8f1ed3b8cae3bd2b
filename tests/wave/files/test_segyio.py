"""Files as segyio's own samples are, made by segyio: each is read as segyio reads it, or refused with its key."""

import itertools

import numpy as np
import pytest
from tests.wave.files.flavours import DT, QUIET, SAMPLES, reference
from tests.wave.job.jobs import job_text

segyio = pytest.importorskip("segyio")
from segyio import BinField, TraceField, TraceSortingFormat  # noqa: E402

from forebay.errors import WaveError  # noqa: E402
from forebay.wave.files.formats import look_at_shots, read_field  # noqa: E402
from forebay.wave.job import parse, run_job  # noqa: E402
from forebay.wave.job.checks import inspect  # noqa: E402

INTERVAL = 4000
BY_LINE, BY_CROSSLINE = TraceSortingFormat.INLINE_SORTING, TraceSortingFormat.CROSSLINE_SORTING
WAYS = [  # shape, format, sorting, byte order, texts, what is lost
    ((5, 5, 50), 1, BY_LINE, "big", 0),
    ((5, 5, 50), 1, BY_CROSSLINE, "big", 0),
    ((5, 5, 50), 1, BY_LINE, "little", 0),
    ((23, 18, 75), 3, BY_LINE, "big", 0),
    ((23, 18, 75), 3, BY_LINE, "little", 0),
    ((1, 1, 50), 5, BY_LINE, "big", 0),
    ((1, 6, 50), 5, BY_LINE, "big", 0),
    ((6, 1, 50), 5, BY_CROSSLINE, "big", 4),
    *(((3, 4, 20), code, BY_LINE, order, 1) for code in (2, 5, 6, 8, 10, 11, 16) for order in ("big", "little")),
]


def cube(shape, code):
    """Make values as velocities are, whole where the format is."""
    values = 2000 + 100 * np.arange(np.prod(shape)).reshape(shape) % 1500
    return (values % 100 + 1 if code in (8, 16) else values).astype(np.float32)


def write_cube(path, values, code, sorting, endian, texts, offsets=(1,)):
    """Write a volume, a trace for each inline, crossline and offset."""
    spec = segyio.spec()
    spec.ilines, spec.xlines = np.arange(values.shape[0]) + 1, np.arange(values.shape[1]) + 20
    spec.offsets, spec.samples, spec.sorting = list(offsets), np.arange(values.shape[2]) * 4.0, sorting
    spec.format, spec.endian, spec.ext_headers = code, endian, texts
    places = list(itertools.product(range(values.shape[0]), range(values.shape[1])))
    places = places if sorting == BY_LINE else sorted(places, key=lambda place: place[::-1])
    with segyio.create(str(path), spec) as file:
        file.bin.update(hns=values.shape[2], hdt=INTERVAL)
        file.bin.update({BinField.ExtendedHeaders: texts})
        for number, ((row, column), offset) in enumerate(itertools.product(places, offsets)):
            file.header[number] = {
                TraceField.INLINE_3D: int(spec.ilines[row]),
                TraceField.CROSSLINE_3D: int(spec.xlines[column]),
                TraceField.offset: offset,
                TraceField.TRACE_SAMPLE_COUNT: values.shape[2],
                TraceField.TRACE_SAMPLE_INTERVAL: INTERVAL,
            }
            file.trace[number] = values[row, column].astype(file.dtype)


@pytest.mark.parametrize(("shape", "code", "sorting", "endian", "texts"), WAYS)
def test_a_volume_is_read_as_it_was_written(tmp_path, shape, code, sorting, endian, texts):
    values = cube(shape, code)
    write_cube(tmp_path / "small.sgy", values, code, sorting, endian, texts)
    found = read_field(tmp_path / "small.sgy")
    wanted = np.moveaxis(values, 2, 0)
    assert np.array_equal(found.values.reshape(wanted.shape), wanted) and found.spacing[0] == 4.0


def test_several_offsets_at_a_place_are_no_volume(tmp_path):
    write_cube(tmp_path / "ps.sgy", cube((4, 3, 10), 5), 5, BY_LINE, "big", 0, offsets=(1, 2))
    with pytest.raises(WaveError, match=r"model\.headers, model\.velocity: .* its 24 traces do not fill a rectangle"):
        inspect(parse(job_text(model='velocity = "ps.sgy"'), tmp_path))


@pytest.mark.parametrize("name", ["volume", "offsets"])
def test_traces_without_sources_are_no_shots(tmp_path, name):
    offsets = (1, 2) if name == "offsets" else (1,)
    write_cube(tmp_path / "small.sgy", cube((4, 3, 10), 5), 5, BY_LINE, "big", 0, offsets)
    with pytest.raises(WaveError, match=r"data\.headers\.source_x, .* has source and receiver coordinates of 0"):
        inspect(parse(job_text(geometry=None, data='file = "small.sgy"'), tmp_path))


def shot_gathers(path, *, code=5, endian="big", delay=0, scalar=-100):
    """Write the survey of the flavours by segyio: a gather for each shot, whose traces begin `delay` samples late."""
    geometry, gathers = reference()
    spec = segyio.spec()
    spec.samples, spec.format, spec.endian = np.arange(SAMPLES - delay) * 1000 * DT, code, endian
    spec.tracecount = len(geometry.receivers)
    factor = -scalar if scalar < 0 else 1 / scalar
    with segyio.create(str(path), spec) as file:
        file.bin.update(hns=SAMPLES - delay, hdt=round(1e6 * DT))
        for number, shot in enumerate(np.repeat(np.arange(geometry.count), np.diff(geometry.starts))):
            source, receiver = geometry.sources[shot], geometry.receivers[number]
            file.header[number] = {
                TraceField.FieldRecord: int(shot) + 1,
                TraceField.SourceDepth: round(source[0] * factor),
                TraceField.ReceiverGroupElevation: -round(receiver[0] * factor),
                TraceField.ElevationScalar: scalar,
                TraceField.SourceX: round(source[1] * factor),
                TraceField.GroupX: round(receiver[1] * factor),
                TraceField.SourceGroupScalar: scalar,
                TraceField.DelayRecordingTime: round(1000 * DT * delay),
                TraceField.TRACE_SAMPLE_INTERVAL: round(1e6 * DT),
            }
            file.trace[number] = gathers[shot][delay:, number - geometry.starts[shot]].astype(file.dtype)


GATHERS = [{}, {"code": 1}, {"endian": "little"}, {"delay": QUIET}, {"code": 1, "endian": "little", "scalar": -10}]


@pytest.mark.parametrize("how", GATHERS, ids=str)
def test_gathers_are_the_survey(tmp_path, how):
    shot_gathers(tmp_path / "shots.sgy", **how)
    found, (geometry, gathers) = look_at_shots(tmp_path / "shots.sgy", 2), reference()
    assert found.count == geometry.count and found.samples == gathers.shape[1]
    assert np.allclose(found.geometry.receivers, geometry.receivers, atol=0.05)


@pytest.mark.slow
def test_gathers_migrate_to_the_image_of_the_same_arrays(tmp_path):
    from tests.wave.files.test_flavours import TABLES, correlation, migrated_elsewhere

    image = migrated_elsewhere(tmp_path)
    for number, how in enumerate(GATHERS):
        folder = tmp_path / str(number)
        folder.mkdir()
        shot_gathers(folder / "shots.sgy", **how)
        job = parse(job_text(geometry=None, data='file = "shots.sgy"', **TABLES), folder)
        assert correlation(run_job(job).image, image) > 0.999, how
