"""What each library holds of the device: live and peak bytes, pools, and whether it is managed memory."""

import sys
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from forebay.memory.unified import unify
from forebay.tier.capacity import device_capacity
from forebay.units import to_text


@dataclass(frozen=True)
class Usage:
    """What one library holds."""

    library: str
    live: int
    """bytes of its arrays"""
    peak: int | None
    """the most of those so far; None where the library does not count"""
    pool: int | None
    """bytes that its pool has taken from the driver, for all libraries that share it; None where there is no pool"""
    managed: bool


@dataclass(frozen=True)
class Report:
    """What all libraries hold."""

    usages: tuple[Usage, ...]
    pools: int
    """bytes that pools of unified memory have taken from the driver"""
    spilled: int
    """bytes that lie on the host, because the limit was exceeded"""
    spilled_peak: int
    free: int | None
    """bytes of the device that nobody has taken; None where there is no GPU"""
    total: int | None

    @property
    def unused(self) -> float | None:
        """The part of the unified pool in which no array lies, in one piece or in many; None where there is no pool."""
        if not self.pools:
            return None
        live = sum(usage.live for usage in self.usages if usage.managed and usage.pool)
        return 1 - (live - self.spilled) / self.pools

    def table(self) -> Table:
        """Lay it out for a terminal."""
        table = Table("library", "live", "peak", "pool", "memory", title="memory of the device")
        for usage in self.usages:
            numbers = ("-" if number is None else to_text(number) for number in (usage.live, usage.peak, usage.pool))
            table.add_row(usage.library, *numbers, "managed" if usage.managed else "plain")
        if self.spilled_peak:
            table.add_row("spilled to the host", to_text(self.spilled), to_text(self.spilled_peak), "-", "pinned")
        if self.unused is not None:
            table.add_row("pool without arrays", f"{self.unused:.0%}", "", "", "")
        if self.free is not None and self.total is not None:
            table.add_row("free", f"{to_text(self.free)} of {to_text(self.total)}", "", "", "")
        return table


def report() -> Report:
    """Tell what each library holds of the device now, and at most.

    Examples
    --------
    >>> report().table().title
    'memory of the device'
    """
    usages, pools = [], 0
    for unified in unify.known():
        pool = None if unified.stack.pool is None else int(unified.stack.pool.pool_size())
        pools += pool or 0
        for shared in unified.statistics:
            names = [name for name, statistics in unified.counted.items() if statistics is shared]
            counts = shared.allocation_counts
            usages.append(Usage(" and ".join(names), counts.current_bytes, counts.peak_bytes, pool, managed=True))
    capacity = device_capacity()
    for name, native in (("cupy", _cupy), ("torch", _torch)) if capacity is not None else ():
        if (module := sys.modules.get(name)) is not None and (usage := native(module)) is not None:
            usages.append(usage)
    spills = [unified.stack.spill for unified in unify.known() if unified.stack.spill is not None]
    return Report(
        tuple(usages),
        pools,
        spilled=sum(spill.live for spill in spills),
        spilled_peak=sum(spill.peak for spill in spills),
        free=None if capacity is None else capacity.free,
        total=None if capacity is None else capacity.total,
    )


def _cupy(cupy: Any) -> Usage | None:
    """Ask CuPy's own pool; None where it has taken nothing."""
    pool = cupy.get_default_memory_pool()
    if not pool.total_bytes():
        return None
    return Usage("cupy's own", pool.used_bytes(), None, pool.total_bytes(), managed=False)


def _torch(torch: Any) -> Usage | None:
    """Ask torch's own allocator; None where it has taken nothing, or was exchanged and does not count."""
    if not (hasattr(torch, "cuda") and torch.cuda.is_initialized()):
        return None
    if torch.cuda.memory.get_allocator_backend() == "pluggable" or not torch.cuda.memory_reserved():
        return None
    live, peak = torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()
    return Usage("torch's own", live, peak, torch.cuda.memory_reserved(), managed=False)
