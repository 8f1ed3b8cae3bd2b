"""How much managed memory may be handed out: never more than the device has free, unless that is asked for by name."""

import warnings

from forebay.errors import BudgetError
from forebay.units import to_bytes, to_text

HEADROOM = 512 * 2**20
"""Bytes of the device that are left to the libraries themselves: handles, workspaces, kernels."""
CLIFF = (
    "pages that are faulted in came at 1 to 2 GB/s on an H200 whose copies run at 55 GB/s, and drivers have been "
    "seen to hang"
)
"""What happens past the memory of the device, as measured."""
ALTERNATIVES = (
    "spill='host' puts what exceeds the limit into pinned host memory instead, and forebay.memory.Pool moves arrays "
    "ahead of time inside a budget"
)


class OversubscriptionWarning(UserWarning):
    """More managed memory may be handed out than the device has."""


def decide(limit: object, free: int, *, spill: str | None, oversubscribe: bool, beside: int = 0) -> int | None:
    """Return the bytes of managed memory that may be handed out, refusing more than is free; None for no limit.

    Parameters
    ----------
    limit
        What was asked for, as an amount of bytes; None for what there is.
    free
        Bytes that the device has free.
    spill
        Where allocations past the limit go: ``"host"``, or None where they fail.
    oversubscribe
        Whether more than is free may be handed out.
    beside
        Bytes of the device that are taken for something else.

    Examples
    --------
    >>> decide("2GB", 10**10, spill=None, oversubscribe=False)
    2000000000
    """
    if spill not in (None, "host"):
        raise BudgetError(f"spill={spill!r}: give 'host', or None")
    if spill and oversubscribe:
        raise BudgetError("spill='host' keeps inside the device, oversubscribe=True leaves it: give one of the two")
    usable = free - beside - HEADROOM
    if limit is None:
        if oversubscribe:
            _warn("without a limit", free)
            return None
        if usable <= 0:
            raise BudgetError(
                f"the device has only {to_text(free)} free, of which {to_text(beside + HEADROOM)} are needed beside: "
                "free memory that other libraries or processes hold, or give a limit"
            )
        return usable
    asked = to_bytes(limit)
    if asked <= 0:
        raise BudgetError("a limit of no bytes: give what may be handed out, for example limit='8GB'")
    if asked + beside > free:
        if not oversubscribe:
            raise BudgetError(
                f"{to_text(asked + beside)} of managed memory are asked for, but the device has {to_text(free)} free: "
                f"{CLIFF}. Give limit={to_text(max(usable, 0))!r} or less; {ALTERNATIVES}; oversubscribe=True insists"
            )
        _warn(f"{to_text(asked)}, which is {to_text(asked + beside - free)} more than that", free)
    return asked


def _warn(asked: str, free: int) -> None:
    warnings.warn(
        f"the device has {to_text(free)} free, and managed memory may be handed out {asked}: {CLIFF}. {ALTERNATIVES}",
        OversubscriptionWarning,
        stacklevel=4,
    )
