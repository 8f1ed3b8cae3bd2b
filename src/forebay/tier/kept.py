"""What a process measures once and keeps: the links of its machine, and what loops with a signature cost."""

import threading
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

MOST = 256
"""Things that are kept; of more, those that were asked for longest ago are forgotten."""

Value = TypeVar("Value")
_kept: dict[Hashable, Any] = {}
_lock = threading.Lock()


def kept(key: Hashable, measure: Callable[[], Value]) -> Value:
    """Return what was measured under a key, and measure it where nothing was; the key says all that it depends on."""
    with _lock:
        if key in _kept:
            before: Value = _kept.pop(key)
            _kept[key] = before  # as the last one in order
            return before
    value = measure()  # threads may measure the same at the same time: the last one is kept
    with _lock:
        _kept[key] = value
        while len(_kept) > MOST:
            del _kept[next(iter(_kept))]
    return value


def forget_costs() -> None:
    """Forget what this process has measured of its machine and loops, so that the next reversal measures anew.

    Needed where a machine has changed: where a link was busy with others' work when it was first measured, say.

    Examples
    --------
    >>> forget_costs()
    """
    with _lock:
        _kept.clear()
