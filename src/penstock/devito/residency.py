"""Fields that stay on the device: associated once, handed to operators without copies, brought home at the end."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.cuda.arrays import View
from penstock.devito.building import building_without_transfers
from penstock.devito.managed import MANAGED, prefetch
from penstock.devito.runtime import runtime
from penstock.devito.support import DevitoError, address_of, arrays_in, data_of, functions_of, on_device, say_once


@dataclass(frozen=True)
class Field:
    """A function of Devito whose data is on the device."""

    name: str
    address: int
    """where it begins on the host, which is what the OpenMP runtime knows it by"""
    nbytes: int
    device: int
    """where it is on the device; in managed memory, where it is on the host"""
    owner: Any = None
    """what holds the memory and must not go away, or None where it may: managed memory is parted when it is freed"""

    @property
    def managed(self) -> bool:
        """Whether the same memory is that of the host and of the device."""
        return self.device == self.address

    def upload(self) -> None:
        """Let the device have what the host has."""
        if self.managed:
            prefetch(self.address, self.nbytes, to_device=True)
        else:
            runtime().upload(self.device, self.address, self.nbytes)

    def download(self) -> None:
        """Let the host have what the device has."""
        if self.managed:
            prefetch(self.address, self.nbytes, to_device=False)
        else:
            runtime().download(self.address, self.device, self.nbytes)


_fields: dict[int, Field] = {}  # by host address, like the table of the OpenMP runtime
_written: set[int] = set()
_views: dict[int, Any] = {}
_changes = 0


def changes() -> int:
    """Count how often fields have come to the device or left it: what was checked before may hold no longer."""
    return _changes


@contextmanager
def resident(*functions: Any) -> Iterator[None]:
    """Keep functions of Devito on the device for the length of a ``with`` block.

    Their data is copied to the device once. Operators built inside are generated without transfers, compute on the
    device's copy, and may share it; those built before are refused, because they would copy everything at each call.
    Leaving, also by an exception, brings home what was written and leaves Devito as it was. On the host, data stands
    still meanwhile: `sync_host` and `sync_device` move it when it is wanted. Blocks nest.

    On a CPU platform there is nothing to keep: everything works as without, and a warning says so once.

    Parameters
    ----------
    *functions
        Functions of any kind, vectors and tensors too; sparse ones bring their coordinates and weights. Every function
        that an operator uses must be on the device; constants need not be.

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
        say_once("Devito runs on a CPU here: resident() has nothing to keep on a device, and does nothing")
        yield
        return
    runtime()  # it builds an operator, which needs its transfers
    with ExitStack() as held:
        arrived = [field for function in named if (field := _placed(function, held)) is not None]
        for field in arrived:
            field.upload()
        held.enter_context(building_without_transfers(admit))
        yield


def _placed(function: Any, held: ExitStack) -> Field | None:
    """Give a function its place on the device and the ways back; None where it has one, or no data."""
    host = data_of(function)
    address = address_of(host)
    if not host.nbytes or address in _fields:
        return None
    device = address
    if address not in MANAGED:
        device = runtime().allocate(host.nbytes, function.name)
        held.callback(runtime().free, device)
    return _associated(Field(function.name, address, host.nbytes, device, function), held)


def _associated(field: Field, held: ExitStack) -> Field:
    global _changes
    runtime().associate(field.address, field.device, field.nbytes)
    _fields[field.address] = field
    _changes += 1
    held.callback(_leave, field)
    return field


def _leave(field: Field) -> None:
    """Bring a field home where an operator or a view may have written it, and forget it."""
    global _changes
    if _fields.get(field.address) is not field:
        return  # its memory was given back before
    _changes += 1
    del _fields[field.address]
    seen = _views.pop(field.address, None) is not None
    written = field.address in _written
    _written.discard(field.address)
    try:
        if seen:
            _wait()
        if (written or seen) and not field.managed:
            field.download()
    finally:
        runtime().disassociate(field.address)


def admit(operator: Any, arguments: Any) -> None:
    """Let an operator run on fields of the device without transfers, or on others with them, and nothing between."""
    given = [(function, array, address_of(array)) for function, array in arrays_in(operator, arguments) if array.nbytes]
    if operator._options.get("place-transfers", True):
        if resident_ones := [function.name for function, _, address in given if address in _fields]:
            raise DevitoError(
                f"operator {operator.name} was built with transfers, but {', '.join(resident_ones)} stays on the "
                "device: build it inside the `with resident(...)` or `with unified()` block"
            )
        return
    if missing := [function.name for function, array, _ in given if _field(array, function.name) is None]:
        raise DevitoError(
            f"operator {operator.name} was built without transfers, but {', '.join(missing)} is not on the device: "
            "name it in resident(...), call the operator inside that block, and build outside what uses other functions"
        )
    device = arguments.get("deviceid", -1)
    if device not in (-1, runtime().device):
        raise DevitoError(f"deviceid={device}, but the fields are on device {runtime().device}: leave it out")
    writes = {function.name for function in operator.writes}
    _written.update(address for function, _, address in given if function.name in writes)
    settle()


_adopting: list[ExitStack] = []


@contextmanager
def adopting() -> Iterator[None]:
    """Take any function in managed memory onto the device when an operator first uses it."""
    runtime()
    with ExitStack() as held:
        _adopting.append(held)
        held.callback(_adopting.remove, held)
        held.enter_context(building_without_transfers(admit))
        yield


def view(function: Any) -> Any:
    """Give a function's data where operators use it: a CuPy array on the device, or a NumPy array on the host.

    It is all of the data: halo and padding are part of it, as are all time slots.

    Work of CuPy on it is waited for, on CuPy's current stream, before an operator runs; operators have ended when they
    return. It is not to be used after the function has left the device.
    """
    function = next(functions_of(function))
    host = data_of(function)
    field = _field(host, function.name)
    if field is None:
        return host
    if field.address not in _views:
        _views[field.address] = _array_at(field.device, host.shape, host.dtype)
    return _views[field.address]


def _field(host: NDArray[Any], name: str) -> Field | None:
    """Find a field on the device, taking in one of managed memory where these are taken in."""
    address = address_of(host)
    if address not in _fields and _adopting and address in MANAGED:
        _associated(Field(name, address, host.nbytes, address), _adopting[-1]).upload()
    return _fields.get(address)


def forget(address: int) -> None:
    """Part a field from the device whose memory is about to be given back."""
    if field := _fields.get(address):
        _leave(field)


def _array_at(pointer: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    import cupy

    return cupy.asarray(View.at(pointer, shape, dtype))


def settle() -> None:
    """Wait for what CuPy does with views, if any were given out: operators run on streams of their own."""
    if _views:
        _wait()


def _wait() -> None:
    if (cupy := sys.modules.get("cupy")) is not None:
        cupy.cuda.get_current_stream().synchronize()


def sync_host(*functions: Any) -> None:
    """Copy functions from the device to the host, to look at ``u.data`` inside a `resident` block."""
    for field in _resident_fields(functions, "sync_host"):
        settle()
        field.download()


def sync_device(*functions: Any) -> None:
    """Copy functions from the host to the device, after ``u.data[:] = ...`` inside a `resident` block."""
    for field in _resident_fields(functions, "sync_device"):
        field.upload()


def _resident_fields(functions: tuple[Any, ...], who: str) -> list[Field]:
    found = []
    for function in functions_of(*functions):
        host = data_of(function)
        if (field := _field(host, function.name)) is not None:
            found.append(field)
        elif host.nbytes and on_device():
            raise DevitoError(f"{who}: {function.name} is not on the device; name it in resident(...)")
    return found
