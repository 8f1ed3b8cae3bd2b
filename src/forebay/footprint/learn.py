"""Learn the footprint of a function, or of a command, from a few tiny runs in a process of their own."""

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from numbers import Integral, Real
from typing import Any

import numpy as np

from forebay.footprint.errors import FootprintError, FootprintWarning
from forebay.footprint.measure.command import Command
from forebay.footprint.measure.conditions import Conditions, command_hash, source_hash
from forebay.footprint.measure.inputs import LIBRARIES, Factory, InputLayout, InputRecipe, Shape
from forebay.footprint.measure.process import Child, Workload, name_of
from forebay.footprint.measure.runner import Runner
from forebay.footprint.model import Model
from forebay.footprint.search.search import Search
from forebay.footprint.search.spending import Spending

SHARE = 0.05
LEAST = 2**20
"""the largest sample's share of the volume that is asked for; but so many elements it may have in any case: what a
smaller one needs drowns in the resolution of the measurement"""
NOTHING = 0.1
"""the share of the seconds that is too little for another sample: none begins that may take a third of what is left"""
SAMPLES, FOR_A_PARAMETER, MOST_SAMPLES = 10, 5, 20
"""how many are taken, unless told otherwise"""
ELEMENTS = 2**24
"""the most elements of a sample, unless told otherwise"""


def learn(
    function: Callable[..., Any] | None = None,
    *,
    ndim: int | Sequence[int] | Mapping[str, int],
    dtype: str = "float32",
    command: str | None = None,
    shape: Shape | Sequence[Shape] | Mapping[str, Shape] | None = None,
    axes: Mapping[int, Any] | None = None,
    parameters: Mapping[str, Any] | None = None,
    samples: int | None = None,
    seconds: float = 60.0,
    tight: float = 0.06,
    risk: float = 0.01,
    inputs: Factory | None = None,
    features: Callable[..., dict[str, float]] | None = None,
    library: str = "numpy",
    smallest: int = 1,
    largest: float | None = None,
    gauge: str | None = None,
) -> Model:
    """Learn how much memory a function needs for any shape, from a few tiny runs, cheapest first.

    Parameters
    ----------
    function
        takes arrays and returns one; it is sent to a fresh process by cloudpickle, so notebooks' functions work too
    ndim
        the number of axes of its input; a list for several inputs, a dict for inputs passed by keyword
    dtype
        of its inputs
    command
        instead of a function: a command line in which ``{0}``, ``{1}``, ... stand for the lengths of the axes
    shape
        the shape that matters most, where it is known: the bound is made tight there. Samples have at most a
        twentieth of its elements, or 2**20 where that is more; a shape of no more than those is run itself
    axes
        the lengths that an axis may have, by its number: one alone (``{2: 3}`` for channels), a range, or a list
    parameters
        what the function is called with by keyword beside its inputs, and `predict` then too: a pair ``(low, high)``,
        whole numbers where both are, a range, or a list of the values
    samples, seconds
        how much may be spent: 10, and 5 more for each parameter, up to 20; 60 seconds
    tight
        learning stops where the bound exceeds the estimate by this fraction, or less
    risk
        that a peak exceeds its bound
    inputs
        ``inputs(lengths, rng)`` makes the input instead of random numbers: an array, a tuple of several, or a dict
    features
        ``features(*inputs)`` gives a dict of what else the memory may depend on; `predict` then asks for it
    library
        whose arrays the function takes: numpy, cupy, torch or jax
    smallest, largest
        the least length of an axis, and the most elements of a sample
    gauge
        "traced" to measure by tracemalloc, a lower bound, where the kernel's figures are not wanted

    Examples
    --------
    >>> import numpy as np
    >>> model = learn(np.sqrt, ndim=2, dtype="float64")
    >>> run = model.predict((4000, 5000))
    >>> run.output_shape, round(run.bytes / (4000 * 5000), 1)
    ((4000, 5000), 8.0)
    >>> model = learn(np.repeat, ndim=1, parameters={"repeats": (1, 9)}, samples=7)
    >>> round(model.predict((10**6,), repeats=5).bytes / 10**6)
    20
    """
    start, layout = time.perf_counter(), InputLayout.of(ndim, axes, parameters)
    count = min(SAMPLES + FOR_A_PARAMETER * len(layout.parameters), MOST_SAMPLES) if samples is None else samples
    _check(count, seconds, tight, risk, smallest, largest)
    kind = _kind(dtype, library, random=inputs is None and command is None)
    target = None
    if shape is not None:
        target = layout.flatten(None, **shape) if isinstance(shape, Mapping) else layout.flatten(shape)
    runner, name, source = _runner(function, command, InputRecipe(layout, kind.name, library, inputs), features, gauge)
    try:
        search = Search(
            runner,
            Model(
                name,
                layout,
                kind,
                (),
                Conditions(runner.gauge_name, runner.exact, runner.resolution, source, gpu=runner.gpu, library=library),
                risk,
            ),
            Spending(
                count,
                start + seconds,
                tight,
                smallest,
                min(largest or ELEMENTS, ELEMENTS if target is None else _most(layout.volume(target))),
                NOTHING * seconds,
                target,
            ),
            varied=features is not None,
        )
        model = search.go()
        conditions = replace(model.conditions, versions=runner.versions(), dtypes=runner.dtypes)
        model = replace(model, conditions=conditions)
    finally:
        runner.close()
    for note in (*model.notes, *model.doubts.notes):
        warnings.warn(f"{name}: {note}", FootprintWarning, stacklevel=2)
    return model


def _most(volume: int) -> float:
    """Return the most elements of a sample for a shape of so many."""
    return max(SHARE * volume, LEAST)


def _runner(
    function: Callable[..., Any] | None,
    command: str | None,
    recipe: InputRecipe,
    features: Callable[..., dict[str, float]] | None,
    gauge: str | None,
) -> tuple[Runner, str, str]:
    """Return what runs samples, its name, and the hash of what it runs."""
    if (function is None) == (command is None):
        raise FootprintError("give either a function or command=, and not both")
    if command is not None:
        if recipe.factory is not None or features is not None:
            raise FootprintError("a command makes its own input: give neither inputs= nor features= with command=")
        return Command(command), command, command_hash(command)
    if function is None or not callable(function):
        raise FootprintError(f"{function!r} is a {type(function).__name__}, not a function")
    return Child(Workload(function, recipe, features, gauge)), name_of(function), source_hash(function)


def _check(samples: int, seconds: float, tight: float, risk: float, smallest: int, largest: float | None) -> None:
    numbers: dict[str, object] = {"seconds": seconds, "tight": tight, "risk": risk, "largest": largest}
    whole: dict[str, object] = {"samples": samples, "smallest": smallest}
    for name, value in (whole | numbers).items():
        if not isinstance(value, Integral if name in whole else Real | None):
            raise FootprintError(f"{name}={value!r}: give a {'whole ' if name in whole else ''}number")
    if samples < 3 or seconds <= 0 or not 0 < risk < 0.5 or tight <= 0 or smallest < 1:
        raise FootprintError("samples must be 3 or more, seconds, tight and smallest positive, risk between 0 and 0.5")
    if largest is not None and largest < 1:
        raise FootprintError(f"largest={largest!r}: give the most elements that a sample may have")


def _kind(dtype: str, library: str, random: bool) -> np.dtype[Any]:
    if library not in LIBRARIES:
        raise FootprintError(f"no arrays are called {library!r}: take one of {', '.join(LIBRARIES)}")
    try:
        kind: np.dtype[Any] = np.dtype(dtype)
    except TypeError:
        raise FootprintError(f"dtype={dtype!r} is none that NumPy knows: give one like 'float32'") from None
    if random and kind.kind not in "fiucb":
        raise FootprintError(f"no random data of dtype {kind}: give inputs=, a function that makes it")
    return kind
