"""Managed memory as Devito allocates it: pieces known by their address, counted so that the device can hold all.

What it needs of CUDA is imported on use: without a GPU nothing is managed, and the rest of this package works.
"""

from typing import Any

from penstock.errors import DeviceError
from penstock.units import to_text

MANAGED: dict[int, Any] = {}
"""The pieces that are alive, as bytes, by their address."""

_room = 0  # bytes that were free on the device when the first of the pieces was allocated


def allocate(nbytes: int, oversubscribe: bool) -> int:
    """Allocate managed memory, no more than the device has room for unless that is asked for."""
    from penstock.cuda import managed
    from penstock.cuda.driver import current_device, device_memory

    global _room
    current_device()
    if not MANAGED:
        _room = device_memory()[0]
    check_room(nbytes, sum(piece.nbytes for piece in MANAGED.values()), _room, oversubscribe)
    piece = managed.allocate(max(nbytes, 1))
    MANAGED[piece.ctypes.data] = piece
    return int(piece.ctypes.data)


def check_room(asked: int, live: int, room: int, oversubscribe: bool) -> None:
    """Refuse managed memory that the device has no room for, unless that is asked for."""
    if live + asked > room and not oversubscribe:
        raise DeviceError(
            f"{to_text(live + asked)} of managed memory do not fit into the {to_text(room)} that the device has free: "
            "they would page in and out, far slower than copies. Use a smaller grid or fewer fields, or ask for it "
            "with oversubscribe=True"
        )


def free(pointer: int) -> None:
    """Give managed memory back."""
    del MANAGED[pointer]


def prefetch(pointer: int, nbytes: int, *, to_device: bool) -> None:
    """Move managed memory at once rather than fault by fault, and wait."""
    from cuda.core import LEGACY_DEFAULT_STREAM

    from penstock.cuda import managed

    managed.prefetch(pointer, nbytes, "device" if to_device else "host", LEGACY_DEFAULT_STREAM)
    LEGACY_DEFAULT_STREAM.sync()
