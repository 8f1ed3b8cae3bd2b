"""Seconds of a step's parts, from those of whole iterations.

Blocks that are alike take the same time, whatever it was that one of them happened to have in an iteration. And what
happens to a block takes time of its own, if only that of the host, which a fast GPU has to wait for: so each treatment
is known by what blocks took that had it.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from statistics import fmean, median
from typing import Any, NamedTuple

from forebay.torch.fitting.choices import TREATMENTS, BlockTiming
from forebay.torch.fitting.record import BlockRecord
from forebay.torch.gauge import HostGauge

ROUNDS = 3
"""What iterations and blocks took is told apart in so many rounds, each from what the last one found."""


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
class Trial:
    """An iteration with a plan."""

    blocks: tuple[TreatedTiming | None, ...]
    """None where the loss did not need it, other than when it was measured"""
    outside: float


def read_first_iteration(records: Sequence[BlockRecord], gauge: HostGauge, outside: float) -> StepTiming:
    """Read the iteration that recomputed every block and looked into it."""
    return StepTiming(tuple(_guessed(record, gauge) for record in records), outside)


def _guessed(record: BlockRecord, gauge: HostGauge) -> BlockTiming:
    encode, decode = total_seconds(gauge, record.encode), total_seconds(gauge, record.decode)
    forward = gauge.seconds(*record.forward) if record.forward else 0.0
    if not record.spans:
        return BlockTiming(forward, 0.0)
    backward = max(total_seconds(gauge, record.spans) - total_seconds(gauge, record.replay_spans), 0.2 * forward)
    # The first run of all also chose and loaded its kernels; and watching operations one by one slows the second run
    # down, so that only the share of those that run again is taken from it.
    passes = len(record.replay_spans)
    replay = total_seconds(gauge, record.replay_spans) - encode - decode
    first = min(forward, replay / passes) if passes else forward
    watched = gauge.seconds(*record.replay_spans[0]) - encode - decode if passes else 0.0
    runs = first * max(passes, 1)
    second = {"all": 0.0, "nothing": runs}
    for name, share in record.costly.items():
        timed = zip(record.operations, record.operation_spans, strict=True)
        left_out = total_seconds(gauge, (span for operation, span in timed if operation.number in share.numbers))
        second[name] = max(1 - left_out / watched if watched > 0 else 1.0, 0.02) * runs
    extra = {
        name: (encode, decode) if treatment.encoded else (0.0, second[treatment.what])
        for name, treatment in TREATMENTS.items()
        if treatment.what in second
    }
    return BlockTiming(first, backward, extra)


def read_trial(
    first: StepTiming, records: Sequence[BlockRecord], names: Sequence[str], gauge: HostGauge, outside: float
) -> Trial:
    """Read an iteration in which blocks were treated as a plan says."""
    rows = zip(first.blocks, records, names, strict=True)
    return Trial(tuple(_treated_timing(guess, record, name, gauge) for guess, record, name in rows), outside)


def _treated_timing(guess: BlockTiming, record: BlockRecord, name: str, gauge: HostGauge) -> TreatedTiming | None:
    forward = gauge.seconds(*record.forward) if record.forward else guess.forward
    if not record.spans:
        return None if guess.backward else TreatedTiming(name, forward)
    runs = total_seconds(gauge, record.replay_spans)
    backward = max(total_seconds(gauge, record.spans) - runs - total_seconds(gauge, record.waits), 0.0)
    return TreatedTiming(name, forward, backward, max(runs - total_seconds(gauge, record.replay_waits), 0.0))


@dataclass
class _KindTiming:
    """What was seen of the blocks of one kind, by their treatments."""

    forward: dict[str, float] = field(default_factory=dict)
    backward: dict[str, float] = field(default_factory=dict)
    replay: dict[str, float] = field(default_factory=dict)
    """of a second run, by what is left of the first one"""

    @property
    def least(self) -> tuple[float, float]:
        """Seconds forward and backward that no treatment goes below."""
        return min(self.forward.values()), min(self.backward.values())


def combine(first: StepTiming, kinds: Sequence[Hashable], later: Sequence[Trial]) -> StepTiming:
    """Combine what was timed in some iterations.

    Parameters
    ----------
    first
        What the iteration without a plan told.
    kinds
        What blocks that are alike have in common.
    later
        Those with a plan.

    Returns
    -------
    StepTiming
        A treatment that no block of a kind had costs what it costs others on top of a second run, and that what the
        first iteration told, multiplied by what this was wrong by for others. The parts add up to whole iterations.

    Examples
    --------
    >>> guess = BlockTiming(2.0, 4.0, {"recompute": (0.0, 2.0)})
    >>> first = StepTiming((guess, guess), outside=1.0)
    >>> blocks = [(TreatedTiming("recompute", 1.0, work, 0.5), TreatedTiming("keep", 0.9, work)) for work in (2, 4, 3)]
    >>> later = [Trial(two, 0.5) for two in blocks]
    >>> timing = combine(first, ["like", "like"], later)
    >>> timing.outside, timing.blocks[1].forward, timing.blocks[1].backward
    (0.5, 0.9, 3.0)
    >>> [round(seconds, 3) for seconds in timing.blocks[1].extra_seconds["recompute"]]
    [0.1, 0.5]
    """
    if not later:
        return first
    sorts = _sorts(kinds, later)
    extra = {name: _extra_seconds(name, list(sorts.values())) for name in TREATMENTS}
    pairs = [(sorts[kind], guess) for kind, guess in zip(kinds, first.blocks, strict=True) if kind in sorts]
    pace = _pace((sort.least[0], guess.forward) for sort, guess in pairs)
    replay_paces = _replay_paces(pairs)
    blocks = []
    for kind, guess in zip(kinds, first.blocks, strict=True):
        sort = sorts.get(kind, _KindTiming())
        forward, backward = sort.least if sort.forward else (pace * guess.forward, pace * guess.backward)
        costs = {}
        for name, expected in guess.extra_seconds.items():
            treatment = TREATMENTS[name]
            second = 0.0
            if treatment.what != "all":
                second = sort.replay.get(treatment.what, replay_paces[treatment.what] * expected[1])
            if name in sort.forward:
                ahead, behind = sort.forward[name] - forward, sort.backward[name] - backward
            else:
                ahead, behind = extra[name] or (expected if treatment.encoded else (0.0, 0.0))
            costs[name] = ahead, behind + second
        blocks.append(BlockTiming(forward, backward if guess.extra_seconds else 0.0, costs))
    return StepTiming(_adding_up(blocks, later), median(trial.outside for trial in later))


def _sorts(kinds: Sequence[Hashable], later: Sequence[Trial]) -> dict[Hashable, _KindTiming]:
    samples: dict[tuple[Hashable, str], list[tuple[float, float, float]]] = defaultdict(list)
    for trial, pace in zip(later, _paces(kinds, later), strict=True):
        for kind, block in zip(kinds, trial.blocks, strict=True):
            if block is not None and block.backward is not None:
                samples[kind, block.name].append((block.forward / pace, block.backward / pace, block.replay / pace))
    sorts: dict[Hashable, _KindTiming] = defaultdict(_KindTiming)
    runs: dict[tuple[Hashable, str], list[float]] = defaultdict(list)
    for (kind, name), rows in samples.items():
        forward, backward, replay = zip(*rows, strict=True)
        sorts[kind].forward[name], sorts[kind].backward[name] = median(forward), median(backward)
        if TREATMENTS[name].what != "all":
            runs[kind, TREATMENTS[name].what] += replay
    for (kind, what), seconds in runs.items():
        sorts[kind].replay[what] = median(seconds)
    return dict(sorts)


def _paces(kinds: Sequence[Hashable], later: Sequence[Trial]) -> list[float]:
    """Compute by how much each iteration was slower than others, by the blocks that had one treatment in several."""
    timed = [
        [
            ((kind, block.name), block.forward + block.backward + block.replay)
            for kind, block in zip(kinds, trial.blocks, strict=True)
            if block is not None and block.backward is not None
        ]
        for trial in later
    ]
    plans = [tuple(block and block.name for block in trial.blocks) for trial in later]
    met = {(key, names) for names, blocks in zip(plans, timed, strict=True) for key, _ in blocks}
    times = Counter(key for key, _ in met)  # what only one plan has tells nothing of others
    paces = [1.0] * len(later)
    for _ in range(ROUNDS):
        paced = defaultdict(list)
        for pace, blocks in zip(paces, timed, strict=True):
            for key, seconds in blocks:
                paced[key].append(seconds / pace)
        usual = {key: median(taken) for key, taken in paced.items() if times[key] > 1 and median(taken) > 0}
        ratios = [
            median([seconds / usual[key] for key, seconds in blocks if key in usual] or [1.0]) for blocks in timed
        ]
        paces = [pace or 1.0 for pace in ratios]
    return paces


def _extra_seconds(name: str, sorts: Sequence[_KindTiming]) -> tuple[float, float] | None:
    """Return what a treatment costs blocks on top of the least that their kind took, but for second runs.

    Where no block had it, those tell that keep another share of the costly outputs.
    """
    alike = [like for like, treatment in TREATMENTS.items() if treatment.family == TREATMENTS[name].family]
    for names in ([name], alike):
        having = [(sort, other) for sort in sorts for other in names if other in sort.forward]
        if having:
            forward = fmean(sort.forward[other] - sort.least[0] for sort, other in having)
            return forward, fmean(sort.backward[other] - sort.least[1] for sort, other in having)
    return None


def _pace(pairs: Iterable[tuple[float, float]]) -> float:
    """Compute by how much guesses were wrong."""
    timed = list(pairs)
    guessed = sum(guess for _, guess in timed)
    return sum(seconds for seconds, _ in timed) / guessed if guessed else 1.0


def _replay_paces(pairs: Sequence[tuple[_KindTiming, BlockTiming]]) -> dict[str, float]:
    """Compute by how much guesses of second runs were wrong, by what is left of the first; unseen ones as all."""
    ratios: dict[str, list[tuple[float, float]]] = defaultdict(list)
    first = {treatment.what: name for name, treatment in reversed(TREATMENTS.items())}
    for sort, guess in pairs:
        for what, seconds in sort.replay.items():
            if first[what] in guess.extra_seconds:
                ratios[what].append((seconds, guess.extra_seconds[first[what]][1]))
    every = _pace(chain.from_iterable(ratios.values()))
    return {what: _pace(ratios[what]) if what in ratios else every for what in first}


def _adding_up(blocks: Sequence[BlockTiming], later: Sequence[Trial]) -> tuple[BlockTiming, ...]:
    """Have the parts add up to the iterations that were run."""
    ratios = []
    for trial in later:
        added = taken = 0.0
        for block, sample in zip(blocks, trial.blocks, strict=True):
            if sample is not None:
                taken += sample.forward + (sample.backward or 0.0) + sample.replay
                added += block.forward + block.backward + sum(block.extra_seconds.get(sample.name, ()))
        if added > 0:
            ratios.append(taken / added)
    return tuple(block.times(median(ratios)) for block in blocks) if ratios else tuple(blocks)


def total_seconds(gauge: HostGauge, spans: Iterable[tuple[Any, Any]]) -> float:
    """Add up the seconds of some spans."""
    return sum(gauge.seconds(*span) for span in spans)
