"""The table of the first work on this: schedules with synchronous copies, with prefetching, with a codec, with both."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from math import ceil
from typing import Any

import numpy as np
from cases.blocking import Copies, carry_out, codec_cost, limit, most
from harness import summary
from numpy.typing import NDArray

import forebay as fb
from forebay.codec import Codec
from forebay.schedule import Schedule
from shots.waves import Waves

SLACK = 1.06
"""How much more than its slots' bytes a cache is given: an encoding that does not shrink is a little larger."""
COLUMNS = (
    "schedule way cache codec keep seconds:.3f timed_share:.0% wall:.3f predicted:.3f stall:.3f times_faster:.2f "
    "limit:.3f share:.2f moved:B ratio:.1f worst_ratio:.1f first_tier:B equal error:.1e"
)
Row = dict[str, Any]


class Rows:
    """Measures rows of one model, and sets their images beside the first exact one."""

    def __init__(self, waves: Waves, costs: fb.Costs, codec: Codec, host: int, patience: float, directory: str) -> None:
        self.waves, self.costs, self.codec, self.host, self.patience = waves, costs, codec, host, patience
        self.directory = directory
        self.exact: Any = None

    def blocking(self, schedule: Schedule, rooms: Sequence[NDArray[np.uint8]], codec: Codec | None) -> Row:
        """Carry a schedule out as it stands: each save a blocking copy to the host, each restore one from it."""
        waves, see = self.waves, self.waves.propagator.image_record
        copies = Copies(waves.machine, waves.layout, rooms, codec)
        waves.reset()
        start, forward = waves.propagator.zeros(), waves.loop.forward
        backward = lambda state, step: waves.backward(see(state), step, 1)  # noqa: E731
        told = carry_out(schedule, start, forward, backward, copies, self.costs, self.patience)
        way = "blocking copies" if codec is None else "codec, blocking copies"
        told |= {"codec": codec.name if codec else "none", "keep": "states", "moved": copies.moved}
        if codec is not None:
            told |= {"ratio": len(copies.ratios) / sum(1 / r for r in copies.ratios), "worst_ratio": min(copies.ratios)}
        row = self._row(schedule, way, 0, told, self.waves.layout.nbytes)
        return self._judged(row, exact=codec is None) if told["timed_share"] == 1 else row

    def planned(self, schedule: Schedule | str, cache: int, *, codec: bool, way: str = "") -> Row:
        """Let Forebay carry a schedule out, or choose one."""
        waves, name = self.waves, self.codec.name if codec else None
        how = {"budget": self.budget(cache), "costs": self.costs, "directory": self.directory, "reversals": 100}
        ran = waves.reverse(schedule=schedule, codec=name, **how)
        told, plan = summary(ran.result) | {"wall": ran.taken.wall, "memory": ran.memory}, ran.result.plan
        told["first_tier"] = told["peak"][waves.machine.tiers[0]]
        names = ("prefetch and codec" if codec else "prefetch") if schedule != "auto" else "auto"
        nbytes = (waves.record_layout if plan.keep == "records" else waves.layout).nbytes
        return self._judged(self._row(plan.schedule, way or names, cache, told, nbytes), exact=plan.codec is None)

    def budget(self, cache: int) -> fb.Budget:
        """Allow so many states on the device."""
        return self.waves.machine.budget(ceil(cache * SLACK * self.waves.layout.nbytes), self.host)

    def plan(self, schedule: Schedule, cache: int, codec: str | None = None) -> Any:
        """Plan a schedule with a cache."""
        waves, budget = self.waves, self.budget(cache)
        return fb.plan(waves.setup.steps, waves.layout.nbytes, budget, costs=self.costs, schedule=schedule, codec=codec)

    def _row(self, schedule: Schedule, way: str, cache: int, told: Row, nbytes: int) -> Row:
        setup = self.waves.setup
        least = limit(schedule, self.costs, nbytes)
        about = {"model": setup.name, "steps": setup.steps, "way": way, "cache": cache}
        return about | told | {"limit": least, "share": least / told["seconds"]}

    def _judged(self, row: Row, *, exact: bool) -> Row:
        waves, arrays = self.waves, self.waves.machine.arrays
        image = waves.propagator.within(waves.image)
        if self.exact is None:
            assert exact, "the first image of a model is the exact one"
            assert bool(arrays.isfinite(image).all()) and bool(image.any()), "the image shows nothing"
            self.exact = image.copy()
        if exact:
            row["equal"] = bool((image == self.exact).all())
        return row | {"error": relative(arrays, image, self.exact)}


def relative(arrays: Any, image: Any, exact: Any) -> float:
    """Return the error of an image in the 2-norm, relative; scaled first, since squares of small values vanish."""
    largest = abs(exact).max()
    wrong, whole = (arrays.sum((part / largest) ** 2, dtype="float64") for part in (image - exact, exact))
    return float(arrays.sqrt(wrong / whole))


def measured(waves: Waves, codec: Codec, links: dict[str, Any], field: Any = None) -> fb.Costs:
    """Time a step each way, and the codec on a field: unless given, on one as late as the shot has them."""
    forward, backward = waves.step_seconds()
    field = waves.late()["p"] if field is None else field
    cost = codec_cost(codec, field, waves.machine.arrays, waves.machine.shortest)
    return fb.Costs(forward, backward, codecs={codec.name: cost}, **links)


def denser(rows: Rows, cache: int) -> Schedule | None:
    """Return Uniform's schedule of the most snapshots that fit the same bytes encoded; None where there is none."""
    steps = rows.waves.setup.steps
    for interval in range(1, steps):
        schedule = fb.Uniform(steps, -(-steps // interval))
        with suppress(fb.BudgetError):
            rows.plan(schedule, cache, rows.codec.name)
            return schedule
    return None


def room_bytes(waves: Waves, codec: Codec) -> int:
    """Return the bytes of a room that holds a state in either way."""
    return sum(codec.max_bytes(leaf.spec.shape, leaf.spec.dtype) for leaf in waves.layout.leaves)


def table(rows: Rows, *, caches: Sequence[int], brief: bool) -> Iterator[Callable[[], Row]]:
    """Yield a model's part of the table, row by row; `brief` leaves out all but three ways."""
    waves, largest, planned = rows.waves, max(caches), rows.planned
    steps, fit = waves.setup.steps, rows.host // room_bytes(waves, rows.codec)
    schedules: list[Schedule] = [fb.Revolve(steps, min(8, steps))]
    for family in (fb.ZCut, fb.Uniform):
        schedule = most(family, steps, largest + fit, fit, partial(rows.plan, cache=largest))
        if schedule is None:
            raise fb.BudgetError(f"the host holds {fit} states, too few for {family.__name__}: give it more")
        schedules.append(schedule)
    count = max(schedule.peak_snapshots for schedule in schedules)
    yield partial(planned, schedules[0], largest, codec=False)  # the exact image
    with waves.machine.rooms(count, room_bytes(waves, rows.codec)) as rooms:
        for schedule in schedules:
            yield partial(rows.blocking, schedule, rooms, None)
            if not brief:
                yield partial(rows.blocking, schedule, rooms, rows.codec)
    for schedule in schedules:
        # Prefetching alone is bound by the link for zCut: the seed too has it with two slots only.
        first = schedule is schedules[0]
        for cache in caches if first and not brief else caches[:1]:
            if not (first and cache == largest):
                yield partial(planned, schedule, cache, codec=False)
        for cache in caches if first and not brief else (largest,):
            yield partial(planned, schedule, cache, codec=True)
    if (dense := denser(rows, largest)) is not None:
        yield partial(planned, dense, largest, codec=True, way="prefetch and codec, equal bytes")
    yield partial(planned, "auto", largest, codec=True)


def long_table(rows: Rows) -> Iterator[Callable[[], Row]]:
    """Yield Revolve and "auto", in a loop as long as the seed's."""
    schedule, planned = fb.Revolve(rows.waves.setup.steps, 8), rows.planned
    yield partial(planned, schedule, 6, codec=False)
    with rows.waves.machine.rooms(8, room_bytes(rows.waves, rows.codec)) as rooms:
        yield partial(rows.blocking, schedule, rooms, None)
    yield partial(planned, "auto", 6, codec=False, way="auto, exact")
    yield partial(planned, "auto", 6, codec=True)
