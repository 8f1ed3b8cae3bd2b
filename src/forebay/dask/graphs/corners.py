"""A pipeline over an array, and what its tasks need: learned on two small corners of the array, on a worker."""

import hashlib
import math
import platform
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import cloudpickle
import dask.array as da
import distributed
import numpy as np

from forebay.dask.graphs.nodes import TaskGraph, task_graph
from forebay.dask.graphs.rates import Rates, rates_of, source_bytes
from forebay.dask.graphs.running import TaskSample
from forebay.dask.graphs.sampling import sample
from forebay.dask.limits import WorkerLimits
from forebay.errors import ForebayError, PlanError
from forebay.footprint.measure.conditions import source_hash
from forebay.footprint.measure.process import MMAP_THRESHOLD

SMALL, LARGE = 2**16, 2**18
"""elements of a block of each of the two corners; the larger one is cut along one axis only"""
MOST = 2**21
"""elements of a block of the larger corner where blocks are as many stored chunks long"""

LIBRARIES = ("forebay", "dask", "distributed", "numpy", "scipy", "xarray", "zarr")
"""whose versions decide with the pipeline what its tasks need"""

LARGE_SHARE = 16
"""blocks of less than this part of what a thread has are sampled in the worker itself, which is quicker"""


@dataclass
class Pipeline:
    """What was learned of a pipeline: by how its blocks are cut, since that decides which tasks there are."""

    build: Callable[[Any], Any]
    source: Any
    client: distributed.Client
    limits: WorkerLimits
    identity: tuple[Callable[..., Any], Any]
    """what tells pipelines apart, without the arrays: a function, and how it is called"""
    room: int
    """bytes that a thread of a worker has, whatever the budget"""
    whole: frozenset[int] = frozenset()
    """axes that are never cut: corners have all of them, since functions may need just that length"""
    stored: tuple[int, ...] | None = None
    """chunks that an array of Dask was read from, where that is known"""
    rates: dict[tuple[bool, ...], dict[str, Rates]] = field(default_factory=dict)

    def graph(self, chunks: Sequence[int]) -> tuple[TaskGraph, Any]:
        """Return the tasks of the pipeline over the array in chunks, and that array."""
        cut = cut_into(self.source, chunks)
        return task_graph(self.build(cut)), cut

    def rates_for(self, numblocks: Sequence[int]) -> dict[str, Rates]:
        """Return what is known of the graph whose axes are cut, or not, as these; or run it on two small corners."""
        pattern = tuple(count > 1 for count in numblocks)
        if pattern not in self.rates:
            self.rates[pattern] = self._kept(pattern) or self._learned(pattern)
        return self.rates[pattern]

    def _kept(self, pattern: tuple[bool, ...]) -> dict[str, Rates] | None:
        """Return what somebody has learned on this cluster before; its scheduler keeps that for all of its users."""
        kept = self.client.get_metadata(self._place(pattern), None)
        return None if kept is None else {kind: Rates.of(numbers) for kind, numbers in kept.items()}

    def _learned(self, pattern: tuple[bool, ...]) -> dict[str, Rates]:
        samples: list[TaskSample] = []
        small, large = self._lengths()
        for lengths, cut in ((small, pattern), (large, _first(pattern))):
            corner = _corner(self.source, lengths, cut)
            try:
                built = self.build(corner)
            except ForebayError:
                raise
            except Exception as error:  # a pipeline may raise anything
                raise PlanError(
                    f"the pipeline fails on a corner of {corner.shape} with {type(error).__name__}: {error}. It is "
                    "called with small corners of the array: where it uses another array of that size, cut that to "
                    "the same shape, and name the axes that must stay as long as they are in whole="
                ) from error
            graph = task_graph(built)
            samples += sample(graph, source_bytes(graph, self.told(corner)), self.client, apart=self._is_large())
        rates = rates_of(samples)
        self.client.set_metadata(self._place(pattern), {kind: rate.numbers() for kind, rate in rates.items()})
        return rates

    def _is_large(self) -> bool:
        """Return whether stored chunks or those of a collection, which are as large as they are, may be too much."""
        stored = stored_chunks(self.source) or ()
        size = math.prod(stored) * self.source.dtype.itemsize
        return bool(stored and LARGE_SHARE * size > self.room)

    def _place(self, pattern: tuple[bool, ...]) -> list[str]:
        """Return where the scheduler keeps what is known of this pipeline on arrays of this kind, cut in this way."""
        function, how = self.identity
        what = source_hash(function), conditions(), self.limits.threads, str(self.source.dtype), self._lengths()
        content = cloudpickle.dumps((function, how, what, pattern))
        return ["forebay", hashlib.sha256(content).hexdigest()]

    def _lengths(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the blocks of both corners: of one stored chunk and of some, since reading needs room of its own."""
        shape, stored = self.source.shape, getattr(self.source, "chunks", None)
        all_of = {axis: shape[axis] for axis in self.whole}
        if stored and all(isinstance(length, int) for length in stored):
            once = tuple(all_of.get(axis, length) for axis, length in enumerate(stored))
            twice = tuple(min(2 * length, extent) for length, extent in zip(once, shape, strict=True))
            if math.prod(once) < math.prod(twice) <= MOST:
                return once, twice
        if math.prod(all_of.values()) > SMALL:
            all_of = {}
        free = max(1, self.source.ndim - len(all_of))
        sides = [max(1, round((size / math.prod(all_of.values())) ** (1 / free))) for size in (SMALL, LARGE)]
        small, large = (tuple(all_of.get(axis, side) for axis in range(self.source.ndim)) for side in sides)
        return small, large

    def told(self, cut: Any) -> Any:
        """Return the array whose blocks the roots of the graph read, where these tell what roots need."""
        return None if isinstance(self.source, da.Array) else cut


def _first(pattern: Sequence[bool]) -> tuple[bool, ...]:
    """Return the pattern with no more than its first axis cut."""
    return tuple(cut and not any(pattern[:axis]) for axis, cut in enumerate(pattern))


def conditions() -> list[str]:
    """Return what else may change what tasks need: versions, and how workers were told to allocate."""
    found = [platform.python_version(), str(MMAP_THRESHOLD)]
    for name in LIBRARIES:
        with suppress(PackageNotFoundError):
            found.append(f"{name} {version(name)}")
    return found


def stored_chunks(source: Any) -> tuple[int, ...] | None:
    """Return the chunks that an array is stored in, or is cut into where it is one of Dask's."""
    chunks = getattr(source, "chunksize", None) or getattr(source, "chunks", None)
    if not chunks or not all(isinstance(length, int) for length in chunks):
        return None
    return tuple(chunks)


def cut_into(source: Any, chunks: Sequence[int]) -> Any:
    """Return an array in chunks: one of Dask's cut anew, any other opened in them."""
    if isinstance(source, da.Array):
        return source.rechunk(tuple(chunks))
    return da.from_array(source, chunks=tuple(chunks))


@dataclass(frozen=True)
class _Corner:
    """The first elements of an array."""

    array: Any
    shape: tuple[int, ...]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def dtype(self) -> Any:
        return self.array.dtype

    def __getitem__(self, index: Any) -> Any:
        return self.array[index]


def _corner(source: Any, wanted: Sequence[int], pattern: Sequence[bool]) -> Any:
    """Return the first elements of an array, in two blocks along the axes that are cut and in one along the others."""
    room = [extent // 2 if cut else extent for cut, extent in zip(pattern, source.shape, strict=True)]
    lengths = [max(1, min(length, most)) for length, most in zip(wanted, room, strict=True)]
    shape = tuple((2 if cut else 1) * each for cut, each in zip(pattern, lengths, strict=True))
    if isinstance(source, da.Array):
        return source[tuple(map(slice, shape))].rechunk(tuple(lengths))
    if isinstance(source, np.ndarray):
        source = source[tuple(map(slice, shape))]
    elif hasattr(source, "corner"):
        source = source.corner(shape)
    else:
        source = _Corner(source, shape)
    return da.from_array(source, chunks=tuple(lengths))
