"""What a step, a link and a codec cost: measured on the machine, or assumed from a named one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite
from numbers import Real

from forebay.errors import PlanError
from forebay.units import UNITS, short


def _is_number(value: object) -> bool:
    try:
        return isinstance(value, Real) and isfinite(value)
    except OverflowError:  # a whole one of hundreds of digits
        return False


def check_number(value: object, name: str) -> None:
    """Refuse what is not a number; infinity is one."""
    if not _is_number(value) and not (isinstance(value, Real) and value in (inf, -inf)):
        raise PlanError(f"{name}={short(value)}: give a number")


def _check_seconds(costs: object, *names: str) -> None:
    for name in names:
        if not _is_number(getattr(costs, name)) or getattr(costs, name) < 0:
            kind, value = type(costs).__name__, getattr(costs, name)
            raise PlanError(f"{kind}: {name} is in seconds and must not be negative, not {short(value)}")


def _check_positive(costs: object, *names: str) -> None:
    for name in names:
        if not _is_number(getattr(costs, name)) or not 1e-30 < getattr(costs, name) < 1e30:
            raise PlanError(f"{type(costs).__name__}: {name} must be positive, not {short(getattr(costs, name))}")


@dataclass(frozen=True)
class Link:
    """Bytes a second between a tier and the one below it."""

    up: float
    """towards the faster tier"""
    down: float
    """towards the slower tier"""
    both: float = 1.0
    """the share of its speed that each way has while the other is busy too"""
    beside: float = 1.0
    """how many times longer the computation takes while the link is busy"""

    def __post_init__(self) -> None:
        _check_positive(self, "up", "down", "both", "beside")
        if self.both > 1 or self.beside < 1:
            raise PlanError(
                f"Link: both must be at most 1 and beside at least 1, not {self.both!r} and {self.beside!r}"
            )


@dataclass(frozen=True)
class HostCost:
    """Seconds that each operation takes the host: to compute with, or to ask a device that it runs ahead of."""

    forward: float = 0.0
    """of a step, where it runs ahead: how long forward takes to ask the device for it"""
    backward: float = 0.0
    call: float = 0.0
    """for each call of forward or of backward, beside what their steps take"""
    save: float = 0.0
    restore: float = 0.0
    take: float = 0.0
    """a restore at the snapshot's last use"""
    drop: float = 0.0
    """a drop or an eviction"""
    move: float = 0.0
    """the start of a movement"""
    start: float = 0.0
    """of a whole reversal, before its first operation"""
    ahead: bool = False
    """whether the host runs ahead of a device; otherwise its seconds add to those of the computation"""

    def __post_init__(self) -> None:
        _check_seconds(self, *(name for name in self.__dataclass_fields__ if name != "ahead"))

    def seconds(self, steps: int, forward_steps: float, saves: float, fetched: float = 0, stored: float = 0) -> float:
        """Return the least of a reversal after its start; forward is called once for each step.

        What is `fetched` was evicted before, as often; what is `stored` may come back many times.
        """
        calls = 2 * steps * self.call + forward_steps * self.forward + steps * self.backward
        snapshots = saves * (self.save + self.take + self.drop) + (steps - saves) * self.restore
        return calls + snapshots + fetched * (self.move + self.drop) + stored * self.move

    def beside(self, computed: float, asked: float) -> float:
        """Return the least seconds of a reversal that computes for so long, and takes the host so long to ask for."""
        return self.start + (max(computed, asked) if self.ahead else computed + asked)


NO_HOST_COST = HostCost()
"""Where the host's part was not measured."""


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
    encode_host: float = 0.0
    """seconds in which a host that runs ahead of a device asks it for an encoding"""
    decode_host: float = 0.0
    handed_encoded: bool = False
    """whether backward takes records as they are kept: they are copied then, and never decoded"""

    def __post_init__(self) -> None:
        _check_positive(self, "ratio", "encode", "decode", "worst", "spread")
        _check_seconds(self, "encode_host", "decode_host")
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
    steps: tuple[float, ...] = field(default=(), repr=False)
    """how long each forward step takes, in proportion to the others; empty where all take the same"""
    assumed: str | None = None
    """the machine these were assumed for, where they were not measured"""
    measured: bool = False
    """whether they were timed on the first steps of the loop itself"""
    operations: HostCost = NO_HOST_COST
    """seconds of the host for each operation of the engine"""

    def __post_init__(self) -> None:
        _check_positive(self, "forward", "copy")
        _check_seconds(self, "backward", "pin")
        for name in ("host", "disk"):
            if not isinstance(getattr(self, name), Link | None):
                raise PlanError(f"Costs: {name} must be a Link(up=..., down=...), not {getattr(self, name)!r}")
        are_numbers = isinstance(self.steps, Sequence) and all(_is_number(cost) and cost >= 0 for cost in self.steps)
        if not are_numbers or (self.steps and not any(self.steps)):
            raise PlanError("Costs: steps must be finite numbers, not negative, and not all zero")
        if not isinstance(self.codecs, Mapping) or not all(map(_is_named, self.codecs.items())):
            raise PlanError("Costs: codecs must be a dict of CodecCost by name")
        if not isinstance(self.operations, HostCost):
            raise PlanError(f"Costs: operations must be a HostCost, not {self.operations!r:.80}")


def _is_named(codec: tuple[object, object]) -> bool:
    name, cost = codec
    return isinstance(name, str) and bool(name.strip()) and isinstance(cost, CodecCost)


def check_costs(costs: object) -> None:
    """Refuse what are no costs; None is for those that are not known."""
    if not isinstance(costs, Costs | None):
        raise PlanError(f"costs={costs!r:.80}: give Costs(...), or leave it out")


@dataclass(frozen=True)
class CostPreset:
    """Typical figures of a kind of machine, for plans made before anything was measured."""

    name: str
    memory: float
    """bytes a second that a step reads and writes"""
    copy: float
    host: Link | None
    disk: Link | None
    pin: float

    def costs(self, state_bytes: int) -> Costs:
        """Assume a step that is bound by memory and moves twice the state, as a second-order wave equation does."""
        step = 2 * state_bytes / self.memory
        return Costs(step, step, self.copy, self.host, self.disk, self.pin, assumed=self.name)


PIN = 0.08 / UNITS["GiB"]


def _card(name: str, memory: float, link: float) -> CostPreset:
    """Derive a card from the bytes a second of its data sheet, by the shares that an H200 was seen to reach."""
    return CostPreset(name, 0.58 * memory, 0.4 * memory, Link(link, link), Link(2.8e9, 2.0e9), PIN)


MACHINES = {
    preset.name: preset
    for preset in (
        # Links, copy, disk and pinning as `forebay doctor` measured them on one H200; the others after data sheets.
        CostPreset("h200", 2.8e12, 1.94e12, Link(55e9, 55e9), Link(2.8e9, 2.0e9), PIN),
        CostPreset("v100", 0.5e12, 0.35e12, Link(12e9, 12e9), Link(3e9, 2e9), PIN),
        _card("a100", 2.04e12, 25e9),
        _card("h100", 3.35e12, 55e9),
        _card("l40s", 0.86e12, 25e9),
        _card("rtx4090", 1.01e12, 25e9),
        _card("rtx5090", 1.79e12, 55e9),
        CostPreset("laptop", 30e9, 10e9, None, Link(2.5e9, 1.5e9), 0.0),
    )
}
"""Machines that costs can be assumed for."""


def assumed_costs(machine: str | None, state_bytes: int, first_tier: str) -> Costs:
    """Return the costs of a named machine, seen from the tier in which the loop computes; None takes a likely one."""
    if machine is None:
        machine = "laptop" if first_tier == "host" else "h200"
    if not isinstance(machine, str) or machine not in MACHINES:
        known = ", ".join(MACHINES)
        raise PlanError(f"no machine is called {machine!r:.80}: use one of {known}, or give costs=Costs(...)")
    if (first_tier == "host") != (MACHINES[machine].host is None):
        fitting = [name for name, preset in MACHINES.items() if (preset.host is None) == (first_tier == "host")]
        raise PlanError(
            f"the budget starts with the {first_tier}, which does not suit machine {machine!r}: "
            f"give another budget, or one of the machines {', '.join(fitting)}"
        )
    return MACHINES[machine].costs(state_bytes)
