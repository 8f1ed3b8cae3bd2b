"""How a thread computes with floating-point numbers, which Devito's code changes for good: kept inside its calls.

Code compiled with ``-ffast-math`` makes the thread that loads it flush denormal numbers to zero from then on, in all
that it computes. On x86 every operator of Devito does so when it is called. What an operator computes depends on it, so
it runs as it would run by itself, and the thread is as it was afterwards.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_SIZE = 64  # bytes, of which C's fenv_t takes 8 to 32

_environments: dict[str, Any] = {}  # that operators left behind when they were loaded, by their library


def _library() -> Any:
    own = ctypes.CDLL(None)
    return own if hasattr(own, "fegetenv") else ctypes.CDLL("libm.so.6")


_libm = _library()


def environment() -> Any:
    """Return the floating-point environment of this thread."""
    current = ctypes.create_string_buffer(_SIZE)
    _libm.fegetenv(current)
    return current


@contextmanager
def restored(during: Any = None) -> Iterator[None]:
    """Leave this thread's environment as it is now, whatever happens inside, where another may be set."""
    before = environment()
    try:
        if during is not None:
            _libm.fesetenv(during)
        yield
    finally:
        _libm.fesetenv(before)


def loaded(operator: Any) -> Any:
    """Load an operator's code, and return the environment that Devito would run it in."""
    with restored():
        assert operator.cfunction is not None
        # A library changes the thread only when it is first loaded, so what it left then is remembered.
        return _environments.setdefault(str(operator._soname), environment())
