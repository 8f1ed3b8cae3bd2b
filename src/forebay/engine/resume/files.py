"""Files that are whole or not there, whenever the process dies: headers, arrays and checksums.

A file is written beside its place, brought to the disk, and renamed. What is read is checked to the last bit.
"""

import json
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import xxhash
from numpy.typing import NDArray

from forebay.errors import CorruptionError, reading
from forebay.files import whole

MAGIC = b"forebay1"
_LENGTH = struct.Struct("<Q")
UNFINISHED = ".part"
"""How the name of a file ends until it is whole."""


def digest(data: Any) -> str:
    """Return the checksum of bytes, as 16 digits."""
    return xxhash.xxh3_64(data).hexdigest()


def digest_of_arrays(arrays: Sequence[NDArray[Any]]) -> str:
    """Return the checksum of arrays of the host, one after the other."""
    checksum = xxhash.xxh3_64()
    for array in arrays:
        checksum.update(_bytes(array))
    return checksum.hexdigest()


def write_whole(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Have a file written, bring it to the disk, and only then to its place."""
    with whole(path, unfinished=path.with_name(path.name + UNFINISHED)) as part, open(part, "wb") as file:
        write(file)


def write_arrays(path: Path, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write a header and arrays of the host into one file."""
    parts = {name: _bytes(array) for name, array in arrays.items()}
    described = [
        {"name": name, "shape": array.shape, "type": array.dtype.str, "digest": digest(parts[name])}
        for name, array in arrays.items()
    ]
    text = json.dumps({**header, "arrays": described}).encode()

    start = MAGIC + _LENGTH.pack(len(text)) + bytes.fromhex(digest(text)) + text
    write_whole(path, lambda file: file.writelines([start, *parts.values()]))


def read_arrays(path: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Read what `write_arrays` wrote, refusing a file that is not as it was written."""
    with reading(path, "progress", CorruptionError):
        size = path.stat().st_size
        with open(path, "rb") as file:
            start = file.read(len(MAGIC) + _LENGTH.size + 8)
            (length,) = _LENGTH.unpack(start[len(MAGIC) : -8])
            text = file.read(length) if length <= size else b""
            if start[: len(MAGIC)] != MAGIC or bytes.fromhex(digest(text)) != start[-8:]:
                raise ValueError("its header is damaged")
            header: dict[str, Any] = json.loads(text)
            arrays = {}
            for each in header.pop("arrays"):
                shape, dtype = each["shape"], np.dtype(each["type"])
                if dtype.hasobject or math.prod(shape) * dtype.itemsize > size:
                    raise ValueError(f"its array {each['name']!r} cannot be in it")
                array = np.empty(shape, dtype)
                data = _bytes(array)
                if file.readinto(data) != len(data) or digest(data) != each["digest"]:
                    raise ValueError(f"its array {each['name']!r} is damaged")
                arrays[each["name"]] = array
            if file.read(1):
                raise ValueError("something follows its end")
    return header, arrays


def _bytes(array: NDArray[Any]) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
