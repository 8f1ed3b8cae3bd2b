"""Files that are whole or not there, whenever the process dies: headers, arrays and checksums.

A file is written beside its place, brought to the disk, and renamed. What is read is checked to the last bit.
"""

import json
import math
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from forebay.checksums import checksum_of, raw_bytes
from forebay.errors import CorruptionError, reading
from forebay.files import whole

MAGIC = b"forebay1"
_LENGTH = struct.Struct("<Q")
_CHECKSUM = 16
"""Bytes of the header's checksum."""


def write_whole(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Have a file written, bring it to the disk, and only then to its place."""
    with whole(path) as unfinished, open(unfinished, "wb") as file:
        write(file)


def write_arrays(path: Path, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write a header and arrays of the host into one file."""
    parts = {name: raw_bytes(array) for name, array in arrays.items()}
    described = [
        {"name": name, "shape": array.shape, "type": array.dtype.str, "checksum": checksum_of([parts[name]])}
        for name, array in arrays.items()
    ]
    text = json.dumps({**header, "arrays": described}).encode()
    start = MAGIC + _LENGTH.pack(len(text)) + bytes.fromhex(checksum_of([text])) + text
    write_whole(path, lambda file: file.writelines([start, *parts.values()]))


def read_arrays(path: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Read what `write_arrays` wrote, refusing a file that is not as it was written."""
    with reading(path, "progress", CorruptionError):
        size = path.stat().st_size
        with open(path, "rb") as file:
            start = file.read(len(MAGIC) + _LENGTH.size + _CHECKSUM)
            (length,) = _LENGTH.unpack(start[len(MAGIC) : -_CHECKSUM])
            text = file.read(length) if length <= size else b""
            if start[: len(MAGIC)] != MAGIC or bytes.fromhex(checksum_of([text])) != start[-_CHECKSUM:]:
                raise ValueError("its header is damaged")
            header: dict[str, Any] = json.loads(text)
            arrays = {}
            for each in header.pop("arrays"):
                shape, dtype = each["shape"], np.dtype(each["type"])
                if dtype.hasobject or math.prod(shape) * dtype.itemsize > size:
                    raise ValueError(f"its array {each['name']!r} cannot be in it")
                array = np.empty(shape, dtype)
                data = raw_bytes(array)
                if file.readinto(data) != len(data) or checksum_of([data]) != each["checksum"]:
                    raise ValueError(f"its array {each['name']!r} is damaged")
                arrays[each["name"]] = array
            if file.read(1):
                raise ValueError("something follows its end")
    return header, arrays
