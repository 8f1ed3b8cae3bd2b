"""The machine whose costs `forebay plan` assumes: one that is known by name, one that was measured, or this one."""

from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from forebay.errors import PlanError
from forebay.files import text_of
from forebay.filesystems import spill_directory
from forebay.planner.costs import CostPreset, Costs, Link, assumed_costs
from forebay.tier.links import Links, measure_links

T = TypeVar("T")

HERE = "here"
STEP = 1.44
"""Bytes a second that a step reads and writes, over those that a copy copies: on an H200 0.72 of what a copy moves."""


@dataclass(frozen=True)
class _Written:
    """What is read of the file that `forebay doctor` writes."""

    links: Links | None


def costs_of(machine: str | None, state_bytes: int, first_tier: str) -> Costs:
    """Return the costs of a machine: of `MACHINES`, of a file that `forebay doctor --save` wrote, or measured now."""
    if machine == HERE:
        links, name = measure_links(spill_directory()), "this machine"
    elif machine is not None and machine.endswith(".json"):
        links, name = _read(Path(machine)), machine
    else:
        return assumed_costs(machine, state_bytes, first_tier)
    return _preset(name, links, first_tier).costs(state_bytes)


def _preset(name: str, links: Links, first_tier: str) -> CostPreset:
    """Turn the links of a machine into what plans ask of it, seen from the tier in which the loop computes."""
    disk = Link(links.disk_read, links.disk_write) if links.disk_read and links.disk_write else None
    if first_tier == "host":
        return CostPreset(name, STEP * links.host_copy, links.host_copy, None, disk, 0.0)
    if not (links.device_copy and links.pinned_up and links.pinned_down):
        raise PlanError(f"on {name} no GPU was measured: give a budget without --device, or another --machine")
    share = min(1.0, links.pinned_both / min(links.pinned_up, links.pinned_down)) if links.pinned_both else 1.0
    host = Link(links.pinned_up, links.pinned_down, both=share)
    return CostPreset(name, STEP * links.device_copy, links.device_copy, host, disk, links.pin_seconds_per_byte or 0.0)


def read_json(path: Path, kind: type[T], advice: str) -> T:
    """Read a file as one kind of thing; what is wrong with it is told in a sentence, with the entry that it is in."""
    from pydantic import TypeAdapter, ValidationError  # they take their time to load

    try:
        return TypeAdapter(kind).validate_json(text_of(path))
    except ValidationError as error:
        wrong = error.errors(include_url=False)[0]
        where = ".".join(map(str, wrong["loc"]))
        raise PlanError(f"cannot read {advice}: {where and f'{where}: '}{wrong['msg']}") from error
    except (OSError, ValueError) as error:
        raise PlanError(f"cannot read {advice}: {error}") from error


def _read(path: Path) -> Links:
    """Read the links out of what `forebay doctor` wrote."""
    links = read_json(path, _Written, f"{path}, write it by `forebay doctor --save {path}`").links
    if links is None:
        raise PlanError(f"{path} holds no links: write it by `forebay doctor --save {path}`, without --quick")
    for name, value in vars(links).items():
        if isinstance(value, float) and not 0 < value < 1e30:
            raise PlanError(f"{path}: links.{name} is {value:g}, which no link has: measure it again")
    return links
