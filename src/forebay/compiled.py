"""Functions compiled by Numba and kept on disk, safely where several processes compile at once."""

from collections.abc import Callable
from secrets import token_hex
from typing import Any, TypeVar

from forebay.errors import ForebayError, needs

F = TypeVar("F", bound=Callable[..., Any])

OURS = token_hex(8)
"""In the names of the files that this process writes."""


def kept(function: F, **options: Any) -> F:
    """Compile a function when it is first called, and keep the result where Numba finds a place that it may write to.

    Numba numbers the files of a function's variants, and writes the list of them before the files, without a lock. So
    of two processes that compile at once, or one that is killed between the two, the list may name a file that holds
    another variant's code, and whoever reads it computes something else. With names that no other process uses, an
    entry that is lost only means compiling again.
    """
    try:
        from numba import njit
    except ImportError as error:
        raise ForebayError(needs("what computes on the CPU", "Numba", "codecs")) from error
    try:
        made = njit(cache=True, **options)(function)
        file = made._cache._cache_file
        file._data_name_pattern = file._data_name_pattern.replace("{number:d}", f"{{number:d}}-{OURS}")
    except (RuntimeError, AttributeError):  # there is no such place; or another Numba, whose files we do not know
        return njit(**options)(function)  # type: ignore[no-any-return]
    return made  # type: ignore[no-any-return]


def jit(function: F) -> F:
    """Compile a function for one thread that leaves the interpreter to the others, and keep the result."""
    return kept(function, nogil=True)
