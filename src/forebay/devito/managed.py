"""Managed memory as Devito allocates it: pieces known by their address, counted so that the device can hold all.

What it needs of CUDA is imported on use: without a GPU nothing is managed, and the rest of this package works.
"""

import warnings
from typing import Any

from forebay.errors import DeviceError
from forebay.memory import OversubscriptionWarning
from forebay.memory.unified.guard import CLIFF
from forebay.memory.unified.unify import room
from forebay.units import to_text

MANAGED: dict[int, Any] = {}
"""The pieces that are alive, as bytes, by their address."""


def allocate(nbytes: int, oversubscribe: bool) -> int:
    """Allocate managed memory, no more than the device has room for unless that is asked for."""
    from forebay.cuda import managed
    from forebay.cuda.driver import current_device

    current_device()
    check_room(nbytes, room(), oversubscribe)
    piece = managed.allocate(max(nbytes, 1))
    MANAGED[piece.ctypes.data] = piece
    return int(piece.ctypes.data)


def check_room(asked: int, left: int, oversubscribe: bool) -> None:
    """Refuse managed memory that the device has no room for, or warn where that is asked for."""
    if asked <= left:
        return
    what = (
        f"{to_text(asked)} more of managed memory do not fit into the {to_text(left)} that the device has left for it, "
        "where memory that sync_device() has not moved there counts as still to come"
    )
    if not oversubscribe:
        raise DeviceError(f"{what}: {CLIFF}. Use a smaller grid or fewer fields, or insist with oversubscribe=True")
    warnings.warn(f"{what}: {CLIFF}. A smaller grid or fewer fields would fit", OversubscriptionWarning, stacklevel=2)


def free(pointer: int) -> None:
    """Free managed memory."""
    del MANAGED[pointer]


def prefetch(pointer: int, nbytes: int, *, to_device: bool) -> None:
    """Move managed memory at once rather than fault by fault, and wait."""
    from cuda.core import LEGACY_DEFAULT_STREAM

    from forebay.cuda import managed

    managed.prefetch(pointer, nbytes, "device" if to_device else "host", LEGACY_DEFAULT_STREAM)
    LEGACY_DEFAULT_STREAM.sync()
