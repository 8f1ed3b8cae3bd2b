"""Reversals in a row, one after the other: descriptors, threads, mappings and memory stay what they were."""

import gc
import os
import resource
import threading
from pathlib import Path

from tests.faults.ordeals.loop import SpillingLoop, expected

MOST = 6_000_000
"""Bytes by which the resident memory may differ: of one loop's states it holds one."""


def held():
    """Count descriptors, threads, mappings and resident bytes of this process."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    mappings = len(Path("/proc/self/maps").read_text().splitlines())
    return len(os.listdir("/proc/self/fd")), threading.active_count(), mappings, pages * resource.getpagesize()


def undergo(folder, count, random):
    """Reverse so many loops, each in a setting of its own."""
    sound, loop, wrong = expected(), SpillingLoop(), []
    ways = [{}, {"codec": "lossless"}, {"schedule": "revolve:6", "budget": "1MB"}]
    measured = {"costs": None, "schedule": "auto"}  # takes a second for its links
    first = ()
    for number in range(count):
        way = measured if number % 100 == 99 else ways[number % len(ways)]
        if loop.reverse(folder, **way) != sound:
            wrong.append(f"another image with {way}")
        if number == count // 3:
            first = held()
    last = held()
    if last[0] > first[0] or last[1] > first[1] or last[2] > first[2] + 20 or last[3] > first[3] + MOST:
        wrong.append(f"from {first} to {last}: descriptors, threads, mappings, bytes")
    grown = last[3] - first[3]
    return {"reversals": count, "descriptors more": last[0] - first[0], "bytes more": grown, "wrong": wrong}
