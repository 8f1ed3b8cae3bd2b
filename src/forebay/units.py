"""Bytes as people write them, and the budget a user allows per tier."""

import re
from dataclasses import dataclass
from decimal import Decimal, DecimalException
from math import inf
from numbers import Integral, Real

from forebay.drawing import Chart
from forebay.drawing.bars import bars_chart
from forebay.drawing.tables import table
from forebay.errors import BudgetError, UnitError

UNITS = {
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "PB": 10**15,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
    "PiB": 2**50,
}
_AMOUNT = re.compile(r"\s*([0-9][0-9_]*(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z]*)\s*")
_BY_LOWER_CASE = {name.lower(): factor for name, factor in UNITS.items()}

MOST_BYTES = 2**63 - 1
"""The largest amount that is read: more than any computer has, and what files and libraries count up to."""

TIERS = ("device", "host", "disk")
"""The tiers, fastest first."""


def to_bytes(amount: object) -> int:
    """Read an amount of bytes: ``"8GB"`` (10^9), ``"8GiB"`` (2^30), or a number of bytes.

    Examples
    --------
    >>> to_bytes("8GB"), to_bytes("1.5 GiB"), to_bytes(4096)
    (8000000000, 1610612736, 4096)
    """
    if isinstance(amount, bool) or not isinstance(amount, str | Real):
        raise UnitError(f"cannot read {amount!r} as bytes: give a string like '8GB' or a number of bytes")
    if isinstance(amount, str):
        match = _AMOUNT.fullmatch(amount)
        unit = match[2].lower() if match else None
        if match is None or (unit and unit not in _BY_LOWER_CASE):
            raise UnitError(
                f"cannot read {amount!r} as bytes: write a number and one of {', '.join(UNITS)}, "
                "for example '8GB' or '512MiB'"
            )
        try:
            value = Decimal(match[1].replace("_", "")) * (_BY_LOWER_CASE[unit] if unit else 1)
        except DecimalException:  # an exponent beyond those that decimals have
            value = Decimal("Infinity")
        if value > MOST_BYTES:
            raise UnitError(f"{amount[:40]!r} is no amount that a computer has: give {to_text(MOST_BYTES)} at most")
        return int(value.to_integral_value())
    try:
        count = int(amount) if isinstance(amount, Integral) else float(amount)
    except OverflowError:  # a fraction, say, larger than all floats
        count = inf
    if not 0 <= count <= MOST_BYTES:
        most = to_text(MOST_BYTES)
        raise UnitError(f"{short(amount)} is not an amount of bytes: it must be finite, not negative, at most {most}")
    return int(count)


def to_text(count: int | float) -> str:
    """Write an amount of bytes in decimal units with three significant digits.

    Examples
    --------
    >>> to_text(8_000_000_000), to_text(1_133_322_880), to_text(96)
    ('8GB', '1.13GB', '96B')
    """
    for unit in ("PB", "TB", "GB", "MB", "kB"):
        if count >= 0.9995 * UNITS[unit]:
            return f"{_three_digits(count / UNITS[unit])}{unit}"
    return f"{count:.0f}B"


def short(value: object) -> str:
    """Write a value in a message, without hundreds of digits.

    Examples
    --------
    >>> short(3751), short(10**400)
    ('3751', 'a number of hundreds of digits')
    """
    if isinstance(value, int | float) and abs(value) >= 2**1000:
        return "a number of hundreds of digits"
    return f"{value!r:.80}"


def seconds_to_text(seconds: float) -> str:
    """Write a duration with three significant digits.

    Examples
    --------
    >>> seconds_to_text(12.34), seconds_to_text(0.0206), seconds_to_text(7.1e-7)
    ('12.3 s', '20.6 ms', '0.71 us')
    """
    if seconds >= 3600:
        return f"{_three_digits(seconds / 3600)} h"
    if seconds >= 600:
        return f"{_three_digits(seconds / 60)} min"
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= 0.9995 * scale:
            return f"{_three_digits(seconds / scale)} {unit}"
    return f"{_three_digits(seconds / 1e-6)} us"


def _three_digits(value: float) -> str:
    text = f"{value:.0f}" if value >= 99.95 else f"{value:.3g}"
    return text.rstrip("0").rstrip(".") if "." in text else text


@dataclass(frozen=True)
class Budget:
    """The bytes allowed per tier, for snapshots and staging; the working state comes on top.

    Each amount is a string such as ``"8GB"``, a number of bytes, or None where the tier must not be used.

    Examples
    --------
    >>> Budget(device="8GB", host="64GiB")
    Budget(device='8GB', host='68.7GB')
    >>> Budget.of("4GB", first="host").host
    4000000000
    """

    device: int | None = None
    host: int | None = None
    disk: int | None = None

    def __init__(
        self, device: str | float | None = None, host: str | float | None = None, disk: str | float | None = None
    ) -> None:
        for tier, amount in zip(TIERS, (device, host, disk), strict=True):
            object.__setattr__(self, tier, None if amount is None else to_bytes(amount))
        if not self.tiers:
            raise BudgetError("an empty budget: name the bytes of at least one tier, for example device='8GB'")

    @classmethod
    def of(cls, value: "Budget | str | float", first: str = "device") -> "Budget":
        """Take a budget as it is, or read a bare amount as that of the `first` tier."""
        return value if isinstance(value, Budget) else cls(**{first: value})

    @property
    def tiers(self) -> tuple[str, ...]:
        """The tiers that may be used, fastest first."""
        return tuple(tier for tier in TIERS if getattr(self, tier) is not None)

    def __getitem__(self, tier: str) -> int:
        amount = getattr(self, tier) if tier in TIERS else None
        if amount is None:
            raise BudgetError(f"the budget has no tier {tier!r}; it has {', '.join(self.tiers)}")
        return int(amount)

    def with_tier(self, tier: str, amount: str | float | None) -> "Budget":
        """Return the same budget with another amount for one tier."""
        return Budget(**{name: getattr(self, name) for name in TIERS} | {tier: amount})

    def plot(self) -> Chart:
        """Draw the bytes of each tier as bars."""
        most = max(self[tier] for tier in self.tiers)
        unit = next((unit for unit in ("PB", "TB", "GB", "MB", "kB") if most >= UNITS[unit]), "B")
        heights = {"budget": [self[tier] / UNITS[unit] for tier in self.tiers]}
        return bars_chart(heights, self.tiers, "tier", unit, {"budget": "#2b7bba"})

    def _repr_html_(self) -> str:
        return table(("tier", "budget"), [(tier, to_text(self[tier])) for tier in self.tiers])

    def __repr__(self) -> str:
        return f"Budget({', '.join(f'{tier}={to_text(self[tier])!r}' for tier in self.tiers)})"
