"""A survey is the same in whatever flavour of SEG-Y it comes, or is refused with the key that says what is missing."""

import warnings

import numpy as np
import pytest
from tests.wave.files.flavours import (
    FLAVOURS,
    REFUSED,
    SHOTS,
    auxiliary_traces,
    components,
    crooked,
    dead_traces,
    decimetres_without_a_scalar,
    delay_of_each_shot,
    delay_of_half_a_sample,
    drafted,
    fractions_of_the_interval,
    int16,
    int32,
    metres_of_jitter,
    name_of,
    not_finite,
    plain,
    reference,
    repeated_shots,
)
from tests.wave.job.jobs import job_text

from forebay.errors import WaveError
from forebay.wave.advice import WaveWarning
from forebay.wave.files.formats import look_at_shots, read_shot
from forebay.wave.job import parse, run_job
from forebay.wave.job.checks import inspect
from forebay.wave.job.inputs import acquisition_of, data_dialect, media_of

TABLES = {"imaging": "mute = 400.0", "physics": "absorb = 10\ndt = 0.004"}
"""Without the direct wave at sources and receivers, and with steps that do not depend on how long a record is."""

flavours = pytest.mark.parametrize("flavour", FLAVOURS, ids=name_of)


def job_of(flavour, folder, keys):
    """Write a file, and the job that migrates it."""
    path = drafted(flavour).write(folder)
    return parse(job_text(geometry=None, data=f'file = "{path.name}"\n{keys}', **TABLES), folder)


@flavours
def test_every_flavour_is_read_as_the_same_survey(tmp_path, flavour):
    job = job_of(flavour, tmp_path, FLAVOURS[flavour])
    dialect = data_dialect(job)
    found = look_at_shots(job.data.file, 2, dialect)
    geometry, gathers = reference()
    near = {metres_of_jitter: 0.5, decimetres_without_a_scalar: 0.05}.get(flavour, 0.02)
    assert found.dt == pytest.approx(0.00800025 if flavour is fractions_of_the_interval else 0.008)
    assert np.allclose(found.geometry.sources, geometry.sources, atol=near)
    strength = np.abs(gathers).max()
    for shot in range(geometry.count):
        order = np.argsort(found.geometry.receivers_of(shot)[:, 1])
        places = found.geometry.receivers_of(shot)[order]
        kept = np.isin(np.round(geometry.receivers_of(shot)[:, 1]), np.round(places[:, 1]))
        assert kept.sum() >= len(kept) - (flavour is dead_traces) and len(places) == kept.sum()
        assert np.allclose(places, geometry.receivers_of(shot)[kept], atol=0.02)
        data = read_shot(job.data.file, shot, found.geometry.traces_of(shot), dialect, found.samples)[:, order]
        assert len(data) == found.samples
        data, wanted = data[: gathers.shape[1]], gathers[shot][:, kept]
        if flavour in (int32, int16):
            data = data * (strength / np.abs(drafted(flavour).samples).max())
        whole = np.isfinite(data).all(axis=0)
        assert whole.sum() >= len(whole) - (flavour is not_finite)
        error = np.abs(data - wanted[: len(data)])[:, whole].max()
        assert error < (5e-3 if flavour is delay_of_half_a_sample else 1e-4) * strength


@pytest.mark.parametrize(
    ("flavour", "note"),
    [
        (dead_traces, "2 of 576 traces are dropped, which are dead by their headers"),
        (auxiliary_traces, "3 of 579 traces are dropped, which are auxiliary by their headers"),
        (components, "576 of 1152 traces are dropped, whose identification is another"),
        (delay_of_each_shot, "records begin 0 to 0.04 s after their shots: what is before is zero"),
        (repeated_shots, "576 of 1152 traces have source and receiver of another one, and all of them are migrated"),
        (crooked, "the survey runs up to 20 m off its section, and is projected onto it"),
    ],
    ids=name_of,
)
def test_what_is_left_out_or_moved_is_told(tmp_path, flavour, note):
    assert f"note      {note}" in inspect(job_of(flavour, tmp_path, FLAVOURS.get(flavour, "")))


@pytest.mark.parametrize("flavour", REFUSED, ids=name_of)
def test_what_cannot_be_told_is_refused_with_its_key(tmp_path, flavour):
    job = job_of(flavour, tmp_path, "")
    with pytest.raises(WaveError) as refused:
        inspect(job)
    assert REFUSED[flavour] in str(refused.value)


@pytest.mark.parametrize("records", [1, 3], ids=["one record", "records of two days"])
def test_a_shot_and_receivers_at_the_origin_are_there(tmp_path, records):
    """Field records may tell nothing, or begin anew."""
    draft = drafted(plain)
    draft.words["record"] = draft.words["record"] % records + 1
    draft.words["source_x"] -= draft.words["source_x"].min()
    job = parse(job_text(geometry=None, data=f'file = "{draft.write(tmp_path).name}"', **TABLES), tmp_path)
    found = look_at_shots(job.data.file, 2, data_dialect(job)).geometry
    assert found.count == SHOTS and not found.sources[0, 1] and not found.receivers[0, 1]


def test_traces_that_are_not_finite_are_dropped_with_a_note(tmp_path):
    draft = drafted(not_finite)
    draft.take(np.flatnonzero(draft.words["record"] <= 102))
    job = parse(job_text(geometry=None, data=f'file = "{draft.write(tmp_path).name}"'), tmp_path)
    with pytest.warns(WaveWarning, match=r"2 traces were dropped, which are not finite: of shots 0, 1$"):
        survey = run_job(job)
    assert not survey.failed and np.isfinite(survey.image).all()


def test_receivers_beside_a_model_of_a_part_of_the_survey_are_dropped_with_a_note(tmp_path):
    draft = drafted(plain)
    draft.take(np.flatnonzero(draft.words["record"] <= 104))
    for columns in (75, 55, 40):
        np.save(tmp_path / f"{columns}.npy", np.full((48, columns), 2000.0))
    over, path = 'velocity = "{}.npy"\nspacing = 50', draft.write(tmp_path)
    text = job_text(model=over, geometry=None, data=f'file = "{path.name}"', **TABLES)
    part = parse(text.replace("{}", "75"), tmp_path)
    grid = media_of(part)[0]
    inside = reference()[0].receivers_of(0)[:, 1] <= grid.end[1]
    assert f"{4 * (~inside).sum()} of {4 * len(inside)} traces are dropped, whose receivers lie beside" in inspect(part)
    geometry = acquisition_of(part, grid).geometry
    for shot in range(4):
        assert np.array_equal(geometry.traces_of(shot), shot * len(inside) + np.flatnonzero(inside))
    for columns, said in (("55", "shot 3, source"), ("40", "shot [0-3], receivers: .* data.units")):
        with pytest.raises(WaveError, match=said):
            inspect(parse(text.replace("{}", columns), tmp_path))


def test_shots_that_add_nothing_to_the_image_are_told(tmp_path):
    draft = drafted(not_finite)
    draft.take(np.flatnonzero(draft.words["record"] <= 102))
    draft.samples = np.where(draft.words["record"][:, None] == 102, 0, np.nan_to_num(draft.samples, posinf=0))
    job = parse(job_text(geometry=None, data=f'file = "{draft.write(tmp_path).name}"'), tmp_path)
    with pytest.warns(WaveWarning, match=r"^1 of 2 shots have an image of zeros: their data are zero, or .*: shots 1$"):
        assert run_job(job).image.any()


def correlation(one, other):
    return np.vdot(one, other) / np.linalg.norm(one) / np.linalg.norm(other)


def migrated_elsewhere(folder):
    """Migrate the survey from arrays."""
    geometry, gathers = reference()
    np.save(folder / "data.npy", gathers)
    np.save(folder / "sources.npy", geometry.sources)
    np.save(folder / "receivers.npy", geometry.receivers_of(0))
    places = 'sources = "sources.npy"\nreceivers = "receivers.npy"'
    data = 'file = "data.npy"\ndt = 0.008'
    return run_job(parse(job_text(geometry=places, data=data, **TABLES), folder)).image


@pytest.mark.slow
def test_every_flavour_migrates_to_the_same_image(tmp_path):
    image = migrated_elsewhere(tmp_path)
    found = {}
    for flavour, keys in FLAVOURS.items():
        folder = tmp_path / flavour.__name__
        folder.mkdir()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", WaveWarning)
            survey = run_job(job_of(flavour, folder, keys))
        assert not survey.failed and not survey.aside
        found[flavour.__name__] = correlation(survey.image, image)
    assert min(found.values()) > 0.999, found
