"""Time-stepping operators of Devito as the forward computation of a reversal."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from devito import Constant
from devito.ir.iet import FindNodes, Iteration
from devito.ir.support import Backward
from devito.operations.interpolators import SincInterpolator

from forebay.devito.fields import changes, settle
from forebay.devito.floating import loaded, restored
from forebay.devito.residency import shared, view
from forebay.devito.state import state_arrays
from forebay.devito.support import DevitoError, arrays_in, check_single, data_of


class OperatorRun:
    """An operator with its arguments, called for a few time steps at a time.

    Devito prepares and checks the arguments of every call anew, which takes longer than a step of a small problem. This
    does so once, and again where functions have come to the device or left it, or where points that are interpolated
    by sinc have moved. Each call checks that functions have the times asked for, and reads constants. The thread
    computes with denormal numbers afterwards if it did so before.

    Parameters
    ----------
    operator : devito.Operator
        It must have one loop over time, either way.
    **arguments
        As for ``operator.apply``, without those of time, and without ``autotune``.
    """

    def __init__(self, operator: Any, **arguments: Any) -> None:
        check_single()
        loops = [loop for loop in FindNodes(Iteration).visit(operator) if loop.dim.is_Time]
        if not loops:
            raise DevitoError(f"operator {operator.name} does not loop over time: there are no steps to run")
        if len(loops) > 1:  # each goes through all times of a call before the next begins
            raise DevitoError(f"operator {operator.name} has several loops over time: build one operator for each")
        self.operator, self._arguments = operator, arguments
        self._first, self._last = loops[0].dim.min_name, loops[0].dim.max_name
        self.descends = loops[0].direction is Backward
        times = [loops[0].dim, *(dimension for dimension in operator.dimensions if dimension.is_Time)]
        names = {name for time in times for name in (time.name, time.min_name, time.max_name)}
        if of_time := names & arguments.keys():
            raise DevitoError(f"{' and '.join(sorted(of_time))}: the steps are given when it runs, not before")
        if "autotune" in arguments:
            raise DevitoError("autotune: tuning may run steps twice; tune operator.apply, and give the sizes of blocks")
        self._changes = -1
        self._values: dict[str, Any] = {}
        self._limits: list[tuple[Any, int, Any]] = []
        self._constants = [parameter for parameter in operator.parameters if isinstance(parameter, Constant)]
        self._points: list[tuple[Any, Any]] = []
        self._environment: Any = None

    def __call__(self, start: int, stop: int) -> None:
        """Run times from ``start`` up to, not including, ``stop``, in the operator's own direction."""
        if stop <= start:
            return
        times = {self._first: start, self._last: stop - 1}
        if self._changes != changes() or any((at != before).any() for at, before in self._points):
            self._prepare(times)
        self._values |= times
        for constant in self._constants:
            self._values |= constant._arg_values(**self._arguments)
        for dimension, size, interval in self._limits:
            dimension._arg_check(self._values, size, interval)
        settle()
        values = [self._values[parameter.name] for parameter in self.operator.parameters]
        with restored(during=self._environment):
            status = self.operator.cfunction(*values)
        self.operator._postprocess_errors(status)

    def _prepare(self, times: dict[str, int]) -> None:
        """Check and lay out the arguments by Devito; of these, only times and constants will change."""
        operator = self.operator
        self._environment = loaded(operator)  # before memory is taken, like Devito does
        self._values = dict(operator.arguments(**self._arguments, **times, autotune="off"))
        self._limits = [
            (dimension, size, operator._dspace[function][dimension])
            for function, array in arrays_in(operator, self._values)
            for dimension, size in zip(function.dimensions, array.shape, strict=True)
            if dimension.is_Time and not dimension.is_Stepping
        ]
        # Devito works out their weights while it lays out the arguments.
        points = [read for read in operator.input if isinstance(getattr(read, "interpolator", None), SincInterpolator)]
        coordinates = [getattr(self._arguments.get(sinc.name), "coordinates", sinc.coordinates) for sinc in points]
        self._points = [(at := data_of(function), at.copy()) for function in coordinates]
        self._changes = changes()


class OperatorForward:
    """A time-stepping operator of Devito as ``forward(state, start, stop)`` for `forebay.reverse`.

    The state is what the operator both reads and writes. Of a `TimeFunction` these are the time slots that are alive
    before a step, by the names ``"u[t]"``, ``"u[t-1]"``, ..., each with halo and padding; of other functions, all. It
    lies where the operator computes: in NumPy arrays or, inside `resident` or `unified`, in CuPy arrays on the device.
    What a call returns are the operator's own arrays, not copies: they change with the next call. So a reversal is to
    begin from `state`, which copies.

    Parameters
    ----------
    operator : devito.Operator
        It must have one loop over time.
    first : int
        Devito's time of step 0. An operator that steps downwards in time goes on from there to smaller times.
    **arguments
        As for ``operator.apply``, without those of time.

    Examples
    --------
    >>> import forebay as fb
    >>> from devito import Eq, Grid, Operator, TimeFunction, configuration
    >>> configuration["log-level"] = "ERROR"
    >>> u = TimeFunction(name="u", grid=Grid(shape=(4, 4)))
    >>> forward = OperatorForward(Operator(Eq(u.forward, u + 1)))
    >>> values = []
    >>> def backward(state, step):
    ...     values.append(float(state["u[t]"].max()))
    >>> _ = fb.reverse(forward, backward, forward.state(), steps=5, budget="64kB")
    >>> values
    [4.0, 3.0, 2.0, 1.0, 0.0]
    """

    synchronous = True
    """operators have streams of their own and have ended when they return, as `forebay.reverse` then knows"""

    def __init__(self, operator: Any, *, first: int = 0, **arguments: Any) -> None:
        self._run = OperatorRun(operator, **arguments)
        self._first = first
        self._parts = state_arrays(operator, arguments, self._run.descends)
        self._own: dict[str, Any] = {}
        self._at: int | None = None  # the step that the arrays returned last are before
        self._whole: dict[str, Any] = {}
        self._changes = -1

    def __call__(self, state: Mapping[str, Any], start: int, stop: int) -> dict[str, Any]:
        """Advance a state from one step to another."""
        self.load(state, start)
        if self._run.descends:
            self._run(self.time(stop) + 1, self.time(start) + 1)
        else:
            self._run(self.time(start), self.time(stop))
        self._at, self._own = stop, self._arrays(stop)
        return self._own

    def time(self, step: int) -> int:
        """Return Devito's time of a step."""
        return self._first - step if self._run.descends else self._first + step

    def state(self, step: int = 0) -> dict[str, Any]:
        """Copy the state before a step from the operator's functions."""
        return {name: array.copy() for name, array in self._arrays(step).items()}

    def load(self, state: Mapping[str, Any], step: int) -> None:
        """Put a state, or what a record has of it, where operators find it when they run the step.

        In a backward computation, call it before an operator that reads the functions themselves. Nothing is copied of
        what is there already.
        """
        current = self._own if self._at == step else {}
        arrays = self._arrays(step)
        if unknown := [name for name in state if name not in arrays]:
            raise DevitoError(f"{', '.join(unknown)}: the state has {', '.join(arrays)}")
        stale = [name for name in state if not _is_view(state[name], current.get(name))]
        if stale:
            self._at, self._own = None, {}
        # Among them may be others of the operator's own arrays, which must not be overwritten before they are read.
        own = [name for name in stale if any(shared(state[name], whole) for whole in self._whole.values())]
        copies = {name: state[name].copy() for name in own}
        for name in stale:
            arrays[name][...] = copies.get(name, state[name])

    def _arrays(self, step: int) -> dict[str, Any]:
        """Return the operator's own arrays of the state before a step; slots go round."""
        if self._changes != changes():
            self._whole = {name: view(part.function) for name, part in self._parts.items()}
            self._changes = changes()
        time = self.time(step)
        return {
            name: whole if (offset := self._parts[name].offset) is None else whole[(time + offset) % len(whole)]
            for name, whole in self._whole.items()
        }


def _is_view(array: Any, own: Any) -> bool:
    """Tell whether an array is another, or a view of all of it, as backward is given one that it cannot write to."""
    if array is own:
        return True
    if not (isinstance(array, np.ndarray) and isinstance(own, np.ndarray)):
        return False
    mine, theirs = array.__array_interface__, own.__array_interface__
    return mine["data"][0] == theirs["data"][0] and (array.shape, array.strides) == (own.shape, own.strides)
