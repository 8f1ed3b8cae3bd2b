"""One allocator of managed, pooled memory behind several libraries."""

from dataclasses import dataclass, field
from typing import Any, Self

from forebay.errors import BudgetError, DeviceError
from forebay.memory.unified import adopt, guard, resources
from forebay.memory.unified.resources import Stack
from forebay.tier.capacity import host_capacity
from forebay.units import to_bytes

_known: "list[Unified]" = []  # the one that is set up, and those before that something is left of


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
    """RMM's statistics of each library; torch and cudf share them, as they share RMM's current resource"""
    kept: list[str] = field(default_factory=list)
    """libraries that keep this memory although it was restored"""
    _undo: list[tuple[str, adopt.Undo]] = field(default_factory=list)

    @property
    def active(self) -> bool:
        """Whether it is set up, and not yet restored."""
        return bool(self._undo)

    @property
    def statistics(self) -> list[Any]:
        """RMM's statistics, each once."""
        return list({id(statistics): statistics for statistics in self.counted.values()}.values())

    @property
    def live(self) -> int:
        """Bytes of the arrays that lie in it."""
        return sum(statistics.allocation_counts.current_bytes for statistics in self.statistics)

    @property
    def untouched(self) -> int:
        """Bytes taken from the driver whose pages are not known to be on the device."""
        if self.stack.prefetched:
            return 0
        spilled = 0 if self.stack.spill is None else self.stack.spill.live
        return self.live - spilled if self.stack.pool is None else int(self.stack.pool.pool_size())

    def restore(self) -> None:
        """Put back what was there before, where libraries allow it; again is no error."""
        while self._undo:
            name, undo = self._undo.pop()
            if undo():
                self.kept.append(name)
        known()

    def buffer(self, nbytes: str | int) -> Any:
        """Allocate plain device memory from the pool kept apart, which can be sent to other processes by CUDA IPC.

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
    lasts; used in a ``with`` statement, until its end. Call it before torch and Numba make their first
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
    if any(unified.active for unified in known()):
        raise DeviceError("unified memory is set up already: restore() it before it is set up differently")
    if set(libraries) & set(adopt.CURRENT) and any(_alive_in_torch(unified) for unified in known()):
        raise DeviceError(
            "torch still has tensors in the unified memory that was set up before, and gives them back to whatever is "
            "set up now: drop them first"
        )
    rmm = resources.rmm()
    from forebay.cuda.driver import managed_concurrently

    if not managed_concurrently():
        raise DeviceError(
            "this device and system cannot share managed memory while kernels run (no concurrent managed access, as on "
            "Windows and WSL): use forebay.memory.Pool, which moves arrays itself"
        )
    free = room()
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
    shared = rmm.mr.StatisticsResourceAdaptor(stack.top)
    counted = {
        name: shared if name in adopt.CURRENT else rmm.mr.StatisticsResourceAdaptor(stack.top) for name in libraries
    }
    unified = Unified(libraries, allowed, stack, counted)
    if spill is not None:  # it is told once, and by us
        unified._undo.append(("rmm", adopt.hush(rmm)))
    try:
        for name in sorted(libraries, key=adopt.LIBRARIES.index):  # torch before cudf, whose undoing must not be last
            unified._undo.append((name, adopt.adopt(name, rmm, counted[name])))
    except BaseException:
        _known.append(unified)  # a library may keep it
        unified.restore()
        raise
    _known.append(unified)
    return unified


def known() -> tuple[Unified, ...]:
    """List the unified memory that is set up, and that before of which arrays are left, or a library keeps it."""
    _known[:] = [unified for unified in _known if unified.active or unified.kept or unified.live]
    return tuple(_known)


def room() -> int:
    """Return the bytes of the device that more managed memory may take.

    What was handed out is called free by the driver until its pages come to the device, so it is taken off, but for
    what is known to be there.
    """
    from forebay.cuda import managed
    from forebay.cuda.driver import device_memory
    from forebay.cuda.slab import give_up_device

    give_up_device()  # what comes by faults asks for nothing that would make the driver give it
    return max(0, device_memory()[0] - managed.untouched() - sum(unified.untouched for unified in known()))


def _alive_in_torch(unified: Unified) -> bool:
    return "torch" in unified.kept and unified.counted["torch"].allocation_counts.current_bytes > 0
