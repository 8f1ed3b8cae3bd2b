"""Datasets and arrays of xarray as trees; loaded where a program uses them.

Variables and coordinates without an index are arrays, so that a time that goes on is kept with the rest. Names,
dimensions and indexes are the structure. Attributes are those of the first state: xarray drops them on the way.
"""

from typing import Any

import xarray


class Labels:
    """What is left of a dataset or an array without the elements that are kept."""

    def __init__(self, template: Any) -> None:
        self.template = template
        held = template.variables if isinstance(template, xarray.Dataset) else template.coords.variables
        self.dims = {name: variable.dims for name, variable in held.items()}
        self.indexed = {name: held[name] for name in template.xindexes}
        self.names = tuple(sorted((name for name in held if name not in self.indexed), key=str))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Labels) or self.dims != other.dims or self.indexed.keys() != other.indexed.keys():
            return False
        if isinstance(self.template, xarray.DataArray):
            mine, theirs = ((array.dims, array.name) for array in (self.template, other.template))
            if mine != theirs:
                return False
        return all(self.indexed[name].equals(other.indexed[name]) for name in self.indexed)

    def __hash__(self) -> int:
        return hash(self.names)

    def __repr__(self) -> str:
        kept = [f"{name}{self.dims[name]}" for name in self.names]
        return ", ".join([*kept, f"indexes {sorted(map(str, self.indexed))}"])[:300]


def take(labelled: Any) -> tuple[Any, Any, Any]:
    """Take a dataset apart into the arrays of its variables, by name; an array into its elements, and coordinates."""
    labels = Labels(labelled)
    if isinstance(labelled, xarray.Dataset):
        return tuple(labelled.variables[name].data for name in labels.names), labels, labels.names
    coordinates = (labelled.coords.variables[name].data for name in labels.names)
    return (labelled.variable.data, *coordinates), labels, ("data", *labels.names)


def build(labels: Any, arrays: Any) -> Any:
    """Put other arrays into a dataset, or other elements into an array."""
    template, elements = labels.template, list(arrays)
    data = elements.pop(0) if isinstance(template, xarray.DataArray) else None
    named = dict(zip(labels.names, elements, strict=True))
    made = template.copy(data={name: named[name] for name in template.data_vars} if data is None else data)
    coordinates = {
        name: (coordinate.dims, named[name], coordinate.attrs)
        for name, coordinate in template.coords.items()
        if name in named
    }
    return made.assign_coords(coordinates) if coordinates else made
