"""What a step, a link and a codec cost: measured on the machine, or assumed from a named one."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from numbers import Real

from forebay.errors import PlanError
from forebay.units import UNITS


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and isfinite(value)


def _check_positive(costs: object, *names: str) -> None:
    for name in names:
        if not _is_number(getattr(costs, name)) or not 1e-30 < getattr(costs, name) < 1e30:
            raise PlanError(f"{type(costs).__name__}: {name} must be positive, not {getattr(costs, name)!r}")


@dataclass(frozen=True)
class Link:
    """Bytes a second between a tier and the one below it."""

    up: float
    """towards the faster tier"""
    down: float
    """towards the slower tier"""

    def __post_init__(self) -> None:
        _check_positive(self, "up", "down")


@dataclass(frozen=True)
class CodecCost:
    """What a codec does to a snapshot; bytes a second are of uncompressed data."""

    ratio: float
    encode: float
    decode: float
    worst: float = 1.05
    """how many times larger than the snapshot its encoding may become"""
    spread: float = 1.1
    """how many times larger than the others a snapshot usually is at most: so much room is planned for each"""
    scratch: float = 0.0
    """bytes of the first tier that the codec takes for itself, for each byte of a snapshot"""

    def __post_init__(self) -> None:
        _check_positive(self, "ratio", "encode", "decode", "worst", "spread")
        if not _is_number(self.scratch) or self.scratch < 0:
            raise PlanError(f"CodecCost: scratch must not be negative, not {self.scratch!r}")


@dataclass(frozen=True)
class Costs:
    """Seconds a step and bytes a second of everything a reversal does.

    Examples
    --------
    >>> costs = Costs(forward=0.8e-3, backward=0.8e-3, copy=2.1e12, host=Link(up=55e9, down=55e9))
    >>> round(costs.host.up * costs.forward)   # bytes that travel during a step
    44000000
    """

    forward: float
    """seconds of one forward step"""
    backward: float
    """seconds of one backward step"""
    copy: float
    """bytes a second of a copy inside the first tier"""
    host: Link | None = None
    """between the device and the host"""
    disk: Link | None = None
    """between the host and the disk"""
    pin: float = 0.0
    """seconds to pin one byte of host memory"""
    codecs: Mapping[str, CodecCost] = field(default_factory=dict)
    """the codecs that are known, by name"""
    assumed: str | None = None
    """the machine these were assumed for, where they were not measured"""
    measured: bool = False
    """whether they were timed on the first steps of the loop itself"""

    def __post_init__(self) -> None:
        _check_positive(self, "forward", "copy")
        for name in ("backward", "pin"):
            if not _is_number(getattr(self, name)) or getattr(self, name) < 0:
                raise PlanError(f"Costs: {name} is in seconds and must not be negative, not {getattr(self, name)!r}")
        for name in ("host", "disk"):
            if not isinstance(getattr(self, name), Link | None):
                raise PlanError(f"Costs: {name} must be a Link(up=..., down=...), not {getattr(self, name)!r}")
        if not isinstance(self.codecs, Mapping) or not all(name and name.strip() for name in self.codecs):
            raise PlanError("Costs: codecs must be a dict of CodecCost by name")


@dataclass(frozen=True)
class CostPreset:
    """Typical figures of a kind of machine, for plans made before anything was measured."""

    name: str
    memory: float
    """bytes a second that a step reads and writes"""
    copy: float
    host: Link | None
    disk: Link
    pin: float

    def costs(self, state_bytes: int) -> Costs:
        """Assume a step that is bound by memory and moves twice the state, as a second-order wave equation does."""
        step = 2 * state_bytes / self.memory
        return Costs(step, step, self.copy, self.host, self.disk, self.pin, assumed=self.name)


MACHINES = {
    preset.name: preset
    for preset in (
        # Links, copy, disk and pinning as `forebay doctor` measured them on one H200; the others after data sheets.
        CostPreset("h200", 2.8e12, 1.94e12, Link(55e9, 55e9), Link(2.8e9, 2.0e9), 0.08 / UNITS["GiB"]),
        CostPreset("v100", 0.5e12, 0.35e12, Link(12e9, 12e9), Link(3e9, 2e9), 0.08 / UNITS["GiB"]),
        CostPreset("laptop", 30e9, 10e9, None, Link(2.5e9, 1.5e9), 0.0),
    )
}
"""Machines that costs can be assumed for."""


def assumed_costs(machine: str | None, state_bytes: int, first_tier: str) -> Costs:
    """Return the costs of a named machine, seen from the tier in which the loop computes; None takes a likely one."""
    machine = machine or ("laptop" if first_tier == "host" else "h200")
    if machine not in MACHINES:
        raise PlanError(f"no machine is called {machine!r}: use one of {', '.join(MACHINES)}, or give costs=Costs(...)")
    if (first_tier == "host") != (MACHINES[machine].host is None):
        fitting = [name for name, preset in MACHINES.items() if (preset.host is None) == (first_tier == "host")]
        raise PlanError(
            f"the budget starts with the {first_tier}, which does not suit machine {machine!r}: "
            f"give another budget, or one of the machines {', '.join(fitting)}"
        )
    return MACHINES[machine].costs(state_bytes)
