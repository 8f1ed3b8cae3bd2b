"""`forebay doctor`: what this machine has, what its links carry, what is missing and how to get it."""

import json
import os
import tempfile
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from forebay.cli.inventory import Inventory, gather
from forebay.tier.links import Links
from forebay.units import seconds_to_text, to_text

NOTHING = "-"
TEMPORARY = Path(tempfile.gettempdir())


def doctor(
    directory: Annotated[
        Path, typer.Option(help="Where snapshots on disk would go; its disk is measured there.")
    ] = TEMPORARY,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Measure nothing, only look.")] = False,
) -> None:
    """Show what this machine has: GPUs, links measured, libraries, what is missing and how to get it."""
    _check(directory)
    if as_json:
        typer.echo(json.dumps(asdict(gather(directory, measure=not quick)), indent=2))
        return
    with Console(stderr=True).status("looking" if quick else "measuring, about 5 seconds"):
        machine = gather(directory, measure=not quick)
    show(machine, Console())


def show(machine: Inventory, console: Console) -> None:
    """Print what was gathered."""
    console.print(_facts("Machine", _machine_rows(machine)))
    console.print(_libraries(machine))
    if machine.forebay is None:
        console.print("Forebay is not installed, so what it needs is unknown. Get it with: [bold]pip install forebay")
    for missing in machine.missing:
        names, command = ", ".join(missing.libraries), escape(missing.command)
        console.print(f"missing: {names}. Get with: [bold]{command}[/bold]", soft_wrap=True)
    if machine.no_gpu:
        console.print(f"no GPU: {escape(machine.no_gpu)}", soft_wrap=True)
    console.print(_facts("Memory (free of total)", _memory_rows(machine)))
    if machine.links:
        console.print(_facts("Links", _link_rows(machine.links)))


def _check(directory: Path) -> None:
    """Refuse a directory that cannot be measured, before anything is."""
    if not directory.is_dir():
        reason = "is not a directory" if directory.exists() else "does not exist"
    elif not os.access(directory, os.W_OK | os.X_OK):
        reason = "cannot be written to"
    else:
        return
    raise typer.BadParameter(
        f"{directory} {reason}: give a directory that you can write to, for example --directory {TEMPORARY}",
        param_hint="--directory",
    )


def _facts(title: str, rows: Iterable[tuple[str, str]]) -> Table:
    table = Table(title=title, title_justify="left", show_header=False)
    for row in rows:
        table.add_row(*(escape(cell) for cell in row))
    return table


def _libraries(machine: Inventory) -> Table:
    table = Table("extra", "library", "wanted", "installed", title="Libraries", title_justify="left")
    for library in machine.libraries:
        installed = library.installed or "missing"
        state = installed if library.ok else f"[red]{installed}[/red]"
        table.add_row(library.extra or "core", escape(library.name), library.wanted or "any", state)
    return table


def _machine_rows(machine: Inventory) -> Iterable[tuple[str, str]]:
    yield "Forebay", machine.forebay or "not installed"
    yield "Python", machine.python
    yield "platform", f"{machine.platform}, {machine.cpus} CPUs"
    for gpu in machine.gpus:
        yield "GPU", f"{gpu.name}, {to_text(gpu.nbytes)}, compute capability {gpu.capability}"
        yield "driver", f"{gpu.driver or 'version unknown'}, CUDA {gpu.cuda}"
    if not machine.gpus:
        yield "GPU", "none"


def _memory_rows(machine: Inventory) -> Iterable[tuple[str, str]]:
    memory = machine.memory
    for tier, capacity in (("device", memory.device), ("host", memory.host), ("disk", memory.disk)):
        yield tier, f"{to_text(capacity.free)} of {to_text(capacity.total)}" if capacity else NOTHING
    yield "disk directory", machine.directory


def _link_rows(links: Links) -> Iterable[tuple[str, str]]:
    def speed(value: float | None) -> str:
        return NOTHING if value is None else f"{to_text(value)}/s"

    pin = links.pin_seconds_per_byte
    yield "host copy, one thread", speed(links.host_copy)
    yield "device copy", speed(links.device_copy)
    yield "pinned up", speed(links.pinned_up)
    yield "pinned down", speed(links.pinned_down)
    yield "pinned both ways, each", speed(links.pinned_both)
    yield "pageable up", speed(links.pageable_up)
    yield "pageable down", speed(links.pageable_down)
    yield "pinning", NOTHING if pin is None else f"{seconds_to_text(pin * 1e9)} per GB"
    yield "disk write", speed(links.disk_write)
    yield "disk read", speed(links.disk_read)
    yield "disk method", links.disk_method or NOTHING
