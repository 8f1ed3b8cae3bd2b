"""What one iteration tells of a block: seconds, bytes saved, the costly part of it, and the peaks around it."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from forebay.torch.gauge import HostGauge
from forebay.torch.replay.block import FittedBlock
from forebay.torch.replay.costly_operations import CostlyOperation, shares_of
from forebay.torch.replay.frame import ReplayFacts

Signature = tuple[Any, ...]


def signature(tensors: list[torch.Tensor]) -> Signature:
    """Return what a plan depends on: shapes, types, and whether gradients are wanted."""
    return tuple([(tensor.shape, tensor.dtype, tensor.requires_grad, tensor.device) for tensor in tensors])


Span = tuple[Any, Any]
"""Two moments."""


@dataclass(slots=True)
class BlockTimes:
    """When a block was at work."""

    forward: Span | None = None
    replay_spans: list[Span] = field(default_factory=list)
    """of its second run, and of one more for each further backward pass"""
    spans: list[Span] = field(default_factory=list)
    """of its backward; none where the loss did not need it"""
    tail: list[Span] = field(default_factory=list)
    """of the end of a second run, behind all that is needed"""
    encode: list[Span] = field(default_factory=list)
    decode: list[Span] = field(default_factory=list)
    operations: list[CostlyOperation] = field(default_factory=list)
    """costly ones whose outputs are worth keeping"""
    operation_spans: list[Span] = field(default_factory=list)
    """of these"""


@dataclass(slots=True)
class BlockBytes:
    """What a block takes."""

    saved: int = 0
    """but for parameters, inputs and outputs"""
    stays: int = 0
    """of what is saved, in storages smaller than what is moved"""
    inputs: int = 0
    """of tensors that no block before was given"""
    outside: int = 0
    """those of them that do not move: small ones, and those that no operation made, as a batch that the caller holds"""
    loose: int = 0
    """of outputs that it saved and that no later block is given: they stay for this one alone"""
    encoded: int = 0
    """of the encodings of those that the codec takes, and of the others as they are"""
    room: int = 0
    """that an encoder needs on the device for a moment, at most"""
    peak_forward: int = 0
    peak_after: int = 0
    peak_backward: int = 0


@dataclass(slots=True)
class BlockRecord:
    """One block in one iteration."""

    name: str
    module: int
    """the identity of the module, or of those that it is made of"""
    kind: tuple[Any, ...]
    """what blocks that are alike have in common, with the signature of their inputs"""
    count: int = 1
    """the blocks of the model that it is made of"""
    times: BlockTimes = field(default_factory=BlockTimes)
    bytes: BlockBytes = field(default_factory=BlockBytes)
    facts: ReplayFacts = field(default_factory=ReplayFacts)
    """what those that run it again have to know"""
    input_storages: frozenset[int] = frozenset()
    """the storages of its inputs"""
    made: tuple[tuple[StorageWeakRef, int], ...] = ()
    """those of its outputs that it saved, and their bytes"""
    lone: bool = False
    """whether its inputs are given to no other block"""
    follows: bool = False
    """whether an `nn.Sequential` gave it what the block before gave, and nothing of others is around both"""
    refused: bool = False
    """whether it computes other values when it is run again, so that it has to be kept"""

    @property
    def signature(self) -> Signature:
        """What it was given."""
        return self.kind[-1]  # type: ignore[no-any-return]


def record_of(block: FittedBlock, tensors: list[torch.Tensor]) -> BlockRecord:
    """Begin the record of a call of a block with these tensors."""
    return BlockRecord(block.name, block.identity, (block.kind, signature(tensors)), block.count)


def total_seconds(gauge: HostGauge, spans: Iterable[Span]) -> float:
    """Add up the seconds of some spans."""
    return sum(gauge.seconds(*span) for span in spans)


def find_loose(records: list[BlockRecord]) -> None:
    """Find the outputs that a block saved and that no later block is given."""
    later: frozenset[int] = frozenset()
    for record in reversed(records):
        record.bytes.loose = sum(nbytes for storage, nbytes in record.made if storage.cdata not in later)
        record.made = ()
        later |= record.input_storages


def find_costly(records: list[BlockRecord], gauge: HostGauge) -> None:
    """Find the shares of costly outputs that may be kept: the same for blocks that are alike."""
    alike: dict[Any, list[BlockRecord]] = defaultdict(list)
    for record in records:
        alike[record.kind, tuple(record.times.operations)].append(record)
    for group in alike.values():
        seconds = [[gauge.seconds(*span) for span in record.times.operation_spans] for record in group]
        shares = shares_of(group[0].times.operations, [median(times) for times in zip(*seconds, strict=True)])
        for record in group:
            record.facts.costly = shares
