"""What a fitted model works with on one device: what measures, keeps and moves there, plans that, and what it knows."""

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import torch
from torch import nn

from forebay.codec import Codec
from forebay.errors import BudgetError
from forebay.tier.capacity import free_host_bytes, less_of_host
from forebay.torch.fitting.planning import FitPlanner
from forebay.torch.fitting.profile import ShapeProfiles
from forebay.torch.replay.block import FittedBlock
from forebay.torch.storage.gauge import HostGauge, gauge_for
from forebay.torch.storage.mover import mover_for
from forebay.torch.storage.tensors import TensorStore
from forebay.units import Budget

logger = logging.getLogger("forebay.torch")

LEAST_MOVED = {"cuda": 2**16, "cpu": 2**8}
"""Smaller storages are not worth a copy of their own."""


@dataclass(frozen=True)
class DeviceTools:
    """What measures, plans and moves on one device."""

    gauge: HostGauge
    store: TensorStore
    codec: Codec | None
    planner: FitPlanner
    sequences: Collection[nn.Sequential]
    """whose blocks may be taken together"""
    groups: dict[tuple[int, ...], FittedBlock] = field(default_factory=dict)
    """blocks that are taken together as one, by the identities of their modules"""
    profiles: ShapeProfiles = field(default_factory=ShapeProfiles)
    warm: set[tuple[torch.dtype, int]] = field(default_factory=set)
    """kinds of tensors that have been encoded and decoded before"""


def tools_for(
    device: torch.device,
    budget: Budget,
    codec: Codec | None,
    choice: str | None,
    given: Mapping[str, str],
    sequences: Collection[nn.Sequential],
) -> DeviceTools:
    """Make the tools of a device, refusing one that is neither a GPU of CUDA nor the host."""
    if device.type not in ("cpu", "cuda"):
        raise BudgetError(f"fit works on CUDA GPUs and on the CPU, not on {device}: move the model there")
    budget, less = less_of_host(budget, free_host_bytes())
    if less:
        logger.warning(less)
    gauge, mover = gauge_for(device), mover_for(device, budget.host)
    link = gauge.link(mover) if budget.host else None
    planner = FitPlanner(budget, choice, given, gauge.counts, link, mover.room)
    return DeviceTools(gauge, TensorStore(mover, LEAST_MOVED[device.type]), codec, planner, sequences)
