"""One allocator of managed, pooled memory behind several libraries."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

from penstock.errors import BudgetError, DeviceError
from penstock.memory import adopt, guard, resources
from penstock.memory.resources import Stack
from penstock.tier.capacity import host_capacity
from penstock.units import to_bytes

_active: "list[Unified]" = []


@dataclass(eq=False)
class Unified:
    """Unified memory as it was set up; made by `unify`.

    As a context manager it restores what was there before.
    """

    libraries: tuple[str, ...]
    limit: int | None
    """bytes that may be handed out; None where there is no limit"""
    stack: Stack
    counted: dict[str, Any]
    """RMM's statistics of each library"""
    _undo: list[Callable[[], None]] = field(default_factory=list)

    def restore(self) -> None:
        """Put back what was there before; again is no error."""
        while self._undo:
            self._undo.pop()()
        if self in _active:
            _active.remove(self)

    def buffer(self, nbytes: str | int) -> Any:
        """Give plain device memory from the pool kept apart, which can be sent to other processes by CUDA IPC.

        It is an array to CuPy and torch: ``cupy.asarray(unified.buffer("1MB"))``.
        """
        if self.stack.plain is None:
            raise BudgetError("no plain device memory was kept: give unify(comm_pool='256MB')")
        return resources.rmm().DeviceBuffer(size=to_bytes(nbytes), mr=self.stack.plain)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.restore()


def unify(
    *libraries: str,
    pool: bool = True,
    prefetch: bool = True,
    limit: str | int | None = None,
    spill: str | None = None,
    oversubscribe: bool = False,
    comm_pool: str | int | None = None,
) -> Unified:
    """Put one allocator of managed memory behind libraries that compute on the GPU.

    Managed memory is reached by host and device alike, and moves between them by pages. It takes effect at once, and
    lasts; used in a ``with`` statement, until the end of the block. Call it before torch and Numba make their first
    array: they take up an allocator only then.

    Parameters
    ----------
    *libraries
        ``"cupy"``, ``"torch"``, ``"numba"`` or ``"cudf"``.
    pool
        Keep memory for the next allocation, instead of asking the driver each time.
    prefetch
        Put pages on the device when they are taken from the driver, instead of faulting them in.
    limit
        Bytes that may be handed out; without it, what the device has free.
    spill
        With ``"host"``, what exceeds the limit goes to pinned host memory, which kernels reach over the link, instead
        of failing.
    oversubscribe
        Allow a limit above what the device has free. Pages are then evicted and faulted in again, which is slow.
    comm_pool
        Bytes of plain device memory kept apart: managed memory cannot be sent to other processes by CUDA IPC.

    Returns
    -------
    Unified
        What was set up, to restore what was there.
    """
    if not libraries:
        raise DeviceError(f"name the libraries to unify: {', '.join(adopt.LIBRARIES)}")
    adopt.check(libraries)
    if _active:
        raise DeviceError("unified memory is set up already: restore() it before it is set up differently")
    rmm = resources.rmm()
    from penstock.cuda.driver import device_memory, managed_concurrently

    if not managed_concurrently():
        raise DeviceError(
            "this device and system cannot share managed memory while kernels run (no concurrent managed access, as on "
            "Windows and WSL): use penstock.memory.Pool, which moves arrays itself"
        )
    free, _ = device_memory()
    plain = to_bytes(comm_pool) if comm_pool is not None else 0
    allowed = guard.decide(limit, free, spill=spill, oversubscribe=oversubscribe, beside=plain)
    stack = resources.build(
        rmm.mr,
        allowed,
        pool=pool,
        prefetch=prefetch,
        spill=spill is not None,
        plain=plain,
        host=host_capacity().free // 2,
    )
    counted = {name: rmm.mr.StatisticsResourceAdaptor(stack.top) for name in libraries}
    unified = Unified(libraries, allowed.nbytes, stack, counted)
    try:
        for name in libraries:
            unified._undo.append(adopt.adopt(name, rmm, counted[name]))
    except BaseException:
        unified.restore()
        raise
    _active.append(unified)
    return unified


def active() -> Unified | None:
    """Give the unified memory that is set up; None where there is none."""
    return _active[-1] if _active else None
