"""The chart of a footprint: the measured peaks, and estimate and bound up to a shape."""

from forebay.drawing import Chart, Series, Subplot, Tip
from forebay.footprint.fit.footprint import Footprint
from forebay.units import UNITS, to_text

ESTIMATE, BOUND, MEASURED = "#2b7bba", "#9fc4e3", "#d9572b"
POINTS = 40
"""Shapes at which a footprint is asked."""


def footprint_chart(model: Footprint, shape: tuple[int, ...] | None = None) -> Chart:
    """Draw a footprint as all axes grow together, up to a shape, or to twice that of the largest sample."""
    volume = model.layout.volume
    largest = max(model.samples, key=lambda sample: volume(sample.lengths))
    goal = shape or tuple(2 * length for length in largest.lengths)
    density = {name: value / volume(largest.lengths) for name, value in largest.features.items()}
    shapes = [tuple(max(1, round(length * part / POINTS)) for length in goal) for part in range(1, POINTS + 1)]
    shapes = sorted(set(shapes), key=volume)
    runs = [model.at(grown, {name: each * volume(grown) for name, each in density.items()}) for grown in shapes]
    end, most = float(max(1, volume(goal))), max(run.upper for run in runs)
    unit = next((unit for unit in ("TB", "GB", "MB", "kB") if most >= UNITS[unit]), "B")
    size = UNITS[unit]
    places = [float(volume(grown)) for grown in shapes]
    middle = [(x, run.bytes / size) for x, run in zip(places, runs, strict=True)]
    upper = [(x, run.upper / size) for x, run in zip(places, runs, strict=True)]
    top = 1.08 * max(most / size, 1e-9)
    dots = []
    for sample in model.samples:
        x, y, side, high = float(volume(sample.lengths)), sample.peak / size, end / 250, top / 80
        if x <= end:
            dots.append([(x - side, y), (x, y + high), (x + side, y), (x, y - high)])
    marks = [
        Series(f"bound (risk {model.risk:g})", BOUND, [[*middle, *reversed(upper)]], filled=True),
        Series("estimate", ESTIMATE, [middle]),
        Series("measured", MEASURED, dots, filled=True),
    ]
    starts = [0.0, *places[:-1]]
    tips = [
        Tip(left, right, 0, top, f"{grown}: {to_text(run.bytes)}, at most {to_text(run.upper)}")
        for left, right, grown, run in zip(starts, places, shapes, runs, strict=True)
    ]
    return Chart([Subplot(marks, f"peak, {unit}", top, tips=tips)], "elements of the input", end, model.name)
