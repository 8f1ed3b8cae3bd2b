"""What a forked child does with what its parent has open: nothing. Threads and devices stay behind, so it lets go."""

import os
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol


class Abandoned(Protocol):
    """Something with threads or descriptors, which are its parent's in a forked child."""

    def abandon(self) -> None:
        """Let go without waiting for anybody: locks may be held by threads that are not there."""


_THINGS: "weakref.WeakSet[Any]" = weakref.WeakSet()


def leave_to_parent(thing: Abandoned) -> None:
    """Have forked children abandon something that belongs to this process."""
    _THINGS.add(thing)


def only_here(call: Callable[[], Any]) -> Callable[[], Any]:
    """Return a call that does nothing in a forked child.

    Examples
    --------
    >>> only_here(lambda: "closed")()
    'closed'
    """
    return partial(_call_in, os.getpid(), call)


def _call_in(process: int, call: Callable[[], Any]) -> Any:
    return call() if os.getpid() == process else None


def _abandon_all() -> None:
    for thing in tuple(_THINGS):
        thing.abandon()


if hasattr(os, "register_at_fork"):  # Windows knows no forks
    os.register_at_fork(after_in_child=_abandon_all)
