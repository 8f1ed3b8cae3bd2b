"""Models from their files, refused or learned again where what they belong to has changed."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from forebay.errors import reading
from forebay.footprint.errors import FootprintError
from forebay.footprint.learn import learn
from forebay.footprint.measure.gauge import DEVICE, device_gauge, host_gauge
from forebay.footprint.measure.inputs import InputLayout
from forebay.footprint.model import Model
from forebay.footprint.model_file import read


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
    model = Model(**read(Path(path)))
    with reading(path, "a footprint", FootprintError):  # samples that no model can be made of were damaged
        model.of(model.samples[0])
    names, ndims = model.layout.names, model.layout.ndims
    ndim = dict(zip(names, ndims, strict=True)) if names else ndims if len(ndims) > 1 else ndims[0]
    legal = {axis: values for axis, values in enumerate(model.layout.legal) if values is not None}
    also = {"axes": legal, "parameters": dict(model.layout.parameters)}
    was: dict[str, Any] = also | {"ndim": ndim, "dtype": model.dtype.name, "library": model.conditions.library}
    changes = model.conditions.changes(function, _gpu(model), command)
    asked = InputLayout.of(how.get("ndim", ndim), how.get("axes"), how.get("parameters"))
    if (asked.ndims, asked.names) != (ndims, names):
        changes.append(f"it was learned on inputs of {ndim} axes, not {how['ndim']}")
    for part in ("axes", "parameters"):
        field = "legal" if part == "axes" else part
        if how.get(part) is not None and getattr(asked, field) != getattr(model.layout, field):
            changes.append(f"it was learned for other {part}")
    if "dtype" in how and np.dtype(how["dtype"]) != model.dtype:
        changes.append(f"it was learned on {model.dtype}, not {np.dtype(how['dtype'])}")
    if "library" in how and how["library"] != model.conditions.library:
        changes.append(f"it was learned on arrays of {model.conditions.library}, not {how['library']}")
    kinds = () if dtypes is None else tuple(np.dtype(dtype).name for dtype in dtypes)
    if dtypes is not None and model.conditions.dtypes and kinds != model.conditions.dtypes:
        changes.append(f"it was learned on inputs of {', '.join(model.conditions.dtypes)}, not {', '.join(kinds)}")
    if how.get("gauge") is not None and host_gauge(how["gauge"]).gauge_name not in model.conditions.gauge_name:
        changes.append(f"it was measured by {model.conditions.gauge_name}, not {host_gauge(how['gauge']).gauge_name}")
    if not changes or changed == "accept":
        return model
    if changed == "refuse":
        raise FootprintError(
            f"{path} was learned under other conditions: {'; '.join(changes)}. Learn it again into another "
            "file, or remove this one; load(..., changed='relearn') writes it anew"
        )
    if function is None and command is None:
        raise FootprintError(f"{path} must be learned again ({'; '.join(changes)}): give the function or the command")
    relearned = learn(function, command=command, **(was | {"risk": model.risk} | how))
    relearned.save(path)
    return relearned


def _gpu(model: Model) -> str | None:
    """Return the name of this machine's GPU as the model's gauge would; None where the model has none."""
    if model.conditions.gpu is None:
        return None
    for library in DEVICE:
        if library in model.conditions.gauge_name.lower():
            try:
                gauge = device_gauge(library)
            except ImportError:
                gauge = None
            return "none" if gauge is None else gauge.kind
    return None
