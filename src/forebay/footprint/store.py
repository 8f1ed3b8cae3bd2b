"""Footprints as JSON: the samples and the conditions they were taken under, from which everything else follows.

Nothing pickled is written or read, and nothing that a file names is imported.
"""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from forebay.footprint.errors import FootprintError
from forebay.footprint.measure.conditions import Conditions
from forebay.footprint.measure.gauge import host_gauge
from forebay.footprint.measure.inputs import Layout
from forebay.footprint.measure.sample import Sample
from forebay.footprint.model import Model

KIND, FORMAT = "forebay footprint", 1


def write(model: Model, path: Path) -> None:
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
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")  # nobody finds half a model
    unfinished.write_text(text + "\n")
    unfinished.replace(path)


def read(path: Path) -> Model:
    """Read a model as it was written, whatever has changed since."""
    try:
        found: dict[str, Any] = json.loads(path.read_text())
        if found["kind"] != KIND or found["format"] != FORMAT:
            raise FootprintError(f"{path} is not a footprint of a kind that this version reads: learn it again")
        layout = TypeAdapter(Layout).validate_python(found["layout"])
        samples = TypeAdapter(list[Sample]).validate_python(found["samples"])
        if not samples or any(len(sample.lengths) != sum(layout.ndims) for sample in samples):
            raise FootprintError(f"{path} has no samples, or ones of another number of axes: learn it again")
        risk = float(found["risk"])
        if not 0 < risk < 0.5:
            raise FootprintError(f"{path} has a risk of {risk:g}, which is not between 0 and 0.5: learn it again")
        _check(path, samples)
        return Model(
            str(found["name"]),
            layout,
            np.dtype(str(found["dtype"])),
            tuple(samples),
            TypeAdapter(Conditions).validate_python(found["conditions"]),
            risk,
            tuple(map(str, found["notes"])),
        )
    except (KeyError, TypeError, ValueError, OSError) as error:
        if isinstance(error, FootprintError):
            raise
        raise FootprintError(f"cannot read a footprint from {path}: {error}") from error


def _check(path: Path, samples: list[Sample]) -> None:
    """Refuse samples that cannot have been measured, or not by one model."""
    for sample in samples:
        try:
            np.dtype(sample.output_dtype or "float32")
        except TypeError:
            raise FootprintError(f"{path} names an output of dtype {sample.output_dtype!r}: learn it again") from None
        if min(sample.lengths) < 1 or sample.host < 0 or not sample.seconds >= 0:
            raise FootprintError(f"{path} has a sample that cannot be, {sample}: learn it again")
        if set(sample.features) != set(samples[0].features) or (sample.device is None) != (samples[0].device is None):
            raise FootprintError(f"{path} has samples of different features or places: learn it again")


def load(
    path: str | Path,
    function: Callable[..., Any] | None = None,
    *,
    command: str | None = None,
    changed: str = "refuse",
    dtypes: Sequence[Any] | None = None,
    **how: Any,
) -> Model:
    """Load a model, unless what it belongs to has changed.

    Parameters
    ----------
    path
        the JSON file that `Model.save` wrote
    function, command
        the function or command it is of; without it, a change of its source goes unseen
    changed
        what to do where a library, the machine or the source is no longer the one it was learned on: "refuse",
        "relearn" (and write the file anew), or "accept"
    dtypes
        of all inputs, where they are known: others than those of the samples count as a change
    **how
        given to `learn` where it is learned again; an `ndim`, `dtype` or `library` other than the model's counts as a
        change, and so does a `gauge` other than the one it was measured with
    """
    if changed not in ("refuse", "relearn", "accept"):
        raise FootprintError(f"changed={changed!r}: say 'refuse', 'relearn' or 'accept'")
    model = read(Path(path))
    names, ndims = model.layout.names, model.layout.ndims
    ndim = dict(zip(names, ndims, strict=True)) if names else ndims if len(ndims) > 1 else ndims[0]
    was = {"ndim": ndim, "dtype": model.dtype.name, "library": model.conditions.library}
    changes = model.conditions.changes(function, _gpu(model), command)
    if Layout.of(how.get("ndim", ndim)) != model.layout:
        changes.append(f"it was learned on inputs of {ndim} axes, not {how['ndim']}")
    if "dtype" in how and np.dtype(how["dtype"]) != model.dtype:
        changes.append(f"it was learned on {model.dtype}, not {np.dtype(how['dtype'])}")
    if "library" in how and how["library"] != model.conditions.library:
        changes.append(f"it was learned on arrays of {model.conditions.library}, not {how['library']}")
    given = None if dtypes is None else tuple(np.dtype(each).name for each in dtypes)
    if given is not None and model.conditions.dtypes and given != model.conditions.dtypes:
        changes.append(f"it was learned on inputs of {', '.join(model.conditions.dtypes)}, not {', '.join(given)}")
    if how.get("gauge") is not None and host_gauge(how["gauge"]).how not in model.conditions.how:
        changes.append(f"it was measured by {model.conditions.how}, not {host_gauge(how['gauge']).how}")
    if not changes or changed == "accept":
        return model
    if changed == "refuse":
        raise FootprintError(
            f"{path} was learned under other conditions: {'; '.join(changes)}. Learn it again into another "
            "file, or remove this one; load(..., changed='relearn') writes it anew"
        )
    if function is None and command is None:
        raise FootprintError(f"{path} must be learned again ({'; '.join(changes)}): give the function or the command")
    from forebay.footprint.learn import learn

    again = learn(function, command=command, **(was | {"risk": model.risk} | how))
    again.save(path)
    return again


def _gpu(model: Model) -> str | None:
    """Tell the GPU of this machine as the model's gauge would; None where the model has none."""
    if model.conditions.gpu is None:
        return None
    from forebay.footprint.measure.gauge import DEVICE, device_gauge

    for library in DEVICE:
        if library in model.conditions.how.lower():
            try:
                return str(getattr(device_gauge(library), "kind", "none"))
            except ImportError:
                return "none"
    return None
