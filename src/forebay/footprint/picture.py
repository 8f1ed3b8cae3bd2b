"""A picture of a footprint: measured peaks against predicted ones, and how the bound opens beyond the samples."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from forebay.errors import needs
from forebay.footprint.errors import FootprintError
from forebay.footprint.fit.footprint import Footprint
from forebay.footprint.measure.sample import Sample
from forebay.units import to_text

ESTIMATE, MEASURED, HELD_OUT = "#2b7bba", "#d9772b", "#3d8f5f"


def draw(model: Footprint, path: Path, lengths: tuple[int, ...] | None = None, held_out: Sequence[Sample] = ()) -> None:
    """Draw a model, up to the shape that matters and with samples that it was not learned from, where there are any."""
    try:
        import matplotlib
    except ModuleNotFoundError as error:
        raise FootprintError(needs("a picture", "matplotlib", "plots")) from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(12, 5), layout="constrained")
    _against(left, model, held_out)
    _along(right, model, lengths, held_out)
    figure.suptitle(f"Footprint of {model.name}", fontweight="bold", parse_math=False)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _against(axis: Any, model: Footprint, held_out: Sequence[Sample]) -> None:
    """Draw predicted over measured: points on the diagonal are right, bars reach up to the bound."""
    for samples, colour, label in ((model.samples, MEASURED, "samples"), (held_out, HELD_OUT, "held out")):
        if samples:
            runs = [model.at(sample.lengths, sample.features) for sample in samples]
            measured = [sample.peak / 1e6 for sample in samples]
            middle = [run.bytes / 1e6 for run in runs]
            above = [(run.upper - run.bytes) / 1e6 for run in runs]
            axis.errorbar(
                measured, middle, yerr=[[0.0] * len(above), above], fmt="o", color=colour, capsize=3, label=label
            )
    ends = np.array([min(max(s.peak, 1000) for s in model.samples), max(s.peak for s in (*model.samples, *held_out))])
    axis.plot(ends / 1e6, ends / 1e6, color="grey", linewidth=1, zorder=0)
    axis.set(xscale="log", yscale="log", xlabel="measured peak (MB)", ylabel="predicted peak and bound (MB)")
    axis.legend()


def _along(axis: Any, model: Footprint, lengths: tuple[int, ...] | None, held_out: Sequence[Sample]) -> None:
    """Draw estimate and bound as all axes grow together, to the shape that matters."""
    largest = max(model.samples, key=lambda sample: model.layout.volume(sample.lengths))
    goal = lengths or tuple(3 * length for length in largest.lengths)
    grown = [tuple(max(round(length * part), 1) for length in goal) for part in np.geomspace(0.05, 1, 40)]
    density = {name: value / model.layout.volume(largest.lengths) for name, value in largest.features.items()}
    volumes = [model.layout.volume(shape) for shape in grown]
    runs = [
        model.at(shape, {name: value * volume for name, value in density.items()})
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
    for samples, colour in ((model.samples, MEASURED), (held_out, HELD_OUT)):
        axis.plot(
            [model.layout.volume(sample.lengths) for sample in samples],
            [max(sample.peak, 1000) / 1e6 for sample in samples],
            "o",
            color=colour,
        )
    axis.set(xscale="log", yscale="log", xlabel="elements of the input", ylabel="peak (MB)")
    axis.set_title(f"{goal}: {to_text(runs[-1].bytes)}, at most {to_text(runs[-1].upper)}", fontsize=10)
    axis.legend()
