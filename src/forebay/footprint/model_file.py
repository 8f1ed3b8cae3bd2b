"""Footprints as JSON: the samples and the conditions they were taken under, from which everything else follows.

Nothing pickled is written or read, and nothing that a file names is imported.
"""

import json
from dataclasses import asdict
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from forebay.errors import reading
from forebay.files import text_of, whole
from forebay.footprint.errors import FootprintError
from forebay.footprint.fit.footprint import Footprint
from forebay.footprint.measure.conditions import Conditions
from forebay.footprint.measure.inputs import LONGEST, InputLayout
from forebay.footprint.measure.sample import Sample
from forebay.units import MOST_BYTES

KIND, FORMAT = "forebay footprint", 1


def write(model: Footprint, path: Path) -> None:
    """Write a model; the terms and notes are there to be read by people, and are learned anew when it is loaded."""
    fits = {"host": model.host, "device": model.device}
    text = json.dumps(
        {
            "kind": KIND,
            "format": FORMAT,
            "name": model.name,
            "layout": asdict(model.layout),
            "dtype": model.dtype.name,
            "risk": model.risk,
            "bytes per element": {place: fit.coefficients for place, fit in fits.items() if fit is not None},
            "notes": model.notes,
            "conditions": asdict(model.conditions),
            "samples": [asdict(sample) for sample in model.samples],
        },
        indent=2,
    )
    with whole(path) as unfinished:  # nobody finds half a model
        unfinished.write_text(text + "\n")


def read(path: Path) -> dict[str, Any]:
    """Return the fields of a model as they were written, whatever has changed since."""
    from pydantic import TypeAdapter  # late: only models from files need it

    with reading(path, "a footprint", FootprintError):
        content: dict[str, Any] = json.loads(text_of(path))
        if content["kind"] != KIND or content["format"] != FORMAT:
            raise FootprintError(f"{path} is not a footprint of a kind that this version reads: learn it again")
        layout = TypeAdapter(InputLayout).validate_python(content["layout"])
        samples = TypeAdapter(list[Sample]).validate_python(content["samples"])
        known = [name for name, _ in layout.parameters]
        if len(layout.legal) not in (0, sum(layout.ndims)) or (samples and sorted(samples[0].parameters) != known):
            raise FootprintError(f"{path} has samples of other axes or parameters than it names: learn it again")
        if not samples or any(len(sample.lengths) != sum(layout.ndims) for sample in samples):
            raise FootprintError(f"{path} has no samples, or ones of another number of axes: learn it again")
        risk = float(content["risk"])
        if not 1e-12 < risk < 0.5:
            raise FootprintError(f"{path} has a risk of {risk:g}, which is not between 0 and 0.5: learn it again")
        _check(path, samples)
        return {
            "name": str(content["name"]),
            "layout": layout,
            "dtype": np.dtype(str(content["dtype"])),
            "samples": tuple(samples),
            "conditions": TypeAdapter(Conditions).validate_python(content["conditions"]),
            "risk": risk,
            "notes": tuple(map(str, content["notes"])),
        }


def _check(path: Path, samples: list[Sample]) -> None:
    """Refuse samples that cannot have been measured, or not by one model."""
    for sample in samples:
        try:
            np.dtype(sample.output_dtype or "float32")
        except TypeError:
            raise FootprintError(f"{path} names an output of dtype {sample.output_dtype!r}: learn it again") from None
        measured = (sample.host, sample.device or 0, sample.floor, sample.inputs or 0)
        if not 1 <= min(sample.lengths) <= max(sample.lengths) <= LONGEST:
            raise FootprintError(f"{path} has a sample of lengths that cannot be, {sample.lengths}: learn it again")
        if not all(0 <= count <= MOST_BYTES for count in measured) or not 0 <= sample.seconds < inf:
            raise FootprintError(f"{path} has a sample that cannot be, {sample}: learn it again")
        if set(sample.features) != set(samples[0].features) or (sample.device is None) != (samples[0].device is None):
            raise FootprintError(f"{path} has samples of different features or places: learn it again")
        if set(sample.parameters) != set(samples[0].parameters):
            raise FootprintError(f"{path} has samples of different parameters: learn it again")
