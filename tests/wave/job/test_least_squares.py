"""Least-squares migration jobs: the bits of `wave.lsrtm`, resumed, and begun again where what they need is lost."""

import shutil
from time import perf_counter

import numpy as np
import pytest
from tests.wave.job.inversions import inversion_text, shots_of

from forebay.errors import WaveError
from forebay.wave import AcousticModel, lsrtm, simulate
from forebay.wave.job import changed, parse, read_job
from forebay.wave.job.inversion import passes
from forebay.wave.job.inversion.leastsquares import run_least_squares
from forebay.wave.job.shots import here
from forebay.wave.job.verify import verify

pytestmark = pytest.mark.filterwarnings("ignore::forebay.wave.WaveWarning")


def text(**tables):
    return inversion_text(None, **{"lsrtm": "iterations = 2"} | tables)


def job_in(folder):
    return parse(text(), folder, command="lsrtm")


@pytest.fixture(scope="module")
def explained(tmp_path_factory):
    """Run a job without incidents."""
    return run_least_squares(job_in(tmp_path_factory.mktemp("explained")))


def stopping(monkeypatch, until):
    """Have a run be interrupted before so many reversals."""
    real, left = passes.gradient, [until]

    def gradient(*about, **options):
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        return real(*about, **options)

    monkeypatch.setattr(passes, "gradient", gradient)


def interrupted(monkeypatch, folder, until):
    """Run a job until so many shots are sent back."""
    with monkeypatch.context() as patch:
        stopping(patch, until)
        with pytest.raises(KeyboardInterrupt):
            run_least_squares(job_in(folder))


def same(one, other):
    return one.residuals == other.residuals and np.array_equal(one.change, other.change)


@pytest.mark.slow
def test_seconds_are_those_of_the_run(explained, tmp_path):
    shutil.copytree(explained.workspace.root, tmp_path / "out")
    begun = perf_counter()
    again = run_least_squares(job_in(tmp_path))
    assert 0 < again.seconds <= perf_counter() - begun
    assert (explained.last["reversal"] <= explained.last["seconds"]).all()
    assert explained.last["seconds"].sum() <= explained.seconds


def test_it_has_the_bits_of_the_same_migration_of_the_same_echoes(explained):
    workspace = explained.workspace
    velocity = workspace.fields("model")["velocity"]
    model = AcousticModel(velocity, workspace.described.grid, max_vel=float(velocity.max()))
    dt = workspace.described.step
    shots = [shot.with_data(shot.data - simulate(shot, model, dt=dt)) for shot in shots_of(workspace)]
    found = lsrtm(shots, model, iterations=2, dt=dt, budget="8MB", progress=False)
    assert np.array_equal(found.change, explained.change) and list(found.residuals) == explained.residuals
    assert explained.residuals[-1] < 0.6
    assert [path.name for path in (workspace.root / "shots").iterdir()] == ["data"]


def test_it_goes_on_inside_of_a_pass_with_the_same_bits(tmp_path, explained, monkeypatch):
    for until in (1, 2):  # 1 of the first two shots that are sent back, the other, and 1 of the next two
        interrupted(monkeypatch, tmp_path, until)
    stopping(monkeypatch, 1)
    found = run_least_squares(job_in(tmp_path))
    assert same(found, explained) and found.damage == []
    stopping(monkeypatch, 0)
    assert same(run_least_squares(job_in(tmp_path)), explained)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["missing", "damaged"])
def test_where_what_a_pass_needs_is_lost_the_search_begins_again(tmp_path, explained, monkeypatch, how):
    interrupted(monkeypatch, tmp_path, 3)
    path = tmp_path / "out" / "shots" / "back-0000" / "00001.npz"
    data = path.read_bytes()
    path.unlink() if how == "missing" else path.write_bytes(data[:-40] + bytes(40))
    found = run_least_squares(job_in(tmp_path))
    assert same(found, explained)
    assert len(found.damage) == 1 and found.damage[0].endswith("the search begins again")
    assert "back-0000/00001.npz" in found.damage[0] and verify(job_in(tmp_path))[0] == []


@pytest.mark.slow
def test_shots_that_advance_together_as_a_gpu_takes_them_give_the_same_bits(tmp_path, explained, monkeypatch):
    monkeypatch.setattr(here, "batch_of", lambda *about: 2)
    assert same(run_least_squares(job_in(tmp_path)), explained)


@pytest.mark.slow
def test_two_workers_give_the_same_bits(explained, tmp_path):
    pytest.importorskip("distributed")
    shutil.copytree(explained.workspace.root, tmp_path / "out")
    for folder in ("inversion", "shots"):
        shutil.rmtree(tmp_path / "out" / folder)
    assert same(run_least_squares(changed(job_in(tmp_path), workers=2)), explained)


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"lsrtm": "iterations = 0"}, r"lsrtm\.iterations: expected greater than or equal to 1, not 0"),
        ({"lsrtm": 'parameter = "density"'}, r"lsrtm\.parameter: expected 'velocity' or 'squared slowness'"),
        ({"lsrtm": "iteration = 3"}, r"lsrtm\.iteration: no such key; did you mean iterations\?"),
        ({"physics": 'kind = "elastic"'}, r"physics\.kind: expected 'acoustic' in a job of forebay lsrtm"),
        ({"inversion": "iterations = 3"}, r"has a table \[inversion\]: give it to forebay fwi"),
    ],
)
def test_what_it_cannot_be_told_is_refused_at_once(tables, said):
    with pytest.raises(WaveError, match=said):
        parse(text(**tables), command="lsrtm")


def test_data_that_the_model_explains_are_refused(tmp_path):
    job = parse(text(model='name = "layers"\nshape = [24, 48]'), tmp_path, command="lsrtm")
    with pytest.raises(WaveError, match="data that the model explains, or of zeros: there is no echo to explain"):
        run_least_squares(job)


def test_a_job_of_another_command_is_refused(tmp_path):
    (tmp_path / "job.toml").write_text(inversion_text(None))
    with pytest.raises(WaveError, match=r"without the table \[lsrtm\]: read it with the command 'lsrtm'"):
        run_least_squares(read_job(tmp_path / "job.toml"))
