"""The reference pages of the site: a hook of MkDocs that makes one for each package from what it re-exports."""

import re
from pathlib import Path
from typing import Any

SOURCES = Path(__file__).parents[1] / "src"
PACKAGES = {
    "forebay": "The names at the top",
    "forebay.schedule": "Schedules",
    "forebay.planner": "Plans and what they are made from",
    "forebay.engine": "Reversals",
    "forebay.codec": "Codecs",
    "forebay.metrics": "What was measured",
    "forebay.wave": "Waves",
    "forebay.wave.torch": "Waves under autograd",
    "forebay.wave.job": "Jobs",
    "forebay.torch": "PyTorch",
    "forebay.jax": "JAX",
    "forebay.memory": "Memory",
    "forebay.footprint": "Footprints",
    "forebay.dask": "Dask",
    "forebay.cubed": "Cubed",
    "forebay.dasf": "DASF",
    "forebay.devito": "Devito",
    "forebay.errors": "Errors",
}
"""Every package that users import from, with the heading of its page."""


def public_names(package: str) -> dict[str, str]:
    """Return what users import from a package, or the classes of a module, or else its functions, with their places."""
    path = SOURCES / package.replace(".", "/")
    if not path.is_dir():
        source = path.with_suffix(".py").read_text()
        kinds = [re.findall(rf"^{kind} ([A-Za-z]\w*)", source, re.MULTILINE) for kind in ("class", "def")]
        return {name: f"{package}.{name}" for name in kinds[0] or kinds[1]}
    exported = re.findall(r"^ *from (\S+) import (\w+) as \2$", (path / "__init__.py").read_text(), re.MULTILINE)
    own = {name: module for module, name in exported if module != package and not name.startswith("_")}
    places = {name: public_names(module).get(name, "") if is_package(module) else "" for name, module in own.items()}
    named = {name: places[name] or f"{module}.{name}" for name, module in own.items()}
    return dict(sorted(named.items(), key=lambda item: item[0].lower()))


def is_package(module: str) -> bool:
    """Tell whether a module is a folder."""
    return (SOURCES / module.replace(".", "/")).is_dir()


def page(package: str) -> str:
    """Return the source of a package's page: a heading, and each of its names with what its docstring says."""
    names = "\n\n".join(f"::: {place}" for place in public_names(package).values())
    return f"# {PACKAGES[package]}\n\n`import {package}`\n\n{names}\n"


def on_files(files: Any, config: Any) -> Any:
    """Add the pages to the files of the site."""
    from mkdocs.structure.files import File

    for package in PACKAGES:
        files.append(File.generated(config, f"reference/{package}.md", content=page(package)))
    return files
