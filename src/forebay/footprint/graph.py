"""Graphs: the footprint of many operators together, each feeding the next, with arrays freed after their last use.

A graph answers like a model (``predict``, ``ndim``, ``dtype``), so chunks are chosen for all of its operators at once.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from forebay.errors import PlanError
from forebay.footprint.chunks.need import is_whole
from forebay.footprint.chunks.plan import choose_chunks
from forebay.footprint.chunks.predictor import Predictor, Shape, ndims_of, output_bytes, place_of
from forebay.footprint.estimate import Estimate
from forebay.units import Budget


@dataclass(frozen=True)
class Array:
    """An array of a graph: one of its inputs, or what an operator gives."""

    name: str
    graph: "Graph" = field(repr=False, compare=False)


@dataclass(frozen=True)
class Operator:
    """One operator of a graph: a model, the arrays it reads, and the halo that it needs of them."""

    name: str
    model: Predictor
    reads: tuple[str, ...]
    halo: Shape


@dataclass(frozen=True)
class Stage:
    """What one operator adds to the footprint of a graph."""

    operator: str
    held: int
    """bytes of results that are still needed while it runs"""
    estimate: Estimate
    """of the operator alone"""

    @property
    def upper(self) -> int:
        """The bound while it runs, above the graph's inputs."""
        return self.held + self.estimate.upper


@dataclass(frozen=True)
class GraphPeak:
    """The footprint of a whole graph, and the operator that causes it."""

    bytes: int
    upper: int
    operator: str
    stages: tuple[Stage, ...]


class Graph:
    """Operators that feed each other, in the order in which they are added and run.

    Examples
    --------
    >>> import numpy as np
    >>> class Times:
    ...     ndim, dtype = 2, np.dtype("float32")
    ...     def __init__(self, factor):
    ...         self.factor = factor
    ...     def predict(self, shape):
    ...         needed = self.factor * int(np.prod(shape))
    ...         return Estimate(needed, needed, 0.01, shape, self.dtype, 1.0)
    >>> graph = Graph()
    >>> x = graph.input("x", ndim=2, dtype="float32")
    >>> smooth = graph.add("smooth", Times(4), x, halo=3)
    >>> edges = graph.add("edges", Times(40), smooth, halo=1)
    >>> both = graph.add("both", Times(8), smooth, edges)
    >>> graph.peak((100, 100)).operator, graph.peak((100, 100)).bytes, graph.halo
    ('edges', 440000, (4, 4))
    """

    def __init__(self) -> None:
        self._inputs: dict[str, tuple[int, np.dtype[Any]]] = {}
        self._operators: dict[str, Operator] = {}
        self._kept: set[str] = set()

    def input(self, name: str, *, ndim: int, dtype: Any) -> Array:
        """Declare an input; all inputs are cut into the same chunks."""
        if self._inputs and ndim != self.ndim:
            raise PlanError(f"input {name!r} has {ndim} axes, the others {self.ndim}: one chunking cannot fit both")
        self._inputs[self._new(name)] = ndim, np.dtype(dtype)
        return Array(name, self)

    def add(
        self, name: str, model: Predictor, *reads: Array, halo: int | Sequence[int] = 0, keep: bool = False
    ) -> Array:
        """Add an operator that reads inputs of the graph or results of operators before it.

        Parameters
        ----------
        name : str
            What messages call it.
        model : Model
            Its footprint. One of several inputs is asked for the shapes of all arrays that the operator reads, in
            their order; one of a single input for that of the first.
        *reads : Array
            What it reads.
        halo : int or sequence of int
            Elements that it needs of its neighbours, on each side of an axis.
        keep : bool
            Whether its result is wanted at the end although another operator reads it.
        """
        if not reads:
            raise PlanError(f"operator {name!r} reads nothing: give it an input of the graph or another's result")
        for array in reads:
            if not isinstance(array, Array):
                raise PlanError(f"operator {name!r} reads a {type(array).__name__}: give it what input() or add() gave")
            if array.graph is not self:
                raise PlanError(f"operator {name!r} reads {array.name!r}, which belongs to another graph")
        per_axis = tuple(halo) if isinstance(halo, Iterable) else (halo,) * self.ndim
        if len(per_axis) != self.ndim or any(not is_whole(width) or width < 0 for width in per_axis):
            raise PlanError(
                f"operator {name!r}: halo={halo} needs one whole number, 0 or more, for each of {self.ndim} axes"
            )
        per_axis = tuple(map(int, per_axis))
        self._operators[self._new(name)] = Operator(name, model, tuple(array.name for array in reads), per_axis)
        if keep:
            self._kept.add(name)
        return Array(name, self)

    @property
    def ndim(self) -> int:
        """The number of axes of the inputs."""
        return self._first()[0]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the first input."""
        return self._first()[1]

    @property
    def halo(self) -> Shape:
        """The halos summed along the longest way through the graph."""
        reach = dict.fromkeys(self._inputs, (0,) * self.ndim)
        for operator in self._operators.values():
            widest = [max(lengths) for lengths in zip(*(reach[name] for name in operator.reads), strict=True)]
            reach[operator.name] = tuple(before + own for before, own in zip(widest, operator.halo, strict=True))
        return tuple(max(lengths) for lengths in zip(*reach.values(), strict=True))

    @property
    def results(self) -> tuple[str, ...]:
        """The operators whose results leave the graph."""
        read = {name for operator in self._operators.values() for name in operator.reads}
        return tuple(name for name in self._operators if name not in read or name in self._kept)

    def input_bytes(self, shape: Shape) -> int:
        """Bytes of all inputs at a shape."""
        return sum(math.prod(shape) * dtype.itemsize for _, dtype in self._inputs.values())

    def peak(self, shape: Sequence[int]) -> GraphPeak:
        """Run the graph in mind over chunks of a shape, halo included, and find where it needs the most."""
        if not self._operators:
            raise PlanError("the graph has no operators: add() at least one")
        shapes: dict[str, tuple[Shape | None, Any]] = {
            name: (tuple(shape), dtype) for name, (_, dtype) in self._inputs.items()
        }
        last = {name: place for place, operator in enumerate(self._operators.values()) for name in operator.reads}
        held: dict[str, int] = {}
        stages = []
        for place, operator in enumerate(self._operators.values()):
            estimate = _ask(operator, shapes)
            stages.append(Stage(operator.name, sum(held.values()), estimate))
            shapes[operator.name] = estimate.output_shape, estimate.output_dtype
            held[operator.name] = output_bytes(estimate)
            for name in [name for name in held if last.get(name, place) <= place and name not in self.results]:
                del held[name]
        worst = max(stages, key=lambda stage: stage.upper)
        likely = max(stage.held + stage.estimate.bytes for stage in stages)
        return GraphPeak(likely, worst.upper, worst.operator, tuple(stages))

    def predict(self, shape: Sequence[int]) -> Estimate:
        """Return the estimate of the whole; the risk is that any of its operators exceeds its bound."""
        peak = self.peak(shape)
        estimates = {stage.operator: stage.estimate for stage in peak.stages}
        last = estimates[self.results[0]] if len(self.results) == 1 else None
        return Estimate(
            bytes=peak.bytes,
            upper=peak.upper,
            risk=min(1.0, sum(estimate.risk for estimate in estimates.values())),
            output_shape=last.output_shape if last else None,
            output_dtype=last.output_dtype if last else None,
            seconds=sum(estimate.seconds for estimate in estimates.values()),
            place=self.place,
            kept=sum(estimate.kept for estimate in estimates.values()),
        )

    @property
    def place(self) -> str:
        """Where the bytes are: on the device where any operator works there."""
        places = {place_of(operator.model) for operator in self._operators.values()}
        return "device" if "device" in places else "host"

    def chunks(self, shape: Sequence[int], budget: str | float | Budget, **options: Any) -> Shape:
        """Choose one chunk shape in which every operator fits; the options are those of `plan_chunks`."""
        return choose_chunks(self, shape, budget, **{"halo": self.halo} | options)

    def _first(self) -> tuple[int, np.dtype[Any]]:
        if not self._inputs:
            raise PlanError("the graph has no inputs: declare one with input(name, ndim=, dtype=)")
        return next(iter(self._inputs.values()))

    def _new(self, name: str) -> str:
        if name in self._inputs or name in self._operators:
            raise PlanError(f"the graph has a {name!r} already: give each input and operator a name of its own")
        return name


def _ask(operator: Operator, shapes: dict[str, tuple[Shape | None, Any]]) -> Estimate:
    """Ask an operator's model, once it is sure that it was learned on the like of what the operator reads."""
    ndims = ndims_of(operator.model)
    if len(ndims) == 1:
        return operator.model.predict(_checked(operator, operator.reads[0], operator.model.ndim, shapes))
    if len(ndims) != len(operator.reads):
        raise PlanError(f"operator {operator.name!r} reads {len(operator.reads)} arrays; its model takes {len(ndims)}")
    pairs = zip(operator.reads, ndims, strict=True)
    lengths = sum((_checked(operator, source, ndim, shapes) for source, ndim in pairs), ())
    estimate: Estimate = operator.model.at(lengths)  # type: ignore[attr-defined]
    return estimate


def _checked(operator: Operator, source: str, ndim: int, shapes: dict[str, tuple[Shape | None, Any]]) -> Shape:
    """Return the shape of an array that an operator reads."""
    shape, dtype = shapes[source]
    if shape is None:
        raise PlanError(f"operator {operator.name!r} reads {source!r}, of which no output shape is known")
    if len(shape) != ndim:
        raise PlanError(
            f"operator {operator.name!r} reads {source!r} with {len(shape)} axes; its model was learned on {ndim}: "
            f"learn it with ndim={len(shape)}"
        )
    if operator.model.dtype is not None and dtype is not None and np.dtype(operator.model.dtype) != np.dtype(dtype):
        raise PlanError(
            f"operator {operator.name!r} reads {source!r} of {np.dtype(dtype)}; its model was learned on "
            f"{np.dtype(operator.model.dtype)}: learn it with dtype={str(np.dtype(dtype))!r}"
        )
    return shape
