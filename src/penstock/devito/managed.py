"""Managed memory as Devito allocates it: pieces known by their address, counted so that the device can hold all.

What it needs of CUDA is imported on use: without a GPU nothing is managed, and the rest of this package works.
"""

import warnings
from typing import Any

from penstock.errors import DeviceError
from penstock.memory import OversubscriptionWarning, report
from penstock.memory.guard import CLIFF
from penstock.units import to_text

MANAGED: dict[int, Any] = {}
"""The pieces that are alive, as bytes, by their address."""

_room = 0  # bytes of the device that were free or managed when the first of the pieces was allocated


def allocate(nbytes: int, oversubscribe: bool) -> int:
    """Allocate managed memory, no more than the device has room for unless that is asked for."""
    from penstock.cuda import managed
    from penstock.cuda.driver import current_device, device_memory

    global _room
    current_device()
    free, live = device_memory()[0], _live()
    if not MANAGED:
        _room = free + live
    # Pages that are on the host do not show in what is free, and what others have taken since does not in the room.
    check_room(nbytes, live, min(_room, free + live), oversubscribe)
    piece = managed.allocate(max(nbytes, 1))
    MANAGED[piece.ctypes.data] = piece
    return int(piece.ctypes.data)


def _live() -> int:
    """Count the managed memory that is alive: the pieces, and what is behind other libraries."""
    others = report()
    behind = others.pools + sum(usage.live for usage in others.usages if usage.managed and usage.pool is None)
    return behind + sum(int(piece.nbytes) for piece in MANAGED.values())


def check_room(asked: int, live: int, room: int, oversubscribe: bool) -> None:
    """Refuse managed memory that the device has no room for, or warn where that is asked for."""
    if live + asked <= room:
        return
    what = f"{to_text(live + asked)} of managed memory do not fit into the {to_text(room)} that the device has for it"
    if not oversubscribe:
        raise DeviceError(f"{what}: {CLIFF}. Use a smaller grid or fewer fields, or insist with oversubscribe=True")
    warnings.warn(f"{what}: {CLIFF}. A smaller grid or fewer fields would fit", OversubscriptionWarning, stacklevel=2)


def free(pointer: int) -> None:
    """Give managed memory back."""
    del MANAGED[pointer]


def prefetch(pointer: int, nbytes: int, *, to_device: bool) -> None:
    """Move managed memory at once rather than fault by fault, and wait."""
    from cuda.core import LEGACY_DEFAULT_STREAM

    from penstock.cuda import managed

    managed.prefetch(pointer, nbytes, "device" if to_device else "host", LEGACY_DEFAULT_STREAM)
    LEGACY_DEFAULT_STREAM.sync()
