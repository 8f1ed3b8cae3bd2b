"""Arrays worked on in strips by all cores: what an element becomes does not depend on how they are cut."""

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from forebay.processors import processors
from forebay.tasks import at_once

POINTS = 2**18
"""of a strip, about: as many as stay in the cache of a core, and enough that starting it takes no time"""
PIECE = 31 * 2**20
"""Bytes of the largest pieces that glibc keeps for its threads, once one of that size was freed."""


def in_strips(work: Callable[[slice], object], shape: Sequence[int], axis: int = 0, points: int = POINTS) -> None:
    """Call something with each strip of an array, a slice of one axis, in as many threads as there are cores.

    Strips have about as many points as told, or the usual number.

    Examples
    --------
    >>> import numpy as np
    >>> squares, numbers = np.empty((3000, 200)), np.arange(600000.0).reshape(3000, 200)
    >>> in_strips(lambda rows: np.square(numbers[rows], out=squares[rows]), numbers.shape)
    >>> bool((squares == numbers**2).all())
    True
    """
    thick = max(1, points * shape[axis] // max(math.prod(shape), 1))
    strips = [slice(start, min(start + thick, shape[axis])) for start in range(0, shape[axis], thick)]
    if len(strips) > 1:
        np.empty(PIECE, np.uint8)  # else the system is asked for each piece anew, by one thread at a time
    at_once([partial(work, strip) for strip in strips], processors(), "forebay-strips")
