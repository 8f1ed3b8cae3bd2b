"""The page of anything that keeps counters and a timeline: pools, fitted models, saved tensors."""

from collections.abc import Sequence
from pathlib import Path

from forebay.drawing import Chart
from forebay.drawing.bars import bars_chart
from forebay.drawing.page import Drawn, Element, Facts, Section, Text, TextTable, write_page
from forebay.metrics import Metrics
from forebay.planner.drawn.timeline import COLOURS
from forebay.units import seconds_to_text, to_text


def write_counters(
    metrics: Metrics, path: Path | str, title: str, lead: str, more: Sequence[tuple[str, Sequence[Element]]] = ()
) -> None:
    """Write a page about counters.

    Parameters
    ----------
    metrics
        What was counted.
    path
        Of the page.
    title, lead
        What it is about, in a few words and in a sentence.
    more
        Sections that come after.
    """
    facts = [
        *((f"peak on the {tier}", to_text(peak)) for tier, peak in metrics.peak.items()),
        *((f"moved {lane}", to_text(moved)) for lane, moved in sorted(metrics.moved.items())),
        *((f"avoided {lane}", to_text(avoided)) for lane, avoided in sorted(metrics.avoided.items())),
        *((name, str(getattr(metrics, name))) for name in ("hits", "misses", "late")),
        *([("made smaller by", f"{metrics.mean_ratio:.3g}")] if metrics.ratios else []),
    ]
    sections: list[Section] = [("", [Facts(facts)])]
    if len(metrics.timeline):
        sections.append(("Where the time went", [Drawn(busy_chart(metrics))]))
        sections.append(("Seconds", [_table(metrics)]))
    write_page(path, title, lead, [*sections, *more])


def busy_chart(metrics: Metrics) -> Chart:
    """Draw the seconds of each lane, by what it did."""
    spent: dict[str, dict[str, float]] = {}
    for span in metrics.timeline:
        lane = spent.setdefault(span.what, {})
        lane[span.lane] = lane.get(span.lane, 0.0) + span.stop - span.start
    lanes = sorted({span.lane for span in metrics.timeline})
    series = {what: [seconds.get(lane, 0.0) for lane in lanes] for what, seconds in spent.items()}
    return bars_chart(series, lanes, "lane", "seconds", COLOURS)


def _table(metrics: Metrics) -> TextTable:
    rows: dict[tuple[str, str], list[float]] = {}
    for span in metrics.timeline:
        rows.setdefault((span.lane, span.what), []).append(span.stop - span.start)
    told = [
        (*name, str(len(spent)), seconds_to_text(sum(spent)), seconds_to_text(max(spent)))
        for name, spent in sorted(rows.items())
    ]
    return TextTable(("lane", "what", "times", "seconds", "longest"), told)


def explained(text: str) -> Section:
    """Return the section that tells why."""
    return "Why", [Text(text)]
