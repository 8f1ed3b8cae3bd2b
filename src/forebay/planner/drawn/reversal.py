"""The page of a reversal: what was predicted and what was measured, side by side."""

from pathlib import Path
from typing import Protocol

from forebay.drawing import Chart
from forebay.drawing.page import Drawn, Facts, Section, Text, TextTable, write_page
from forebay.metrics import Metrics
from forebay.planner import Plan
from forebay.planner.drawn.timeline import run_chart
from forebay.units import seconds_to_text, to_text

WAYS = ("forward", "backward", "use", "save", "restore", "compress", "decompress", "stall")


class Reversed(Protocol):
    """What a reversal gives back, as far as it is told here."""

    @property
    def plan(self) -> Plan:
        """What was to be carried out."""

    @property
    def metrics(self) -> Metrics:
        """What was measured."""

    @property
    def steps(self) -> int | None:
        """That were reversed, where they were not those of the plan."""

    def explain(self) -> str:
        """Tell why this plan."""


def measured_chart(result: Reversed, end: float = 0.0, title: str = "") -> Chart:
    """Draw what was measured of a reversal; where its plan was left, or carried out many times, what was predicted."""
    plan, spans = result.plan, list(result.metrics.timeline)
    if not was_followed(result):
        return run_chart(plan, plan.timeline(), None, end, title or "predicted")
    return run_chart(plan, spans, kept_bytes(result), end, title)


def was_followed(result: Reversed) -> bool:
    """Tell whether the timeline of a reversal is that of its plan, from the first action to the last."""
    reversed_steps = sum(span.what == "backward" for span in result.metrics.timeline)
    return result.steps is None and reversed_steps == result.plan.schedule.steps


def kept_bytes(result: Reversed) -> float:
    """Return the bytes of a snapshot as it was kept, on average."""
    plan = result.plan
    raw = plan.state_bytes if plan.keep == "states" else plan.record_bytes or plan.state_bytes
    return raw / result.metrics.mean_ratio


def compared(result: Reversed) -> list[tuple[str, str, str]]:
    """List what was measured beside what was predicted, by name."""
    plan, metrics = result.plan, result.metrics
    times = 1.0 if result.steps is None else result.steps / plan.steps
    rows = [("whole", seconds_to_text(metrics.seconds), seconds_to_text(times * plan.prediction.seconds))]
    for way in WAYS:
        predicted = times * getattr(plan.prediction, way, 0.0)
        if max(metrics.phases[way], predicted) > 1e-3 * metrics.seconds:
            foreseen = seconds_to_text(predicted) if hasattr(plan.prediction, way) else ""
            rows.append((way, seconds_to_text(metrics.phases[way]), foreseen))
    for tier, planned in plan.peak_bytes.items():
        rows.append((f"{tier}, at most", to_text(metrics.peak[tier]), to_text(planned)))
    return rows


def facts_of(result: Reversed) -> Facts:
    """Return what a reader asks first."""
    plan, metrics = result.plan, result.metrics
    again = (metrics.advanced or plan.schedule.forward_steps) / plan.schedule.steps
    return Facts(
        [
            ("took", f"{seconds_to_text(metrics.seconds)}, predicted {seconds_to_text(plan.prediction.seconds)}"),
            ("everything kept would take", f"{to_text(_everything(plan))} of {plan.keep}"),
            *(
                (f"{tier}, at most", f"{to_text(peak)} of {_allowed(plan, tier)}")
                for tier, peak in metrics.peak.items()
            ),
            ("went forward", f"{again:.2f} times over the loop"),
            ("schedule", f"{plan.schedule}"),
            ("codec", f"{plan.codec}, {metrics.mean_ratio:.3g} times smaller" if plan.codec else "none"),
        ]
    )


def _allowed(plan: Plan, tier: str) -> str:
    return to_text(plan.budget[tier]) if tier in plan.budget.tiers else "no budget"


def write_report(result: Reversed, path: Path | str, title: str) -> None:
    """Write the page of a reversal."""
    followed = was_followed(result)
    seen = "What happened when" if followed else "What was planned when"
    note = (
        "Above the step that the loop is at, in the middle what computation and links do, below the snapshots in "
        "memory. Drag over a part to see it larger, double-click to see all."
    )
    predicted = [Drawn(run_chart(result.plan, result.plan.timeline()), "The same as the plan foresaw it.")]
    sections: list[Section] = [
        ("", [facts_of(result)]),
        (seen, [Drawn(measured_chart(result), note)]),
        *([("As predicted", predicted)] if followed else []),
        ("Measured and predicted", [TextTable(("", "measured", "predicted"), compared(result))]),
        ("Why this plan", [Text(result.explain())]),
    ]
    lead = f"A loop of {result.plan.steps} steps, run forward and backward inside {result.plan.budget!r}."
    write_page(path, title, lead, sections)


def write_plan(plan: Plan, path: Path | str, title: str = "A plan") -> None:
    """Write the page of a plan that nobody has carried out."""
    facts = Facts(
        [
            ("predicted", seconds_to_text(plan.seconds)),
            ("everything kept would take", to_text(_everything(plan))),
            *(
                (f"{tier}, at most", f"{to_text(peak)} of {_allowed(plan, tier)}")
                for tier, peak in plan.peak_bytes.items()
            ),
            ("schedule", f"{plan.schedule}"),
            ("codec", plan.codec or "none"),
        ]
    )
    rows = [(other.name, seconds_to_text(other.seconds)) for other in plan.alternatives]
    sections: list[Section] = [
        ("", [facts]),
        ("What happens when, as predicted", [Drawn(plan.plot(), "Drag over a part to see it larger.")]),
        ("Why this plan", [Text(plan.explain())]),
        *([("What else there was", [TextTable(("schedule", "predicted"), rows)])] if rows else []),
    ]
    write_page(path, title, f"A loop of {plan.steps} steps inside {plan.budget!r}, not yet run.", sections)


def _everything(plan: Plan) -> int:
    return (plan.state_bytes if plan.keep == "states" else plan.record_bytes or 0) * plan.schedule.steps
