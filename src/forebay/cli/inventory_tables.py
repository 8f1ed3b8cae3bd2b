"""What `forebay doctor` found, as tables for a terminal."""

from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from forebay.cli.inventory import Inventory
from forebay.filesystems import in_memory
from forebay.report.console import rich_text, say
from forebay.tier.links import Links
from forebay.units import seconds_to_text, to_text

NOTHING = "-"


def show(inventory: Inventory, console: Console) -> None:
    """Print what was gathered."""
    console.print(_facts("Machine", _machine_rows(inventory)))
    console.print(_libraries(inventory))
    if inventory.forebay is None:
        say(console, "Forebay is not installed, so what it needs is unknown. In its folder: pip install .")
    for missing in inventory.missing:
        say(console, f"missing: {', '.join(missing.libraries)}. Get with: {missing.command}")
    if inventory.no_gpu:
        say(console, f"no GPU: {inventory.no_gpu}")
    console.print(_facts("Memory (free of total)", _memory_rows(inventory)))
    if inventory.links:
        console.print(_facts("Links", _link_rows(inventory.links)))


def _facts(title: str, rows: Iterable[tuple[str, str]]) -> Table:
    table = Table(title=title, title_justify="left", show_header=False)
    for row in rows:
        table.add_row(*map(rich_text, row))
    return table


def _libraries(inventory: Inventory) -> Table:
    table = Table("extra", "library", "wanted", "installed", title="Libraries", title_justify="left")
    for library in inventory.libraries:
        state = rich_text(library.installed or "missing", "" if library.ok else "red")
        table.add_row(*map(rich_text, (library.extra or "core", library.name, library.wanted or "any")), state)
    return table


def _machine_rows(inventory: Inventory) -> Iterable[tuple[str, str]]:
    yield "Forebay", inventory.forebay or "not installed"
    yield "Python", inventory.python
    yield "platform", f"{inventory.platform}, {inventory.cpus} CPUs"
    for gpu in inventory.gpus:
        yield "GPU", f"{gpu.name}, {to_text(gpu.nbytes)}, compute capability {gpu.capability}"
        yield "driver", f"{gpu.driver or 'version unknown'}, CUDA {gpu.cuda}"
    if not inventory.gpus:
        yield "GPU", "none"


def _memory_rows(inventory: Inventory) -> Iterable[tuple[str, str]]:
    for tier, capacity in inventory.memory.items():
        yield tier, f"{to_text(capacity.free)} of {to_text(capacity.total)}" if capacity else NOTHING
    memory = in_memory(Path(inventory.directory))
    yield "disk directory", inventory.directory + (" (memory, and counted as such: name another)" if memory else "")


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
