"""A GPU woken while a job's model is made: its driver, libraries and kernels are there when the first shot begins.

Of kernels those alone that serve any shape: others would be compiled for another one than that of the shots.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from importlib import import_module

import numpy as np

from forebay.errors import WaveError
from forebay.tasks import Workers
from forebay.wave.acoustic.kernels import kernels_of
from forebay.wave.acoustic.layers import layers_of
from forebay.wave.earth.arrays import on_host
from forebay.wave.earth.builtin import BUILTIN
from forebay.wave.earth.grid import Grid
from forebay.wave.job.inputs import completed, medium_of
from forebay.wave.job.job import Job
from forebay.wave.job.place import device_of, putter
from forebay.wave.loop import Adjoint, prepare
from forebay.wave.survey.resample import Resampler
from forebay.wave.survey.shot import Shot

POINTS, SPACING = 64, 10.0
"""Of a model for nothing but kernels: layers of usual widths do not meet in it."""
VELOCITY = 2000.0
STEPS, EVERY, DT = 4, 2, 0.0005

logger = logging.getLogger("forebay.wave")


@contextmanager
def woken(job: Job, gpus: int) -> Iterator[Callable[[], object]]:
    """Have a thread wake the GPU, where a new job's shots are computed on one by this process, and wait for it.

    Yield what waits for it meanwhile: other threads would compile the same kernels. What goes wrong there goes wrong in
    the first shot again, which tells it.
    """
    begun = (job.output.directory / "job.json").exists()  # its model is there, and perhaps all of its shots
    if begun or job.run.workers or job.run.scheduler or not _on_gpu(job, gpus):
        yield lambda: None
        return
    with closing(Workers(1, "forebay-wake")) as thread:
        waking = thread.submit(wake, job)
        yield waking.exception
        if (error := waking.exception()) is not None:
            logger.info("the GPU was not woken ahead of the first shot", exc_info=error)


def _on_gpu(job: Job, gpus: int) -> bool:
    try:
        return device_of(job, gpus) == "gpu"
    except WaveError:  # whoever prepares the job says it
        return False


def wake(job: Job) -> None:
    """Have the driver and its library begin, and the kernels of acoustic waves in volumes."""
    on_host(putter("gpu")(np.zeros(1, np.float32)))
    import_module("forebay.machine.cuda_reversal")  # which reversals import as they begin
    if job.physics.kind == "acoustic" and axes_of(job) == 3:
        run_kernels(job, "gpu")


def run_kernels(job: Job, device: str) -> None:
    """Take a wave of zeros forward and back through a small model, as a job's shots do, and make an image."""
    absorb = {} if job.physics.absorb is None else {"absorb": job.physics.absorb}
    grid = Grid((POINTS,) * 3, SPACING, free_surface=job.physics.free_surface, **absorb)
    fields = completed(job, {"velocity": np.full(grid.shape, VELOCITY, np.float32)})
    middle, silence = np.full((1, grid.ndim), POINTS * SPACING / 2), np.zeros(STEPS // EVERY)
    # Traces of another sampling are taken to steps and back, as those of jobs, and data come in double precision.
    shot = Shot(middle, middle, silence, EVERY * DT, sends=job.physics.sends, hears=job.physics.hears)
    medium, halo = medium_of(job, fields, grid, putter(device)), job.physics.order // 2
    kernels = kernels_of(medium.velocity, grid, halo, np.dtype(np.float32), None)
    with closing(Workers(2, "forebay-kernels")) as threads:  # beside what CuPy compiles
        layers = layers_of(grid, halo, kernels.rows, DT, VELOCITY)
        begun = threads.submit(kernels.compile_ahead, layers), threads.submit(compile_resampling)
        loop = prepare(shot, medium, DT, job.physics.order, np.float32)
        for task in begun:
            task.result()
    waves, names = loop.propagator, (job.imaging.image,)
    record = waves.image_record(loop.forward(waves.zeros(), 0, STEPS), names)
    adjoint, sums = Adjoint(loop, loop.data().astype(np.float64)), waves.image_sums(names)
    adjoint.back_to(1)
    waves.add_image(adjoint, 0, sums, record, DT, None)
    for image, light in waves.image_arrays(sums).values():
        on_host(image), on_host(light)  # which waits for all of it


def compile_resampling() -> None:
    """Resample zeros of the types that shots have: a wavelet, what was heard, and what is sent back."""
    few, many = STEPS // EVERY, STEPS
    Resampler(few, EVERY * DT, many, DT)(np.zeros((few, 1)))
    back = Resampler(many, DT, few, EVERY * DT)
    back(np.zeros((many, 1), np.float32)), back.transpose(np.zeros((few, 1)))


def axes_of(job: Job) -> int:
    """Return how many axes a job's model has; 0 where only its file tells."""
    table = job.model
    if table.name is None:
        return len(table.spacing) if table.spacing is not None and len(table.spacing) > 1 else 0
    return table.dims or len(table.shape or getattr(BUILTIN[table.name], table.size or "small"))
