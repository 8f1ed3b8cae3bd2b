"""Where an inversion begins and what it may try, from what its job says: refused before any shot where it cannot be."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.errors import WaveError
from forebay.wave.earth.grid import Grid
from forebay.wave.files.formats import read_field
from forebay.wave.inversion.sources import low_pass
from forebay.wave.invert import slowest_in, started
from forebay.wave.job.job import Job
from forebay.wave.survey.wavelet import highest_of_shots


def stage_frequencies(job: Job, wavelets: NDArray[Any], dt: float) -> list[float]:
    """Return the highest frequency of what is sent in each stage, in Hz."""
    assert job.inversion is not None
    for limit, _ in job.inversion.stages:
        if limit is not None and limit >= 0.5 / dt:
            raise WaveError(
                f"inversion.frequencies: expected below {0.5 / dt:.6g} Hz, of data every {dt:.6g} s, or 'all', "
                f"not {limit:.6g}"
            )
    return [highest_of_shots(low_pass(wavelets, dt, limit), dt) for limit, _ in job.inversion.stages]


def start_of(job: Job, model: Any, wavelets: NDArray[Any], dt: float) -> tuple[Any, dict[str, tuple[float, float]]]:
    """Return the model where an inversion begins, made for the fastest waves within bounds, and the bounds."""
    assert job.inversion is not None
    highest = max(stage_frequencies(job, wavelets, dt))
    try:
        return started(model, job.inversion.bounds, slowest_in(model, job.physics.order, highest))
    except WaveError as error:
        raise WaveError(f"inversion.bounds: {error}") from error


def at_most(model: Any, fastest: float) -> Any:
    """Return a model with time step and layers for waves as fast, or as fast as its own."""
    return replace(model, max_vel=max(fastest, model.fastest))


def known_of(job: Job, grid: Grid) -> NDArray[np.bool_] | None:
    """Return where the model is known, if anywhere."""
    assert job.inversion is not None
    path, known = job.inversion.fixed, np.zeros(grid.shape, bool)
    if path is not None:
        values = np.asarray(read_field(path).values)
        if values.shape != grid.shape:
            raise WaveError(f"inversion.fixed: expected the shape {grid.shape} of the model; {path} has {values.shape}")
        known |= values != 0
    known[: int(np.ceil(job.inversion.fixed_depth / grid.spacing[0]))] = True
    if known.all():
        raise WaveError("inversion.fixed, inversion.fixed_depth: expected something unknown; all is fixed")
    return known if known.any() else None


def check_inversion(job: Job, grid: Grid, shots: int) -> None:
    """Refuse what no inversion of so many shots can go by."""
    assert job.inversion is not None
    known_of(job, grid)
    if job.inversion.mini_batch is not None and job.inversion.mini_batch > shots:
        raise WaveError(
            f"inversion.mini_batch: expected at most the {shots} shots there are, not {job.inversion.mini_batch}"
        )
