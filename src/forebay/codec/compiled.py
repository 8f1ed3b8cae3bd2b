"""What codecs compute on the CPU, compiled by Numba."""

from collections.abc import Callable
from typing import Any, TypeVar

from numpy.typing import NDArray

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


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Return a view that cannot be written: whoever lends the array, it is of one type to the compiler."""
    view = array.view()
    view.flags.writeable = False
    return view
