"""Seconds of a step's blocks, guessed from the iteration that was measured and corrected by those with a plan.

Blocks that are alike take the same time. What is done with a block takes time of its own, if only that of the host, so
each treatment is known by what blocks took that had it.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple

from forebay.torch.fitting.choices import TREATMENTS, BlockTiming
from forebay.torch.fitting.record import BlockRecord
from forebay.torch.gauge import HostGauge


@dataclass(frozen=True)
class StepTiming:
    """Seconds of a step."""

    blocks: tuple[BlockTiming, ...]
    outside: float
    """of what is around the blocks"""


class TreatedTiming(NamedTuple):
    """Seconds of a block in an iteration with a plan, without those in which it waited for copies."""

    name: str
    """of its treatment"""
    forward: float
    backward: float | None = None
    """without a second run; None where no loss needs it"""
    replay: float = 0.0
    """of a second run"""


@dataclass(frozen=True)
class PlanRun:
    """An iteration with a plan, timed."""

    seconds: float
    """of all of it"""
    blocks: tuple[TreatedTiming | None, ...]
    """None where the loss did not need it, other than when it was measured"""
    outside: float
    """seconds of what is around the blocks"""


def guessed_timing(record: BlockRecord, gauge: HostGauge) -> BlockTiming:
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


def treated_timing(guess: BlockTiming, record: BlockRecord, name: str, gauge: HostGauge) -> TreatedTiming | None:
    """Read a block in an iteration with a plan, in which it had a treatment of this name."""
    times = record.times
    forward = gauge.seconds(*times.forward) if times.forward else guess.forward
    if not times.spans:
        return None if guess.backward else TreatedTiming(name, forward)
    runs = total_seconds(gauge, times.replay_spans)
    backward = max(total_seconds(gauge, times.spans) - runs - total_seconds(gauge, times.waits), 0.0)
    return TreatedTiming(name, forward, backward, max(runs - total_seconds(gauge, times.replay_waits), 0.0))


Sample = tuple[float, float, float]
"""Seconds forward, backward and of a second run."""


def corrected(first: StepTiming, kinds: Sequence[Hashable], runs: Sequence[PlanRun]) -> StepTiming:
    """Correct what the first iteration told by runs with plans; blocks are alike whose kinds are.

    A treatment that no block of a kind had costs what it costs others on top of a second run, and that what the first
    iteration told, multiplied by what this was wrong by for others.

    Examples
    --------
    >>> guess = BlockTiming(2.0, 4.0, {"recompute": (0.0, 2.0)})
    >>> first = StepTiming((guess, guess), outside=1.0)
    >>> blocks = TreatedTiming("recompute", 1.0, 3.0, 0.5), TreatedTiming("keep", 0.9, 3.0)
    >>> timing = corrected(first, ["like", "like"], [PlanRun(8.9, blocks, 0.5)])
    >>> timing.outside, timing.blocks[1].forward, timing.blocks[1].backward
    (0.5, 0.9, 3.0)
    >>> [round(seconds, 3) for seconds in timing.blocks[1].extra_seconds["recompute"]]
    [0.1, 0.5]
    """
    if not runs:
        return first
    samples: dict[tuple[Hashable, str], list[Sample]] = defaultdict(list)
    for run in runs:
        for kind, block in zip(kinds, run.blocks, strict=True):
            if block is not None and block.backward is not None:
                samples[kind, block.name].append((block.forward, block.backward, block.replay))
    taken = {key: _mean(rows) for key, rows in samples.items()}
    least: dict[Hashable, tuple[float, float]] = {}
    for (kind, _), (forward, backward, _) in taken.items():
        before = least.get(kind, (forward, backward))
        least[kind] = min(before[0], forward), min(before[1], backward)
    overheads = {name: _overhead(name, taken, least) for name in TREATMENTS}
    guesses = dict(zip(kinds, first.blocks, strict=True))
    pace = _pace((least[kind][0], guesses[kind].forward) for kind in least)
    replay_pace = _pace(
        (replay, guesses[kind].extra_seconds[name][1])
        for (kind, name), (_, _, replay) in taken.items()
        if TREATMENTS[name].what != "all" and name in guesses[kind].extra_seconds
    )
    blocks = []
    for kind, guess in zip(kinds, first.blocks, strict=True):
        forward, backward = least.get(kind, (pace * guess.forward, pace * guess.backward))
        replays = {TREATMENTS[name].what: row[2] for (other, name), row in taken.items() if other == kind}
        costs = {}
        for name, expected in guess.extra_seconds.items():
            treatment = TREATMENTS[name]
            if (kind, name) in taken:
                ahead, behind, replay = taken[kind, name]
                costs[name] = ahead - forward, behind - backward + replay
                continue
            again = 0.0 if treatment.what == "all" else replays.get(treatment.what, replay_pace * expected[1])
            ahead, behind = overheads[name] or (expected if treatment.encoded else (0.0, 0.0))
            costs[name] = ahead, behind + again
        blocks.append(BlockTiming(forward, backward if guess.extra_seconds else 0.0, costs))
    return StepTiming(tuple(blocks), fmean(run.outside for run in runs))


def _mean(rows: Sequence[Sample]) -> Sample:
    forward, backward, replay = (fmean(column) for column in zip(*rows, strict=True))
    return forward, backward, replay


def _overhead(
    name: str, taken: Mapping[tuple[Hashable, str], Sample], least: Mapping[Hashable, tuple[float, float]]
) -> tuple[float, float] | None:
    """Return what a treatment costs blocks on top of the least that their kind took, but for second runs.

    Where no block had it, those tell that keep another share of the costly outputs.
    """
    alike = [like for like, treatment in TREATMENTS.items() if treatment.family == TREATMENTS[name].family]
    for names in ([name], alike):
        rows = [(row, least[kind]) for (kind, other), row in taken.items() if other in names]
        if rows:
            return fmean(row[0] - low[0] for row, low in rows), fmean(row[1] - low[1] for row, low in rows)
    return None


def _pace(pairs: Iterable[tuple[float, float]]) -> float:
    """Compute by how much guesses were wrong."""
    timed = list(pairs)
    guessed = sum(guess for _, guess in timed)
    return sum(seconds for seconds, _ in timed) / guessed if guessed else 1.0


def total_seconds(gauge: HostGauge, spans: Iterable[tuple[Any, Any]]) -> float:
    """Add up the seconds of some spans."""
    return sum(gauge.seconds(*span) for span in spans)
