"""The tables of ``rtm.py`` on a terminal."""

from typing import Any

from rich.console import Console
from rich.table import Table

from forebay.units import to_text
from shots import elastic, history, peer, seed

TARGETS = {"revolve": (5.1, 0.85), "zcut": (8.8, 0.70), "uniform": (5.8, 0.75)}
"""Times faster than blocking copies, and share of the limit, that `salt` is to reach with cache, prefetch and codec."""
console = Console(width=240, soft_wrap=True)


def show(tables: dict[str, list[Any]]) -> None:
    """Print all tables that have rows."""
    for name, rows in tables.items():
        if rows:
            shown = {
                seed.Row: show_schedules,
                history.Row: show_history,
                peer.Row: show_peer,
                elastic.Row: show_elastic,
            }
            shown[type(rows[0])](name, rows)


def show_schedules(name: str, rows: list[seed.Row]) -> None:
    """Set every row beside the blocking copies of its family, and auto beside Revolve's."""
    table = Table(
        *("schedule", "way", "cache", "codec", "kept", "seconds", "wall", "predicted", "stall", "times faster", "seed"),
        *("limit", "share", "moved", "smaller: mean, worst", "device peak", "equal", "image error"),
        title=f"{name}: {rows[0].model}, {rows[0].steps} steps",
    )
    bases = {one.schedule.partition(":")[0]: one for one in rows if one.way == "blocking copies"}
    for row in rows:
        base = bases.get(row.schedule.partition(":")[0], bases.get("revolve"))
        timed = "" if row.extrapolated == 1 else f" (extrapolated from {row.extrapolated:.0%})"
        table.add_row(
            row.schedule,
            row.way,
            str(row.cache),
            row.codec,
            row.keep,
            f"{row.seconds:.3f}{timed}",
            f"{row.wall:.3f}",
            "" if row.predicted is None else f"{row.predicted:.3f}",
            "" if row.stall is None else f"{row.stall:.3f}",
            "" if base is None else f"{base.seconds / row.seconds:.2f}",
            "" if row.seed is None else f"{row.seed}",
            f"{row.limit:.3f}",
            f"{row.limit / row.seconds:.2f}",
            to_text(row.moved),
            "" if row.ratio is None else f"{row.ratio:.1f}, {row.worst_ratio:.1f}",
            "" if row.peak is None else to_text(row.peak),
            "" if row.equal is None else "yes" if row.equal else "NO",
            "" if row.error is None else f"{row.error:.1e}",
        )
    console.print(table)
    for row in rows:
        family = row.schedule.partition(":")[0]
        if row.model == "salt" and family in bases and "prefetch and codec" in row.way:
            faster, share = TARGETS[family]
            console.print(
                f"{row.schedule}, {row.way}, {row.cache} slots: {bases[family].seconds / row.seconds:.2f} times faster "
                f"(target {faster}), {row.limit / row.seconds:.2f} of its limit (target {share})"
            )


def show_history(name: str, rows: list[history.Row]) -> None:
    table = Table(
        *("every", "codec", "kept", "schedule", "seconds", "nothing kept", "cost", "by wall", "predicted"),
        *("forward", "backward", "save", "compress", "decompress", "stall", "moved", "smaller: mean, worst"),
        *("first tier", "second", "spilled", "recomputed", "error", "SSIM"),
        title=f"{name}: {rows[0].model}, {rows[0].steps} steps, records of {to_text(rows[0].record)}",
    )
    for row in rows:
        peaks = [to_text(nbytes) for nbytes in row.peak.values()]
        table.add_row(
            str(row.every),
            row.codec,
            row.keep,
            row.schedule,
            f"{row.seconds:.3f}",
            f"{row.nothing:.3f}",
            f"{row.cost:.3f}",
            f"{row.wall / row.nothing_wall:.3f}",
            "" if row.predicted is None else f"{row.predicted:.3f}",
            *(
                f"{row.phases.get(phase, 0.0):.3f}"
                for phase in ("forward", "backward", "save", "compress", "decompress", "stall")
            ),
            to_text(row.moved),
            "" if row.ratio is None else f"{row.ratio:.1f}, {row.worst_ratio:.1f}",
            *[*peaks, "", ""][:2],
            str(row.spilled),
            str(row.recomputed),
            "" if row.error is None else f"{row.error:.2e}",
            "" if row.similarity is None else f"{row.similarity:.5f}",
        )
    console.print(table)


def show_peer(name: str, rows: list[peer.Row]) -> None:
    table = Table(
        *("history", "codec", "kept", "schedule", "ms a step", "whole call", "Deepwave", "times faster"),
        *("used", "Deepwave", "smaller", "peaks"),
        title=f"{name}: a gradient, a forward and a backward step together",
    )
    for row in rows:
        table.add_row(
            row.way,
            row.codec,
            row.keep,
            row.schedule,
            f"{1e3 * row.step:.3f}",
            f"{row.wall:.2f} s",
            "" if row.quoted is None else f"{1e3 * row.quoted:.2f}",
            "" if row.quoted is None else f"{row.quoted / row.step:.2f}",
            f"{row.used / 2**30:.1f} GiB",
            "" if row.quoted_peak is None else f"{row.quoted_peak} GiB",
            "" if row.ratio is None else f"{row.ratio:.1f}",
            ", ".join(f"{tier} {to_text(nbytes)}" for tier, nbytes in row.peak.items()),
        )
    console.print(table)
    console.print(peer.DIFFERS)


def show_elastic(name: str, rows: list[elastic.Row]) -> None:
    table = Table("shape", "steps", "every", "codec", "kept", "seconds", "nothing kept", "cost", "Gpoint/s", title=name)
    for row in rows:
        table.add_row(
            str(row.shape),
            str(row.steps),
            str(row.every),
            row.codec,
            row.keep,
            f"{row.seconds:.3f}",
            f"{row.nothing:.3f}",
            f"{row.cost:.3f}",
            f"{row.points_a_second / 1e9:.2f}",
        )
    console.print(table)
