"""The cost of history: a whole shot with its history kept, over the same shot with nothing kept, and what is seen."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from cases.machine import Host
from harness import summary

import forebay as fb
from forebay.codec import quality
from shots.seed import measured, relative
from shots.waves import Setup, Waves

PERCENTILE = 99.9
"""Of the sizes of an image's values: the range that its similarity is measured by reaches so far on both sides."""
COLUMNS = (
    "every codec keep schedule seconds:.3f nothing:.3f cost:.3f cost_by_wall:.3f predicted:.3f phases.forward:.3f "
    "phases.backward:.3f phases.save:.3f phases.compress:.3f phases.decompress:.3f stall:.3f moved:B ratio:.1f "
    "worst_ratio:.1f peak.device:B peak.host:B peak.disk:B spilled recomputed error:.2e similarity:.5f"
)


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
        self.late = machine.arrays.ascontiguousarray(self.waves.propagator.image_record(self.waves.late())["p"])

    def row(self, every: int, codec: str | None, *, nothing: bool = True) -> dict[str, Any]:
        """Keep what `auto` keeps, records with a codec where one is given."""
        waves, encoder = self.waves, fb.codec.get(codec or "bounded:1e-4")
        costs = measured(waves, encoder, self.links, self.late)
        self.tell(waves, costs)
        # Of the backward steps between two contributions none makes an image.
        without = replace(costs, backward=costs.forward + (costs.backward - costs.forward) / every)
        free = waves.nothing_kept(every) if nothing else None
        begun = time.perf_counter()
        kept = {"record_bytes": waves.record_layout.nbytes, "every": every, "codec": encoder.name if codec else None}
        how = {"costs": without, "schedule": "auto", "reversals": 100}
        plan = fb.plan(waves.setup.steps, waves.layout.nbytes, self.budget, **how, **kept)
        planning = time.perf_counter() - begun
        ran = waves.reverse(every=every, plan=plan, directory=self.directory)
        about = {"model": waves.setup.name, "steps": waves.setup.steps, "every": every}
        times = {"seconds": ran.taken.seconds, "wall": ran.taken.wall, "planning": planning}
        row = about | summary(ran.result) | times | {"record": waves.record_layout.nbytes, "memory": ran.memory}
        if free is not None:
            row |= {"nothing": free.seconds, "nothing_wall": free.wall, "cost": ran.taken.seconds / free.seconds}
            row["cost_by_wall"] = ran.taken.wall / free.wall
        return self._judged(row)

    def _judged(self, row: dict[str, Any]) -> dict[str, Any]:
        """Set the picture that a row has just left beside the exact one; the first is the exact one."""
        picture, arrays = self.waves.picture(), self.machine.arrays
        if self.exact is None:
            assert (row["codec"], row["every"]) == ("none", 1), "the exact picture is imaged at every step, no codec"
            self.exact = picture
        similar = similarity(arrays, self.exact, picture)
        return row | {"error": relative(arrays, picture, self.exact), "similarity": similar}


def similarity(arrays: Any, exact: Any, picture: Any) -> float:
    """Return the structural similarity over a range that few extreme values do not stretch."""
    reach = float(arrays.percentile(abs(exact[:: max(1, len(exact) // 100)]), PERCENTILE))
    scaled = (arrays.ascontiguousarray(image / arrays.float32(reach)) for image in (exact, picture))
    return quality.ssim(*scaled, span=2.0)


def table(shots: Table, every: int | None, codecs: Sequence[str]) -> Iterator[Callable[[], dict[str, Any]]]:
    """Measure one setup: first what is exact, then each codec beside nothing kept and beside the exact picture."""
    interval = shots.waves.every if every is None else every
    yield partial(shots.row, 1, None, nothing=False)
    for codec in codecs:
        yield partial(shots.row, interval, codec)
