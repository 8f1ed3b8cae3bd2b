"""Shots of a job that advance together, as a GPU takes them: the same images, resumed and told as ever."""

import pytest
from tests.wave.job.jobs import SHOTS, TEXT, job_text, same_images

from forebay.errors import WaveError
from forebay.wave.job import parse, run_job, work
from forebay.wave.job.place import batch_of
from forebay.wave.job.shots import here

pytestmark = pytest.mark.filterwarnings("ignore::forebay.wave.WaveWarning")


@pytest.fixture
def together(monkeypatch):
    """Let as many as three shots advance together, and return those that have."""
    batches, real = [], work._together
    monkeypatch.setattr(here, "batch_of", lambda *about: 3)

    def counted(workspace, numbers, *about):
        batches.append(list(numbers))
        return real(workspace, numbers, *about)

    monkeypatch.setattr(work, "_together", counted)
    return batches


@pytest.mark.slow
def test_images_of_shots_together_are_those_of_shots_alone(together, finished, tmp_path):
    job = parse(TEXT, tmp_path)
    survey = run_job(job)
    assert together == [[1, 2, 3]]  # the first one makes the plan that is told
    assert not survey.failed and same_images(survey, finished)
    told = [(summary["shot"], summary["together"]) for summary in survey.summaries]
    assert told == [(0, 1), *((shot, 3) for shot in range(1, SHOTS))]
    (survey.workspace.root / "shots" / "00002.npz").unlink()
    assert same_images(run_job(job), finished) and len(together) == 1


def test_shots_whose_batch_fails_are_computed_alone(together, finished, tmp_path, monkeypatch):
    real = work.migrate

    def fail(shot, *about, **options):
        if isinstance(shot, list):
            raise WaveError("one of them is spoilt")
        return real(shot, *about, **options)

    monkeypatch.setattr(work, "migrate", fail)
    survey = run_job(parse(TEXT, tmp_path))
    assert together and not survey.failed and same_images(survey, finished)


def test_batches_fill_a_gpu_and_keep_their_history_in_the_budget(tmp_path):
    job = parse(job_text(memory='device = "4GB"\nhost = "12GB"', run="retries = 0"), tmp_path)
    grid = type("Part", (), {"ndim": 2, "fields": lambda self, halo: (400, 250 * halo)})()  # of order 8
    assert batch_of(job, "gpu", grid, steps=2000, every=10) == 30  # 12 million points
    assert batch_of(job, "gpu", grid, steps=20_000, every=10) == 4  # 2012 fields of 1.6 MB each
    assert batch_of(job, "cpu", grid, steps=2000, every=10) == 1
    for physics, together in (('kind = "visco"\nq = "q.npy"\nq_frequency = 8.0', 24), ('kind = "density"', 1)):
        other = parse(job_text(memory='device = "4GB"\nhost = "12GB"', physics=physics), tmp_path)
        assert batch_of(other, "gpu", grid, steps=2000, every=10) == together


@pytest.mark.parametrize("key", ['codec = "bounded:1e-4"', 'image_error = "1%"', "checkpoint = true"])
def test_shots_with_a_bound_or_progress_of_their_own_advance_alone(key, tmp_path):
    grid = type("Part", (), {"ndim": 2, "fields": lambda self, halo: (400, 250 * halo)})()
    for keys, together in (("", 30), (f"\n{key}", 1)):
        job = parse(job_text(memory='device = "4GB"\nhost = "12GB"' + keys, run="retries = 0"), tmp_path)
        assert batch_of(job, "gpu", grid, steps=2000, every=10) == together
