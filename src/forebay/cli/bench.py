"""`forebay bench NAME`: run the benchmarks of the checkout."""

import ast
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from forebay.errors import ForebayError

FOLDER = Path(__file__).parents[3] / "bench"
SKIPPED = 77
"""Exit status of a benchmark that lacks what it needs."""


def bench(
    name: Annotated[str, typer.Argument(help="Benchmark to run; without one, they are listed.")] = "",
    arguments: Annotated[list[str] | None, typer.Argument(help="What it takes itself: ask it by `-- --help`.")] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the benchmarks, each with what it measures.")] = False,
    every: Annotated[bool, typer.Option("--all", help="Run all benchmarks, one after the other.")] = False,
    tiny: Annotated[bool, typer.Option("--tiny", help="Run in a form that ends in seconds.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the list, or what was measured, as JSON.")] = False,
) -> None:
    """Run benchmarks, which print tables and write JSON under bench/out."""
    scripts = {path.stem: path for path in sorted(FOLDER.glob("*.py"))}
    if not scripts:
        raise ForebayError(
            "the benchmarks are not part of the installed package: they are in the folder bench of Forebay's sources. "
            "Run this in a checkout installed with `pip install --editable .`"
        )
    more = [*(arguments or []), *(["--tiny"] if tiny else [])]
    if every:
        raise typer.Exit(_run_all(list(scripts.values()), more))
    if listed or not name:
        about = {stem: _about(path) for stem, path in scripts.items()}
        lines = [f"{stem:14} {line}" for stem, line in about.items()]
        typer.echo(json.dumps(about, indent=2) if as_json else "\n".join(lines))
        return
    if name not in scripts:
        raise ForebayError(f"no benchmark is called {name!r}: use one of {', '.join(scripts)}")
    raise typer.Exit(_run_and_print(scripts[name], more) if as_json else _run(scripts[name], more))


def _about(script: Path) -> str:
    """Return the first line of what a benchmark says of itself."""
    return (ast.get_docstring(ast.parse(script.read_text())) or "").partition("\n")[0]


def _run_and_print(script: Path, arguments: list[str]) -> int:
    """Run a benchmark and print the JSON that it wrote, and nothing else, on standard output."""
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "measured.json"
        ended = subprocess.run([sys.executable, script, *arguments, "--output", written], stdout=sys.stderr.fileno())
        if written.exists():
            typer.echo(written.read_text(), nl=False)
        return ended.returncode


def _run(script: Path, arguments: list[str]) -> int:
    return subprocess.run([sys.executable, script, *arguments]).returncode


def _run_all(scripts: list[Path], arguments: list[str]) -> int:
    """Run benchmarks one after the other, and tell which failed or lacked what they need."""
    ends = {}
    for script in scripts:
        typer.echo(f"== {script.stem}")
        ends[script.stem] = _run(script, arguments)
    skipped = [name for name, end in ends.items() if end == SKIPPED]
    failed = [name for name, end in ends.items() if end not in (0, SKIPPED)]
    typer.echo(
        f"{len(ends) - len(skipped) - len(failed)} ran, {len(skipped)} skipped ({', '.join(skipped) or 'none'}),"
    )
    typer.echo(f"{len(failed)} failed ({', '.join(failed) or 'none'})")
    return 1 if failed else 0
