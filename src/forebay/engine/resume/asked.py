"""What a caller asks of a reversal that survives, looked at before anything is run or written."""

from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

import numpy as np

from forebay.errors import PlanError, StateError
from forebay.machine.arrays.dispatch import NUMPY, array_library, view_of
from forebay.planner.make import check_step_costs
from forebay.schedule.segmented import check_count

Adjoint = Mapping[str, Any] | tuple[Callable[[BinaryIO], Any], Callable[[BinaryIO], Any]]
"""What the callbacks write: arrays by name, or what saves it into a file and loads it from one."""

_FORMS = "give a dict of arrays by name, which are written in place, or (save, load)"


def check_adjoint(adjoint: Any) -> None:
    """Refuse what progress cannot hold, or could not be loaded into again."""
    if adjoint is None:
        raise PlanError(
            "resume= needs adjoint=: name the arrays that the callbacks write, or give what saves and loads them; "
            "{} where there are none"
        )
    if isinstance(adjoint, Mapping):
        for name, array in adjoint.items():
            _check_array(name, array)
    elif not isinstance(adjoint, tuple | list):
        raise PlanError(f"adjoint= is a {type(adjoint).__name__}: {_FORMS}")
    elif len(adjoint) != 2 or not all(map(callable, adjoint)):
        raise PlanError(f"adjoint= is a {type(adjoint).__name__}, but not of two functions: {_FORMS}")


def bytes_of(adjoint: Adjoint | None) -> int:
    """Return the bytes of the arrays that an adjoint names; what a caller saves is known when it is saved."""
    return sum(view_of(array).nbytes for array in adjoint.values()) if isinstance(adjoint, Mapping) else 0


def check_options(options: Mapping[str, Any], steps: int) -> None:
    """Refuse options that say nothing a loop of so many steps can be cut by."""
    every, step_costs = options.get("every", 1), options.get("step_costs")
    check_count(every, "every")
    if every < 1:
        raise PlanError(f"every={every}: it must be at least 1")
    try:
        numbers = None if step_costs is None else [float(step_costs[step]) for step in range(len(step_costs))]
    except (TypeError, ValueError, KeyError) as error:
        raise PlanError(f"step_costs= has to be a list of one number for each step: {error}") from error
    check_step_costs(numbers, steps)


def _check_array(name: Any, array: Any) -> None:
    if not isinstance(name, str):
        raise PlanError(f"adjoint= has the name {name!r}: names of its arrays are texts")
    where, library = f"adjoint[{name!r}]", array_library(array)
    if library is NUMPY and (not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray)):
        raise PlanError(f"{where} is a {type(array).__name__}, which cannot be kept in place: {_FORMS}")
    try:
        view = view_of(array)
    except StateError as error:
        raise PlanError(f"{where}: {error}") from error
    if isinstance(view, np.ndarray) and not view.flags.writeable and not hasattr(array, "detach"):
        raise PlanError(f"{where} cannot be written to, so progress could not be loaded into it: {_FORMS}")
