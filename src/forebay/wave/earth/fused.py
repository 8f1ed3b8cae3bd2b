"""Formulas of NumPy that a GPU works out in one pass over a volume, whatever they are made of.

A formula is called with a `Traced` depth in place of an array, and what is done with that is written down. Numbers that
know of the depth alone are worked out at once, by NumPy, and so are those that know nothing of it.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray

from forebay.errors import WaveError
from forebay.wave.kernels.device import Launch

SOURCE = Path(__file__).parent / "fused.cu"
THREADS, MARCHES = 128, 16
"""Of a thread block, and parts in which columns are gone down."""
WRITTEN: dict[Any, str] = {
    np.add: "{} + {}",
    np.subtract: "{} - {}",
    np.multiply: "{} * {}",
    np.divide: "{} / {}",
    np.negative: "-{}",
    np.square: "{0} * {0}",
    np.maximum: "larger({}, {})",
    np.hypot: "hypot({}, {})",
    np.exp: "exp({})",
    np.clip: "clipped({}, {}, {})",
}
"""How what NumPy does is written in CUDA; the last two are not rounded as NumPy's, the others are."""


class Sheet:
    """What was written down of a formula, and the numbers that it needs."""

    def __init__(self) -> None:
        self.statements: list[str] = []
        self.surfaces: list[NDArray[Any]] = []
        self.levels: list[NDArray[Any]] = []
        self.tables: list[NDArray[Any]] = []
        self._kept: dict[int, tuple[Any, str]] = {}

    def name(self, value: Any) -> str:
        """Return how a value is written."""
        if isinstance(value, Traced) and value.levels is None:
            return value.name
        array = np.asarray(value.levels if isinstance(value, Traced) else value, np.float64)
        if array.ndim == 0:
            return f"({float(array)!r})"
        key = id(value.levels if isinstance(value, Traced) else value)
        if key not in self._kept:
            kind = self.levels if isinstance(value, Traced) else self.surfaces
            word = "LEVEL" if isinstance(value, Traced) else "SURFACE"
            kind.append(array)
            self._kept[key] = value, f"{word}({len(kind) - 1})"  # kept, so that nothing else gets its number
        return self._kept[key][1]

    def write(self, expression: str) -> "Traced":
        """Write down a statement, and return its value."""
        self.statements.append(f"const double v{len(self.statements)} = {expression};")
        return Traced(self, None, f"v{len(self.statements) - 1}")


class Traced(NDArrayOperatorsMixin):
    """A number for each point of a volume, or for each depth, that stands in for an array of NumPy.

    Examples
    --------
    >>> depth = Traced(Sheet(), np.arange(3.0))
    >>> (2 * depth + 1).levels
    array([1., 3., 5.])
    >>> slope = np.exp(depth - np.ones((1, 4, 5)))
    >>> slope.sheet.statements
    ['const double v0 = LEVEL(0) - SURFACE(0);', 'const double v1 = exp(v0);']
    """

    def __init__(self, sheet: Sheet, levels: NDArray[Any] | None, name: str = "") -> None:
        self.sheet, self.levels, self.name = sheet, levels, name

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> "Traced":
        if method != "__call__" or options:
            raise WaveError(f"a traced formula has numpy.{ufunc.__name__}.{method}: take plain operations")
        return self._of(ufunc, inputs)

    def __array_function__(self, function: Any, types: Any, inputs: Any, options: Any) -> "Traced":
        if function is np.interp and not options and not isinstance(inputs[1], Traced):
            at, knots, values = inputs
            if at.levels is not None:
                return Traced(self.sheet, np.interp(at.levels, knots, values))
            begin = sum(table.size for table in self.sheet.tables)
            self.sheet.tables.append(np.concatenate([knots, values]))
            return self.sheet.write(f"interpolated({at.name}, tables + {begin}, {len(knots)})")
        if function is not np.clip or options:
            raise WaveError(f"a traced formula has numpy.{function.__name__}: take plain operations")
        return self._of(function, inputs)

    def _of(self, function: Any, inputs: Sequence[Any]) -> "Traced":
        if function is np.power and np.ndim(inputs[1]) == 0 and inputs[1] == 2:  # as arrays of NumPy do it
            return self._of(np.square, inputs[:1])
        if all(value.levels is not None if isinstance(value, Traced) else np.ndim(value) == 0 for value in inputs):
            return Traced(
                self.sheet, function(*(value.levels if isinstance(value, Traced) else value for value in inputs))
            )
        if function not in WRITTEN:
            raise WaveError(f"a traced formula has numpy.{function.__name__}, which is not written yet")
        return self.sheet.write(WRITTEN[function].format(*map(self.sheet.name, inputs)))


def traced(formula: Callable[[Any], Any], depths: NDArray[Any], rows: int, across: int) -> Sheet:
    """Write down a formula of depth over so many columns; the last statement is its value."""
    sheet = Sheet()
    value = formula(Traced(sheet, depths))
    sheet.write(sheet.name(value))
    sheet.surfaces = [np.broadcast_to(surface, (1, rows, across)).reshape(-1) for surface in sheet.surfaces]
    return sheet


def filled(device: Any, sheets: Sequence[Sheet], shape: tuple[int, int, int]) -> Any:
    """Return a volume of float32 on a device, whose sheets are strips side by side along its second axis."""
    first, (depths, rows, across) = sheets[0], shape
    assert all(sheet.statements == first.statements for sheet in sheets)
    columns, arrays = rows * across, device.arrays

    def put(numbers: Sequence[NDArray[Any]]) -> Any:
        return arrays.asarray(np.concatenate([part.reshape(-1) for part in numbers]) if numbers else np.zeros(1))

    out = arrays.empty(shape, np.float32)
    arguments = {
        "out": out,
        "surfaces": put(
            [strip for surface in zip(*(sheet.surfaces for sheet in sheets), strict=True) for strip in surface]
        ),
        "levels": put(first.levels),
        "tables": put(first.tables),
        "columns": columns,
        "depths": depths,
    }
    *statements, last = first.statements
    defines = {"FORMULA": " ".join(statements), "VALUE": last.partition(" = ")[2].rstrip(";")}
    kernel = device.kernel(SOURCE, "fill", defines)
    Launch(device, kernel, (-(-columns // THREADS), min(MARCHES, depths)), (THREADS,), arguments)(device.stream())
    return out
