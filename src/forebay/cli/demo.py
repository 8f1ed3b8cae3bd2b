"""`forebay demo`: the same shots over a salt body with everything kept, in a tenth of the memory, and with a codec."""

import json
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:  # loaded when the demo runs
    from rich.console import Console
    from rich.table import Table

    from forebay.wave.demo import RecordedLine, Strategy


def demo(
    output: Annotated[Path, typer.Option(help="Folder for pictures, report and job.")] = Path("demo"),
    as_json: Annotated[
        bool, typer.Option("--json", help="Print what each way took as JSON, and all else aside.")
    ] = False,
) -> None:
    """Image a salt body three ways: everything kept, in a tenth of the memory, and there with a codec."""
    from rich.console import Console

    line, ways = run(None, output, Console(stderr=as_json))
    if as_json:
        from forebay.wave.demo.page import HEADINGS, rows_of

        told = [dict(zip(HEADINGS, row, strict=True)) for row in rows_of(line, ways)]
        typer.echo(json.dumps({"ways": told, "page": str(output / "report.html")}, indent=2))


def run(text: str | None, output: Path, console: "Console") -> "tuple[RecordedLine, list[Strategy]]":
    """Migrate the shots of a job, or of the demo's own, in three ways, and show everything about it."""
    from forebay.errors import ForebayError, needs
    from forebay.report.console import say
    from forebay.report.drawing import missing

    if lacking := missing():  # pictures are all that it is for
        raise ForebayError(needs("the demo", " and ".join(lacking), "plots"))
    output.mkdir(parents=True, exist_ok=True)
    started = perf_counter()
    with console.status("loading") as status:
        from forebay.wave.demo import JOB, record, warm_up, ways_of, write_demo
        from forebay.wave.demo.ways import CODEC

        text = text or JOB
        (output / "job.toml").write_text(text)
        status.update("compiling what is not compiled yet: a minute at first, a second later")
        warm_up(CODEC)
        compiled = perf_counter()
        say(console, f"loaded and compiled in {compiled - started:.1f} s; what was compiled is kept for later runs")
        line = record(text, output.resolve(), lambda number: status.update(f"modelling shot {number + 1}"))
        modelled = perf_counter()
        say(console, f"modelled {len(line.shots)} shots of {line.steps} steps in {modelled - compiled:.1f} s")
        ways = ways_of(line, status.update)
        migrated = perf_counter()
        status.update("drawing")
        times = [
            ("loading and compiling", f"{compiled - started:.1f} s, the first time; less later"),
            ("modelling the data", f"{modelled - compiled:.1f} s"),
            ("all three ways, and a pilot", f"{migrated - modelled:.1f} s"),
        ]
        written = write_demo(line, ways, output, times)
    console.print(_table(line, ways))
    names = ", ".join([path.name for path in written[:-1]] + ["job.toml"])
    say(console, f"pictures and data in {output}: {names}")
    say(console, f"open {written[-1].resolve()} in a browser; all of it took {perf_counter() - started:.0f} s")
    return line, ways


def _table(line: "RecordedLine", ways: "Sequence[Strategy]") -> "Table":
    """Return the table of the ways."""
    from rich.table import Table

    from forebay.wave.demo.page import HEADINGS, rows_of

    table = Table(*HEADINGS, box=None, pad_edge=False, title=f"{len(line.shots)} shots, three ways")
    for row in rows_of(line, ways):
        table.add_row(*row)
    return table
