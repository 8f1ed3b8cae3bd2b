"""The values that a length or a parameter may have: one alone, some, or all between two."""

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from numbers import Integral, Real
from typing import Any

import numpy as np

from forebay.footprint.errors import FootprintError

FAR = 2**60
"""the last of the lengths that are listed by a rule"""


@dataclass(frozen=True)
class ValueSet:
    """What may be chosen from."""

    low: float
    high: float
    step: float = 0.0
    """between neighbours, counted from the lowest; 0 where anything between the ends will do"""
    listed: tuple[float, ...] = ()
    """all of them in order, where they follow no step"""
    whole: bool = True
    """whether they are whole numbers"""

    @property
    def fixed(self) -> bool:
        """Whether there is only one."""
        return self.low == self.high

    def nearest(self, wanted: float) -> float:
        """Return the value nearest to another; of a list, the one of the nearest ratio.

        Examples
        --------
        >>> read_values(range(16, 1000, 16)).nearest(100), read_values([16, 32, 64]).nearest(40)
        (96, 32)
        """
        value = min(max(wanted, self.low), self.high)
        if self.listed:
            place = bisect_left(self.listed, value)
            around = self.listed[max(place - 1, 0) : place + 1]
            value = min(around, key=lambda each: max(each, value) / max(min(each, value), 1e-9))
        elif self.step:
            value = self.low + self.step * round((value - self.low) / self.step)
        return int(value) if self.whole else value

    def __contains__(self, value: float) -> bool:
        return abs(self.nearest(value) - value) <= 1e-9 * abs(value)

    def __str__(self) -> str:
        if self.fixed or (self.listed and len(self.listed) < 5):
            return ", ".join(f"{value:g}" for value in self.listed or (self.low,))
        return f"{self.low:g} to {self.high:g}" + (f" by {self.step:g}" if self.step > 1 else "")


POWERS_OF_TWO = ValueSet(1, FAR, listed=tuple(2**power for power in range(61)))


def read_values(given: Any, name: str = "values") -> ValueSet:
    """Read what a user gives: a number, a pair ``(low, high)`` as a tuple, a range, or a list of all that there are.

    Examples
    --------
    >>> print(read_values((1.0, 8)), read_values(3), read_values([16, 32, 64]), sep="; ")
    1 to 8; 3; 16, 32, 64
    """
    if isinstance(given, ValueSet):
        return given
    if isinstance(given, range) and len(given) > 1:
        steps = given if given.step > 0 else given[::-1]
        return ValueSet(steps[0], steps[-1], steps.step)
    numbers: list[Any] = [given] if isinstance(given, Real) else list(given) if isinstance(given, Collection) else []
    if not numbers or not all(isinstance(n, Real) and isfinite(n) for n in numbers) or isinstance(given, str | Mapping):
        raise FootprintError(
            f"{name}={given!r:.80}: give a number, a pair (low, high), a range, or a list of the values it may have"
        )
    whole = all(isinstance(number, Integral) for number in numbers)
    told = [int(number) if whole else float(number) for number in numbers]
    if isinstance(given, tuple) and len(told) == 2 and told[0] < told[1]:
        return ValueSet(told[0], told[1], 1 if whole else 0, whole=whole)
    ordered = tuple(sorted(set(told)))
    return ValueSet(ordered[0], ordered[-1], listed=ordered if len(ordered) > 1 else (), whole=whole)


def read_lengths(axes: Mapping[Any, Any] | None, count: int) -> tuple[ValueSet | None, ...]:
    """Return the lengths that each of so many axes may have, None where any will do; nothing where none has a rule."""
    if not axes:
        return ()
    lengths: list[ValueSet | None] = [None] * count
    for axis, given in axes.items():
        if not isinstance(axis, int | np.integer) or not -count <= axis < count:
            raise FootprintError(f"axes={dict(axes)!r}: there are axes 0 to {count - 1}")
        values = read_values(given, f"axes[{axis}]")
        if not values.whole or values.low < 1:
            raise FootprintError(f"axes[{axis}]={given!r:.80}: lengths are whole numbers of at least 1")
        lengths[axis] = values
    return tuple(lengths)


def read_parameters(parameters: Mapping[str, Any] | None) -> tuple[tuple[str, ValueSet], ...]:
    """Return what each parameter may be, in the order of their names."""
    found = sorted((parameters or {}).items())
    return tuple((name, read_values(given, name)) for name, given in found)


def check_parameters(known: Sequence[tuple[str, ValueSet]], given: Mapping[str, Any], name: str) -> tuple[float, ...]:
    """Return the values of all parameters in their order; raise where one is missing or is no number."""
    if set(given) != {parameter for parameter, _ in known}:
        wanted = ", ".join(f"{parameter} ({values})" for parameter, values in known) or "none"
        raise FootprintError(
            f"{name}: give the parameters it was learned with, {wanted}, not {sorted(given) or 'none'}"
        )
    numbers: tuple[Any, ...] = tuple(given[parameter] for parameter, _ in known)
    for (parameter, _), number in zip(known, numbers, strict=True):
        if not isinstance(number, Real) or not isfinite(number):
            raise FootprintError(f"{name}: {parameter}={number!r:.80} is not a number")
    return tuple(map(float, numbers))
