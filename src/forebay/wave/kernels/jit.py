"""Compiling the loops of waves with Numba."""

from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.compiled import apart, kept
from forebay.errors import WaveError, needs

try:
    from numba import prange as prange
except ImportError as error:
    raise WaveError(needs("computing waves", "numba", "wave")) from error


def jit(*, parallel: bool = False, lone: bool = False) -> Callable[[Any], Any]:
    """Compile a function, and keep the result on disk where Numba finds a place that it may write to.

    Products and sums are fused where the processor can; beyond that nothing is reordered, so the same loop gives the
    same bits each time. A function must not close over other compiled ones, which differ from process to process and
    would never be found on disk again. A `lone` one writes no value that it reaches by another of its arrays: it is
    not asked whether they overlap.
    """
    options: dict[str, Any] = {
        "nogil": True,
        "error_model": "numpy",
        "fastmath": {"contract"},
        "parallel": parallel,
    }
    if lone:
        options["pipeline_class"] = apart()

    def compile_(function: Any) -> Any:
        # On disk a function is found by its name, not by its options.
        named = FunctionType(
            function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
        )
        named.__qualname__ = f"{function.__qualname__}-{'parallel' if parallel else 'serial'}"
        named.__doc__ = function.__doc__
        return kept(named, **options)

    return compile_


def writable(array: NDArray[Any]) -> NDArray[Any]:
    """Return the same memory as an array that could be written, for loops that do not: one type for the compiler."""
    return array if array.flags.writeable else np.asarray(_Writable(array))


class _Writable:
    """Tells NumPy of an array's memory without saying that it must not be written; whoever looks keeps the array."""

    def __init__(self, array: NDArray[Any]) -> None:
        self._array = array
        about = array.__array_interface__
        self.__array_interface__ = {**about, "data": (about["data"][0], False)}


def jits(function: Any) -> Sequence[Any]:
    """Compile a function twice: for one thread, and, at index 1 or True, for several."""
    return jit()(function), jit(parallel=True)(function)
