"""Arrays in NumPy's own files, read from as many threads as like.

NumPy has Python parse the header of each array, and Python before 3.11.8 and 3.12.2 counts the depth of a parse for
all threads together: where two parse at once it now and then raises SystemError. So one thread reads at a time there.
"""

import sys
from contextlib import nullcontext
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
