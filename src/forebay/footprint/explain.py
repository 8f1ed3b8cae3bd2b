"""A model in words and numbers: its terms in bytes per element, the samples it rests on, and what is uncertain."""

from forebay.footprint.fit.footprint import Footprint
from forebay.footprint.fit.peaks import Fit
from forebay.units import seconds_to_text, to_text

FARTHER = 8
"""the terms are told as they are up to lengths so many times those of the samples"""


def explain(model: Footprint) -> str:
    """Write a model out for people."""
    lines = [f"{model.name}: {', '.join(model.layout.axes)} of {model.dtype}, peaks by {model.conditions.gauge_name}"]
    legal = zip(model.layout.axes, model.layout.legal, strict=bool(model.layout.legal))
    chosen = [(axis, values) for axis, values in legal if values is not None] + list(model.layout.parameters)
    if chosen:
        lines.append("learned for " + "; ".join(f"{name} {values}" for name, values in chosen))
    for place, fit in (("device", model.device), ("host", model.host)):
        if fit is not None:
            lines += ["", f"peak on the {place} above the inputs:", *_terms(fit)]
            if place == model.place:
                lines += _floor(model)
    output = "no array, or one whose shape does not follow from the input's"
    if model.output is not None:
        output = f"{model.samples[-1].output_dtype} ({', '.join(model.output.names)})"
    lines += ["", f"output: {output}", _samples(model)]
    lines += [f"note: {note}" for note in (*model.notes, *model.doubts.notes)]
    return "\n".join(lines)


def _terms(fit: Fit) -> list[str]:
    rows = _bytes(fit.coefficients)
    for stage in fit.overtaking:
        rows += ["  or, where that is more:", *_bytes(stage)]
    others = len(fit.posterior.sets) - 1
    if others:
        rows.append(f"  ({others} other sets of terms are plausible too, and the bound covers them)")
    return rows


def _bytes(coefficients: dict[str, float]) -> list[str]:
    fixed = coefficients["1"]
    rows = [f"  {value:>14,.2f} bytes x {name}" for name, value in coefficients.items() if name != "1"]
    return [*rows, f"  {'-' if fixed < 0 else ''}{to_text(abs(fixed))} at once"]


def _floor(model: Footprint) -> list[str]:
    """Say that the output decides where the terms say less than it needs, at a sample or a larger shape."""
    if model.output is None:
        return []
    pairs = [(sample, times) for sample in model.samples for times in (1, FARTHER)]
    if not any(model.decided_by_output(*pair) for pair in pairs):
        return []
    return [f"  but never less than the output, {model.samples[-1].output_dtype} ({', '.join(model.output.names)})"]


def _samples(model: Footprint) -> str:
    largest = max(model.samples, key=lambda sample: model.layout.volume(sample.lengths))
    spent = sum(sample.seconds for sample in model.samples)
    return (
        f"learned from {len(model.samples)} samples, the largest {largest.lengths}, that ran {seconds_to_text(spent)}; "
        f"seconds follow {model.timing.term}"
    )
