"""The arrays a function takes: how their shapes become one list of lengths, and how samples of them are made."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from math import prod
from operator import index
from typing import Any

import numpy as np

from forebay.footprint.errors import FootprintError
from forebay.footprint.values import ValueSet, read_lengths, read_parameters

Shape = Sequence[int]
Factory = Callable[[tuple[int, ...], np.random.Generator], Any]
"""makes the inputs of a sample: an array, a tuple of positional ones, or a dict of those by keyword"""

LONGEST = 2**60
"""The largest length of an axis: what it takes is counted, and no computer has it."""

LIBRARIES = ("numpy", "cupy", "torch", "jax")


@dataclass(frozen=True)
class InputLayout:
    """How many axes each input has, what each is called where it is passed by keyword, and what else is passed."""

    ndims: tuple[int, ...]
    names: tuple[str, ...] = ()
    legal: tuple[ValueSet | None, ...] = ()
    """the lengths that each axis may have, None where any will do; nothing where that is so for all"""
    parameters: tuple[tuple[str, ValueSet], ...] = ()
    """what is passed by keyword beside the arrays, in the order of the names"""

    @classmethod
    def of(
        cls,
        ndim: int | Sequence[int] | Mapping[str, int],
        axes: Mapping[int, Any] | None = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> "InputLayout":
        """Read what a user gives: axes of one array, of several, or by keyword; their lengths; parameters.

        Examples
        --------
        >>> InputLayout.of({"image": 3, "kernel": 1}).flatten(None, image=(64, 64, 32), kernel=(9,))
        (64, 64, 32, 9)
        """
        names = tuple(ndim) if isinstance(ndim, Mapping) else ()
        numbers: Any = ndim.values() if isinstance(ndim, Mapping) else ndim if isinstance(ndim, Sequence) else (ndim,)
        try:
            counts = tuple(index(count) for count in numbers)  # NumPy's integers too
        except TypeError:
            counts = ()
        if counts and not any(counts):
            raise FootprintError(
                f"ndim={ndim!r}: give the number of axes of the input; watch() tells what one without needs"
            )
        if not counts or not all(0 <= count <= 8 for count in counts):
            raise FootprintError(f"ndim={ndim!r}: give the number of axes of the input, 1 to 8, or one for each input")
        return cls(counts, names, read_lengths(axes, sum(counts)), read_parameters(parameters))

    @property
    def axes(self) -> tuple[str, ...]:
        """What each length is called in a term."""
        if len(self.ndims) == 1 and not self.names:
            return tuple(f"n{axis}" for axis in range(self.ndims[0]))
        names = self.names or tuple("abcdefgh"[: len(self.ndims)])
        return tuple(f"{name}{axis}" for name, ndim in zip(names, self.ndims, strict=True) for axis in range(ndim))

    @property
    def free(self) -> tuple[int, ...]:
        """The axes that have no length of their own."""
        legal = self.legal or (None,) * sum(self.ndims)
        return tuple(axis for axis, values in enumerate(legal) if values is None or not values.fixed)

    @property
    def free_ndim(self) -> int:
        """The most axes that grow in any input."""
        starts = [sum(self.ndims[:place]) for place in range(len(self.ndims))]
        counts = zip(starts, self.ndims, strict=True)
        return max(1, *(sum(start <= axis < start + count for axis in self.free) for start, count in counts), 0)

    def only(self, axes: Mapping[int, Any]) -> "InputLayout":
        """Return the same with these lengths of axes alone."""
        return replace(self, legal=read_lengths(axes, sum(self.ndims)))

    def fit(self, lengths: Sequence[int]) -> tuple[int, ...]:
        """Return legal lengths near to others."""
        if not self.legal:
            return tuple(lengths)
        pairs = zip(lengths, self.legal, strict=True)
        return tuple(int(length if values is None else values.nearest(length)) for length, values in pairs)

    def side(self, volume: float) -> float:
        """Return the side of inputs of so many elements in which all axes that grow are alike."""
        legal = self.legal[: self.ndims[0]]
        fixed = prod(values.low for values in legal if values is not None and values.fixed)
        return float((volume / fixed) ** (1 / self.free_ndim))

    def flatten(self, shape: Shape | Sequence[Shape] | None, **shapes: Shape) -> tuple[int, ...]:
        """Put the lengths of all inputs one after the other."""
        if self.names:
            if set(shapes) != set(self.names) or shape is not None:
                raise FootprintError(f"give the shape of each input by keyword: {', '.join(self.names)}")
            parts: Sequence[Shape] = [shapes[name] for name in self.names]
        elif shape is None or shapes:
            raise FootprintError("give the shape of the input as a tuple of ints")
        else:
            parts = [shape] if len(self.ndims) == 1 else shape  # type: ignore[list-item, assignment]
        flat = tuple(_lengths(part, count) for part, count in zip(parts, self.ndims, strict=False))
        if len(parts) != len(self.ndims):
            raise FootprintError(f"{len(parts)} shapes for {len(self.ndims)} inputs")
        lengths: tuple[int, ...] = sum(flat, ())
        for length, values, axis in zip(lengths, self.legal, self.axes, strict=bool(self.legal)):
            if values is not None and values.fixed and length != values.low:
                raise FootprintError(f"{axis} is {length}: it was learned for {values}")
        return lengths

    def split(self, lengths: Sequence[int]) -> list[tuple[int, ...]]:
        """Return the shapes of the inputs."""
        shapes: list[tuple[int, ...]] = []
        start = 0
        for count in self.ndims:
            shapes.append(tuple(lengths[start : start + count]))
            start += count
        return shapes

    def volume(self, lengths: Sequence[Any]) -> int:
        """Count the elements of all inputs; what follows their lengths does not count."""
        return sum(prod(shape) for shape in self.split(lengths))


def _lengths(shape: Shape, count: int) -> tuple[int, ...]:
    try:
        lengths = tuple(index(length) for length in shape)
    except TypeError:
        raise FootprintError(f"{shape!r:.200} is not a shape: give a tuple of ints") from None
    if len(lengths) != count or any(length < 1 for length in lengths):
        raise FootprintError(f"shape {shape!r:.200} does not have {count} positive lengths")
    if max(lengths, default=1) > LONGEST:
        raise FootprintError(f"shape {shape!r:.200}: no axis has more than 2**60 elements")
    return lengths


@dataclass(frozen=True)
class InputRecipe:
    """How the inputs of a sample are made; travels to the child."""

    layout: InputLayout
    dtype: str
    library: str = "numpy"
    factory: Factory | None = None

    def make(self, lengths: tuple[int, ...], seed: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Make positional and keyword inputs of these lengths."""
        rng = np.random.default_rng([seed, *lengths])
        if self.factory is not None:
            made = self.factory(lengths, rng)
            return ((), made) if isinstance(made, dict) else (made if isinstance(made, tuple) else (made,), {})
        arrays = [
            self._convert(np.asarray(random_array(rng, shape, self.dtype))) for shape in self.layout.split(lengths)
        ]
        if self.layout.names:
            return (), dict(zip(self.layout.names, arrays, strict=True))
        return tuple(arrays), {}

    def _convert(self, array: np.ndarray[Any, Any]) -> Any:
        if self.library == "numpy":
            return array
        library: Any = import_module(self.library if self.library != "jax" else "jax.numpy")
        if self.library == "torch":
            return library.as_tensor(array, device="cuda" if library.cuda.is_available() else "cpu")
        return library.asarray(array)


def random_array(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    """Make random data: uniform in [0, 1) for real and complex numbers, in [0, 100) for integers."""
    kind = np.dtype(dtype)
    if kind.kind in "iu":
        return rng.integers(0, 100, shape).astype(kind)
    if kind.kind == "b":
        return rng.random(shape) < 0.5
    if kind.kind == "c":
        return (rng.random(shape) + 1j * rng.random(shape)).astype(kind)
    if kind.kind != "f":
        raise FootprintError(f"no random data of dtype {dtype}: give inputs=, a function that makes it")
    return rng.random(shape, np.float32).astype(kind, copy=False) if kind.itemsize <= 4 else rng.random(shape)


def strided(array: Any) -> Any:
    """Return a view of every second element of a larger array, with the same elements; what is no array as it is.

    Examples
    --------
    >>> view = strided(np.arange(6).reshape(2, 3))
    >>> view.tolist(), view.flags.c_contiguous
    ([[0, 1, 2], [3, 4, 5]], False)
    """
    if not isinstance(array, np.ndarray) or not array.ndim:
        return array
    wide = np.empty((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
    wide[...] = np.repeat(array, 2, axis=-1)
    return wide[..., ::2]
