"""Seconds of a step's parts: those of one and the same iteration, so that they add up to a step that was run."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.torch.choices import Timed, Treatment
from penstock.torch.gauge import HostGauge
from penstock.torch.record import Record


@dataclass(frozen=True)
class Run:
    """Seconds of one iteration."""

    blocks: tuple[Timed | None, ...]
    """None where the loss did not need it, other than when it was measured"""
    outside: float
    """of what is around the blocks"""

    @property
    def work(self) -> float:
        """What is the same however blocks are treated."""
        return self.outside + sum(one.forward + one.backward for one in self.blocks if one is not None)


def first_run(records: Sequence[Record], gauge: HostGauge, outside: float) -> Run:
    """Read the iteration that recomputed every block and looked into it."""
    return Run(tuple(_guessed(record, gauge) for record in records), outside)


def _guessed(record: Record, gauge: HostGauge) -> Timed:
    encode, decode = spent(gauge, record.encode), spent(gauge, record.decode)
    forward = gauge.seconds(*record.forward) if record.forward else 0.0
    if not record.spans:
        return Timed(forward, 0.0, 0.0, 0.0)
    backward = max(spent(gauge, record.spans) - spent(gauge, record.again), 0.2 * forward)
    # The first run of all also chose and loaded its kernels; and watching operations one by one slows the second run
    # down, so that only the share of the cheap ones is taken from it.
    passes = len(record.again)
    again = spent(gauge, record.again) - encode - decode
    first = min(forward, again / passes) if passes else forward
    watched = gauge.seconds(*record.again[0]) - encode - decode if passes else 0.0
    share = 1 - spent(gauge, record.dear_spans) / watched if watched > 0 else 1.0
    runs = first * max(passes, 1)
    return Timed(first, backward, runs, max(share, 0.02) * runs, encode, decode)


def planned_run(
    first: Run, records: Sequence[Record], treatments: Sequence[Treatment], gauge: HostGauge, outside: float
) -> Run:
    """Read an iteration in which blocks were treated as a plan says."""
    rows = zip(first.blocks, records, treatments, strict=True)
    return Run(tuple(_treated(guess, record, treatment, gauge) for guess, record, treatment in rows), outside)


def _treated(guess: Timed | None, record: Record, treatment: Treatment, gauge: HostGauge) -> Timed | None:
    assert guess is not None
    forward = gauge.seconds(*record.forward) if record.forward else guess.forward
    if not record.spans:
        return None if guess.backward else replace(guess, forward=forward)
    runs = spent(gauge, record.again)
    backward = max(spent(gauge, record.spans) - runs - spent(gauge, record.waits), 0.0)
    runs -= spent(gauge, record.waits_again)
    if treatment.encoded:  # what it takes longer than without is the codec's
        plain = Timed(min(forward, guess.forward), min(backward, guess.backward))
        return replace(plain, encode=forward - plain.forward, decode=backward - plain.backward)
    again = runs if record.again and treatment.what == "nothing" else None
    cheap = runs if record.again and treatment.what == "dear" else None
    return Timed(forward, backward, again, cheap, guess.encode, guess.decode)


def together(first: Run, later: Sequence[Run]) -> Run:
    """Give what is known after some iterations: the parts of the one in the middle of those that had a plan.

    What a treatment costs that a block did not have in it is taken from the last one in which it did. Where it never
    did, it is what the first iteration told, multiplied by what that was wrong by for others.

    Examples
    --------
    >>> first = Run((Timed(2.0, 4.0, 2.0, 1.0), Timed(2.0, 4.0, 2.0, 1.0)), outside=1.0)
    >>> later = [Run((Timed(1.0, work, again=0.5), Timed(1.0, work)), outside=0.5) for work in (2.0, 4.0, 3.0)]
    >>> found = together(first, later)
    >>> found.outside, found.blocks[1]
    (0.5, Timed(forward=1.0, backward=3.0, again=0.5, cheap=1.0, encode=0.0, decode=0.0))
    """
    if not later:
        return first
    middle = sorted(later, key=lambda run: run.work)[len(later) // 2]
    newest_first = [middle, *reversed(later)]
    again = _completed(first, newest_first, lambda one: one.again)
    cheap = _completed(first, newest_first, lambda one: one.cheap)
    blocks = []
    for number, guess in enumerate(first.blocks):
        block = next((run.blocks[number] for run in newest_first if run.blocks[number] is not None), guess)
        assert block is not None
        blocks.append(replace(block, again=again[number], cheap=cheap[number]))
    return Run(tuple(blocks), middle.outside)


def _completed(first: Run, runs: Sequence[Run], of: Callable[[Timed], float | None]) -> list[float]:
    guesses = [0.0 if one is None else of(one) or 0.0 for one in first.blocks]
    of_each = zip(*(run.blocks for run in runs), strict=True)
    measured = [_first_of(of(one) for one in several if one is not None) for several in of_each]
    known = [(seconds, guess) for seconds, guess in zip(measured, guesses, strict=True) if seconds is not None]
    guessed = sum(guess for _, guess in known)
    pace = sum(seconds for seconds, _ in known) / guessed if guessed else 1.0
    return [pace * guess if seconds is None else seconds for seconds, guess in zip(measured, guesses, strict=True)]


def _first_of(several: Iterable[float | None]) -> float | None:
    return next((one for one in several if one is not None), None)


def spent(gauge: HostGauge, spans: Iterable[tuple[Any, Any]]) -> float:
    """Add up the seconds of some spans."""
    return sum(gauge.seconds(*span) for span in spans)
