"""Finished jobs: each is run once, and tests damage copies of what it left behind."""

import shutil
import warnings

import pytest
from tests.wave.job.jobs import TEXT

from forebay.wave.job import parse, results, run_job
from forebay.wave.job.inversion import change_results
from forebay.wave.job.inversion import results as inversion_results


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """Run a job, without incidents."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return run_job(parse(TEXT, tmp_path_factory.mktemp("finished")))


@pytest.fixture
def job(finished, tmp_path):
    """Copy what it has written, whole."""
    shutil.copytree(finished.workspace.root, tmp_path / "out")
    (tmp_path / "job.toml").write_text(TEXT)
    return parse(TEXT, tmp_path)


@pytest.fixture
def sections(monkeypatch):
    """Return the sections of the page that is written, what it is called, and their order."""
    written = {}

    def write_page(path, title, lead, sections):
        written.update(sections)
        written["page"] = path, title, lead, [name for name, _ in sections]

    for module in (results, inversion_results, change_results):
        monkeypatch.setattr(module, "write_page", write_page)
    return written
