"""From what was measured of each block to the choices that the planner has for it."""

from dataclasses import dataclass, replace

from penstock.planner.blocks import Block, Choice
from penstock.torch.record import Record


@dataclass(frozen=True)
class Treatment:
    """What is done with what a block saves."""

    what: str
    """all, dear (the outputs of dear operations, the rest being recomputed) or nothing"""
    away: bool = False
    """on the host rather than on the device"""
    encoded: bool = False
    inputs_away: bool = False


TREATMENTS = {
    "keep": Treatment("all"),
    "keep dear, recompute the rest": Treatment("dear"),
    "offload": Treatment("all", away=True),
    "offload dear, recompute the rest": Treatment("dear", away=True),
    "compress": Treatment("all", encoded=True),
    "offload compressed": Treatment("all", away=True, encoded=True),
    "recompute": Treatment("nothing"),
    "recompute, inputs offloaded": Treatment("nothing", inputs_away=True),
}

WORTH = 0.95
"""Dear outputs are kept alone only where they are smaller than all by this, and encodings likewise."""


@dataclass(frozen=True)
class Timed:
    """Seconds of a block, without those in which it waited for copies."""

    forward: float
    backward: float
    again: float | None = None
    """of a second run, which ends when all that was saved has been computed; None where there was none"""
    cheap: float | None = None
    """of a second run in which dear operations are skipped"""
    encode: float = 0.0
    decode: float = 0.0


def block_of(record: Record, timed: Timed, peaks: tuple[int, int, int], host: bool, forced: str | None) -> Block:
    """Give the planner what it needs to know of a block.

    Parameters
    ----------
    record, timed
        What was measured.
    peaks
        Bytes of the device in its forward, after it, and in its backward, when all blocks are recomputed.
    host
        Whether there is host memory to move to.
    forced
        The only treatment allowed, if one was asked for.
    """
    if not record.spans and forced is None:
        # What it saves would stay as long as its output does, and nobody knows how long: so nothing is kept of it.
        return Block(record.name, timed.forward, timed.backward, *peaks, choices=(Choice("recompute"),))
    kept = bool(record.outputs)
    saved, inputs = record.saved, record.inputs if record.lone else 0
    choices = {
        "keep": Choice("keep", kept=saved + record.loose, keeps_output=kept),
        "recompute": Choice("recompute", backward=timed.again or 0.0),
    }
    if record.dear and record.dear_bytes < WORTH * saved:
        rest = "dear, recompute the rest"
        choices[f"keep {rest}"] = Choice(f"keep {rest}", kept=record.dear_bytes, backward=timed.cheap or 0.0)
        if host:
            choices[f"offload {rest}"] = Choice(f"offload {rest}", moved=record.dear_bytes, backward=timed.cheap or 0.0)
    if record.encoded < WORTH * saved:
        coded = Choice("compress", forward=timed.encode, backward=timed.decode, room=record.room, keeps_output=kept)
        choices["compress"] = replace(coded, kept=record.encoded + record.loose)
        if host:
            name = "offload compressed"
            choices[name] = replace(coded, name=name, kept=record.loose, moved=record.encoded, gradual=True)
    if host and saved:
        choices["offload"] = Choice("offload", kept=record.loose, moved=saved, gradual=True, keeps_output=kept)
    if host and inputs:
        name = "recompute, inputs offloaded"
        choices[name] = Choice(name, moved=inputs, freed=inputs, backward=timed.again or 0.0)
    allowed = tuple(choices[name] for name in TREATMENTS if name in choices and forced in (None, name))
    return Block(record.name, timed.forward, timed.backward, *peaks, choices=allowed or (choices["recompute"],))
