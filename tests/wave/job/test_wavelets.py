"""Wavelets with their own time zero, and one for each shot."""

import numpy as np
import pytest
from tests.wave.job.jobs import job_text, same_images

from forebay.errors import WaveError
from forebay.wave import ricker
from forebay.wave.job import parse, run_job, work
from forebay.wave.job.checks import inspect
from forebay.wave.job.prepare import prepare
from forebay.wave.job.workspace import Workspace

SHOTS, SAMPLES, DT, FREQUENCY = 2, 126, 0.008, 2.5
EARLY = 75
"""Samples from the beginning of the delayed wavelet to its middle."""

pytestmark = pytest.mark.filterwarnings("ignore::forebay.wave.WaveWarning")


def job(folder, name, wavelet):
    """Write a job whose steps and images do not depend on where a record begins."""
    tables = {
        "physics": "absorb = 10\ndt = 0.004",
        "imaging": "every = 1",
        "data": f'file = "{name}.npy"\ndt = {DT}\nmute_velocity = 1500.0',
        "output": f'directory = "{sum(wavelet.encode())}"',
    }
    return parse(job_text(shots=SHOTS, wavelet=wavelet, **tables), folder)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Model shots, and write them as a delayed and as a zero-phase wavelet made them, with such wavelets."""
    folder = tmp_path_factory.mktemp("recorded")
    workspace = prepare(parse(job_text(shots=SHOTS, physics="absorb = 10"), folder))
    data = np.stack([work.data_of(workspace, shot, work.shot_of(workspace, shot)) for shot in range(SHOTS)])
    np.save(folder / "delayed.npy", data)
    np.save(folder / "centred.npy", data[:, EARLY:])
    np.save(folder / "w.npy", ricker(FREQUENCY, DT, 2 * EARLY + 1))
    rows = [ricker(FREQUENCY, DT, 2 * EARLY + 21, (EARLY + later) * DT) for later in (0, 10)]
    np.save(folder / "each.npy", rows)
    return folder


@pytest.mark.slow
def test_zero_phase_and_delayed_wavelets_give_the_same_image(recorded):
    delayed = run_job(job(recorded, "delayed", 'file = "w.npy"'))
    centred = run_job(job(recorded, "centred", f'file = "w.npy"\ntime_zero = {EARLY * DT}'))
    assert centred.workspace.described.lead == EARLY and same_images(delayed, centred)
    scale = np.abs(delayed.image).max()
    assert scale > 0
    ours = run_job(job(recorded, "centred", "frequency = 2.5\ndelay = 0.0"))
    np.testing.assert_allclose(ours.image, delayed.image, atol=1e-5 * scale)
    each = run_job(job(recorded, "centred", f'file = "each.npy"\ntime_zero = [{EARLY * DT}, {(EARLY + 10) * DT}]'))
    assert each.workspace.described.lead == EARLY + 10 and each.workspace.wavelet.shape[1] == SHOTS
    np.testing.assert_allclose(each.image, delayed.image, atol=2e-3 * scale)  # records of another length


def test_each_shot_sends_its_own_wavelet_and_all_share_one_plan(recorded):
    np.save(recorded / "own.npy", [ricker(FREQUENCY, DT, SAMPLES), 1e-3 * ricker(2.4, DT, SAMPLES, 0.5)])
    survey = run_job(job(recorded, "delayed", 'file = "own.npy"'))
    workspace = survey.workspace
    first, second = (work.shot_of(workspace, shot).wavelet for shot in range(SHOTS))
    np.testing.assert_allclose(first, ricker(FREQUENCY, DT, SAMPLES), atol=1e-12)
    np.testing.assert_allclose(second, 1e-3 * ricker(2.4, DT, SAMPLES, 0.5), atol=1e-12)
    assert not survey.failed and len({summary["every"] for summary in survey.summaries}) == 1


@pytest.mark.parametrize("seconds", [0.1, 0.1234])
def test_a_time_zero_lies_where_it_is_told(recorded, seconds):
    """A wavelet at half the sampling interval, whose time zero is on a sample or between two."""
    np.save(recorded / "fine.npy", ricker(2.5, DT / 2, 400, 0.6 + seconds))
    told = f'file = "fine.npy"\ndt = {DT / 2}\ntime_zero = {seconds}'
    workspace = prepare(job(recorded, "delayed", told))
    lead = Workspace(workspace.root).described.lead
    assert lead == int(np.ceil(seconds / DT))
    expected = ricker(2.5, DT, lead + SAMPLES, 0.6 + lead * DT)
    np.testing.assert_allclose(workspace.wavelet, expected, atol=2e-3)


@pytest.mark.parametrize(
    ("wavelet", "complaint"),
    [
        ('file = "w.npy"\ntime_zero = 2.0', r"time_zero: expected less than the wavelet's 1\.208 s, not 2"),
        ('file = "w.npy"\ntime_zero = [0.1, 2.0]', r"time_zero: expected less than the wavelet's 1\.208 s, not 2"),
        (
            'file = "w.npy"\ntime_zero = [0.1, 0.1, 0.1]',
            r"time_zero: expected a number, or one for each of the 2",
        ),
        ('file = "w.npy"\ntime_zero = []', r"wavelet\.time_zero: expected"),
        ('file = "w.npy"\ndt = 1e-9', r"dt: expected a wavelet as long as a sample of the data, 0\.008 s, or longer"),
        (
            'file = "w.npy"\ndt = 1e5\ntime_zero = 1e6',
            r"time_zero: expected less than 10 times the data's length, 10\.08",
        ),
        ('file = "own.npy"', r"expected a wavelet that sends something; that of shot 1 is zero"),
        ('file = "w.npy"\ndt = 0.012', r"that is over with the data; this one still has 34\.4% of its largest value"),
        ('file = "delayed.npy"', r"wavelet\.file: expected one value per sample, or a row of them for each of the 2"),
    ],
)
def test_what_no_wavelet_can_be_is_refused(recorded, wavelet, complaint):
    np.save(recorded / "own.npy", [ricker(FREQUENCY, DT, SAMPLES), np.zeros(SAMPLES)])
    with pytest.raises(WaveError, match=complaint):
        inspect(job(recorded, "delayed", wavelet))
