"""The source that a function's memory hangs on: its own, and that of what it calls in its own package."""

import inspect
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, partial
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

PLAIN = int | float | complex | str | bytes | None


def sources(function: Callable[..., Any]) -> Iterator[str]:
    """Yield the source of a function, then of those it reaches; of what has no source, what it is called.

    Functions are found by the names that code uses: among the variables of its module, as attributes of the modules
    and classes of its package found there, of the class it is a method of, and of those of the objects that this holds.
    What a function holds on to (fixed arguments, defaults, variables around it, constants of its module, the object
    that it is a method of) is told too, where it is a plain value.
    """
    waiting: list[tuple[Any, tuple[type, ...]]] = [(function, ())]
    visited: set[tuple[int, tuple[type, ...]]] = set()
    while waiting:
        reached, owners = waiting.pop(0)
        while isinstance(reached, partial):
            yield repr((_text(reached.args), _text(dict(sorted(reached.keywords.items())))))
            reached = reached.func
        if isinstance(reached, MethodType):
            yield _text(getattr(reached.__self__, "__dict__", {}))
            owners = _classes(reached.__self__)
            reached = reached.__func__
        reached = inspect.unwrap(reached) if callable(reached) else reached
        if (id(reached), owners) in visited:
            continue
        visited.add((id(reached), owners))
        if not isinstance(reached, FunctionType):
            yield f"{getattr(reached, '__module__', '')}.{getattr(reached, '__qualname__', type(reached).__qualname__)}"
            if isinstance(called := inspect.getattr_static(type(reached), "__call__", None), FunctionType):
                yield _text(getattr(reached, "__dict__", {}))
                waiting.append((called, _classes(reached)))
            continue
        try:
            yield inspect.getsource(reached)
        except (OSError, TypeError):
            yield repr((reached.__code__.co_code, reached.__code__.co_names))
        yield _text([reached.__defaults__, reached.__kwdefaults__])
        for name, used, classes in _reached(reached, owners):
            if isinstance(used, FunctionType):
                waiting.append((used, classes))
            else:
                yield f"{name} = {_text(used)}"


def _reached(function: FunctionType, owners: tuple[type, ...]) -> Iterator[tuple[str, Any, tuple[type, ...]]]:
    """Yield what a function finds by name: the functions of its package, with their classes, and plain values."""
    home = _home(function.__module__)
    names = sorted(_names(function.__code__))
    around = dict(zip(function.__code__.co_freevars, map(_content, function.__closure__ or ()), strict=True))
    places: list[Any] = [owner for owner in owners if _home(owner.__module__) == home]
    for name in names:
        used = around.get(name, function.__globals__.get(name))
        if isinstance(used, ModuleType | type):
            places.append(used)
        elif isinstance(used, FunctionType):
            if _home(used.__module__) == home:
                yield name, used, ()
        elif name in around or isinstance(used, PLAIN | tuple):
            yield name, used, ()
    looked: list[Any] = []
    while places:  # modules lead to further modules and to classes
        place = places.pop(0)
        at_home = _home(place.__name__ if isinstance(place, ModuleType) else place.__module__) == home
        if not at_home or any(place is other for other in looked):
            continue
        looked.append(place)
        owns = (place,) if isinstance(place, type) else ()
        for name in (*names, "__init__", "__call__") if owns else names:
            used = _plain_function(inspect.getattr_static(place, name, None))
            if isinstance(used, ModuleType | type):
                places.append(used)
            elif isinstance(used, FunctionType):
                if _home(used.__module__) == home:
                    yield name, used, owns or ()
            elif used is not None and isinstance(used, PLAIN | tuple):
                yield name, used, ()


def _plain_function(member: Any) -> Any:
    """Return the function inside a descriptor of a class."""
    if isinstance(member, staticmethod | classmethod):
        return member.__func__
    if isinstance(member, property):
        return member.fget
    return member.func if isinstance(member, cached_property) else member


def _classes(thing: Any) -> tuple[type, ...]:
    """Return the class of an object, or a class itself, and the classes of what it holds."""
    if isinstance(thing, type):
        return (thing,)
    held: Iterable[Any] = getattr(thing, "__dict__", {}).values()
    return tuple(dict.fromkeys([type(thing), *(type(each) for each in held)]))


def _home(module: str | None) -> str:
    return (module or "").partition(".")[0]


def _text(value: Any) -> str:
    """Write a value out so that it reads the same in every process: plain ones whole, of others only what they are."""
    if isinstance(value, PLAIN):
        return repr(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {_text(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_text, value)) + "]"
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    return getattr(value, "__qualname__", type(value).__qualname__) + (f" {dtype} {shape}" if shape is not None else "")


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a variable that is bound later
        return None


def _names(code: CodeType) -> set[str]:
    """Collect the names from outside that code uses, in nested functions too."""
    nested = (part for part in code.co_consts if isinstance(part, CodeType))
    return set(code.co_names).union(code.co_freevars, *map(_names, nested))
