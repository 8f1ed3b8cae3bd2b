"""Many reversals at once, in threads that begin and end at any time: each has its own bits and leaves nothing."""

import threading
from concurrent.futures import ThreadPoolExecutor

from tests.faults.ordeals.loop import SpillingLoop, expected
from tests.spills import spills

AT_ONCE = 8


def undergo(folder, count, random):
    """Reverse so many loops, some at a time, each in a setting of its own."""
    sound, before = expected(), threading.active_count()
    ways = [{}, {"codec": "lossless"}, {"schedule": "revolve:6", "budget": "1MB"}]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        futures = [pool.submit(SpillingLoop().reverse, folder, **random.choice(ways)) for _ in range(count)]
        images = [future.result() for future in futures]
    wrong = [] if set(images) == {sound} else ["another image"]
    if spills(folder) or threading.active_count() > before:
        wrong.append(f"left {spills(folder)}, {threading.enumerate()}")
    return {"reversals": count, "at once": AT_ONCE, "wrong": wrong}
