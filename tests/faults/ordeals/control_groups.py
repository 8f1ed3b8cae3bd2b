"""Less memory than the budget allows, by a control group: whoever takes more is killed, and nobody is."""

import os
import secrets
from pathlib import Path

from tests.faults.ordeals import memory_caps
from tests.faults.ordeals.memory_caps import NEED

ROOT = Path("/sys/fs/cgroup")
BESIDE = 80_000_000
"""Bytes for the interpreter and its libraries, of which a child touches its own copies."""


def group():
    """Make a control group, and return it with the name of its file for the limit."""
    for mount, limit in ((ROOT / "memory", "memory.limit_in_bytes"), (ROOT, "memory.max")):
        place = mount / f"forebay-{secrets.token_hex(4)}"
        try:
            place.mkdir()
        except OSError:
            continue
        if (place / limit).exists():
            return place, place / limit
        place.rmdir()
    raise OSError("no control group can be made here")


def undergo(folder, count, random):
    """Put so many reversals into a group of their own."""
    place, limit = group()

    def enter(share):
        limit.write_text(str(BESIDE + int(share * NEED)))
        (place / "cgroup.procs").write_text(str(os.getpid()))

    try:
        return memory_caps.undergo(folder, count, random, enter)
    finally:
        place.rmdir()
