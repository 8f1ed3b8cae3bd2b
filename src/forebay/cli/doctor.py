"""`forebay doctor`: what this machine has, what its links carry, what is missing and how to get it."""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from forebay.cli.outputs import check_output
from forebay.files import whole
from forebay.filesystems import spill_directory
from forebay.report.console import plain

TEMPORARY = spill_directory()


def doctor(
    directory: Annotated[
        Path, typer.Option(help="Where snapshots on disk would go; its disk is measured there.")
    ] = TEMPORARY,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Measure nothing, only look.")] = False,
    save: Annotated[Path | None, typer.Option(help="Write that JSON here too, for `forebay plan --machine`.")] = None,
) -> None:
    """Show what this machine has: GPUs, links measured, libraries, what is missing and how to get it."""
    _check(directory)
    check_output("--save", save, (".json",))
    from rich.console import Console

    from forebay.cli.inventory import gather

    with Console(stderr=True).status("looking" if quick else "measuring, about 5 seconds"):
        inventory = gather(directory, measure=not quick)
    text = json.dumps(asdict(inventory), indent=2)
    if save:
        with whole(save, private=False) as unfinished:
            unfinished.write_text(text + "\n")
    if as_json:
        typer.echo(text)
        return
    from forebay.cli.inventory_tables import show

    show(inventory, Console())


def _check(directory: Path) -> None:
    """Refuse a directory that cannot be measured, before anything is."""
    if not directory.is_dir():
        reason = "is not a directory" if directory.exists() else "does not exist"
    elif not os.access(directory, os.W_OK | os.X_OK):
        reason = "cannot be written to"
    else:
        return
    raise typer.BadParameter(
        plain(f"{directory} {reason}: give a directory that you can write to, for example --directory {TEMPORARY}"),
        param_hint="--directory",
    )
