"""How much memory each tier of this machine has, and how much of it is free."""

import math
import mmap
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from forebay.cuda.available import gpu_count
from forebay.errors import BudgetError, DiskError
from forebay.filesystems import file_system_of, in_memory
from forebay.units import Budget, to_text

PIECE = 2 * 2**20
"""Bytes in which the driver of a GPU gives its memory."""
STACKS = 64 * 2**20
"""Addresses that the threads of a reversal take, used or not, beside the memory that is asked for."""


@dataclass(frozen=True)
class Capacity:
    """The bytes of one tier."""

    total: int
    free: int
    """What can be taken now; on the host without swapping, within the limits of the process and its control groups."""


def capacities(directory: Path) -> dict[str, Capacity | None]:
    """Look up the bytes of every tier; the disk is the one that `directory` lies on. Without a GPU the device has None.

    Examples
    --------
    >>> host = capacities(Path("/"))["host"]
    >>> 0 < host.free <= host.total
    True
    """
    return {"device": device_capacity(), "host": host_capacity(), "disk": disk_capacity(directory)}


def device_capacity() -> Capacity | None:
    """Look up the memory of the current GPU; None where there is none."""
    if not gpu_count():
        return None
    from forebay.cuda.driver import device_memory  # needs cuda-core, which is there only now
    from forebay.cuda.slab import kept_device_bytes

    free, total = device_memory()
    return Capacity(total, free + kept_device_bytes())


def host_capacity(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> Capacity:
    """Look up the memory that this process may use: the machine's, or less where a limit or a control group says so."""
    if not (proc / "meminfo").exists():
        raise BudgetError("how much memory is free is known on Linux alone: say what may be used, with budget='8GB'")
    machine = dict(line.split(":", 1) for line in (proc / "meminfo").read_text().splitlines())
    total, free = (int(machine[name].split()[0]) * 1024 for name in ("MemTotal", "MemAvailable"))
    for limit, used in (*_limits(proc / "self/cgroup", cgroups), *_addresses(proc / "self")):
        total = min(total, limit)
        free = min(free, max(limit - used, 0))
    return Capacity(total, min(free, total))


def free_host_bytes() -> int | None:
    """Look up the memory that this process may still take; None where nobody tells."""
    return host_capacity().free if Path("/proc/meminfo").exists() else None


def check_free(nbytes: int, what: str) -> None:
    """Refuse what does not fit into the memory that is free, where that is known."""
    free = free_host_bytes()
    if free is not None and nbytes > free:
        raise BudgetError(
            f"{what} takes {to_text(nbytes)} of memory, of which {to_text(free)} are free: make it smaller"
        )


def less_of_host(budget: Budget, free: int | None, usable: float = math.inf) -> tuple[Budget, str]:
    """Return what the host has of a budget, and words where that is less than it allows and than could be used.

    Whoever takes more than a control group allows is killed without a word.

    Examples
    --------
    >>> less_of_host(Budget(host="8GB"), 3 * 10**9)
    (Budget(host='3GB'), 'the budget allows 8GB of the host, of which 3GB are there: taking those')
    >>> less_of_host(Budget(host="8GB"), 3 * 10**9, usable=10**6)
    (Budget(host='8GB'), '')
    """
    if free is None or budget.host is None or min(budget.host, usable) <= free:
        return budget, ""
    less = f"the budget allows {to_text(budget.host)} of the host, of which {to_text(free)} are there: taking those"
    return budget.with_tier("host", free), less


def disk_capacity(directory: Path) -> Capacity:
    """Look up the disk that a directory lies on."""
    try:
        usage = shutil.disk_usage(directory)
    except OSError as error:
        raise DiskError(f"{directory}: {error.strerror}: make that directory, or choose another") from error
    return Capacity(usage.total, usage.free)


def check_spills(directory: Path, nbytes: int, beside: int = 0) -> None:
    """Refuse to spill more than is free in a directory; where that is memory, other bytes are taken beside them."""
    free, where = disk_capacity(directory).free, str(directory)
    if in_memory(directory):
        free = max(0, min(free, host_capacity().free - beside))
        where += f", which is no disk but memory ({file_system_of(directory)})"
    if nbytes > free:
        raise BudgetError(
            f"a disk budget of {to_text(nbytes)}, but only {to_text(free)} are free in {where}: "
            f"give a disk budget of at most {free} bytes, free some room, or choose another directory"
        )


def _limits(membership: Path, cgroups: Path) -> Iterator[tuple[int, int]]:
    """Yield limit and use of each control group that this process is in, from its own up to the root.

    Inside a container the file system shows the container's group as the root while version 1 still names the path of
    the host; groups that are not there are passed over, so both ways of mounting are found.
    """
    for line in membership.read_text().splitlines() if membership.exists() else ():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            mount, limit, used, cached = cgroups, "memory.max", "memory.current", "inactive_file"
        elif "memory" in controllers.split(","):
            mount, limit, used = cgroups / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
            cached = "total_inactive_file"
        else:
            continue
        group = mount / path.lstrip("/")
        for folder in [group, *(above for above in group.parents if above.is_relative_to(mount))]:
            if (most := _number(folder / limit)) is not None and (taken := _number(folder / used)) is not None:
                yield most, max(taken - _statistic(folder / "memory.stat", cached), 0)


def _addresses(process: Path) -> Iterator[tuple[int, int]]:
    """Yield limit and use of the addresses of this process (``ulimit -v``), where they are limited."""
    limits, pages = process / "limits", process / "statm"
    for line in limits.read_text().splitlines() if limits.exists() and pages.exists() else ():
        most = line.removeprefix("Max address space").split()[0] if line.startswith("Max address space") else ""
        if most.isdigit():
            yield int(most), int(pages.read_text().split()[0]) * mmap.PAGESIZE + STACKS


def _number(file: Path) -> int | None:
    """Read a file of one number; None where there is no such file, or it says "max"."""
    text = file.read_text().strip() if file.is_file() else "max"
    return None if text == "max" else int(text)


def _statistic(file: Path, name: str) -> int:
    """Read one line of a group's statistics: file pages that the kernel drops when memory is asked for are free."""
    lines = file.read_text().splitlines() if file.is_file() else ()
    return next((int(line.split()[1]) for line in lines if line.split()[0] == name), 0)
