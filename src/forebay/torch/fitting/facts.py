"""What is learned of a block: a log of what an iteration saw of it, and the facts and choices that it comes to."""

from collections import defaultdict
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from forebay.planner.blocks import Block, BlockChoice
from forebay.torch.storage.gauge import HostGauge


@dataclass(frozen=True)
class Treatment:
    """What is done with what a block saves."""

    what: str
    """all, nothing, or costly: the outputs of costly operations, the rest being recomputed"""
    away: bool = False
    """on the host rather than on the device"""
    encoded: bool = False
    inputs_away: bool = False


TREATMENTS = {
    "keep": Treatment("all"),
    "keep costly, recompute the rest": Treatment("costly"),
    "offload": Treatment("all", away=True),
    "offload costly, recompute the rest": Treatment("costly", away=True),
    "compress": Treatment("all", encoded=True),
    "offload compressed": Treatment("all", away=True, encoded=True),
    "recompute": Treatment("nothing"),
    "recompute, inputs offloaded": Treatment("nothing", inputs_away=True),
}

LOW_OVERHEAD = frozenset(
    name for name, treatment in TREATMENTS.items() if treatment.what == "nothing" or treatment == Treatment("all")
)
"""Those with which the host has nothing to send away, encode or look up for each tensor that is saved."""

WORTH = 0.95
"""Costly outputs are kept alone only where they are smaller than all by this, and encodings likewise."""

Signature = tuple[Any, ...]


def signature(tensors: list[torch.Tensor]) -> Signature:
    """Return what a plan depends on: shapes, types, and whether gradients are wanted."""
    return tuple([(tensor.shape, tensor.dtype, tensor.requires_grad, tensor.device) for tensor in tensors])


Span = tuple[Any, Any]
"""Two moments."""

Log = defaultdict[str, list[Any]]
"""What was seen of one call of a block, by what it is:

- spans of "forward", "backward", "replay" (one for each run after the first), of its "tail" behind all that is needed,
  of "encode" and "decode";
- "operations": costly ones whose outputs are worth keeping: number, bytes, those of them in small storages, and span;
- "given": storage, bytes, and whether these stay where they are, of each input;
- "saved": bytes of each storage that it saves but for parameters, inputs and outputs; of these what is too small to
  move; and those of its encoding;
- "room": bytes that an encoder needs on the device for a moment;
- "small", "outputs": numbers of saved tensors that are parameters or too small to move, and that are its output;
- "made": storage and bytes of each output that it saved;
- "peak forward", "peak after", "peak backward": bytes of the device.
"""


@dataclass(frozen=True, eq=False)
class BlockRecord:
    """One call of a block in one iteration."""

    name: str
    module: int
    """the identity of the module, or of those that it is made of"""
    signature: Signature
    """of what it was given"""
    count: int = 1
    """the blocks of the model that it is made of"""
    log: Log = field(default_factory=lambda: defaultdict(list))


@dataclass(frozen=True)
class MeasuredBlock:
    """What an iteration that looked into a block has told of it."""

    record: BlockRecord
    planned: Block
    """what the planner is told: seconds, bytes, and what may be done with it"""
    saved: int = 0
    """bytes but for parameters, inputs and outputs"""
    inputs: int = 0
    """bytes of tensors that no block before was given"""
    needed: bool = True
    """whether the loss needed it"""
    refused: bool = False
    """whether it cannot be run again as it was, so that it is kept"""
    outputs: frozenset[int] = frozenset()
    """the numbers of saved tensors that are its output: after these there is nothing to leave out of a second run"""
    staying: frozenset[int] = frozenset()
    """these, and the numbers of those that are parameters, or smaller than what is moved"""
    costly: frozenset[int] = frozenset()
    """the numbers of costly operations whose outputs are worth keeping"""

    def at_pace(self, factor: float) -> "MeasuredBlock":
        """Return it with all that was timed slower or faster."""
        block = self.planned
        choices = [replace(one, forward=factor * one.forward, backward=factor * one.backward) for one in block.choices]
        forward, backward = factor * block.forward, factor * block.backward
        return replace(self, planned=replace(block, forward=forward, backward=backward, choices=tuple(choices)))


def total_seconds(gauge: HostGauge, spans: Iterable[Span]) -> float:
    """Add up the seconds of some spans."""
    return sum(gauge.seconds(*span) for span in spans)


def facts_of(
    records: Sequence[BlockRecord], refused: Container[int], gauge: HostGauge, host: bool, forced: str | None
) -> tuple[MeasuredBlock, ...]:
    """Read the logs of an iteration that has ended.

    `host` tells whether there is memory to move to, `forced` the only choice allowed.
    """
    given = [{storage for storage, *_ in record.log["given"]} for record in records]
    facts: list[MeasuredBlock] = []
    input_bytes = 0
    for number, record in enumerate(records):
        log, now = record.log, given[number]
        before, later = set().union(*given[:number]), set().union(*given[number + 1 :])
        new = [(nbytes, stays) for storage, nbytes, stays in log["given"] if storage not in before]
        inputs = sum(nbytes for nbytes, _ in new)
        # To move what other blocks are given too would not free it, nor small ones and a batch that the caller holds.
        alone = now.isdisjoint(before | later)
        movable = sum(nbytes for nbytes, stays in new if alone and not stays)
        # Outputs that it saved and that no later block is given stay for this one alone.
        loose = sum(nbytes for storage, nbytes in log["made"] if storage.cdata not in later)
        input_bytes += inputs
        saved = sum(nbytes for nbytes, *_ in log["saved"])
        peaks = input_bytes, input_bytes, input_bytes + saved
        if gauge.counts:
            forward, after, backward = (
                max(log[f"peak {when}"], default=0) for when in ("forward", "after", "backward")
            )
            peaks = forward, after, backward
        measured = MeasuredBlock(
            record,
            Block(record.name, 0.0, 0.0, *peaks, choices=()),
            saved,
            inputs,
            needed=bool(log["backward"]),
            refused=record.module in refused,
            outputs=frozenset(log["outputs"]),
            staying=frozenset(log["outputs"] + log["small"]),
            costly=frozenset(number for number, *_ in log["operations"]),
        )
        seconds = _seconds(log, gauge)
        choices = _choices(measured, loose, movable, seconds, host, forced)
        block = replace(measured.planned, forward=seconds["forward"], backward=seconds["backward"], choices=choices)
        # Without the log, whose moments and references to memory nobody needs any more.
        facts.append(replace(measured, planned=block, record=replace(record, log=defaultdict(list))))
    return tuple(facts)


def _seconds(log: Log, gauge: HostGauge) -> dict[str, float]:
    """Add up the seconds of a block forward and backward, of its encoding, and of each kind of second run."""
    encode, decode, forward = (total_seconds(gauge, log[what]) for what in ("encode", "decode", "forward"))
    if not log["backward"]:
        return dict.fromkeys(("encode", "decode", "backward", "nothing", "costly", "all"), 0.0) | {"forward": forward}
    replays = [gauge.seconds(*span) for span in log["replay"]]
    backward = max(total_seconds(gauge, log["backward"]) - sum(replays), 0.2 * forward)
    # The first run of all also chose and loaded its kernels; and watching operations one by one slows the second run
    # down, so that only the share of those that run again is taken from it.
    aside = encode + decode + total_seconds(gauge, log["tail"])
    first = min(forward, (sum(replays) - aside) / len(replays)) if replays else forward
    watched = replays[0] - aside if replays else 0.0
    runs = first * max(len(replays), 1)
    left_out = total_seconds(gauge, (span for *_, span in log["operations"]))
    rest = max(1 - left_out / watched if watched > 0 else 1.0, 0.02) * runs
    again = {"nothing": runs, "costly": rest, "all": 0.0}
    return {"forward": first, "backward": backward, "encode": encode, "decode": decode, **again}


def _choices(
    measured: MeasuredBlock, loose: int, movable: int, seconds: dict[str, float], host: bool, forced: str | None
) -> tuple[BlockChoice, ...]:
    """List what may be done with what a block saves, in the order of the treatments."""
    log, saved, holds_output = measured.record.log, measured.saved, bool(measured.outputs)
    if measured.refused:
        return (BlockChoice("keep", kept=saved + loose, keeps_output=holds_output),)
    again = BlockChoice("recompute", backward=seconds["nothing"])
    if not measured.needed and forced is None:
        # What it saves would stay as long as its output does, and nobody knows how long: so nothing is kept of it.
        return (again,)
    small, encoded = (sum(sizes[place] for sizes in log["saved"]) for place in (1, 2))
    costly, small_costly = (sum(operation[place] for operation in log["operations"]) for place in (1, 2))
    whole = BlockChoice("", kept=small + loose, gradual=True, keeps_output=holds_output)
    coded = replace(whole, forward=seconds["encode"], backward=seconds["decode"], room=max(log["room"], default=0))
    some = BlockChoice("", backward=seconds["costly"])
    worth_some, worth_coding = measured.costly and costly < WORTH * saved, encoded < WORTH * saved
    offered: dict[str, Any] = {
        "keep": replace(whole, kept=saved + loose, gradual=False),
        "keep costly, recompute the rest": worth_some and replace(some, kept=costly),
        "offload": host and saved and replace(whole, moved=saved - small),
        "offload costly, recompute the rest": worth_some
        and host
        and costly > small_costly
        and replace(some, kept=small_costly, moved=costly - small_costly),
        "compress": worth_coding and replace(coded, kept=encoded + loose, gradual=False),
        "offload compressed": worth_coding and host and replace(coded, moved=encoded - small),
        "recompute": again,
        "recompute, inputs offloaded": host and movable and replace(again, moved=movable, freed=movable),
    }
    named = [replace(choice, name=name) for name, choice in offered.items() if choice and forced in (None, name)]
    return tuple(named) or (again,)
