"""Time-stepping operators of Devito as the forward computation of a reversal."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from devito.ir.iet import Expression, FindNodes, Iteration
from devito.ir.support import Backward

from penstock.devito.residency import changes, settle, view
from penstock.devito.support import DevitoError, arrays_in, check_single


class Run:
    """An operator with its arguments, called for a few time steps at a time.

    Devito prepares and checks the arguments of every call anew, which takes longer than a step of a small problem. This
    does so once, and again where functions have come to the device or left it; that functions have the times asked for
    is checked at each call.

    Parameters
    ----------
    operator : devito.Operator
        It must loop over time, either way.
    **arguments
        As for ``operator.apply``, without those of time.
    """

    def __init__(self, operator: Any, **arguments: Any) -> None:
        check_single()
        loops = [loop for loop in FindNodes(Iteration).visit(operator) if loop.dim.is_Time]
        if not loops:
            raise DevitoError(f"operator {operator.name} does not loop over time: there are no steps to run")
        self.operator, self._arguments = operator, arguments
        self._first, self._last = loops[0].dim.min_name, loops[0].dim.max_name
        self.descends = loops[0].direction is Backward
        if given := {self._first, self._last, loops[0].dim.name} & arguments.keys():
            raise DevitoError(f"{' and '.join(sorted(given))}: the steps are given when it runs, not before")
        self._changes = -1
        self._values: dict[str, Any] = {}
        self._limits: list[tuple[Any, int, Any]] = []

    def __call__(self, start: int, stop: int) -> None:
        """Run times from ``start`` up to, not including, ``stop``, in the operator's own direction."""
        if stop <= start:
            return
        times = {self._first: start, self._last: stop - 1}
        if self._changes != changes():
            self._prepare(times)
        self._values |= times
        for dimension, size, interval in self._limits:
            dimension._arg_check(self._values, size, interval)
        settle()
        values = [self._values[parameter.name] for parameter in self.operator.parameters]
        self.operator._postprocess_errors(self.operator.cfunction(*values))

    def _prepare(self, times: dict[str, int]) -> None:
        """Have Devito check and lay out the arguments; of these, only the times will change."""
        operator = self.operator
        assert operator.cfunction is not None  # compiled and loaded before memory is taken, like Devito does
        self._values = dict(operator.arguments(**self._arguments, **times))
        self._limits = [
            (dimension, size, operator._dspace[function][dimension])
            for function, array in arrays_in(operator, self._values)
            for dimension, size in zip(function.dimensions, array.shape, strict=True)
            if dimension.is_Time and not dimension.is_Stepping
        ]
        self._changes = changes()


class _Slot(NamedTuple):
    """One array of a state."""

    function: Any
    offset: int | None
    """time steps from the one about to be computed; None for a function without time"""


class Forward:
    """A time-stepping operator of Devito as ``forward(state, start, stop)`` for `penstock.reverse`.

    The state is what the operator both reads and writes: of a `TimeFunction`, the time slots that are alive before a
    step, by the names ``"u[t]"``, ``"u[t-1]"``, ..., each with halo and padding; of other functions, all. It lies where
    the operator computes, in NumPy arrays on the host or, inside `resident` or `unified`, in CuPy arrays on the device,
    and what comes back from a call are the operator's own arrays, not copies.

    Give ``synchronous=True`` to `penstock.reverse`: operators have streams of their own.

    Parameters
    ----------
    operator : devito.Operator
        It must loop over time.
    first : int
        Devito's time of step 0. An operator that steps downwards in time goes on from there to smaller times.
    **arguments
        As for ``operator.apply``, without those of time.

    Examples
    --------
    >>> import penstock as ps
    >>> from devito import Eq, Grid, Operator, TimeFunction, configuration
    >>> configuration["log-level"] = "ERROR"
    >>> u = TimeFunction(name="u", grid=Grid(shape=(4, 4)))
    >>> forward = Forward(Operator(Eq(u.forward, u + 1)))
    >>> seen = []
    >>> def backward(state, step):
    ...     seen.append(float(state["u[t]"].max()))
    >>> _ = ps.reverse(forward, backward, forward.state(), steps=5, budget="64kB", synchronous=True)
    >>> seen
    [4.0, 3.0, 2.0, 1.0, 0.0]
    """

    def __init__(self, operator: Any, *, first: int = 0, **arguments: Any) -> None:
        self._run = Run(operator, **arguments)
        self._first = first
        self._slots = _slots(operator, arguments, self._run.descends)
        self._given: dict[str, Any] = {}
        self._at: int | None = None  # the step that the arrays given out are before
        self._whole: dict[str, Any] = {}
        self._changes = -1

    def __call__(self, state: Mapping[str, Any], start: int, stop: int) -> dict[str, Any]:
        """Advance a state from one step to another."""
        self.load(state, start)
        if self._run.descends:
            self._run(self.time(stop) + 1, self.time(start) + 1)
        else:
            self._run(self.time(start), self.time(stop))
        self._at, self._given = stop, self._arrays(stop)
        return self._given

    def time(self, step: int) -> int:
        """Give Devito's time of a step."""
        return self._first - step if self._run.descends else self._first + step

    def state(self, step: int = 0) -> dict[str, Any]:
        """Copy the state before a step from the operator's functions."""
        return {name: array.copy() for name, array in self._arrays(step).items()}

    def load(self, state: Mapping[str, Any], step: int) -> None:
        """Put a state, or what a record has of it, where operators find it when they run the step.

        In a backward computation, call it before an operator that reads the functions themselves. Nothing is copied of
        what is there already.
        """
        given = self._given if self._at == step else {}
        arrays = self._arrays(step)
        if unknown := [name for name in state if name not in arrays]:
            raise DevitoError(f"{', '.join(unknown)}: the state has {', '.join(arrays)}")
        stale = [name for name in state if state[name] is not given.get(name)]
        if stale:
            self._at, self._given = None, {}
        for name in stale:
            arrays[name][...] = state[name]

    def _arrays(self, step: int) -> dict[str, Any]:
        """Give the operator's own arrays of the state before a step; slots go round."""
        if self._changes != changes():
            self._whole = {name: view(slot.function) for name, slot in self._slots.items()}
            self._changes = changes()
        time = self.time(step)
        return {
            name: whole if (offset := self._slots[name].offset) is None else whole[(time + offset) % len(whole)]
            for name, whole in self._whole.items()
        }


def _slots(operator: Any, arguments: Mapping[str, Any], descends: bool) -> dict[str, _Slot]:
    """Find what a step needs of those before it."""
    reads = {*operator.reads, *_added_to(operator)}
    slots = {}
    for function in operator.writes:
        if function not in reads:
            continue  # written anew at each step, and again with the same values when steps are run again
        name, actual = function.name, arguments.get(function.name, function)
        if function.is_TimeFunction and function._time_buffering:
            # The slot about to be written is dead, unless there are too few for one to spare.
            size = actual.shape_allocated[0]
            for back in range(min(size, max(function.time_order, size - 1))):
                offset = back if descends else -back
                slots[f"{name}[t{offset:+d}]" if offset else f"{name}[t]"] = _Slot(actual, offset)
        elif function.is_TimeFunction:
            raise DevitoError(f"{name} is saved at all times, so nothing need be recomputed: make it without save=")
        elif function.is_SparseFunction:
            raise DevitoError(
                f"operator {operator.name} adds to {name} and would do so again whenever steps are run again: "
                "have it overwritten instead"
            )
        else:
            slots[name] = _Slot(actual, None)
    if not slots:
        raise DevitoError(f"operator {operator.name} carries nothing from step to step: there is nothing to reverse")
    return slots


def _added_to(operator: Any) -> set[Any]:
    """Find the functions of increments, which Devito does not count among those that are read."""
    bodies = [operator, *(call.root for call in operator._func_table.values() if call.root is not None)]
    expressions = [expression for body in bodies for expression in FindNodes(Expression).visit(body)]
    return {expression.write for expression in expressions if expression.is_reduction}
