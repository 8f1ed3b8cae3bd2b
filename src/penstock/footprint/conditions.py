"""What a footprint belongs to: a function's source, versions of libraries, a kind of machine, a way to measure."""

import hashlib
import inspect
import os
import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

from penstock.footprint.measure.command import Command
from penstock.footprint.process import MMAP_THRESHOLD


@dataclass(frozen=True)
class Conditions:
    """All that may change a footprint without a change of shape."""

    how: str
    """how peaks were measured"""
    exact: bool
    resolution: int
    source: str
    """hash of the function's source and of the functions of its own package that it calls"""
    versions: dict[str, str] = field(default_factory=dict)
    machine: str = field(default_factory=lambda: f"{platform.system()} {platform.machine()}")
    gpu: str | None = None
    page: int = field(default_factory=lambda: os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096)
    mmap_threshold: int = MMAP_THRESHOLD
    """MALLOC_MMAP_THRESHOLD_ of the process in which samples ran; set it so where the function runs too"""

    def changes(
        self, function: Callable[..., Any] | None = None, gpu: str | None = None, command: str | None = None
    ) -> list[str]:
        """List what is no longer as it was when the footprint was learned."""
        found = [
            f"{name} was {old} and is {now}" for name, old in self.versions.items() if (now := _version(name)) != old
        ]
        here = f"{platform.system()} {platform.machine()}"
        if here != self.machine:
            found.append(f"the machine was {self.machine} and is {here}")
        if gpu is not None and gpu != self.gpu:
            found.append(f"the GPU was {self.gpu} and is {gpu}")
        if function is not None and source_hash(function) != self.source:
            found.append("the source of the function has changed, or what it holds on to")
        if command is not None and command_hash(command) != self.source:
            found.append("the command or its program has changed")
        return found


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "missing"


def source_hash(function: Callable[..., Any]) -> str:
    """Hash the source of a function and of the functions of its own package that it reaches by name.

    Examples
    --------
    >>> source_hash(source_hash) == source_hash(source_hash) != source_hash(_version)
    True
    """
    told = hashlib.sha256()
    for text in sources(function):
        told.update(text.encode() + b"\0")
    return told.hexdigest()


def command_hash(line: str) -> str:
    """Hash a command line with the program that it starts."""
    path = Command(line).executable()
    program = hashlib.sha256(path.read_bytes()).hexdigest() if path else ""
    return hashlib.sha256(f"{line}\0{program}".encode()).hexdigest()


def sources(function: Callable[..., Any]) -> Iterator[str]:
    """Yield the source of a function, then of those it reaches; of what has no source, what it is called.

    What a function holds on to (fixed arguments, defaults, variables around it, constants of its module, the object
    that it is a method of) is told too, where it is a plain value.
    """
    waiting: list[Any] = [function]
    seen: set[int] = set()
    while waiting:
        one = waiting.pop(0)
        while isinstance(one, partial):
            yield repr((_told(one.args), _told(dict(sorted(one.keywords.items())))))
            one = one.func
        if isinstance(one, MethodType):
            yield _told(getattr(one.__self__, "__dict__", {}))
            one = one.__func__
        one = inspect.unwrap(one) if callable(one) else one
        if id(one) in seen:
            continue
        seen.add(id(one))
        if not isinstance(one, FunctionType):
            yield f"{getattr(one, '__module__', '')}.{getattr(one, '__qualname__', type(one).__qualname__)}"
            if isinstance(called := vars(type(one)).get("__call__"), FunctionType):
                yield _told(getattr(one, "__dict__", {}))
                waiting.append(called)
            continue
        try:
            yield inspect.getsource(one)
        except (OSError, TypeError):
            yield repr((one.__code__.co_code, one.__code__.co_names))
        around = dict(zip(one.__code__.co_freevars, map(_content, one.__closure__ or ()), strict=True))
        yield _told([one.__defaults__, one.__kwdefaults__])
        home = one.__module__.partition(".")[0] if one.__module__ else ""
        for name in sorted(_names(one.__code__)):
            used = around.get(name, one.__globals__.get(name))
            if isinstance(used, FunctionType) and (used.__module__ or "").partition(".")[0] == home:
                waiting.append(used)
            elif name in around or isinstance(used, PLAIN | tuple):
                yield f"{name} = {_told(used)}"


PLAIN = int | float | complex | str | bytes | None


def _told(value: Any) -> str:
    """Tell a value so that it reads the same in every process: plain ones whole, of others only what they are."""
    if isinstance(value, PLAIN):
        return repr(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {_told(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_told, value)) + "]"
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
