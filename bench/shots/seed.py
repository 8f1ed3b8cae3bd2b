"""The table of the first work on this: schedules with synchronous copies, with prefetching, with a codec, with both."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from math import ceil
from statistics import mean
from typing import Any

import numpy as np
from numpy.typing import NDArray

import forebay as fb
from forebay.codec import Codec
from forebay.schedule import Backward, Drop, Forward, Restore, Save, Schedule
from shots.copies import Copies
from shots.waves import Waves

SPEEDUPS = {
    ("salt", "revolve"): {2: 2.4, 4: 3.2, 6: 3.4, "codec": 4.5, "both": 5.1},
    ("salt", "zcut"): {2: 1.6, "codec": 6.5, "both": 8.8},
    ("salt", "uniform"): {2: 2.1, "codec": 4.39, "both": 4.5},
    ("large", "revolve"): {2: 2.5, 4: 3.2, 6: 3.4, "codec": 3.8, "both": 4.6},
    ("large", "zcut"): {2: 1.6, "codec": 4.9, "both": 7.8},
    ("large", "uniform"): {2: 2.3, "codec": 5.09, "both": 5.8},
    ("marmousi3d", "revolve"): {2: 2.3, 4: 3.0, 6: 3.2, "codec": 3.5, "both": 4.7},
    ("marmousi3d", "zcut"): {2: 1.6, "codec": 4.2, "both": 6.9},
    ("marmousi3d", "uniform"): {2: 1.8, "codec": 4.18, "both": 4.4},
}
"""What the seed has, on a V100: prefetching by slots, Bitcomp alone, and both at their best (Bitcomp)."""
SLACK = 1.06
"""How much more than its slots' bytes a cache is given: an encoding that does not shrink is a little larger."""


@dataclass
class Row:
    """One way to carry a schedule out."""

    model: str
    steps: int
    schedule: str
    way: str
    cache: int
    """states that the device has room for, beside the working one"""
    codec: str
    """that the plan uses, "none" where it uses none"""
    seconds: float
    wall: float
    limit: float
    """seconds of the schedule's steps and of its copies inside the device, at the costs of the same run"""
    seed: float | None
    """the seed's speed-up"""
    keep: str = "states"
    extrapolated: float = 1.0
    """part of the actions that was timed, where not all of them were"""
    predicted: float | None = None
    stall: float | None = None
    moved: int = 0
    ratio: float | None = None
    worst_ratio: float | None = None
    peak: int | None = None
    """bytes of snapshots on the device, at most, as the engine counts them"""
    allowed: int | None = None
    memory: int | None = None
    """bytes taken from the device above what was taken before"""
    equal: bool | None = None
    """whether the image of an exact way is bit-equal to the first"""
    error: float | None = None
    """of the image, relative, in the 2-norm, beside the first exact one"""


class Rows:
    """Measures rows of one model, and sets their images beside the first exact one."""

    def __init__(self, waves: Waves, costs: fb.Costs, codec: Codec, host: int, patience: float) -> None:
        self.waves, self.costs, self.codec, self.host, self.patience = waves, costs, codec, host, patience
        self.exact: Any = None

    def limit(self, schedule: Schedule, nbytes: int) -> float:
        """Give what a schedule takes where nothing is ever waited for, with snapshots of so many bytes."""
        count, costs = counted(list(schedule)), self.costs
        copies = count["save"] + count["restore"] - count["swap"]
        steps = count["forward"] * costs.forward + count["backward"] * costs.backward
        return steps + copies * nbytes / costs.copy

    def blocking(self, schedule: Schedule, rooms: Sequence[NDArray[np.uint8]], codec: Codec | None) -> Row:
        """Carry a schedule out as it stands: each save a blocking copy to the host, each restore one from it.

        After `patience` seconds it is cut off, and the rest extrapolated: steps as measured before, copies as here.
        """
        waves, machine = self.waves, self.waves.machine
        moving = Copies(waves, rooms, codec)
        waves.reset()
        state, actions, done = waves.propagator.zeros(), list(schedule), 0
        machine.wait()
        begun = time.perf_counter()
        for action in actions:
            if time.perf_counter() - begun > self.patience and len(moving.spent["restore"]) >= 8:
                break
            match action:
                case Forward(start, stop):
                    state = waves.loop.forward(state, start, stop)
                case Save(step):
                    moving.save(step, state)
                case Restore(step):
                    moving.restore(step, state)
                case Drop(step):
                    moving.drop(step)
                case Backward(step):
                    waves.backward(waves.propagator.seen(state), step, 1)
            done += 1
        machine.wait()
        seconds = wall = time.perf_counter() - begun
        if done < len(actions):
            left = counted(actions[done:])
            seconds += left["forward"] * self.costs.forward + left["backward"] * self.costs.backward
            seconds += sum(left[what] * mean(taken) for what, taken in moving.spent.items() if taken)
        way = "blocking copies" if codec is None else "codec, blocking copies"
        row = self._row(schedule, way, 0, codec.name if codec else "none", seconds, wall)
        row.extrapolated, row.moved = done / len(actions), moving.moved
        if codec is not None:
            row.ratio, row.worst_ratio = len(moving.ratios) / sum(1 / r for r in moving.ratios), min(moving.ratios)
        return self._seen(row, exact=codec is None) if done == len(actions) else row

    def planned(self, schedule: Schedule | str, cache: int, *, codec: bool, directory: str, way: str = "") -> Row:
        """Let Forebay carry a schedule out, or choose one."""
        waves = self.waves
        device = ceil(cache * SLACK * waves.layout.nbytes)
        ran = waves.reverse(
            budget=waves.machine.budget(device, self.host),
            schedule=schedule,
            codec=self.codec.name if codec else None,
            costs=self.costs,
            directory=directory,
            reversals=100,
        )
        plan, metrics = ran.result.plan, ran.result.metrics
        names = ("prefetch and codec" if codec else "prefetch") if schedule != "auto" else "auto"
        row = self._row(plan.schedule, way or names, cache, plan.codec or "none", ran.taken.seconds, ran.taken.wall)
        row.keep = plan.keep
        if plan.keep == "records":
            row.limit = self.limit(plan.schedule, waves.record_layout.nbytes)
        row.predicted, row.stall = plan.prediction.seconds, metrics.phases["stall"]
        row.moved, row.memory, row.allowed = sum(metrics.moved.values()), ran.memory, device
        row.peak = metrics.peak[waves.machine.tiers[0]]
        if metrics.ratios:
            row.ratio, row.worst_ratio = metrics.mean_ratio, metrics.ratios.worst
        return self._seen(row, exact=plan.codec is None)

    def _row(self, schedule: Schedule, way: str, cache: int, codec: str, seconds: float, wall: float) -> Row:
        setup, name = self.waves.setup, str(schedule)
        known = SPEEDUPS.get((setup.name, name.partition(":")[0]), {})
        key = "both" if "prefetch and codec" in way else "codec" if "codec" in way else cache
        seed, limit = known.get(key), self.limit(schedule, self.waves.layout.nbytes)
        return Row(setup.name, setup.steps, name, way, cache, codec, seconds, wall, limit, seed)

    def _seen(self, row: Row, *, exact: bool) -> Row:
        waves, arrays = self.waves, self.waves.machine.arrays
        image = waves.propagator.within(waves.image)
        if self.exact is None:
            assert exact, "the first image of a model is the exact one"
            assert bool(arrays.isfinite(image).all()) and bool(image.any()), "the image shows nothing"
            self.exact = image.copy()
        if exact:
            row.equal = bool((image == self.exact).all())
        row.error = relative(arrays, image, self.exact)
        return row


def relative(arrays: Any, image: Any, exact: Any) -> float:
    """Give the error of an image in the 2-norm, relative; scaled first, since squares of small values vanish."""
    largest = abs(exact).max()
    wrong, whole = (arrays.sum((one / largest) ** 2, dtype="float64") for one in (image - exact, exact))
    return float(arrays.sqrt(wrong / whole))


def counted(actions: Sequence[Any]) -> Counter[str]:
    """Count forward steps, backward steps, saves, restores, and those restores that a swap can do."""
    count: Counter[str] = Counter()
    for action, following in pairwise([*actions, None]):
        match action:
            case Forward(start, stop):
                count["forward"] += stop - start
            case Backward():
                count["backward"] += 1
            case Save():
                count["save"] += 1
            case Restore(step):
                count["restore"] += 1
                count["swap"] += isinstance(following, Drop) and following.step == step
    return count


def measured(waves: Waves, codec: Codec, links: dict[str, Any], field: Any = None) -> fb.Costs:
    """Time a step each way, and the codec on a field: unless given, on one as late as the shot has them."""
    arrays, times = waves.machine.arrays, {}
    forward, backward = waves.step_seconds()
    field = waves.late()["p"] if field is None else field
    room, back = arrays.empty(codec.max_bytes(field.shape, field.dtype), "uint8"), arrays.empty_like(field)
    encoded = codec.encode(field, out=room)
    ratio = encoded.ratio
    for what, call in (
        ("encode", lambda: [codec.encode(field, out=room) for _ in range(5)]),
        ("decode", lambda: [codec.decode(encoded, out=back) for _ in range(5)]),
    ):
        call()
        times[what] = min(waves.machine.timed(call).seconds for _ in range(3)) / 5
    worst = room.nbytes / field.nbytes
    known = fb.CodecCost(ratio, field.nbytes / times["encode"], field.nbytes / times["decode"], worst)
    return fb.Costs(forward, backward, codecs={codec.name: known}, **links)


def most(rows: Rows, family: Any, cache: int) -> Schedule:
    """Give a family's schedule of the most snapshots that fit without a cache and with one."""
    waves, rooms = rows.waves, rows.host // room_bytes(rows.waves, rows.codec)
    budget = waves.machine.budget(ceil(cache * SLACK * waves.layout.nbytes), rows.host)
    for snapshots in range(min(waves.setup.steps, cache + rooms), 0, -1):
        try:
            schedule: Schedule = family(waves.setup.steps, snapshots)
            if schedule.peak_snapshots <= rooms:
                fb.plan(waves.setup.steps, waves.layout.nbytes, budget, costs=rows.costs, schedule=schedule)
                return schedule
        except fb.BudgetError:
            continue
    raise fb.BudgetError(f"the host holds {rooms} states, too few for {family.__name__}: give it more")


def denser(rows: Rows, cache: int) -> Schedule | None:
    """Give Uniform's schedule of the most snapshots that fit the same bytes encoded; None where there is none."""
    waves, steps = rows.waves, rows.waves.setup.steps
    budget = waves.machine.budget(ceil(cache * SLACK * waves.layout.nbytes), rows.host)
    for interval in range(1, steps):
        schedule = fb.Uniform(steps, -(-steps // interval))
        try:
            fb.plan(steps, waves.layout.nbytes, budget, costs=rows.costs, schedule=schedule, codec=rows.codec.name)
        except fb.BudgetError:
            continue
        return schedule
    return None


def room_bytes(waves: Waves, codec: Codec) -> int:
    """Give the bytes of a room that holds a state in either way."""
    return sum(codec.max_bytes(leaf.shape, leaf.dtype) for leaf in waves.layout.leaves)


def table(rows: Rows, *, caches: Sequence[int], directory: str, brief: bool) -> Iterator[Callable[[], Row]]:
    """Give a model's part of the table, row by row; `brief` leaves out all but three ways."""
    waves, largest, planned = rows.waves, max(caches), partial(rows.planned, directory=directory)
    schedules: list[Schedule] = [fb.Revolve(waves.setup.steps, min(8, waves.setup.steps))]
    schedules += [most(rows, family, largest) for family in (fb.ZCut, fb.Uniform)]
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
