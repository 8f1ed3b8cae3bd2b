"""Managed memory as the data of Devito's functions: one address for host and device, moved by the driver as needed."""

from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import c_void_p, sizeof
from typing import Any

from devito.data import allocators

from forebay.devito import managed
from forebay.devito.fields import forget
from forebay.devito.residency import adopting
from forebay.devito.support import on_device, warn_once

_ORDINARY = "Devito runs on a CPU here: unified memory is ordinary memory"


class UnifiedAllocator(allocators.PosixAllocator):  # type: ignore[misc]
    """Allocates the data of Devito's functions in managed memory: ``Function(..., allocator=UnifiedAllocator())``.

    Operators that are to use it in place are built inside `unified` or `resident`. Others copy it like any data, unless
    their compiler is told that memory is shared (clang's ``-fopenmp-force-usm``). On a CPU platform it allocates
    ordinary memory, and says so once.

    Parameters
    ----------
    oversubscribe : bool
        Whether more may be allocated than the device has room for, which then pages in and out, slowly.

    Examples
    --------
    >>> from devito import Function, Grid
    >>> import warnings
    >>> warnings.simplefilter("ignore")  # on a CPU, it says that this is ordinary memory
    >>> f = Function(name="f", grid=Grid(shape=(4, 4)), allocator=UnifiedAllocator())
    >>> f.data.shape
    (4, 4)
    """

    def __init__(self, oversubscribe: bool = False) -> None:
        super().__init__()
        self._oversubscribe = oversubscribe

    def _alloc_C_libcall(self, size: int, ctype: Any) -> Any:  # noqa: N802
        if not on_device():
            warn_once(_ORDINARY)
            return super()._alloc_C_libcall(size, ctype)
        pointer = c_void_p(managed.allocate(size * sizeof(ctype), self._oversubscribe))
        return pointer, (pointer,)

    def free(self, pointer: Any) -> None:
        """Free what was allocated, wherever that was."""
        if pointer.value in managed.MANAGED:
            forget(pointer.value)
            managed.free(pointer.value)
        else:
            super().free(pointer)


@contextmanager
def unified(*, oversubscribe: bool = False) -> Iterator[None]:
    """Allocate functions of Devito made inside in managed memory, and build operators inside to use it in place.

    Nothing is copied when such operators are called: pages move where they are touched, and stay there. ``u.data`` on
    the host is what the operators see. Leaving restores Devito's own allocator; functions keep their memory, and
    operators built inside are of use inside further `unified` or `resident` only. On a CPU platform this does nothing,
    and says so once.

    Parameters
    ----------
    oversubscribe : bool
        As for `UnifiedAllocator`.
    """
    if not on_device():
        warn_once(_ORDINARY)
        yield
        return
    with adopting(), _default(UnifiedAllocator(oversubscribe)):
        yield


@contextmanager
def _default(allocator: Any) -> Iterator[None]:
    registered = allocators.custom_allocators
    before = registered.get("default")
    registered["default"] = allocator
    try:
        yield
    finally:
        if before is None:
            del registered["default"]
        else:
            registered["default"] = before
