"""Which of its past an operator needs to run a time step: the arrays that make up a state."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from devito.ir.iet import Conditional, Expression, FindNodes
from devito.operations.interpolators import LinearInterpolator
from devito.symbolics import retrieve_indexed

from forebay.devito.support import DevitoError, data_of


class StateArray(NamedTuple):
    """One array of a state."""

    function: Any
    offset: int | None
    """time steps from the one about to be computed; None for a function without time"""


def state_arrays(operator: Any, arguments: Mapping[str, Any], descends: bool) -> dict[str, StateArray]:
    """Find what a step needs of those before it, by name."""
    added = _added_to(operator)
    state = {}
    for function in operator.writes:
        if function not in operator.reads and function not in added:
            continue  # written anew at each step, and again with the same values when steps are run again
        name, actual = function.name, arguments.get(function.name, function)
        if function.is_SparseTimeFunction:
            if function in added:
                raise DevitoError(
                    f"operator {operator.name} adds to {name} and would do so again whenever steps are run again: "
                    "have it overwritten instead"
                )
            continue  # a step finds what it or one before has written, whichever time it is run
        if isinstance(actual, np.ndarray):
            raise DevitoError(f"{name} is given as an array, of which the state cannot be taken: give a Function")
        if function.is_TimeFunction and function._time_buffering:
            for offset in _alive(operator, function, actual, arguments, descends):
                state[f"{name}[t{offset:+d}]" if offset else f"{name}[t]"] = StateArray(actual, offset)
        elif function.is_TimeFunction:
            raise DevitoError(f"{name} is saved at all times, so nothing need be recomputed: make it without save=")
        else:
            state[name] = StateArray(actual, None)
    if not state:
        raise DevitoError(f"operator {operator.name} carries nothing from step to step: there is nothing to reverse")
    return state


def _alive(operator: Any, function: Any, actual: Any, arguments: Mapping[str, Any], descends: bool) -> list[int]:
    """Return the times, from that of the step, whose slots a step may need: all, or all but the one that it fills."""
    size, back = actual.shape_allocated[0], 1 if descends else -1
    # What is written outside of the domain stays there until it is written again: it may be read before, in any slot.
    partial = _bounded(operator, function, arguments) or _spills(operator, function, arguments)
    filled = None if partial else _filled(operator, function, size)
    if filled is None:
        return [back * count for count in range(size)]
    return [filled + back * count for count in range(1, size)]


def _filled(operator: Any, function: Any, size: int) -> int | None:
    """Return the time whose slot a step overwrites everywhere before it reads any; None where there may be none."""
    conditionals = FindNodes(Conditional).visit(operator)
    guarded = {expression for node in conditionals for expression in FindNodes(Expression).visit(node)}
    # What is called may be called at any time: it counts as read before all that is written.
    read = {_shift(access, function) for call in _called(operator) for access in _accesses(call, function)}
    for expression in FindNodes(Expression).visit(operator):
        read |= {_shift(access, function) for access in _accesses(expression, function)}
        if None in read:
            return None
        if expression.write is function and not expression.is_reduction:
            written = _shift(expression.expr.lhs, function)
            if written is None:
                return None
            slots = {shift % size for shift in read if shift is not None}
            if written % size not in slots and expression not in guarded and _covers(expression, function):
                return written
    return None


def _covers(expression: Any, function: Any) -> bool:
    """Return whether an expression is computed at every point of a function's domain."""
    looped = {plain for interval in expression.expr.ispace.intervals for plain in _plain(interval.dim)}
    space = function.dimensions[1:]
    indices = expression.expr.lhs.indices[1:]
    return all(
        dimension in looped and any(getattr(symbol, "root", None) is dimension for symbol in index.free_symbols)
        for dimension, index in zip(space, indices, strict=True)
    )


def _plain(dimension: Any) -> Iterator[Any]:
    """Yield the dimension that a loop, or its loops over blocks, go all along; none where they leave points out."""
    while dimension.is_Block:
        dimension = dimension.parent
    if not dimension.is_Derived:
        yield dimension


def _bounded(operator: Any, function: Any, arguments: Mapping[str, Any]) -> bool:
    """Return whether loops end before the domain does, by arguments or because derivatives reach past the halo."""
    space = function.dimensions[1:]
    by_arguments = any(name in arguments for dimension in space for name in (dimension.min_name, dimension.max_name))
    return by_arguments or any(any(getattr(operator._dspace[dimension], "offsets", ())) for dimension in space)


def _spills(operator: Any, function: Any, arguments: Mapping[str, Any]) -> bool:
    """Return whether something is written outside of a function's domain, or added there by points."""
    expressions = [*FindNodes(Expression).visit(operator), *_called(operator)]
    beyond = [_beyond(expression, function) for expression in expressions if expression.write is function]
    if any(kind is True for kind in beyond):
        return True
    parents = {getattr(read, "parent", None) or read for read in operator.reads}
    only_written = {*operator.writes} - {*operator.reads}
    sparse = [parent for parent in parents if getattr(parent, "is_SparseFunction", False)]
    points = [arguments.get(parent.name, parent) for parent in sparse if parent not in only_written]
    return None in beyond and any(_leaves_the_domain(actual) for actual in points)


def _beyond(expression: Any, function: Any) -> bool | None:
    """Return whether an expression writes outside of a function's domain; None where that depends on points."""
    by_points = False
    indices, before = expression.expr.lhs.indices, function._size_nodomain.left
    for dimension, size, index, left in [*zip(function.dimensions, function.shape, indices, before, strict=True)][1:]:
        place = index - left
        if place.is_Integer:
            inside = 0 <= place < size
        elif expression.is_reduction and not any(
            getattr(symbol, "root", None) is dimension for symbol in index.free_symbols
        ):
            inside = by_points = True
        else:
            inside = getattr(place, "root", None) is dimension
        if not inside:
            return True
    return None if by_points else False


def _leaves_the_domain(points: Any) -> bool:
    """Return whether a point, or what is around it and gets a part of it, is outside of the grid."""
    grid, coordinates = points.grid, getattr(points, "coordinates", None)
    if coordinates is not None:
        origin, spacing = (np.asarray(values, points.dtype) for values in (grid.origin, grid.spacing))
        at = (data_of(coordinates) - origin) / spacing
    else:
        at = data_of(points.gridpoints)
    radii = points.r.values() if isinstance(points.r, Mapping) else [points.r]
    reach = 0 if isinstance(getattr(points, "interpolator", None), LinearInterpolator) else max(radii)
    return bool((np.floor(at) < reach).any() or (np.ceil(at) + reach >= np.asarray(grid.shape)).any())


def _shift(access: Any, function: Any) -> int | None:
    """Return the time of an access from that of the step; None where it is not a whole number of steps."""
    offset = getattr(access.indices[0], "offset", None)
    shift = None if offset is None else offset - function.time_dim.root
    return int(shift) if shift is not None and getattr(shift, "is_Integer", False) else None


def _accesses(expression: Any, function: Any) -> list[Any]:
    """List where an expression reads a function; one that adds reads what it adds to."""
    accesses = [access for access in retrieve_indexed(expression.expr.rhs) if access.function is function]
    adds = expression.is_reduction and expression.write is function
    return [*accesses, expression.expr.lhs] if adds else accesses


def _called(operator: Any) -> list[Any]:
    """List the expressions of the functions that an operator calls."""
    bodies = [call.root for call in operator._func_table.values() if call.root is not None]
    return [expression for body in bodies for expression in FindNodes(Expression).visit(body)]


def _added_to(operator: Any) -> set[Any]:
    """Find the functions of increments, which Devito does not count among those that are read."""
    expressions = [*FindNodes(Expression).visit(operator), *_called(operator)]
    return {expression.write for expression in expressions if expression.is_reduction}
