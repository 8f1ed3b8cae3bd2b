"""How many processors there are, on any system."""

import os


def processors() -> int:
    """Count the processors that this process may run on.

    Examples
    --------
    >>> processors() >= 1
    True
    """
    if hasattr(os, "sched_getaffinity"):  # Linux alone tells
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
