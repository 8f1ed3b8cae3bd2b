"""What a footprint belongs to: a function's source, versions of libraries, a kind of machine, a way to measure."""

import hashlib
import os
import platform
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from forebay.footprint.measure.command import Command
from forebay.footprint.measure.process import MMAP_THRESHOLD
from forebay.footprint.measure.sources import sources


@dataclass(frozen=True)
class Conditions:
    """All that may change a footprint without a change of shape."""

    gauge_name: str
    """how peaks were measured"""
    exact: bool
    resolution: int
    source: str
    """hash of the function's source and of what it calls in its own package"""
    versions: dict[str, str] = field(default_factory=dict)
    machine: str = field(default_factory=lambda: f"{platform.system()} {platform.machine()}")
    gpu: str | None = None
    page: int = field(default_factory=lambda: _page())
    mmap_threshold: int = MMAP_THRESHOLD
    """MALLOC_MMAP_THRESHOLD_ of the process in which samples ran; set it so where the function runs too"""
    library: str = "numpy"
    """whose arrays the function took"""
    dtypes: tuple[str, ...] = ()
    """of all inputs of a sample, in their order; empty where nobody looked"""

    def changes(
        self, function: Callable[..., Any] | None = None, gpu: str | None = None, command: str | None = None
    ) -> list[str]:
        """List what is no longer as it was when the footprint was learned."""
        changes = [
            f"{name} was {old} and is {now}" for name, old in self.versions.items() if (now := _version(name)) != old
        ]
        here = f"{platform.system()} {platform.machine()}"
        if here != self.machine:
            changes.append(f"the machine was {self.machine} and is {here}")
        if self.page != _page():
            changes.append(f"pages had {self.page} bytes and have {_page()}")
        if self.mmap_threshold != MMAP_THRESHOLD:
            changes.append(
                f"samples ran with MALLOC_MMAP_THRESHOLD_={self.mmap_threshold} and would run with {MMAP_THRESHOLD}"
            )
        if gpu is not None and gpu != self.gpu:
            changes.append(f"the GPU was {self.gpu} and is {gpu}")
        if function is not None and source_hash(function) != self.source:
            changes.append("the source of the function has changed, or what it holds on to")
        if command is not None and command_hash(command) != self.source:
            changes.append("the command or its program has changed")
        return changes


def _page() -> int:
    return os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "missing"


def source_hash(function: Callable[..., Any]) -> str:
    """Hash the source of a function and of what it reaches by name in its own package.

    Examples
    --------
    >>> source_hash(source_hash) == source_hash(source_hash) != source_hash(_version)
    True
    """
    digest = hashlib.sha256()
    for text in sources(function):
        digest.update(text.encode() + b"\0")
    return digest.hexdigest()


def command_hash(line: str) -> str:
    """Hash a command line with the program that it starts."""
    path = Command(line).executable()
    program = hashlib.sha256(path.read_bytes()).hexdigest() if path else ""
    return hashlib.sha256(f"{line}\0{program}".encode()).hexdigest()
