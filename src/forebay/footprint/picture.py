"""A picture of a footprint: measured peaks against predicted ones, and how the bound opens beyond the samples."""

from pathlib import Path
from typing import Any

import numpy as np

from forebay.errors import needs
from forebay.footprint.errors import FootprintError
from forebay.footprint.fit.footprint import Footprint
from forebay.units import to_text

ESTIMATE, MEASURED = "#2b7bba", "#d9772b"


def draw(model: Footprint, path: Path, lengths: tuple[int, ...] | None = None) -> None:
    """Draw a model, up to the shape that matters where there is one."""
    try:
        import matplotlib
    except ModuleNotFoundError as error:
        raise FootprintError(needs("a picture", "matplotlib", "plots")) from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(12, 5), layout="constrained")
    _against(left, model)
    _along(right, model, lengths)
    figure.suptitle(f"Footprint of {model.name}", fontweight="bold", parse_math=False)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _against(axis: Any, model: Footprint) -> None:
    """Draw predicted over measured: points on the diagonal are right, bars reach up to the bound."""
    runs = [model.of(sample) for sample in model.samples]
    peaks = [sample.peak for sample in model.samples]
    measured, middle = [peak / 1e6 for peak in peaks], [run.bytes / 1e6 for run in runs]
    above = [(run.upper - run.bytes) / 1e6 for run in runs]
    bars = {"yerr": [[0.0] * len(above), above], "capsize": 3, "color": MEASURED}
    axis.errorbar(measured, middle, fmt="o", label="samples", **bars)
    ends = np.array([max(1000, min(peaks)), max(peaks)])
    axis.plot(ends / 1e6, ends / 1e6, color="grey", linewidth=1, zorder=0)
    axis.set(xscale="log", yscale="log", xlabel="measured peak (MB)", ylabel="predicted peak and bound (MB)")
    axis.legend()


def _along(axis: Any, model: Footprint, lengths: tuple[int, ...] | None) -> None:
    """Draw estimate and bound as all axes grow together, to the shape that matters."""
    largest = max(model.samples, key=lambda sample: model.layout.volume(sample.lengths))
    goal = lengths or tuple(3 * length for length in largest.lengths)
    grown = [model.layout.fit([max(round(length * part), 1) for length in goal]) for part in np.geomspace(0.05, 1, 40)]
    density = {name: value / model.layout.volume(largest.lengths) for name, value in largest.features.items()}
    volumes = [model.layout.volume(shape) for shape in grown]
    runs = [
        model.at(shape, {name: value * volume for name, value in density.items()}, model.given or largest.parameters)
        for shape, volume in zip(grown, volumes, strict=True)
    ]
    axis.plot(volumes, [run.bytes / 1e6 for run in runs], color=ESTIMATE, label="estimate")
    axis.fill_between(
        volumes,
        [run.bytes / 1e6 for run in runs],
        [run.upper / 1e6 for run in runs],
        color=ESTIMATE,
        alpha=0.25,
        label=f"bound (risk {model.risk:g})",
    )
    sampled = [model.layout.volume(sample.lengths) for sample in model.samples]
    axis.plot(sampled, [max(sample.peak, 1000) / 1e6 for sample in model.samples], "o", color=MEASURED)
    axis.set(xscale="log", yscale="log", xlabel="elements of the input", ylabel="peak (MB)")
    axis.set_title(f"{goal}: {to_text(runs[-1].bytes)}, at most {to_text(runs[-1].upper)}", fontsize=10)
    axis.legend()
