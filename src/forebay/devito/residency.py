"""Fields that stay on the device: associated once, handed to operators without copies, brought home at the end."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from forebay.cuda.arrays import View
from forebay.cuda.available import INSTALL
from forebay.devito.building import building_without_transfers
from forebay.devito.fields import Field, find, on_device_fields, place, scope, settle, views
from forebay.devito.managed import MANAGED
from forebay.devito.runtime import runtime
from forebay.devito.support import DevitoError, address_of, data_of, functions_of, on_device, warn_once


@contextmanager
def resident(*functions: Any) -> Iterator[None]:
    """Keep functions of Devito on the device inside a ``with`` statement.

    Their data is copied to the device once. Operators built inside are generated without transfers, compute on the
    device's copy, and may share it. Those built before are refused: they would copy everything at each call.
    Leaving, also by an exception, brings home what was written and leaves Devito as it was. On the host, data stands
    still: `sync_host` and `sync_device` move it when it is wanted. Uses of `resident` nest.

    On a CPU platform there is nothing to keep: everything works as without, and a warning says so once.

    Parameters
    ----------
    *functions
        Functions of any kind, vectors and tensors too; sparse ones bring their coordinates and weights. Every function
        that an operator uses must be on the device; constants need not be, nor what Devito makes for itself. `outside`
        is for operators on other functions.

    Examples
    --------
    >>> import warnings
    >>> from devito import Eq, Grid, Operator, TimeFunction, configuration
    >>> configuration["log-level"] = "ERROR"
    >>> warnings.simplefilter("ignore")  # on a CPU, it says that there is nothing to do
    >>> u = TimeFunction(name="u", grid=Grid(shape=(4, 4)))
    >>> with resident(u):
    ...     step = Operator(Eq(u.forward, u + 1))
    ...     for time in range(10):
    ...         _ = step.apply(time_m=time, time_M=time)
    >>> float(u.data[0, 0, 0])
    10.0
    """
    named = list(functions_of(*functions))
    if not on_device():
        warn_once("Devito runs on a CPU here: resident() has nothing to keep on a device, and does nothing")
        yield
        return
    runtime()  # it builds an operator, which needs its transfers
    with scope(adopts=False) as stack:
        placed = [place(function.name, data_of(function), function, stack) for function in named]
        for field in placed:
            if field is not None:
                field.upload()
        stack.enter_context(building_without_transfers())
        yield


@contextmanager
def adopting() -> Iterator[None]:
    """Adopt functions in managed memory as fields when an operator first uses them."""
    runtime()
    with scope(adopts=True) as stack:
        stack.enter_context(building_without_transfers())
        yield


def view(function: Any) -> Any:
    """Return a function's data where operators use it: a CuPy array on the device, or a NumPy array on the host.

    It is all of the data: halo and padding are part of it, as are all time slots.

    Work of CuPy on it is waited for, on CuPy's current stream, before an operator runs; operators have ended when they
    return. It is not to be used after the function has left the device.
    """
    function = next(functions_of(function))
    host = data_of(function)
    field = find(host, function.name)
    if field is None:
        return host
    if field.address not in views:
        views[field.address] = _array_at(field.device, host.shape, host.dtype)
    return views[field.address]


def _array_at(pointer: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    try:
        import cupy
    except ModuleNotFoundError as error:
        raise DevitoError(f"views of the device, and states on it, are CuPy's arrays: {INSTALL}") from error
    return cupy.asarray(View.at(pointer, shape, dtype))


def shared(array: Any, whole: Any) -> bool:
    """Return whether an array may lie in the memory of another, which is NumPy's or CuPy's."""
    library = sys.modules[type(whole).__module__.partition(".")[0]]
    return isinstance(array, type(whole)) and bool(library.may_share_memory(array, whole))


def sync_host(*functions: Any) -> None:
    """Copy functions from the device to the host, to look at ``u.data`` inside `resident`."""
    fields = _fields_of(functions, "sync_host")
    settle()
    for field in fields:
        field.download()


def sync_device(*functions: Any) -> None:
    """Copy functions from the host to the device, after ``u.data[:] = ...`` inside `resident`."""
    fields = _fields_of(functions, "sync_device")
    settle()  # what CuPy still does with a view would come on top
    for field in fields:
        field.upload()


def _fields_of(functions: tuple[Any, ...], who: str) -> list[Field]:
    fields = []
    for function in functions_of(*functions):
        host = data_of(function)
        address = address_of(host)
        if (field := on_device_fields.get(address)) is not None:
            fields.append(field)
        elif address in MANAGED:  # no operator has used it yet, but its pages are somewhere
            fields.append(Field(function.name, address, host.nbytes, address))
        elif host.nbytes and on_device():
            raise DevitoError(f"{who}: {function.name} is not on the device; name it in resident(...)")
    return fields
