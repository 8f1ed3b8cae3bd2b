"""Lengths and intervals in the headers of traces: scalars, units, and what contradicts itself."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.errors import WaveError
from forebay.wave.files.segy.dialect import FOOT
from forebay.wave.files.segy.layout import TraceFile

FEET, LENGTH = 2, 1
"""The standard's codes for lengths in feet, and for coordinates that are lengths."""
TIME_SCALARS = [sign * 10**power for power in range(5) for sign in (1, -1)]
"""Those of the standard: others are none, since before its first revision their bytes were anyone's."""


def metres_of_unit(file: TraceFile, numbers: Any = slice(None)) -> float:
    """Return the metres of what lengths are told in, by the job or by the binary header; refuse angles in traces."""
    dialect = file.dialect
    if dialect.units is not None:
        return dialect.units
    codes = file.word("coordinate_units", numbers)
    angles = ~np.isin(codes, (0, LENGTH))
    if angles.any():
        first = int(np.argmax(angles))
        raise WaveError(
            f"{dialect.key('units')}: {file.path}: CoordinateUnits of trace {file.numbers(numbers)[first]} is "
            f"{codes[first]:.0f}: project the coordinates to metres, since these are angles, or, if they are "
            "lengths all the same, give 'metres' or 'feet'"
        )
    return FOOT if file.system == FEET else 1.0


def scaled(file: TraceFile, name: str, scalar: str = "coordinate_scalar") -> NDArray[np.float64]:
    """Read a length of all trace headers, in the unit that they tell it in.

    It is multiplied by its scalar where that is positive and divided by it where it is negative; 0 means 1. What is
    stored as a float has no scalar.
    """
    values = file.word(name)
    return values if _is_float(file, name) else values * factors(file.word(scalar))


def _is_float(file: TraceFile, name: str) -> bool:
    return file.dialect.word(name).type.startswith("float")


def factors(scalar: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return what values are multiplied by."""
    scalar = np.where(scalar == 0, 1, scalar)
    return np.asarray(np.where(scalar > 0, scalar, 1 / np.abs(scalar)), np.float64)


def interval_of(file: TraceFile, told: str, numbers: Any = slice(None)) -> float:
    """Return the sampling interval of traces, in the unit of headers; refuse where they contradict each other.

    A trace header has no room for fractions, which the binary header of the second revision has.

    Parameters
    ----------
    file
        Whose traces they are.
    told
        The key of the job that tells the interval instead.
    numbers
        Of the traces; unless told, all of them.
    """
    intervals = file.word("interval", numbers)
    first = file.interval or intervals[np.argmax(intervals > 0)]
    other = (intervals != 0) & (np.abs(intervals - first) >= 1)
    if not first:
        raise WaveError(
            f"{file.dialect.key(told)}: expected, since {file.path} tells no sampling interval in its binary header or "
            "its traces"
        )
    if other.any():
        trace = int(np.argmax(other))
        raise WaveError(
            f"{file.dialect.key(told)}: {file.path}: TRACE_SAMPLE_INTERVAL of trace {file.numbers(numbers)[trace]} is "
            f"{intervals[trace]:.0f}: the {'binary header' if file.interval else 'first trace'}'s Interval is "
            f"{first:.6g}: resample or correct one, or give the one that holds for all"
        )
    return float(first)
