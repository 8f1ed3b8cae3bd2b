"""The memory of the processes that a sample starts, as far as whoever waits for it sees by looking again and again.

Each tells its own largest size exactly for as long as it lives, so that a look now and then misses no peak but the last
moments of a process. Pages that a process shares with the one that forked it are counted there, and not again; until
a process that borrows all of its parent's memory (`vfork`) runs a program of its own, it has none.
"""

import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

OFTEN = 0.002
"""seconds between looks"""
SELDOM = 10
"""looks until pages are told apart again: that walks through all of a process"""
PROC = Path("/proc")
FORKED = 0x40
"""the kernel's flag of a process that was forked and has started no program since"""
EXACT = ("VmPeak", "VmPTE", "VmHWM")
"""figures that a process and a fork of it do not have in common, unless they share their memory"""


@dataclass
class Relative:
    """One process, since it was first seen."""

    resident: int
    """bytes when it was first seen"""
    own: int
    """bytes that were its own then, and shared with nobody"""
    most: int
    """the most that it had of its own, at any look and between them"""

    def look(self, pid: int, closely: bool) -> None:
        """See what it has by now."""
        with suppress(OSError, KeyError, ValueError):
            self.most = max(self.most, self.own + _status(pid, "VmHWM") - self.resident)
            if closely:
                self.most = max(self.most, _own_pages(pid))


class Descendants:
    """All processes below one, while it runs."""

    def __init__(self, pid: int) -> None:
        self.peak = 0
        """the most bytes of all of them together"""
        self._pid = pid
        self._relatives: dict[tuple[int, bool], Relative] = {}
        """by number, and by whether a program of its own runs in it: that begins anew"""
        self._alive: list[int] = []
        self._looks = 0

    def look(self) -> None:
        """Count what they have now."""
        parents = _below(self._pid)
        self._alive = list(parents)
        self._looks += 1
        total = 0
        for pid, parent in parents.items():
            with suppress(OSError, KeyError, ValueError):
                forked = _only_forked(pid)
                if (pid, forked) in self._relatives:
                    self._relatives[pid, forked].look(pid, self._looks % SELDOM == 0)
                elif forked and _shares_memory(pid, parent):
                    continue
                else:
                    own = _own_pages(pid)
                    self._relatives[pid, forked] = Relative(_status(pid, "VmRSS"), own, own)
                total += self._relatives[pid, forked].most
        self.peak = max(self.peak, total)

    def end(self) -> None:
        """End those that were left behind; a process of another group is nobody's that was seen here."""
        for pid in self._alive:
            with suppress(ProcessLookupError, PermissionError):
                if os.getpgid(pid) == os.getpgid(0):
                    os.kill(pid, signal.SIGKILL)


def _below(pid: int) -> dict[int, int]:
    """Return the processes below one, each with its parent; none where the kernel does not tell."""
    parents: dict[int, int] = {}
    waiting = [pid]
    while waiting:
        parent = waiting.pop()
        children: list[int] = []
        with suppress(OSError):
            for thread in (PROC / str(parent) / "task").iterdir():
                with suppress(OSError):
                    children += map(int, (thread / "children").read_text().split())
        parents |= dict.fromkeys(children, parent)
        waiting += children
    return parents


def children_can_be_seen() -> bool:
    """Return whether the kernel lists the children of a process."""
    return (PROC / "thread-self" / "children").exists()


def _only_forked(pid: int) -> bool:
    """Return whether a process was forked and has started no program since."""
    return bool(int((PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[6]) & FORKED)


def _shares_memory(pid: int, parent: int) -> bool:
    """Return whether a process has no memory but its parent's, which may grow while both are asked."""
    before, own, after = ([_status(each, name) for name in EXACT] for each in (parent, pid, parent))
    return all(low <= figure <= high for low, figure, high in zip(before, own, after, strict=True))


def _status(pid: int, name: str) -> int:
    for line in (PROC / str(pid) / "status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise KeyError(name)


def _own_pages(pid: int) -> int:
    """Count the bytes that a process shares with no other."""
    lines = (PROC / str(pid) / "smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_"))
