"""Public functions of other people's libraries: the bound holds, or doubt was told."""

import sys
import warnings
from math import prod

import numpy as np
import pytest
from tests.footprint.public import CALLS, ON_TORCH, Public

from forebay.footprint import learn
from forebay.footprint.measure.inputs import InputLayout, InputRecipe
from forebay.footprint.measure.process import Child, Workload

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells exact peaks"),
]
LARGER = 24
"""how many times larger than the largest sample"""


def foreseen_and_measured(name):
    """Return an estimate, the peak, and what was told, of a shape that was not learned from."""
    pytest.importorskip(name.partition(".")[0])
    function = Public(name)
    case, library = function.case, "torch" if name in ON_TORCH else "numpy"
    axes = case.axes or {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = learn(
            function, ndim=case.ndim, axes=axes, library=library, largest=case.largest, samples=10, seconds=300
        )
    growing = [axis for axis in range(case.ndim) if axis not in axes]
    volume = LARGER * max(prod(sample.lengths) for sample in model.samples) / prod(axes.values())
    uneven = np.linspace(-0.5, 0.5, len(growing))
    sides = volume ** (1 / len(growing)) * 2.0**uneven
    lengths = axes | dict(zip(growing, np.ceil(sides).astype(int).tolist(), strict=True))
    shape = tuple(lengths[axis] for axis in range(case.ndim))
    child = Child(Workload(function, InputRecipe(InputLayout.of(case.ndim, axes), "float32", library)))
    try:
        child.measure(min((sample.lengths for sample in model.samples), key=prod))
        return model.predict(shape), child.measure(shape).peak, (*model.notes, *model.doubts.notes)
    finally:
        child.close()


@pytest.mark.parametrize("name", CALLS)
def test_a_peak_is_within_its_bound_or_doubt_was_told(name):
    run, peak, told = foreseen_and_measured(name)
    assert peak <= run.upper or told


@pytest.mark.parametrize("name", ON_TORCH)
def test_operations_of_torch_are_foreseen(name):
    run, peak, told = foreseen_and_measured(name)
    assert run.bytes == pytest.approx(peak, rel=0.03) and (peak <= run.upper or told)
