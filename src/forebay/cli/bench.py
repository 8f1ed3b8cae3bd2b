"""`forebay bench NAME`: run a benchmark of the checkout."""

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from forebay.errors import ForebayError

FOLDER = Path(__file__).parents[3] / "bench"


def bench(
    name: Annotated[str, typer.Argument(help="Benchmark to run; without one, they are listed.")] = "",
    arguments: Annotated[
        list[str] | None, typer.Argument(help="What it takes itself; after -- if it has dashes.")
    ] = None,
) -> None:
    """Run one of the benchmarks, which print a table and write JSON under bench/out."""
    scripts = {path.stem: path for path in sorted(FOLDER.glob("*.py"))}
    if not scripts:
        raise ForebayError("the benchmarks are not installed with the package: run this from a checkout of Forebay")
    if not name:
        typer.echo("\n".join(scripts))
        return
    if name not in scripts:
        raise ForebayError(f"no benchmark is called {name!r}: use one of {', '.join(scripts)}")
    raise typer.Exit(subprocess.run([sys.executable, scripts[name], *(arguments or [])]).returncode)
