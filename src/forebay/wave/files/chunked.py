"""Zarr arrays that tell when they are damaged, to everyone who reads them, and to us to the last bit.

Each chunk that we write ends in a CRC-32C, which any reader of Zarr checks. All chunks are written, and what is missing
is NaN, not zero. The attribute `checksum` covers the values, their shape and type, and what the attributes say of them;
of the data of shots, `checksums` has one for each.
"""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.checksums import checksum_of, raw_bytes
from forebay.errors import WaveError, needs
from forebay.tier.capacity import check_free
from forebay.wave.survey.shot import check_real

CHECKSUM, CHECKSUMS = "checksum", "checksums"
ADVICE = "write it again, or copy it again from where it is whole"


def zarr_library() -> Any:
    """Return zarr, refusing where it is not installed."""
    try:
        import zarr
        import zarr.codecs
    except ImportError as error:
        raise WaveError(needs("Zarr", "zarr", "wave")) from error
    return zarr


def open_zarr(path: Path) -> Any:
    """Open an array or a group to read."""
    zarr = zarr_library()
    try:
        return zarr.open(str(path), mode="r")
    except Exception as error:  # zarr raises whatever its metadata run into
        raise WaveError(f"{path} cannot be read as Zarr ({_words(error)}): {ADVICE}") from error


def member(group: Any, name: str, path: Path) -> Any:
    """Return an array of a group by its name, or None where there is none."""
    try:
        return group[name]
    except KeyError:
        return None
    except Exception as error:  # zarr raises whatever its metadata run into
        raise WaveError(f"{path / name} cannot be read as Zarr ({_words(error)}): {ADVICE}") from error


def create(
    parent: Any, values: NDArray[Any], chunks: Sequence[int], attributes: Mapping[str, Any], name: str = ""
) -> None:
    """Write an array into a new folder, or by its name into a group.

    Parameters
    ----------
    parent
        The folder, or the group.
    values, chunks
        The array, and the shape of its chunks.
    attributes
        What is said of it.
    name
        In the group.
    """
    zarr = zarr_library()
    where, make = ((), parent.create_array) if name else ((str(parent),), zarr.create_array)
    array = make(
        *where,
        **({"name": name} if name else {}),
        shape=values.shape,
        dtype=values.dtype,
        chunks=tuple(chunks),
        compressors=(zarr.codecs.ZstdCodec(), zarr.codecs.Crc32cCodec()),
        fill_value=np.nan if values.dtype.kind == "f" else None,
        config={"write_empty_chunks": True},
    )
    array[:] = values
    array.attrs.update(attributes)


def read(array: Any, path: Path, which: Any = slice(None)) -> NDArray[Any]:
    """Read values of an array: numbers alone, since others may be code, and no more than there is memory for."""
    check_real(path, array.dtype)
    read = array.shape[1:] if isinstance(which, int) else array.shape
    check_free(math.prod(read) * array.dtype.itemsize, f"what {path} says that it holds")
    try:
        return np.asarray(array[which])
    except Exception as error:  # codecs raise what they like
        raise WaveError(f"{path} is damaged ({_words(error)}): {ADVICE}") from error


def checksum_with(values: NDArray[Any], about: Any) -> str:
    """Return the checksum of values, their shape and type, and of what is said about them."""
    told = json.dumps([list(values.shape), values.dtype.str, about]).encode()
    return checksum_of([told, raw_bytes(values)])


def check(values: NDArray[Any], about: Any, written: Any, path: Path) -> None:
    """Refuse values that are not those of which a checksum was written, if any."""
    if written is not None and written != checksum_with(values, about):
        raise WaveError(
            f"{path} is damaged: its values or attributes are not those that its checksum was written for: {ADVICE}. "
            f"If they were changed on purpose, remove the attribute {CHECKSUM} or {CHECKSUMS}"
        )


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
