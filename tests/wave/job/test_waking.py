"""A GPU is woken while a job's model is made; on the CPU what is run for that is seen to run."""

import threading

import pytest
from tests.wave.job.jobs import TEXT, job_text, same_images

from forebay.cuda.available import gpu_count
from forebay.errors import DeviceError, WaveError
from forebay.wave.job import parse, run_job
from forebay.wave.job.shots import waking
from forebay.wave.job.shots.waking import axes_of, run_kernels, woken

pytestmark = pytest.mark.filterwarnings("ignore::forebay.wave.WaveWarning")
LONG = 60.0
"""Seconds after which what never comes is not waited for any more."""
ON_GPU = TEXT.replace('device = "cpu"', 'device = "gpu"').replace('host = "4MB"', 'device = "40MB"\nhost = "40MB"')


VOLUME = job_text(
    model='name = "salt"\nshape = [24, 40, 40]',
    geometry="shots = [1, 2]\nsource_depth = 200.0\nreceiver_depth = 200.0\nreceiver_spacing = 800.0",
    data="dt = 0.02\nlength = 8.0",
    wavelet="frequency = 0.35",
    memory='device = "200MB"\nhost = "40MB"',
    run='device = "gpu"\nretries = 0',
)


def names_of_threads():
    return [thread.name for thread in threading.enumerate()]


@pytest.mark.parametrize(
    "physics",
    [  # with layers of 20 points there are enough for several threads, whose loops take 17 s to compile
        pytest.param(None, marks=pytest.mark.slow),
        "absorb = 5",
        "free_surface = true\nabsorb = 6",
        pytest.param("free_surface = true\norder = 4", marks=pytest.mark.slow),
    ],
)
def test_kernels_of_a_job_are_run_once_on_a_small_model(tmp_path, monkeypatch, physics):
    monkeypatch.setattr(waking, "POINTS", 16)
    prepared, real = [], waking.prepare

    def prepare(shot, medium, *about):
        prepared.append((medium, real(shot, medium, *about)))
        return prepared[-1][1]

    monkeypatch.setattr(waking, "prepare", prepare)
    job = parse(job_text(physics=physics), tmp_path)
    run_kernels(job, "cpu")
    ((medium, loop),) = prepared
    assert medium.grid.shape == (16, 16, 16) and medium.grid.free_surface == job.physics.free_surface
    assert not loop.sampled.same and loop.listens
    assert loop.steps == waking.STEPS and type(medium).__name__ == "AcousticModel"
    assert loop.propagator.order == job.physics.order and medium.grid.absorb == (job.physics.absorb or 20)


def test_a_gpu_is_woken_by_a_thread_while_the_model_is_made(tmp_path, monkeypatch):
    begun, made, ran = threading.Event(), threading.Event(), []

    def wake(job):
        begun.set()
        ran.append((threading.current_thread().name, made.wait(LONG)))

    monkeypatch.setattr(waking, "wake", wake)
    with woken(parse(ON_GPU, tmp_path), 1) as awake:
        assert begun.wait(LONG)
        made.set()
        awake()
        assert ran
    assert ran == [("forebay-wake-0", True)] and "forebay-wake-0" not in names_of_threads()


def test_what_goes_wrong_there_is_left_to_the_first_shot(tmp_path, monkeypatch, caplog):
    def wake(job):
        raise DeviceError("out of order")

    monkeypatch.setattr(waking, "wake", wake)
    caplog.set_level("INFO", "forebay.wave")
    with woken(parse(ON_GPU, tmp_path), 1):
        pass
    assert "the GPU was not woken ahead" in caplog.text and "out of order" in caplog.text


@pytest.mark.parametrize("error", [WaveError, KeyboardInterrupt])
def test_where_no_model_can_be_made_no_thread_is_left(tmp_path, monkeypatch, error):
    monkeypatch.setattr(waking, "wake", lambda job: None)
    with pytest.raises(error, match="no model"), woken(parse(ON_GPU, tmp_path), 1):
        raise error("no model")
    assert "forebay-wake-0" not in names_of_threads()


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        (TEXT, 1),
        (ON_GPU, 0),
        (ON_GPU.replace("retries = 0", "workers = 2"), 1),
        (ON_GPU.replace("retries = 0", 'scheduler = "tcp://127.0.0.1:1"'), 1),
        (ON_GPU.replace("absorb = 10", "order = 10"), 1),
    ],
)
def test_no_gpu_is_woken_that_is_not_asked_for_or_is_anothers(tmp_path, monkeypatch, text, gpus):
    monkeypatch.setattr(waking, "wake", lambda job: pytest.fail("it was woken"))
    with woken(parse(text, tmp_path), gpus):
        assert "forebay-wake-0" not in names_of_threads()


def test_a_job_whose_model_is_there_wakes_none(tmp_path, monkeypatch):
    woke = []
    monkeypatch.setattr(waking, "wake", woke.append)
    job = parse(ON_GPU, tmp_path)
    with woken(job, 1):
        pass
    (tmp_path / "out").mkdir(exist_ok=True)
    (tmp_path / "out" / "job.json").write_text("")
    with woken(job, 1):
        pass
    assert woke == [job]


@pytest.mark.parametrize(
    ("model", "axes"),
    [
        ('name = "marmousi"', 2),
        ('name = "salt"\nsize = "full"', 3),
        ('name = "salt"\ndims = 2', 2),
        ('name = "salt"\nshape = [10, 20]', 2),
        ('velocity = "v.npy"', 0),
        ('velocity = "v.npy"\nspacing = [10.0, 10.0]', 2),
        ('velocity = "v.npy"\nspacing = 10.0', 0),
    ],
)
def test_the_axes_of_a_model_are_known_before_it_is_made(tmp_path, model, axes):
    assert axes_of(parse(job_text(model=model), tmp_path)) == axes


@pytest.mark.parametrize(
    ("model", "kind", "ran"),
    [
        ('name = "salt"', "acoustic", ["gpu"]),
        ('name = "salt"', "elastic", []),  # whose kernels are compiled for each shape
        ('name = "salt"\ndims = 2', "acoustic", []),
    ],
)
def test_only_kernels_that_serve_any_shape_are_run(tmp_path, monkeypatch, model, kind, ran):
    seen = []
    monkeypatch.setattr(waking, "putter", lambda device: seen.append(device) or (lambda values: values))
    monkeypatch.setattr(waking, "run_kernels", lambda job, device: seen.append(device))
    monkeypatch.setattr(waking, "import_module", lambda name: None)  # it needs the driver
    waking.wake(parse(job_text(model=model, physics=f'kind = "{kind}"'), tmp_path))
    assert seen == ["gpu", *ran]


@pytest.mark.gpu
@pytest.mark.skipif(gpu_count() == 0, reason="no GPU")
def test_a_woken_gpu_has_the_kernels_of_a_job_and_gives_the_same_bits(tmp_path, monkeypatch):
    from forebay.wave.kernels import device

    device._kernel.cache_clear()  # other tests may have made this model
    run_kernels(parse(VOLUME, tmp_path), "gpu")
    loaded = device._kernel.cache_info().misses
    woken_run = run_job(parse(VOLUME, tmp_path))
    made = 1  # of the formula of this model, while the GPU is woken
    assert not woken_run.failed and device._kernel.cache_info().misses == loaded + made
    monkeypatch.setattr(waking, "wake", lambda job: None)
    assert same_images(run_job(parse(VOLUME.replace('"out"', '"cold"'), tmp_path)), woken_run)


def test_the_first_shot_compiles_no_resampling(tmp_path):
    from forebay.wave.kernels.traces import pull, push

    waking.compile_resampling()
    known = [list(loop.signatures) for loop in (pull, push)]
    job = parse(job_text(physics="dt = 0.004"), tmp_path)  # two steps from one sample to the next
    assert not run_job(job).failed
    assert [list(loop.signatures) for loop in (pull, push)] == known
