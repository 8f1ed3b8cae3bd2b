"""What codecs compute on the CPU, compiled by Numba."""

from collections.abc import Callable
from typing import Any, TypeVar

from forebay.compiled import kept
from forebay.errors import CodecError, needs

F = TypeVar("F", bound=Callable[..., Any])

NO_NUMBA = needs("what computes on the CPU", "Numba", "codecs")


def jit(function: F, **options: Any) -> F:
    """Compile a function for one thread that leaves the interpreter to the others, and keep the result."""
    try:
        return kept(function, nogil=True, **options)
    except ImportError as error:
        raise CodecError(NO_NUMBA) from error
