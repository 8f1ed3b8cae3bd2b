"""The cost of history: a whole shot with its history kept, over the same shot with nothing kept, and what is seen."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import forebay as fb
from forebay.codec import quality
from shots.machine import Host
from shots.seed import measured, relative
from shots.waves import Setup, Waves

PERCENTILE = 99.9
"""Of the sizes of an image's values: the range that its similarity is measured by reaches so far on both sides."""


@dataclass
class Row:
    """One shot, with the steps between two contributions to its image."""

    model: str
    steps: int
    every: int
    codec: str
    keep: str
    schedule: str
    seconds: float
    wall: float
    nothing: float
    """seconds of the same forward, backward and imaging with nothing kept"""
    nothing_wall: float
    planning: float = 0.0
    """seconds of the host for the plan, which the shots of a survey share"""
    predicted: float | None = None
    phases: dict[str, float] = field(default_factory=dict)
    moved: int = 0
    ratio: float | None = None
    worst_ratio: float | None = None
    record: int = 0
    """bytes of a record"""
    peak: dict[str, int] = field(default_factory=dict)
    """bytes of snapshots in each tier, at most, as the engine counts them"""
    memory: int = 0
    """bytes taken from the device above what was taken before"""
    spilled: int = 0
    recomputed: int = 0
    error: float | None = None
    """of the picture, relative, in the 2-norm, beside the exact one imaged at every step"""
    similarity: float | None = None

    @property
    def cost(self) -> float:
        """How many times as long as with nothing kept it took."""
        return self.seconds / self.nothing


class Table:
    """Measures shots of one setup."""

    def __init__(
        self,
        machine: Host,
        setup: Setup,
        links: dict[str, Any],
        budget: fb.Budget,
        directory: str,
        tell: Callable[[Waves, fb.Costs], None],
    ) -> None:
        self.machine, self.links, self.budget, self.directory, self.tell = machine, links, budget, directory, tell
        self.waves = Waves(machine, setup, echoes=True)
        self.exact: Any = None
        self.late = machine.arrays.ascontiguousarray(self.waves.propagator.seen(self.waves.late())["p"])

    def row(self, every: int, codec: str | None, *, schedule: str = "auto", nothing: bool = True) -> Row:
        """Keep what `auto` keeps, records with a codec where one is given."""
        waves, layout = self.waves, self.waves.layout
        encoder = fb.codec.get(codec or "bounded:1e-4")
        costs = measured(waves, encoder, self.links, self.late)
        self.tell(waves, costs)
        # Of the backward steps between two contributions none makes an image.
        without = replace(costs, backward=costs.forward + (costs.backward - costs.forward) / every)
        free = waves.nothing_kept(every) if nothing else None
        begun = time.perf_counter()
        plan = fb.plan(
            waves.setup.steps,
            layout.nbytes,
            self.budget,
            costs=without,
            schedule=schedule,
            codec=encoder.name if codec else None,
            record_bytes=waves.record_layout.nbytes,
            every=every,
            reversals=100,
        )
        planning = time.perf_counter() - begun
        ran = waves.reverse(every=every, plan=plan, directory=self.directory)
        metrics = ran.result.metrics
        return Row(
            waves.setup.name,
            waves.setup.steps,
            every,
            plan.codec or "none",
            plan.keep,
            str(plan.schedule),
            ran.taken.seconds,
            ran.taken.wall,
            free.seconds if free else float("nan"),
            free.wall if free else float("nan"),
            planning,
            plan.prediction.seconds,
            dict(metrics.phases),
            sum(metrics.moved.values()),
            metrics.mean_ratio if metrics.ratios else None,
            metrics.ratios.worst if metrics.ratios else None,
            waves.record_layout.nbytes,
            dict(metrics.peak),
            ran.memory,
            metrics.spilled,
            metrics.recomputed,
        )

    def judged(self, row: Row) -> Row:
        """Set the picture that a row has just left beside the exact one; the first is the exact one."""
        picture = self.waves.picture()
        if self.exact is None:
            assert (row.codec, row.every) == ("none", 1), "the exact picture is imaged at every step, without a codec"
            self.exact = picture
        row.error = relative(self.machine.arrays, picture, self.exact)
        row.similarity = similarity(self.machine.arrays, self.exact, picture)
        return row


def similarity(arrays: Any, exact: Any, picture: Any) -> float:
    """Give the structural similarity over a range that few extreme values do not stretch."""
    reach = float(arrays.percentile(abs(exact[:: max(1, len(exact) // 100)]), PERCENTILE))
    one, other = (arrays.ascontiguousarray(image / arrays.float32(reach)) for image in (exact, picture))
    return quality.ssim(one, other, span=2.0)


def table(
    machine: Host,
    setup: Setup,
    links: dict[str, Any],
    budget: fb.Budget,
    directory: str,
    *,
    every: int | None,
    codecs: Sequence[str],
    tell: Callable[[Waves, fb.Costs], None],
) -> Iterator[Callable[[], Row]]:
    """Measure one setup: first what is exact, then each codec beside nothing kept and beside the exact picture."""
    shots = Table(machine, setup, links, budget, directory, tell)
    interval = shots.waves.every if every is None else every
    yield lambda: shots.judged(shots.row(1, None, nothing=False))
    for codec in codecs:
        yield lambda codec=codec: shots.judged(shots.row(interval, codec))  # type: ignore[misc]
