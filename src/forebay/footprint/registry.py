"""The models that Dask, Cubed and others plan with: as given, loaded from a file, or learned once a process."""

import functools
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from forebay.footprint.chunks.chunked_inputs import for_chunks
from forebay.footprint.chunks.predictor import Predictor, place_of
from forebay.footprint.estimate import Estimate
from forebay.footprint.learn import learn
from forebay.footprint.load import load
from forebay.footprint.measure.inputs import random_array
from forebay.footprint.measure.process import name_of
from forebay.footprint.model import Model

_MODELS: dict[tuple[str, Path | None], Predictor] = {}
"""By function and file; without a file, the one that was learned or loaded last."""


@dataclass(frozen=True)
class SameShapeInputs:
    """The model of a function of several arrays that all have one shape."""

    model: Predictor
    dtypes: tuple[np.dtype[Any], ...]

    @property
    def ndim(self) -> int:
        """The number of axes of each array."""
        return self.model.ndim

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the first array."""
        return self.dtypes[0]

    @property
    def place(self) -> str:
        """Where the bytes are: on the host, or on a device."""
        return place_of(self.model)

    def predict(self, shape: tuple[int, ...], /) -> Estimate:
        """Estimate a run on chunks that all have this shape."""
        return self.model.predict(shape)

    def input_bytes(self, shape: tuple[int, ...]) -> int:
        """Count the bytes of one chunk of each array."""
        return prod(shape) * sum(dtype.itemsize for dtype in self.dtypes)


@dataclass(frozen=True)
class _SameShapeFactory:
    """Makes the inputs of a sample: arrays of one shape, each of its dtype."""

    dtypes: tuple[str, ...]

    def __call__(self, lengths: tuple[int, ...], rng: np.random.Generator) -> tuple[Any, ...]:
        return tuple(random_array(rng, lengths, dtype) for dtype in self.dtypes)


def key_of(func: Callable[..., Any], arrays: tuple[Any, ...], options: dict[str, Any]) -> str:
    """Name a function, with its options, on arrays of their kinds."""
    import cloudpickle

    kinds = [(array.ndim, str(array.dtype)) for array in arrays]
    content = cloudpickle.dumps((func, sorted(options.items()), kinds))
    return f"{name_of(func)}-{hashlib.sha256(content).hexdigest()[:16]}"


def model_of(
    func: Callable[..., Any],
    arrays: tuple[Any, ...],
    model: Predictor | str | Path | None,
    options: dict[str, Any],
    key: str,
    smallest: int,
) -> Predictor:
    """Return the model: itself, the one in a file (learned and saved there where it is none yet), or learn it now.

    Learning takes a few runs on small arrays, in a process of their own.
    """
    dtypes = tuple(np.dtype(array.dtype) for array in arrays)
    if model is not None and not isinstance(model, str | Path):
        model = _of_views(model)
        return model if len(arrays) == 1 else SameShapeInputs(for_chunks(model), dtypes)
    path = None if model is None else Path(model).resolve()
    if (key, path) not in _MODELS or (path is not None and not path.exists()):
        bound = functools.partial(func, **options) if options else func
        learned = _of_views(_load_or_learn(bound, arrays, path, smallest))
        _MODELS[key, path] = _MODELS[key, None] = learned if len(arrays) == 1 else SameShapeInputs(learned, dtypes)
    return _MODELS[key, path]


def _of_views(model: Predictor) -> Predictor:
    """Return the model of inputs that have gaps between their rows, as chunks have that are cut from larger ones."""
    return replace(model, views=True) if isinstance(model, Model) else model


def how_to_learn(ndim: int, dtypes: tuple[str, ...], smallest: int) -> dict[str, Any]:
    """Return how a function of arrays of one shape is learned.

    That is for no shape in particular: the model serves chunks of any size, of this array and of larger ones to come.
    """
    how: dict[str, Any] = {"ndim": ndim, "dtype": dtypes[0], "smallest": smallest}
    if len(dtypes) > 1:
        how["inputs"] = _SameShapeFactory(dtypes)
    return how


def _load_or_learn(func: Callable[..., Any], arrays: tuple[Any, ...], path: Path | None, smallest: int) -> Model:
    dtypes = tuple(np.dtype(array.dtype).name for array in arrays)
    how = how_to_learn(arrays[0].ndim, dtypes, smallest)
    if path is not None and path.exists():
        return load(path, func, changed="relearn", dtypes=dtypes, **how)
    learned = learn(func, **how)
    if path is not None:
        learned.save(path)
    return learned
