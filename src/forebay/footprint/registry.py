"""The model that a door plans with: as given, loaded from a file, or learned once a process."""

import functools
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from forebay.footprint.chunks.need import Model
from forebay.footprint.chunks.view import for_blocks
from forebay.footprint.estimate import Estimate
from forebay.footprint.measure.inputs import random_array
from forebay.footprint.measure.process import name_of
from forebay.footprint.measure.sample import Sample

_LEARNED: dict[tuple[str, Path | None], Model] = {}
"""By function and file; without a file, the one that was learned or loaded last."""


@dataclass(frozen=True)
class Alike:
    """The model of a function of several arrays that all have one shape."""

    model: Model
    dtypes: tuple[np.dtype[Any], ...]

    @property
    def ndim(self) -> int:
        """The number of axes of each."""
        return self.model.ndim

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the first."""
        return self.dtypes[0]

    @property
    def place(self) -> str:
        """Where the bytes are: on the host, or on a device."""
        return getattr(self.model, "place", "host")

    def predict(self, shape: tuple[int, ...], /) -> Estimate:
        """Estimate a run on blocks that all have this shape."""
        return self.model.predict(shape)

    def input_bytes(self, shape: tuple[int, ...]) -> int:
        """Bytes of one block of each."""
        return prod(shape) * sum(dtype.itemsize for dtype in self.dtypes)

    def observe(self, *samples: Sample) -> "Alike":
        """Learn from further runs, where the model can."""
        observe = getattr(self.model, "observe", None)
        return self if observe is None else replace(self, model=observe(*samples))


@dataclass(frozen=True)
class _Blocks:
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
    model: Model | str | Path | None,
    options: dict[str, Any],
    key: str,
    smallest: int,
) -> Model:
    """Give the model: itself, the one in a file (learned and saved there where it is none yet), or learn it now.

    Learning takes a few runs on small arrays, in a process of their own.
    """
    dtypes = tuple(np.dtype(array.dtype) for array in arrays)
    if model is not None and not isinstance(model, str | Path):
        return model if len(arrays) == 1 else Alike(for_blocks(model), dtypes)
    path = None if model is None else Path(model).resolve()
    if (key, path) not in _LEARNED or (path is not None and not path.exists()):
        called = functools.partial(func, **options) if options else func
        known = _load_or_learn(called, arrays, path, smallest)
        _LEARNED[key, path] = _LEARNED[key, None] = known if len(arrays) == 1 else Alike(known, dtypes)
    return _LEARNED[key, path]


def _load_or_learn(func: Callable[..., Any], arrays: tuple[Any, ...], path: Path | None, smallest: int) -> Any:
    from forebay.footprint.learn import learn
    from forebay.footprint.store import load

    dtypes = tuple(np.dtype(array.dtype).name for array in arrays)
    # For no shape in particular: the model serves blocks of any size, of this array and of larger ones to come.
    how: dict[str, Any] = {"ndim": arrays[0].ndim, "dtype": dtypes[0], "smallest": smallest}
    if len(arrays) > 1:
        how["inputs"] = _Blocks(dtypes)
    if path is not None and path.exists():
        return load(path, func, changed="relearn", dtypes=dtypes, **how)
    learned = learn(func, **how)
    if path is not None:
        learned.save(path)
    return learned
