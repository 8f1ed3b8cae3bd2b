"""What of Devito is supported: where operators run, who compiles them, and which arrays its functions have."""

import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from devito import configuration
from devito.arch import Device, NvidiaDevice
from devito.arch.compiler import ClangCompiler
from numpy.typing import NDArray

from forebay.errors import ForebayError

SUPPORTED = "DEVITO_PLATFORM=nvidiaX DEVITO_LANGUAGE=openmp DEVITO_ARCH=clang, without MPI"


class DevitoError(ForebayError, RuntimeError):
    """An operator, a field or a set-up of Devito that cannot be used here; the message says what can."""


def on_device() -> bool:
    """Return whether Devito's operators run on a GPU, refusing set-ups whose runtime is not known here."""
    platform, language, compiler = (configuration[key] for key in ("platform", "language", "compiler"))
    if not isinstance(platform, Device):
        return False
    # Its subclasses are other vendors' compilers, with runtimes of their own.
    supported = isinstance(platform, NvidiaDevice) and language == "openmp" and type(compiler) is ClangCompiler
    if not supported or configuration["mpi"]:
        mpi = " and MPI" if configuration["mpi"] else ""
        raise DevitoError(
            f"Devito is set to platform {platform}, language {language}, compiler {compiler}{mpi}. "
            f"On a GPU this works with open-source Devito set to {SUPPORTED}"
        )
    return True


def check_single() -> None:
    """Refuse MPI, under which a function's array is only a part of it."""
    if configuration["mpi"]:
        raise DevitoError("Devito is set to use MPI (DEVITO_MPI), which is not supported here: run one process a shot")


@cache
def warn_once(message: str) -> None:
    """Warn, but not again for the same reason."""
    warnings.warn(message, stacklevel=4)


def functions_of(*arguments: Any) -> Iterator[Any]:
    """Yield the functions with one array each that functions consist of: components, coordinates, weights of points."""
    for argument in arguments:
        if getattr(argument, "is_AbstractTensor", False):
            yield from functions_of(*dict.fromkeys(argument.values()))
            continue
        function = getattr(argument, "function", None)
        if not getattr(function, "is_DiscreteFunction", False):
            raise DevitoError(
                f"{argument!r} is not a function of Devito with data: give Function, TimeFunction, Sparse..."
            )
        yield function
        parts = (getattr(function, name) for name in getattr(function, "_sub_functions", ()))
        yield from (part for part in parts if part is not None)


def data_of(function: Any) -> NDArray[Any]:
    """Return all of a function's data, halo and padding included, as a plain array."""
    array: NDArray[Any] = np.asarray(function._data_allocated)
    return array


def address_of(array: NDArray[Any]) -> int:
    """Return the address at which an array begins."""
    return int(array.ctypes.data)


def arrays_in(operator: Any, arguments: Any) -> Iterator[tuple[Any, NDArray[Any]]]:
    """Yield the functions of an operator and the arrays that it is about to be called with."""
    for parameter in operator.parameters:
        if getattr(parameter, "is_DiscreteFunction", False):
            yield parameter, arguments[parameter.name]._obj.underlying_array
