"""Named waits: what orders the lanes, and nothing else does."""

from typing import Any, NamedTuple


class Wait(NamedTuple):
    """An event that something has to wait for, and why."""

    why: str
    event: Any
