"""States as trees of arrays: where each array of a snapshot lies in one region, and what a state has to be like."""

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import optree

from forebay.cuda.arrays import is_window
from forebay.engine.states.matching import aligned_leaves
from forebay.engine.states.sharing import sharing, sharing_with_gaps
from forebay.engine.trees import flatten
from forebay.errors import StateError
from forebay.machine.arrays.dispatch import NUMPY, array_library, region_of
from forebay.machine.arrays.library import ArrayLibrary
from forebay.machine.packing import in_a_row, snapshot_bytes
from forebay.machine.region import Region
from forebay.machine.spec import JaxKind, Leaf


class Likeness(NamedTuple):
    """What an array of a state has to be like."""

    library: ArrayLibrary
    kind: Any
    """the class of the array"""
    signature: Any
    """all that is looked at where an array is as it has to be"""
    device: int | None
    """the number of its GPU"""


@dataclass(frozen=True)
class Layout:
    """The shape of a tree of arrays: how to take it apart, and how to put it together again."""

    leaves: tuple[Leaf, ...]
    nbytes: int
    """of a snapshot, rounded up to whole sectors of a disk"""
    structure: optree.PyTreeSpec
    likenesses: tuple[Likeness, ...]
    """of each leaf"""
    name: str = "state"
    """what the tree is called in messages"""

    @classmethod
    def of(cls, tree: Any, name: str = "state") -> "Layout":
        """Lay out a tree of arrays of any library, refusing what would not come back as it was."""
        arrays, structure = flatten(tree)
        if not arrays:
            raise StateError(f"the {name} holds no arrays: give a tuple, list or dict of arrays")
        specs, likenesses = [], []
        for number, array in enumerate(arrays):
            try:
                library = array_library(array)
                spec = library.leaf_spec(array)
            except StateError as error:
                raise StateError(f"{_path(structure, number, name)}: {error}") from error
            specs.append(spec)
            likenesses.append(Likeness(library, *library.like(array, spec), library.device(array)))
        structure = flatten(structure.unflatten(arrays))[1]  # as it is built: derived dicts are dicts from here on
        extents = in_a_row([spec.nbytes for spec in specs])
        leaves = tuple(Leaf(spec, *extent) for spec, extent in zip(specs, extents, strict=True))
        return cls(leaves, snapshot_bytes(extents), structure, tuple(likenesses), name)

    def build(self, arrays: Sequence[Any]) -> Any:
        """Make the tree from its arrays."""
        return self.structure.unflatten(arrays)

    def copy(self, tree: Any) -> Any:
        """Copy a tree that this layout is of."""
        leaves = zip(flatten(tree)[0], self.leaves, strict=True)
        return self.build([array_library(array).copy_as(array, leaf.spec) for array, leaf in leaves])

    def check(self, tree: Any, windows: bool = False) -> list[Any]:
        """Take a tree that a callback returned apart, refusing one that differs; `windows` are those of a record."""
        return self._fitted(tree, False, windows)[0]

    def regions(self, arrays: Sequence[Any]) -> list[Region]:
        """Return where arrays lie that `check` returned."""
        return [
            region_of(array) if likeness.device is None else Region(likeness.library.address(array) or 0, leaf.nbytes)
            for array, leaf, likeness in zip(arrays, self.leaves, self.likenesses, strict=True)
        ]

    def windows(self, arrays: Sequence[Any]) -> list[tuple[int, ...] | None]:
        """Return the strides of those arrays that `check` returned as windows, and None for the others."""
        return [self._window(number, array) for number, array in enumerate(arrays)]

    def match(self, tree: Any) -> Any:
        """Return a state that forward returned as the initial one was built, refusing one that differs from it.

        What is the same already is returned as it is. Keys of dicts are put in order. Nothing is copied: an array in
        another order of memory is refused, since steps that come after it would compute other bits than without us.
        """
        arrays, is_same = self._fitted(tree, False)
        if (pair := sharing(arrays, self._sizes)) is not None:
            both = " and ".join(self._path(number) for number in pair)
            raise StateError(
                f"forward returned a state in which {both} share memory, and would be kept apart: return copies, or "
                "give the state only one of them"
            )
        return tree if is_same else self.build(arrays)

    def match_record(self, tree: Any, windows: bool = False) -> Any:
        """Return a record as the first one was built; arrays in another order or with gaps are copied.

        Where `windows` are allowed, arrays that are cut out of larger ones along whole rows stay where they lie.
        """
        arrays, is_same = self._fitted(tree, True, windows)
        return tree if is_same else self.build(arrays)

    def check_apart(self, arrays: Sequence[Any]) -> None:
        """Refuse arrays of the initial state that share memory."""
        if (pair := sharing_with_gaps(arrays, self._sizes)) is not None:
            both = " and ".join(self._path(number) for number in pair)
            raise StateError(f"{both} share memory, and would be kept apart: give copies, or only one of them")

    def locked(self, tree: Any) -> Any:
        """Return a tree of its own whose arrays of NumPy cannot be written to; other libraries have no such arrays."""
        arrays = flatten(tree)[0]
        if not self._has_numpy:
            return self.build(arrays)
        return self.build([_locked(array) if isinstance(array, np.ndarray) else array for array in arrays])

    def _fitted(self, tree: Any, copies: bool, windows: bool = False) -> tuple[list[Any], bool]:
        """Return the arrays of a tree as they have to be, and whether they are the tree's own, in its order."""
        arrays, structure = flatten(tree)
        is_same = structure == self.structure
        if not is_same:
            arrays = aligned_leaves(self.structure, tree, self._who, self.name)
        for number, (array, likeness) in enumerate(zip(arrays, self.likenesses, strict=True)):
            library, kind, signature, _ = likeness
            if type(array) is kind and library.signature(array) == signature:
                continue
            if windows and self._window(number, array) is not None:
                continue
            fitted = self._fit(number, array, copies)
            if fitted is not array:
                arrays[number], is_same = fitted, False
        return arrays, is_same

    def _fit(self, number: int, array: Any, copies: bool) -> Any:
        """Return an array as it has to be, or refuse it."""
        path, leaf, likeness = self._path(number), self.leaves[number], self.likenesses[number]
        library = array_library(array)
        if copies and self._window(number, array) is not None:
            return library.copy_as(array, leaf.spec)
        try:
            spec = library.leaf_spec(array)
        except StateError as error:
            raise StateError(f"{self._who} {path}: {error}") from error
        if library is not likeness.library:
            wanted = likeness.library.name
            raise StateError(f"{self._who} {path} as an array of {library.name}, where one of {wanted} belongs")
        if spec[:3] != leaf.spec[:3]:
            raise StateError(
                f"{self._who} {path} as {spec}, but the {self.name} has {leaf.spec} there: every step has to keep "
                "shape and type"
            )
        if spec.nbytes and (device := library.device(array)) != likeness.device:
            places = ["the host" if place is None else f"cuda:{place}" for place in (device, likeness.device)]
            raise StateError(f"{self._who} {path} on {places[0]}, but the {self.name} is on {places[1]}: move it there")
        fitted = library.fit(array, leaf.spec)
        if fitted is None and copies:
            fitted = library.copy_as(array, leaf.spec)
        if fitted is None:
            raise StateError(
                f"{self._who} {path} with strides {library.strides(array)} in bytes, but the state has "
                f"{leaf.spec.all_strides} there: in another order, or with gaps, sums come out otherwise. Let every "
                "step return it in one order (numpy.ascontiguousarray(x), tensor.contiguous()), and start with that"
            )
        return fitted

    def _window(self, number: int, array: Any) -> tuple[int, ...] | None:
        """Return the strides of an array that is a window, and else as it has to be; None of any other."""
        likeness, spec = self.likenesses[number], self.leaves[number].spec
        if type(array) is not likeness.kind or isinstance(spec.kind, JaxKind):
            return None
        library = likeness.library
        key = number, library.signature(array)
        if key not in self._known:
            same = key[1] is not None and spec.strides is None and array.dtype == likeness.signature[1]
            same = same and array.shape == spec.shape and key[1][3:] == likeness.signature[3:]  # but for the strides
            strides = library.strides(array) if same else spec.all_strides
            is_cut = strides != spec.all_strides and is_window(spec.shape, strides, spec.dtype.itemsize)
            self._known[key] = strides if is_cut else None
        return self._known[key]

    @cached_property
    def _known(self) -> dict[tuple[int, Any], tuple[int, ...] | None]:
        """Which arrays are windows, by all that tells: looking takes longer than a short step."""
        return {}

    @cached_property
    def _sizes(self) -> tuple[int, ...]:
        return tuple(leaf.nbytes for leaf in self.leaves)

    @cached_property
    def _has_numpy(self) -> bool:
        return any(likeness.library is NUMPY for likeness in self.likenesses)

    @property
    def _who(self) -> str:
        return f"{'forward' if self.name == 'state' else self.name} returned"

    def _path(self, number: int) -> str:
        return _path(self.structure, number, self.name)


def arrays_of(tree: Any) -> list[Any]:
    """List the arrays of a tuple, list or dict, nested or not; a lone array is its own only one."""
    return flatten(tree)[0]


def without_windows(tree: Any) -> Any:
    """Return a tree whose arrays on a GPU are dense, those that are windows of larger ones as copies."""
    arrays, structure = flatten(tree)
    dense = [_dense(array) for array in arrays]
    return tree if all(map(operator.is_, dense, arrays)) else structure.unflatten(dense)


def _dense(array: Any) -> Any:
    library = array_library(array)
    view = None if library.on_host(array) else library.view(array)
    return array if view is None or not view.is_window else library.copy(array)


def _path(structure: optree.PyTreeSpec, number: int, name: str) -> str:
    return structure.accessors()[number].codify(name)


def _locked(array: Any) -> Any:
    if not array.flags.writeable:
        return array
    view = array.view()
    view.flags.writeable = False
    return view
