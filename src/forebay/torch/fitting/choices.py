"""From what was measured of each block to the choices that the planner has for it."""

from dataclasses import dataclass, replace

from forebay.planner.blocks import Block, BlockChoice
from forebay.torch.fitting.record import MeasuredBlock


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


def block_of(measured: MeasuredBlock, peaks: tuple[int, int, int], host: bool, forced: str | None) -> Block:
    """Describe a block to the planner: `peaks` are bytes in its forward, after it, and in its backward.

    All blocks are recomputed then. `host` tells whether there is memory to move to, `forced` the only choice allowed.
    """
    nbytes, saved = measured.bytes, measured.bytes.saved
    block = Block(
        measured.name, measured.times.forward, measured.times.backward, *peaks, choices=(BlockChoice("recompute"),)
    )
    kept = bool(measured.outputs)
    if measured.refused:
        return replace(block, choices=(BlockChoice("keep", kept=saved + nbytes.loose, keeps_output=kept),))
    if not measured.needed and forced is None:
        # What it saves would stay as long as its output does, and nobody knows how long: so nothing is kept of it.
        return block
    staying = nbytes.stays + nbytes.loose
    choices = [BlockChoice("keep", kept=saved + nbytes.loose, keeps_output=kept), BlockChoice("recompute")]
    costly = measured.costly
    if costly.numbers and costly.nbytes < WORTH * saved:
        choices.append(BlockChoice("keep costly, recompute the rest", kept=costly.nbytes))
        moved = costly.nbytes - costly.stays
        if host and moved:
            choices.append(BlockChoice("offload costly, recompute the rest", kept=costly.stays, moved=moved))
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
    if host and nbytes.movable:
        choices.append(BlockChoice("recompute, inputs offloaded", moved=nbytes.movable, freed=nbytes.movable))
    timely = {choice.name: _timely(choice, measured) for choice in choices}
    allowed = tuple(timely[name] for name in TREATMENTS if name in timely and forced in (None, name))
    return replace(block, choices=allowed or (timely["recompute"],))


def _timely(choice: BlockChoice, measured: MeasuredBlock) -> BlockChoice:
    treatment, times = TREATMENTS[choice.name], measured.times
    if treatment.encoded:
        return replace(choice, forward=times.encode, backward=times.decode)
    again = {"all": 0.0, "costly": times.replay_of_rest, "nothing": times.replay}
    return replace(choice, backward=again[treatment.what])
