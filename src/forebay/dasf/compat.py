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
    # register_plugin() takes nothing else for a callback; the package itself names only the pipeline.
    from dasf.pipeline.pipeline import PipelinePlugin as PipelinePlugin
except ImportError:  # for whoever calls the hooks without DASF

    class PipelinePlugin:  # type: ignore[no-redef]
        """What stands for DASF's class where there is none."""


@dataclass(frozen=True)
class StoredArray:
    """What a dataset will load."""

    shape: tuple[int, ...]
    dims: tuple[str, ...] = ()
    """names of the axes, where chunks go by name"""
    stored_chunks: tuple[int, ...] | None = None
    """the chunks that it is stored in, where it is cut at all"""
    in_one: int = 0
    """bytes that the graph of Dask loads in one task, whatever the chunks: DASF loads a file of NumPy whole"""

    def chunks(self, lengths: Sequence[int]) -> Any:
        """Return chunks as the dataset takes them."""
        return dict(zip(self.dims, lengths, strict=True)) if self.dims else tuple(lengths)


def datasets_of(owner: Any) -> list[Any]:
    """List the datasets that an object loads: itself, or data and labels, which it loads past their own tasks."""
    parts = [part for name in ("_train", "_val") if (part := getattr(owner, name, None)) is not None]
    return [dataset for dataset in parts or [owner] if is_dataset(dataset)]


def is_dataset(owner: Any) -> bool:
    """Return whether an object is a dataset of DASF."""
    return owner is not None and hasattr(owner, "_chunks") and hasattr(type(owner), "load")


def stored_array(dataset: Any) -> StoredArray | None:
    """Look into what a dataset has loaded, or into its file; None where that is no array."""
    data, root = getattr(dataset, "_data", None), getattr(dataset, "_root_file", None)
    if hasattr(dataset, "_data_var"):
        return _named(dataset._data_var, data, root)
    if data is not None and hasattr(data, "shape"):
        return _described(data)
    stored = None if root is None else _array_in(Path(root), getattr(dataset, "_dataset_path", None))
    return stored or _known(dataset)


def _known(dataset: Any) -> StoredArray | None:
    """Ask a dataset itself; those that know nothing before they are loaded raise what comes to them."""
    try:
        shape = dataset.shape
    except Exception:
        return None
    return StoredArray(tuple(map(int, shape))) if isinstance(shape, tuple) and shape else None


def _named(variable: Any, data: Any, root: Any) -> StoredArray | None:
    """Look into a dataset of xarray, whose chunks go by the names of its axes."""
    import xarray

    if data is None:
        if root is None:
            return None
        with xarray.open_dataset(root) if variable else xarray.open_dataarray(root) as opened:
            return _named(variable, opened, root)
    array = data[variable] if variable else data
    stored_chunks = array.encoding.get("chunksizes")
    return StoredArray(tuple(array.shape), tuple(map(str, array.dims)), stored_chunks and tuple(stored_chunks))


def _array_in(root: Path, inner: Any) -> StoredArray | None:
    """Look into a file of NumPy or HDF5, or into a store of Zarr of either format."""
    if inner is not None:
        import h5py

        with h5py.File(root, "r") as opened:
            return _described(opened[inner])
    if root.suffix == ".npy":
        import numpy as np

        array = np.load(root, mmap_mode="r")
        return StoredArray(tuple(array.shape), in_one=array.nbytes)
    if root.is_dir():
        import zarr

        opened = zarr.open(str(root), mode="r")
        return _described(opened) if hasattr(opened, "shape") else None
    return None


def _described(array: Any) -> StoredArray:
    """Describe an array of any library; those of Dask know every chunk, and are described without any."""
    chunks = getattr(array, "chunks", None)
    whole = isinstance(chunks, tuple) and all(isinstance(length, int) for length in chunks)
    return StoredArray(tuple(map(int, array.shape)), stored_chunks=chunks if whole else None)


def lazy_layers(result: Any) -> set[str]:
    """Return the names of the layers of a graph that a task has built, or of a task that it has handed to a worker.

    None where it has computed.
    """
    if hasattr(result, "key") and hasattr(result, "client"):  # a future of Dask
        return {str(result.key)}
    graph = getattr(getattr(result, "_data", result), "dask", None)
    return set(getattr(graph, "layers", ()) or ())


def shape_of(result: Any) -> tuple[int, ...] | None:
    """Return the shape of what a task has returned, be it an array or a dataset that has loaded one."""
    data = getattr(result, "_data", None)
    shape = getattr(result if data is None else data, "shape", None)
    return tuple(map(int, shape)) if isinstance(shape, tuple) else None
