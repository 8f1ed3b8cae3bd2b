"""What this door knows of DASF's insides, as they were read in the sources of dasf-core of 2025.

Datasets keep their chunks in ``_chunks``, the file in ``_root_file`` and, once loaded, the array in ``_data``. Their
``shape`` is not asked for: a loaded one asks its array whether it is true, which arrays refuse, and of Zarr's third
format, of HDF5 and of xarray it knows nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

try:
    from dasf.pipeline import PipelinePlugin as PipelinePlugin  # register_plugin() takes nothing else for a callback
except ImportError:  # for whoever calls the hooks without DASF

    class PipelinePlugin:  # type: ignore[no-redef]
        """What stands for DASF's class where there is none."""


@dataclass(frozen=True)
class StoredArray:
    """What a dataset will load."""

    shape: tuple[int, ...]
    dims: tuple[str, ...] = ()
    """names of the axes, where chunks go by name"""

    def chunks(self, lengths: Sequence[int]) -> Any:
        """Return chunks as the dataset takes them."""
        return dict(zip(self.dims, lengths, strict=True)) if self.dims else tuple(lengths)


def is_dataset(owner: Any) -> bool:
    """Return whether an object is a dataset of DASF."""
    return owner is not None and hasattr(owner, "_chunks") and hasattr(type(owner), "load")


def stored_array(dataset: Any) -> StoredArray | None:
    """Look into what a dataset has loaded, or into its file; None where that is no array."""
    data, root = getattr(dataset, "_data", None), getattr(dataset, "_root_file", None)
    if hasattr(dataset, "_data_var"):
        return _named(dataset._data_var, data, root)
    if data is not None and hasattr(data, "shape"):
        return StoredArray(tuple(map(int, data.shape)))
    shape = None if root is None else _shape_in(Path(root), getattr(dataset, "_dataset_path", None))
    if shape is None:
        known = getattr(dataset, "shape", None)
        shape = known if isinstance(known, tuple) and known else None
    return None if shape is None else StoredArray(tuple(map(int, shape)))


def _named(variable: Any, data: Any, root: Any) -> StoredArray | None:
    """Look into a dataset of xarray, whose chunks go by the names of its axes."""
    import xarray

    if data is None:
        if root is None:
            return None
        with xarray.open_dataset(root) if variable else xarray.open_dataarray(root) as opened:
            return _named(variable, opened, root)
    array = data[variable] if variable else data
    return StoredArray(tuple(array.shape), tuple(map(str, array.dims)))


def _shape_in(root: Path, inner: Any) -> Any:
    """Return the shape of the array in a file of NumPy or HDF5, or in a store of Zarr of either format."""
    if inner is not None:
        import h5py

        with h5py.File(root, "r") as opened:
            return opened[inner].shape
    if root.suffix == ".npy":
        import numpy as np

        return np.load(root, mmap_mode="r").shape
    if root.is_dir():
        import zarr

        return getattr(zarr.open(str(root), mode="r"), "shape", None)
    return None


def lazy_layers(result: Any) -> set[str]:
    """Return the names of the layers of a graph that a task has built; none where it has computed."""
    graph = getattr(getattr(result, "_data", result), "dask", None)
    return set(getattr(graph, "layers", ()) or ())


def shape_of(result: Any) -> tuple[int, ...] | None:
    """Return the shape of what a task has returned, be it an array or a dataset that has loaded one."""
    data = getattr(result, "_data", None)
    shape = getattr(result if data is None else data, "shape", None)
    return tuple(map(int, shape)) if isinstance(shape, tuple) else None
