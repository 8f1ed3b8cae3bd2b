"""The fields that are on the device: which host arrays they stand for, and which operators may use them."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from devito.types.dense import SubFunction
from devito.types.dimension import MultiSubDimension
from numpy.typing import NDArray

from forebay.devito.managed import MANAGED, prefetch
from forebay.devito.runtime import runtime
from forebay.devito.support import DevitoError, address_of, arrays_in


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
        """Copy to the device what the host has."""
        if self.managed:
            prefetch(self.address, self.nbytes, to_device=True)
        else:
            runtime().upload(self.device, self.address, self.nbytes)

    def download(self) -> None:
        """Copy to the host what the device has."""
        if self.managed:
            prefetch(self.address, self.nbytes, to_device=False)
        else:
            runtime().download(self.address, self.device, self.nbytes)


on_device_fields: dict[int, Field] = {}  # by host address, like the table of the OpenMP runtime
_written: set[int] = set()
_tables: dict[tuple[int, str], ExitStack] = {}  # of operators, by operator and name
_scopes: list[tuple[ExitStack, bool]] = []  # that are open, and whether they adopt managed memory
_changes = 0
views: dict[int, Any] = {}
"""The arrays of the device that users may hold, by host address."""


def changes() -> int:
    """Count how often fields have come to the device or left it: what was checked before may hold no longer."""
    return _changes


@contextmanager
def scope(*, adopts: bool) -> Iterator[ExitStack]:
    """Open a scope, at the end of which the fields leave that came in it."""
    with ExitStack() as stack:
        entry = stack, adopts
        _scopes.append(entry)
        stack.callback(_scopes.remove, entry)
        yield stack


def place(name: str, host: NDArray[Any], owner: Any, stack: ExitStack) -> Field | None:
    """Associate an array with device memory until the stack closes; return None where it is there, or has no data."""
    address = address_of(host)
    if not host.nbytes or address in on_device_fields:
        return None
    device = address
    if address not in MANAGED:
        device = runtime().allocate(host.nbytes, name)
        stack.callback(runtime().free, device)
    return _associated(Field(name, address, host.nbytes, device, owner), stack)


def _associated(field: Field, stack: ExitStack) -> Field:
    global _changes
    runtime().associate(field.address, field.device, field.nbytes)
    on_device_fields[field.address] = field
    _changes += 1
    stack.callback(_leave, field)
    return field


def _leave(field: Field) -> None:
    """Bring a field home where an operator or a view may have written it, and forget it."""
    global _changes
    if on_device_fields.get(field.address) is not field:
        return  # its memory was given back before
    _changes += 1
    del on_device_fields[field.address]
    viewed = views.pop(field.address, None) is not None
    written = field.address in _written
    _written.discard(field.address)
    try:
        if viewed:
            wait()
        if (written or viewed) and not field.managed:
            field.download()
    finally:
        runtime().disassociate(field.address)


def find(host: NDArray[Any], name: str) -> Field | None:
    """Find a field on the device, taking in one of managed memory where a scope adopts these."""
    address = address_of(host)
    adopting = [stack for stack, adopts in _scopes if adopts]
    if address not in on_device_fields and address in MANAGED and adopting:
        _associated(Field(name, address, host.nbytes, address), adopting[-1]).upload()
    return on_device_fields.get(address)


def forget(address: int) -> None:
    """Part a field from the device whose memory is about to be given back."""
    if field := on_device_fields.get(address):
        _leave(field)


def admit(operator: Any, arguments: Any) -> None:
    """Refuse an operator unless it runs on fields of the device without transfers, or on others with them."""
    used = [(function, array) for function, array in arrays_in(operator, arguments) if array.nbytes]
    if operator._options.get("place-transfers", True):
        if resident := [function.name for function, array in used if address_of(array) in on_device_fields]:
            raise DevitoError(
                f"operator {operator.name} was built with transfers, but {', '.join(resident)} stays on the device: "
                "build it inside `with resident(...)` or `with unified()`, or use view(...) instead of it"
            )
        return
    missing = [(function, array) for function, array in used if find(array, function.name) is None]
    tables = [(function, array) for function, array in missing if _is_table(operator, function)] if _scopes else []
    if named := [function.name for function, _ in missing if function.name not in [table.name for table, _ in tables]]:
        raise DevitoError(
            f"operator {operator.name} was built without transfers, but {', '.join(named)} is not on the device: name "
            "it in resident(...), and call the operator inside of that. Operators on functions that do not stay, "
            "also those of Devito's norm, gaussian_smooth and the like, are built in `with outside():`"
        )
    device = arguments.get("deviceid", -1)
    if device not in (-1, runtime().device):
        raise DevitoError(f"deviceid={device}, but the fields are on device {runtime().device}: leave it out")
    for function, array in tables:
        _carry(operator, function.name, array)
    writes = {function.name for function in operator.writes}
    _written.update(address_of(array) for function, array in used if function.name in writes)
    settle()


def _is_table(operator: Any, function: Any) -> bool:
    """Return whether Devito made a function for its own use: weights and maps of points, or bounds of subdomains."""
    bounds = [dimension.functions for dimension in operator.dimensions if isinstance(dimension, MultiSubDimension)]
    return function not in operator.writes and (isinstance(function, SubFunction) or function in bounds)


def _carry(operator: Any, name: str, array: NDArray[Any]) -> None:
    """Place a table, in the stead of the one that the operator was called with before: Devito may make it anew."""
    key = id(operator), name
    if key in _tables:
        _tables.pop(key).close()
    else:
        _scopes[-1][0].callback(lambda: _tables.pop(key).close())
    _tables[key] = stack = ExitStack()
    # The owner keeps the address, and the key, from being those of something else.
    if field := place(name, array, (operator, array), stack):
        field.upload()


def settle() -> None:
    """Wait for what CuPy does with views, if there are any: operators run on streams of their own."""
    if views:
        wait()


def wait() -> None:
    """Wait for CuPy's current stream."""
    if (cupy := sys.modules.get("cupy")) is not None:
        cupy.cuda.get_current_stream().synchronize()
