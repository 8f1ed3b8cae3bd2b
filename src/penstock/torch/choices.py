"""From what was measured of each block to the choices that the planner has for it."""

from dataclasses import dataclass, replace
from typing import Any

from penstock.planner.blocks import Block, Choice
from penstock.torch.gauge import HostGauge
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
    """Seconds of a block, the best of the iterations that were measured."""

    forward: float
    backward: float
    again: float
    """of a second run, which ends when all that was saved has been computed"""
    cheap: float
    """of a second run in which dear operations are skipped"""
    encode: float = 0.0
    decode: float = 0.0
    cold: bool = False
    """whether they are of the first iteration, whose forward is only guessed from the second run"""

    @classmethod
    def of(cls, record: Record, gauge: HostGauge, before: "Timed | None", what: str = "nothing") -> "Timed":
        """Read the moments of an iteration in which all, dear outputs or nothing was kept, and keep the best so far."""

        def total(spans: list[tuple[Any, Any]]) -> float:
            return sum(gauge.seconds(*span) for span in spans)

        encode, decode = total(record.encode), total(record.decode)
        forward = gauge.seconds(*record.forward) if record.forward else 0.0
        if not record.spans:  # the loss did not need it
            return before or cls(forward, 0.0, 0.0, 0.0, cold=True)
        again = total(record.again) - encode - decode
        backward = max(total(record.spans) - total(record.again), 0.2 * forward)
        if before is None:
            # The first run of all also chose and loaded its kernels; and watching operations one by one slows the
            # second run down, so that only the share of the cheap ones is taken from it.
            passes = len(record.again)
            first = min(forward, again / passes) if passes else forward
            watched = gauge.seconds(*record.again[0]) - encode - decode if passes else 0.0
            share = 1 - total(record.dear_spans) / watched if watched > 0 else 1.0
            runs = first * max(passes, 1)
            return cls(first, backward, runs, max(share, 0.02) * runs, encode, decode, cold=True)
        best = replace(
            before,
            forward=forward if before.cold else min(forward, before.forward),
            backward=min(backward, before.backward),
            cold=False,
        )
        if record.again and what == "dear":
            return replace(best, cheap=again)
        if record.again:
            return replace(best, again=min(again, before.again))
        return best


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
        "recompute": Choice("recompute", backward=timed.again),
    }
    if record.dear and record.dear_bytes < WORTH * saved:
        rest = "dear, recompute the rest"
        choices[f"keep {rest}"] = Choice(f"keep {rest}", kept=record.dear_bytes, backward=timed.cheap)
        if host:
            choices[f"offload {rest}"] = Choice(f"offload {rest}", moved=record.dear_bytes, backward=timed.cheap)
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
        choices[name] = Choice(name, moved=inputs, freed=inputs, backward=timed.again)
    allowed = tuple(choices[name] for name in TREATMENTS if name in choices and forced in (None, name))
    return Block(record.name, timed.forward, timed.backward, *peaks, choices=allowed or (choices["recompute"],))
