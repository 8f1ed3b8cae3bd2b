"""From what was measured of each block to the choices that the planner has for it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from forebay.planner.blocks import Block, BlockChoice
from forebay.torch.fitting.record import BlockRecord, total_seconds
from forebay.torch.gauge import HostGauge
from forebay.torch.replay.costly_operations import SHARES


@dataclass(frozen=True)
class Treatment:
    """What is done with what a block saves."""

    what: str
    """all, nothing, or which of the outputs of costly operations, the rest being recomputed"""
    away: bool = False
    """on the host rather than on the device"""
    encoded: bool = False
    inputs_away: bool = False


TREATMENTS = {
    "keep": Treatment("all"),
    **{f"keep {share}, recompute the rest": Treatment(share) for share in SHARES},
    "offload": Treatment("all", away=True),
    **{f"offload {share}, recompute the rest": Treatment(share, away=True) for share in SHARES},
    "compress": Treatment("all", encoded=True),
    "offload compressed": Treatment("all", away=True, encoded=True),
    "recompute": Treatment("nothing"),
    "recompute, inputs offloaded": Treatment("nothing", inputs_away=True),
}

SIMPLE = frozenset(name for name, treatment in TREATMENTS.items() if treatment.what in ("all", "nothing", "costly"))
"""Those that keep no mere share of the costly outputs."""

LOW_OVERHEAD = frozenset(
    name for name, treatment in TREATMENTS.items() if treatment.what == "nothing" or treatment == Treatment("all")
)
"""Those with which the host has nothing to send away, encode or look up for each tensor that is saved."""

WORTH = 0.95
"""Costly outputs are kept alone only where they are smaller than all by this, and encodings likewise."""


@dataclass(frozen=True)
class BlockTiming:
    """Seconds of a block."""

    forward: float
    backward: float
    extra_seconds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """that its forward and its backward take longer with each treatment"""

    def times(self, factor: float) -> "BlockTiming":
        """Return all of it slower or faster."""
        extra = {
            name: (factor * forward, factor * backward) for name, (forward, backward) in self.extra_seconds.items()
        }
        return BlockTiming(factor * self.forward, factor * self.backward, extra)


def timing_of(record: BlockRecord, gauge: HostGauge) -> BlockTiming:
    """Read a block in the iteration that recomputed it and looked into it."""
    times = record.times
    encode, decode = total_seconds(gauge, times.encode), total_seconds(gauge, times.decode)
    forward = gauge.seconds(*times.forward) if times.forward else 0.0
    if not times.spans:
        return BlockTiming(forward, 0.0)
    backward = max(total_seconds(gauge, times.spans) - total_seconds(gauge, times.replay_spans), 0.2 * forward)
    # The first run of all also chose and loaded its kernels; and watching operations one by one slows the second run
    # down, so that only the share of those that run again is taken from it.
    passes = len(times.replay_spans)
    aside = encode + decode + total_seconds(gauge, times.tail)
    replay = total_seconds(gauge, times.replay_spans) - aside
    first = min(forward, replay / passes) if passes else forward
    watched = gauge.seconds(*times.replay_spans[0]) - aside if passes else 0.0
    runs = first * max(passes, 1)
    second = {"all": 0.0, "nothing": runs}
    for name, share in record.facts.costly.items():
        timed = zip(times.operations, times.operation_spans, strict=True)
        left_out = total_seconds(gauge, (span for operation, span in timed if operation.number in share.numbers))
        second[name] = max(1 - left_out / watched if watched > 0 else 1.0, 0.02) * runs
    extra = {
        name: (encode, decode) if treatment.encoded else (0.0, second[treatment.what])
        for name, treatment in TREATMENTS.items()
        if treatment.what in second
    }
    return BlockTiming(first, backward, extra)


def block_of(
    record: BlockRecord, timed: BlockTiming, peaks: tuple[int, int, int], host: bool, forced: str | None
) -> Block:
    """Describe a block to the planner: `peaks` are bytes in its forward, after it, and in its backward.

    All blocks are recomputed then. `host` tells whether there is memory to move to, `forced` the only choice allowed.
    """
    nbytes = record.bytes
    if not record.times.spans and forced is None and not record.refused:
        # What it saves would stay as long as its output does, and nobody knows how long: so nothing is kept of it.
        return Block(record.name, timed.forward, timed.backward, *peaks, choices=(BlockChoice("recompute"),))
    kept = bool(record.facts.outputs)
    if record.refused:
        keep = BlockChoice("keep", kept=nbytes.saved + nbytes.loose, keeps_output=kept)
        return Block(record.name, timed.forward, timed.backward, *peaks, choices=(keep,))
    saved, inputs = nbytes.saved, nbytes.inputs - nbytes.outside if record.lone else 0
    staying = nbytes.stays + nbytes.loose
    choices = [BlockChoice("keep", kept=saved + nbytes.loose, keeps_output=kept), BlockChoice("recompute")]
    for name, share in record.facts.costly.items():
        if share.nbytes < WORTH * saved:
            choices.append(BlockChoice(f"keep {name}, recompute the rest", kept=share.nbytes))
            moved = share.nbytes - share.stays
            if host and moved:
                choices.append(BlockChoice(f"offload {name}, recompute the rest", kept=share.stays, moved=moved))
    if nbytes.encoded < WORTH * saved:
        coded = BlockChoice("compress", kept=nbytes.encoded + nbytes.loose, room=nbytes.room, keeps_output=kept)
        choices.append(coded)
        moved = nbytes.encoded - nbytes.stays
        if host:
            name = "offload compressed"
            choices.append(replace(coded, name=name, kept=staying, moved=moved, gradual=True))
    if host and saved:
        moved = saved - nbytes.stays
        choices.append(BlockChoice("offload", kept=staying, moved=moved, gradual=True, keeps_output=kept))
    if host and inputs:
        choices.append(BlockChoice("recompute, inputs offloaded", moved=inputs, freed=inputs))
    timely = {choice.name: _timely(choice, timed) for choice in choices}
    allowed = tuple(timely[name] for name in TREATMENTS if name in timely and forced in (None, name))
    return Block(record.name, timed.forward, timed.backward, *peaks, choices=allowed or (timely["recompute"],))


def _timely(choice: BlockChoice, timed: BlockTiming) -> BlockChoice:
    forward, backward = timed.extra_seconds.get(choice.name, (0.0, 0.0))
    return replace(choice, forward=forward, backward=backward)
