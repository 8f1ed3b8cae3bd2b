"""Gathering what `forebay doctor` shows: the machine, its libraries, GPUs, links and memory."""

import platform
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement

from forebay.cuda.available import gpu_count, why_not
from forebay.processors import processors
from forebay.tier.capacity import Capacity, capacities
from forebay.tier.links import Links, measure_links

if TYPE_CHECKING:  # needs cuda-core, which is there only where a GPU is
    from forebay.cuda.driver import Gpu

NOT_SHOWN = {"all", "test"}
"""Extras that only gather others, or that only developers of Forebay need."""
CUDA = ("cuda13", "cuda12")
"""Extras of which a machine needs one: the one of which more is there, else the first."""


@dataclass(frozen=True)
class Dependency:
    """A library that Forebay needs, or that one of its extras asks for."""

    name: str
    wanted: str
    """The versions that do, such as ``">=2"``; empty where any does."""
    installed: str | None
    extra: str | None
    """The extra that asks for it; None for the core."""
    ok: bool
    requirement: str
    """As pip takes it."""


@dataclass(frozen=True)
class Missing:
    """The libraries of one extra, or of the core, that are not there or too old, and the command that gets them."""

    extra: str | None
    libraries: tuple[str, ...]
    command: str


@dataclass(frozen=True)
class Inventory:
    """Everything that `forebay doctor` knows."""

    forebay: str | None
    """None where Forebay runs from a folder without being installed; its libraries are then unknown."""
    python: str
    platform: str
    cpus: int
    libraries: tuple[Dependency, ...]
    missing: tuple[Missing, ...]
    gpus: "tuple[Gpu, ...]"
    no_gpu: str | None
    """Why there is no GPU."""
    directory: str
    """Where the disk was looked at."""
    memory: dict[str, Capacity | None]
    links: Links | None
    """None where measuring was not asked for."""


def gather(directory: Path, measure: bool = True) -> Inventory:
    """Look at this machine; with `measure`, time its links too, which takes a few seconds."""
    libraries = _libraries()
    return Inventory(
        forebay=_installed("forebay"),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        platform=platform.platform(),
        cpus=processors(),
        libraries=libraries,
        missing=_missing(libraries),
        gpus=_gpus(),
        no_gpu=why_not() or None,
        directory=str(directory),
        memory=capacities(directory),
        links=measure_links(directory) if measure else None,
    )


def _gpus() -> "tuple[Gpu, ...]":
    if not gpu_count():
        return ()
    from forebay.cuda.driver import describe_gpus

    return describe_gpus()


def _libraries() -> tuple[Dependency, ...]:
    """Read what the installed distribution asks for, so that the list lives in its project file alone."""
    try:
        own = metadata.metadata("forebay")
    except metadata.PackageNotFoundError:
        return ()
    wanted = [Requirement(text) for text in own.get_all("Requires-Dist") or ()]
    extras = [None, *(extra for extra in own.get_all("Provides-Extra") or () if extra not in NOT_SHOWN)]
    libraries = [
        _library(requirement, extra) for extra in extras for requirement in wanted if _belongs(requirement, extra)
    ]
    needed = max(CUDA, key=lambda extra: sum(library.ok for library in libraries if library.extra == extra))
    return tuple(library for library in libraries if library.extra not in CUDA or library.extra == needed)


def _belongs(requirement: Requirement, extra: str | None) -> bool:
    if requirement.marker is None:
        return extra is None
    holds_without = requirement.marker.evaluate({"extra": ""})
    return holds_without if extra is None else requirement.marker.evaluate({"extra": extra}) and not holds_without


def _library(requirement: Requirement, extra: str | None) -> Dependency:
    installed = _installed(requirement.name)
    ok = installed is not None and requirement.specifier.contains(installed, prereleases=True)
    return Dependency(requirement.name, str(requirement.specifier), installed, extra, ok, _without_marker(requirement))


def _without_marker(requirement: Requirement) -> str:
    parts = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    return f"{requirement.name}{parts}{requirement.specifier}"


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _missing(libraries: tuple[Dependency, ...]) -> tuple[Missing, ...]:
    lacking: dict[str | None, list[Dependency]] = {}
    for library in libraries:
        if not library.ok:
            lacking.setdefault(library.extra, []).append(library)
    return tuple(
        Missing(extra, tuple(library.name for library in absent), _command(absent)) for extra, absent in lacking.items()
    )


def _command(libraries: list[Dependency]) -> str:
    """Return what gets these libraries, wherever Forebay itself came from."""
    return " ".join(["pip install", *(f'"{library.requirement}"' for library in libraries)])
