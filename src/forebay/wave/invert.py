"""Full-waveform inversion: the model whose data are those that were observed, found step by step."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.checksums import checksum_of, raw_bytes
from forebay.engine.showing import LONG, progress_bar
from forebay.errors import WaveError
from forebay.wave.earth.arrays import on_host
from forebay.wave.gradient import Misfit
from forebay.wave.inversion.ledger import EvaluationLedger
from forebay.wave.inversion.misfits import misfit_of
from forebay.wave.inversion.shots import ShotsHere, wavelet_of
from forebay.wave.inversion.sources import low_passed
from forebay.wave.inversion.stage import EVALUATIONS, InversionStage, MiniBatches, run_stages, searches_of
from forebay.wave.inversion.unknowns import angles_of, arrays_of, bounds_of, fastest_of, settings_of
from forebay.wave.loop import frequencies_of
from forebay.wave.physics import EarthModel, physics_of
from forebay.wave.survey.shot import Shot

ROUNDED = 1 + 1e-6
"""Times a bound: what it may become in single precision."""


@dataclass(frozen=True, eq=False, repr=False)
class Inversion:
    """A model, and how the misfit came down to what it is there."""

    model: Any
    """of the same class as the first one, with its arrays where those are"""
    misfits: tuple[tuple[float, ...], ...]
    """of each search, one a stage or a few with mini-batches: where it began, and after each iteration"""
    evaluations: int
    """of the misfit and its gradient, by all shots"""
    shots: tuple[Shot, ...]
    """as given, with the wavelets of the last stage where sources were estimated"""
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Tell how far each stage came."""
        iterations = sum(len(stage) - 1 for stage in self.misfits)
        left = ", ".join(f"{stage[-1] / stage[0]:.3g}" for stage in self.misfits[-8:] if stage[0])
        return (
            f"Inversion({iterations} iterations, {self.evaluations} evaluations; left of each search's misfit: {left})"
        )


def invert(
    shots: Shot | Sequence[Shot],
    model: Any,
    *,
    iterations: int | Sequence[int] = 10,
    frequencies: Sequence[float | None] = (None,),
    misfit: str | Misfit = "least squares",
    bounds: Any = None,
    fixed: Any = None,
    smooth: float = 0.0,
    precondition: bool = True,
    estimate_source: bool | str = False,
    mini_batch: int | None = None,
    seed: int = 0,
    dt: float | None = None,
    order: int = 8,
    dtype: Any = np.float32,
    together: int = 1,
    watch: Callable[[Any, int, float], None] | None = None,
    progress: bool | None = None,
    resume: Path | str | None = None,
    **reversal: Any,
) -> Inversion:
    """Find the model in which shots hear what they have heard, from one that is near enough, inside a budget.

    Each stage is a search by L-BFGS, from where the one before ended. Time step and absorbing layers are the same in
    all models that are tried: those of the largest velocity within bounds.

    Parameters
    ----------
    shots
        With their data.
    model
        Where the search begins. Of an elastic one all three arrays are unknown, and fluids stay fluids. Of a
        `VTIModel` epsilon is taken to be delta where it would fall below. The axis of a `TTIModel` stays as it is.
    iterations
        Of each stage, or one number for each.
    frequencies
        Of stages: each takes wavelets and data up to a frequency in Hz, or all of them for None. Low ones first keep a
        search from matching the wrong cycle.
    misfit
        "least squares", "correlation", "envelope" or "transport", see `inversion.misfits`, or as for `gradient`.
    bounds
        The smallest and the largest velocity, or a pair for each array by name. Unless given, from half the smallest to
        1.5 times the largest value; epsilon and delta of a `VTIModel`, and the attenuation of a `ViscoModel`, stay
        between their smallest and largest value.
    fixed
        Where the model is known, such as in water: an array of its shape that is true there.
    smooth
        Metres over which updates are smoothed: the standard deviation of a bell.
    precondition
        Whether updates are made larger where the sources cast little light, such as in depth.
    estimate_source
        Whether each stage begins by finding what the sources send from the data: True for one filter of all wavelets,
        "each" for one of every shot.
    mini_batch
        Shots of an iteration, drawn anew after every three of them, so that a model is updated more often than all
        shots could be computed. Where mini-batches are as good as all shots, an update costs that much less.
    seed
        Of the draws.
    dt, order, dtype
        As for `simulate`.
    together
        Shots in two dimensions that advance at once, which fills a GPU; the budget is for all of them.
    watch
        ``watch(model, iteration, misfit)`` is called after each iteration, counted from 1 over all stages.
    progress
        Whether to show progress; None shows it on a terminal.
    resume
        A directory for this inversion alone: after the process has died, the same call goes on there, with the same
        bits, and computes one group of shots again at most. It holds what a stage has evaluated, in double precision.
    **reversal
        For `forebay.reverse`: `budget`, `codec`, `every`, ...

    Examples
    --------
    >>> from forebay.wave import AcousticModel, Grid, ricker, simulate
    >>> grid = Grid((30, 50), spacing=10.0, absorb=10)
    >>> true, start = np.full((30, 50), 2000.0), np.full((30, 50), 2000.0)
    >>> true[12:18, 20:30] = 2150.0
    >>> lines = [[(20, x) for x in range(0, 500, 20)], [(280, x) for x in range(0, 500, 20)]]
    >>> shots = [Shot((20, x), lines[0] + lines[1], ricker(12, 0.002, 250), dt=0.002) for x in (100, 250, 400)]
    >>> shots = [shot.with_data(simulate(shot, AcousticModel(true, grid, max_vel=2500.0))) for shot in shots]
    >>> found = invert(shots, AcousticModel(start, grid), iterations=4, bounds=(1500.0, 2500.0), budget="64MB")
    >>> found.misfits[0][-1] < 0.3 * found.misfits[0][0], bool(found.model.velocity[12:18, 20:30].mean() > 2030)
    (True, True)
    """
    listed = [shots] if isinstance(shots, Shot) else list(shots)
    counts = iterations_of(iterations, frequencies)
    _check(listed, together, smooth, estimate_source, mini_batch)
    filtered = [[low_passed(shot, frequency) for shot in listed] for frequency in frequencies]
    compare = misfit_of(misfit)
    slowest = max(slowest_in(model, order, max(frequencies_of(stage))) for stage in filtered)
    start, limits = started(model, bounds, slowest)
    known = None if fixed is None else np.asarray(on_host(fixed), bool)
    if known is not None and known.shape != tuple(model.grid.shape):
        raise WaveError(f"fixed of shape {known.shape} for a model of shape {tuple(model.grid.shape)}: give one alike")
    stepping = {"dt": dt, "order": order, "dtype": dtype}
    drawn = None if mini_batch is None else MiniBatches(mini_batch, seed)
    told = counts, limits, smooth, precondition, estimate_source, together, _name(misfit), sorted(stepping.items())
    lossy = [(name, str(reversal[name])) for name in ("codec", "every") if name in reversal]
    whose = "" if resume is None else _identity(filtered, start, known, repr((told, lossy, drawn)))
    ledger = EvaluationLedger(None if resume is None else Path(resume), whose)

    def after(now: Any, iteration: int, value: float) -> None:
        tick()
        if watch is not None:
            watch(now, iteration, value)

    try:
        with progress_bar("inverting", sum(counts), LONG + 1, progress) as tick:
            about = limits, known, smooth, precondition, estimate_source, drawn, ledger
            stages = [
                InversionStage(number, ShotsHere(own, compare, together, stepping, reversal, ledger), *about)
                for number, own in enumerate(filtered)
            ]
            found, outcomes = run_stages(stages, counts, start, ledger, after)
    finally:
        ledger.close()
    if estimate_source:
        listed = [replace(shot, wavelet=outcomes[-1][wavelet_of(number)]) for number, shot in enumerate(listed)]
    return Inversion(
        replace(found, max_vel=model.max_vel),
        tuple(misfits for outcome in outcomes for misfits in searches_of(outcome)),
        sum(int(outcome[EVALUATIONS]) for outcome in outcomes),
        tuple(listed),
        tuple(ledger.notes),
    )


def iterations_of(iterations: int | Sequence[int], frequencies: Sequence[float | None]) -> list[int]:
    """Return the iterations of each stage."""
    if not len(frequencies):
        raise WaveError("no frequencies: give one for each stage, or None for one of all frequencies")
    counts = [iterations] * len(frequencies) if isinstance(iterations, int) else list(iterations)
    if len(counts) != len(frequencies) or min(counts) < 1:
        raise WaveError(
            f"iterations={iterations!r} for {len(frequencies)} stages: give a number above 0, or one for each stage"
        )
    return counts


def _check(
    shots: Sequence[Shot], together: int, smooth: float, estimate_source: bool | str, mini_batch: int | None
) -> None:
    """Refuse what no inversion can go by."""
    if not shots or any(shot.data is None for shot in shots):
        raise WaveError("no shots, or one without data: add what its receivers heard with shot.with_data(...)")
    if together < 1:
        raise WaveError(f"together={together}: give the number of shots that advance at once, 1 or more")
    if not 0 <= smooth < float("inf"):
        raise WaveError(f"smooth={smooth!r}: give metres, or 0 for none")
    if estimate_source not in (False, True, "each"):
        raise WaveError(f"estimate_source={estimate_source!r}: give True, False or 'each'")
    if mini_batch is not None and not 1 <= mini_batch <= len(shots):
        raise WaveError(f"mini_batch={mini_batch} of {len(shots)} shots: give 1 to {len(shots)}, or None for all")


def slowest_in(model: EarthModel, order: int, frequency: float) -> float:
    """Return the velocity below which waves of a frequency would be too short for the grid."""
    return physics_of(model).points_per_wavelength(order) * max(model.grid.spacing) * frequency


def started(model: Any, bounds: Any, slowest: float) -> tuple[Any, dict[str, tuple[float, float]]]:
    """Return the model where a search begins, made for the fastest waves within bounds, and bounds for its arrays."""
    limits = bounds_of(model, bounds, slowest)
    fastest = max(fastest_of(limits), model.fastest) * ROUNDED
    return replace(model, max_vel=fastest), limits


def _name(misfit: str | Misfit) -> str:
    """Name a misfit as another process would."""
    return misfit if isinstance(misfit, str) else getattr(misfit, "__qualname__", type(misfit).__qualname__)


def _identity(stages: Sequence[Sequence[Shot]], model: Any, known: NDArray[np.bool_] | None, told: str) -> str:
    """Return a checksum of all that an inversion follows from."""
    arrays = [*arrays_of(model).values(), *angles_of(model).values(), *([] if known is None else [known])]
    for shot in [shot for stage in stages for shot in stage]:
        arrays += [shot.source, shot.receivers, np.asarray(shot.wavelet), np.asarray(shot.data)]
    grid = model.grid
    shapes = [(array.shape, str(array.dtype)) for array in arrays]
    words = repr((told, model.max_vel, grid, shapes, *settings_of(model).items()))
    kinds = repr([(shot.dt, shot.sends, shot.hears) for shot in stages[0]])
    return checksum_of([words.encode(), kinds.encode(), *map(raw_bytes, arrays)])
