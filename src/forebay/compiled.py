"""Functions compiled by Numba and kept on disk, safely where several processes compile at once."""

from collections.abc import Callable
from secrets import token_hex
from typing import Any

from numba import njit

OURS = token_hex(8)
"""In the names of the files that this process writes."""


def kept(function: Callable[..., Any], **options: Any) -> Any:
    """Compile a function when it is first called, and keep the result where Numba finds a place that it may write to.

    Numba numbers the files of a function's variants, and writes the list of them before the files, without a lock. So
    of two processes that compile at once, or one that is killed between the two, the list may name a file that holds
    another variant's code, and whoever reads it computes something else. With names that no other process uses, an
    entry that is lost only means compiling again.
    """
    try:
        made = njit(cache=True, **options)(function)
        file = made._cache._cache_file
        file._data_name_pattern = file._data_name_pattern.replace("{number:d}", f"{{number:d}}-{OURS}")
    except (RuntimeError, AttributeError):  # there is no such place; or another Numba, whose files we do not know
        return njit(**options)(function)
    return made
