"""Arrays in NumPy's own files, read from as many threads as like.

NumPy has Python parse the header of each array, and Python before 3.11.8 and 3.12.2 counts the depth of a parse for
all threads together: where two parse at once it now and then raises SystemError. So one thread reads at a time there.
"""

import sys
from contextlib import nullcontext
from io import BytesIO
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.lib.format import header_data_from_array_1_0, write_array_header_1_0
from numpy.typing import NDArray

from forebay.checksums import raw_bytes
from forebay.errors import WaveError, reading

_SAFE = sys.version_info >= (3, 12, 2) or (3, 11, 8) <= sys.version_info < (3, 12)
_LOCK = nullcontext() if _SAFE else Lock()


def load_array(path: Path) -> NDArray[Any]:
    """Open an .npy file; its values are read where they are used."""
    with _LOCK, reading(path, ".npy", WaveError):
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))


def load_arrays(path: Path, *names: str) -> list[NDArray[Any]]:
    """Read arrays of an .npz file by their names."""
    with _LOCK, reading(path, ".npz", WaveError), np.load(path, allow_pickle=False) as file:
        return [file[name] for name in names]


def parts_of(values: NDArray[Any]) -> list[bytes | memoryview]:
    """Return what an .npy file of an array has: its header, and its values where they are.

    Examples
    --------
    >>> from io import BytesIO
    >>> np.load(BytesIO(b"".join(parts_of(np.arange(6.0).reshape(2, 3)))))[1].tolist()
    [3.0, 4.0, 5.0]
    """
    values, header = np.ascontiguousarray(values), BytesIO()
    write_array_header_1_0(header, header_data_from_array_1_0(values))
    return [header.getvalue(), raw_bytes(values)]
