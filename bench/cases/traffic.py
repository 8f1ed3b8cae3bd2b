"""What a policy has to move for a sequence of uses, counted without arrays: the bound that the pool is held to."""

from collections import OrderedDict
from collections.abc import Mapping
from collections.abc import Sequence as Listing
from typing import NamedTuple

from forebay.memory.pool.sequence import NEVER, Use


class Traffic(NamedTuple):
    """Bytes over the link."""

    up: int
    down: int


def traffic(uses: Listing[Use], sizes: Mapping[int, int], budget: int, policy: str, warm: int = 0) -> Traffic:
    """Count what moves when arrays are fetched only when they are used, and leave as a policy says.

    Parameters
    ----------
    uses
        The whole sequence; every array begins on the host.
    sizes
        Bytes of each array.
    budget
        Bytes on the device.
    policy
        ``"min"`` lets the array leave whose next use is farthest, ``"lru"`` the one used longest ago.
    warm
        Uses at the beginning whose traffic does not count.

    Examples
    --------
    >>> rounds = [Use((key,)) for key in (0, 1, 2, 3)] * 9
    >>> sizes = dict.fromkeys(range(4), 10)
    >>> traffic(rounds, sizes, 30, "lru").up, traffic(rounds, sizes, 30, "min").up
    (360, 140)
    """
    later = _next_uses(uses)
    resident: OrderedDict[int, int] = OrderedDict()  # key -> its next use, the least recently used first
    dirty: set[int] = set()
    used = up = down = 0
    for index, use in enumerate(uses):
        counts = index >= warm
        for key in use.keys:
            if key in resident:
                continue
            while used + sizes[key] > budget:
                victims = [other for other in resident if other not in use.keys]
                victim = victims[0] if policy == "lru" else max(victims, key=lambda other: resident[other])
                del resident[victim]
                used -= sizes[victim]
                if victim in dirty:
                    dirty.discard(victim)
                    down += counts * sizes[victim]
            resident[key] = index
            used += sizes[key]
            if key not in use.overwrites:
                up += counts * sizes[key]
        dirty.update(use.writes, use.overwrites)
        for key in use.keys:
            resident[key] = later[index][key]
            resident.move_to_end(key)
    return Traffic(up, down)


def _next_uses(uses: Listing[Use]) -> list[dict[int, int]]:
    """Return, for each use, the index at which each of its arrays is used next."""
    upcoming: dict[int, int] = {}
    next_uses: list[dict[int, int]] = []
    for index in range(len(uses) - 1, -1, -1):
        next_uses.append({key: upcoming.get(key, NEVER) for key in uses[index].keys})
        upcoming.update(dict.fromkeys(uses[index].keys, index))
    return next_uses[::-1]
