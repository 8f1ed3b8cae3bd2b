"""The memory of the processes that a sample starts, as far as whoever waits for it sees by looking again and again.

Each tells its own largest size exactly for as long as it lives, so that a look now and then misses no peak but the last
moments of a process. Pages that a process shares with the one that forked it are counted there, and not again.
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
        self._relatives: dict[int, Relative] = {}
        self._alive: list[int] = []
        self._looks = 0

    def look(self) -> None:
        """Count what they have now."""
        self._alive = alive = _below(self._pid)
        self._looks += 1
        for pid in alive:
            if pid not in self._relatives:
                with suppress(OSError, KeyError, ValueError):
                    own = _own_pages(pid)
                    self._relatives[pid] = Relative(_status(pid, "VmRSS"), own, own)
            else:
                self._relatives[pid].look(pid, self._looks % SELDOM == 0)
        self.peak = max(self.peak, sum(self._relatives[pid].most for pid in alive if pid in self._relatives))

    def end(self) -> None:
        """End those that were left behind; a process of another group is nobody's that was seen here."""
        for pid in self._alive:
            with suppress(ProcessLookupError, PermissionError):
                if os.getpgid(pid) == os.getpgid(0):
                    os.kill(pid, signal.SIGKILL)


def _below(pid: int) -> list[int]:
    """List the processes below one; none where the kernel does not tell."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        parent = waiting.pop()
        children: list[int] = []
        with suppress(OSError):
            for thread in (PROC / str(parent) / "task").iterdir():
                with suppress(OSError):
                    children += map(int, (thread / "children").read_text().split())
        found += children
        waiting += children
    return found


def children_can_be_seen() -> bool:
    """Return whether the kernel lists the children of a process."""
    return (PROC / "thread-self" / "children").exists()


def _status(pid: int, name: str) -> int:
    for line in (PROC / str(pid) / "status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise KeyError(name)


def _own_pages(pid: int) -> int:
    """Count the bytes that a process shares with no other."""
    lines = (PROC / str(pid) / "smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_"))
