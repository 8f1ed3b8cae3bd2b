"""From what was measured of each block to the choices that the planner has for it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from forebay.planner.blocks import Block, BlockChoice
from forebay.torch.fitting.record import BlockRecord
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

    @property
    def family(self) -> "Treatment":
        """What it has in common with others that keep another share of the costly outputs."""
        return replace(self, what="costly") if self.what in SHARES else self


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

SIMPLE = frozenset(name for name, treatment in TREATMENTS.items() if treatment.family == treatment)
"""Those that keep no mere share of the costly outputs."""

LOW_OVERHEAD = frozenset(
    name for name, treatment in TREATMENTS.items() if treatment.what == "nothing" or treatment == Treatment("all")
)
"""Those with which the host has nothing to send away, encode or look up for each tensor that is saved."""

WORTH = 0.95
"""Costly outputs are kept alone only where they are smaller than all by this, and encodings likewise."""


@dataclass(frozen=True)
class BlockTiming:
    """Seconds of a block, without those in which it waited for copies."""

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
