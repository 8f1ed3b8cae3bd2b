"""A thread that watches the memory of a process, and interrupts blocks before they have their worker killed."""

import ctypes
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from forebay.dask.limits import resident_bytes

INTERVAL = 0.005
"""seconds between two looks: memory grows by some 10 MB in one"""
DELIVERY = 1000
"""milliseconds that an interruption may take to arrive, once what it is meant for has ended"""


class Interruption(BaseException):
    """What a block is interrupted by; functions that handle errors let it pass."""


class OutgrownError(Exception):
    """Says that a block was interrupted, and what it held by then."""

    def __init__(self, held: int) -> None:
        super().__init__(held)
        self.held = held


@dataclass(eq=False)
class GuardedBlock:
    """A block that runs."""

    before: int
    """what the process held when it began"""
    room: int
    thread: int = field(default_factory=threading.get_ident)
    held: int = 0
    """what it had added when it was interrupted; nothing while it was not"""


_BLOCKS: list[GuardedBlock] = []
_CHANGING = threading.Lock()
_ANY = threading.Event()
_STOP: int | None = None
"""what this process must not hold; nothing watches where nobody has said"""


def guard(stop: int) -> None:
    """Have the blocks of this process interrupted that need more than their room while it holds more than `stop`."""
    global _STOP
    begun, _STOP = _STOP is not None, stop
    if not begun:
        threading.Thread(target=_watch, name="forebay-guard", daemon=True).start()


def run_guarded(run: Callable[[], Any], room: int) -> Any:
    """Return what a block returns, or raise OutgrownError where it was interrupted."""
    if _STOP is None:
        return run()
    block = GuardedBlock(resident_bytes(), room)
    try:
        try:
            _enter(block)
            result = run()
        finally:
            _leave(block)
            for _ in range(DELIVERY if block.held else 0):
                time.sleep(0.001)  # the interruption arrives here rather than in what comes next
    except Interruption:
        _leave(block)
    if block.held:  # whatever the function made of its interruption
        raise OutgrownError(block.held)
    return result


def _enter(block: GuardedBlock) -> None:
    with _CHANGING:
        _BLOCKS.append(block)
        _ANY.set()


def _leave(block: GuardedBlock) -> None:
    with _CHANGING:
        if block in _BLOCKS:
            _BLOCKS.remove(block)
        if not _BLOCKS:
            _ANY.clear()


def _watch() -> None:
    while True:
        _ANY.wait()
        time.sleep(INTERVAL)
        held = resident_bytes()
        if _STOP is not None and held > _STOP:
            with _CHANGING:
                _interrupt_youngest(held)


def _interrupt_youngest(held: int) -> None:
    """Interrupt the block that began last, of those that may have added more than their room."""
    for block in reversed(_BLOCKS):
        if not block.held and held - block.before > block.room:
            block.held = held - block.before
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(block.thread), ctypes.py_object(Interruption))
            return
