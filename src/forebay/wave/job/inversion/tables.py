"""The tables of jobs that look for a model, beside those of a migration."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from forebay.wave.job.tables import Count, Depth, Positive, Table, listed

Bounds = tuple[Depth, Positive]


class InversionTable(Table):
    """How `forebay fwi` looks for a model: see `forebay.wave.invert`."""

    frequencies: Annotated[tuple[Positive | Literal["all"], ...], BeforeValidator(listed), Field(min_length=1)] = (
        "all",
    )
    """of stages, in Hz: each takes wavelet and data up to one, or all of them"""
    iterations: Annotated[tuple[Count, ...], BeforeValidator(listed), Field(min_length=1)] = (10,)
    """of each stage, or one number for each"""
    misfit: Literal["least squares", "correlation", "envelope", "transport"] = "least squares"
    bounds: Bounds | dict[str, Bounds] | None = None
    """the smallest and the largest velocity, or a pair for each array by name"""
    fixed: Path | None = None
    """.npy of the model's shape: where it is not 0 the model is known"""
    fixed_depth: Depth = 0.0
    """metres from the top of the model in which it is known, such as in water"""
    smooth: Depth = 0.0
    """metres over which updates are smoothed"""
    precondition: bool = True
    """whether updates are larger where the sources cast little light"""
    estimate_source: bool | Literal["each"] = False
    """whether each stage finds the wavelet from the data first: one filter for all shots, or for "each\""""
    mini_batch: Count | None = None
    """shots of an iteration, drawn anew after every three; unless told, all of them"""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """of the draws"""

    @model_validator(mode="after")
    def _check_stages(self) -> "InversionTable":
        if len(self.iterations) not in (1, len(self.frequencies)):
            raise ValueError(f"iterations of one number, or of {len(self.frequencies)}, one for each of frequencies")
        if self.seed and self.mini_batch is None:
            raise ValueError("mini_batch beside seed")
        return self

    @property
    def stages(self) -> list[tuple[float | None, int]]:
        """The frequency of each stage, None for all of them, and its iterations."""
        counts = self.iterations * len(self.frequencies) if len(self.iterations) == 1 else self.iterations
        limits = [None if frequency == "all" else float(frequency) for frequency in self.frequencies]
        return list(zip(limits, counts, strict=True))


class LeastSquaresTable(Table):
    """How `forebay lsrtm` looks for the change that explains the echoes: see `forebay.wave.lsrtm`."""

    iterations: Count = 10
    """of conjugate gradients"""
    parameter: Literal["velocity", "squared slowness"] = "velocity"
    precondition: bool = True
    """whether changes are larger where the sources cast little light"""
