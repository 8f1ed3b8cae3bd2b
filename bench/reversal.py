"""The reversal of a 3-D acoustic loop on a GPU: Forebay's plans beside synchronous copies, measured in one run.

Every schedule is carried out with blocking copies to pageable memory, with blocking copies to pinned memory, which is
GPUZIP's baseline, with the policy "lru", which does as GPUZIP does, and with the policy "min". They are set beside the
limit: the schedule's steps and copies inside the device, at the costs measured in the same run, and nothing else. Last
comes what "auto" chooses within the same budget. All of them must make the same image, bit by bit.

Takes 96 GB of host memory and about six minutes on an H200. ``--long`` reverses 3751 steps instead, with pinned copies
and "min" of Revolve and "auto" alone.
"""

import math
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import mean
from types import SimpleNamespace
from typing import Any

import numpy as np
from cases.acoustic_loop import SLOTS, Loop, prepared, watched
from cases.blocking import Copies, carry_out, limit, most
from harness import Report, arg, benchmark, summary
from numpy.typing import NDArray

import forebay as fb
from forebay.schedule import Schedule
from forebay.units import seconds_to_text, to_text

REVOLVE = 8
"""Snapshots of Revolve."""


def synchronous(loop: Loop) -> SimpleNamespace:
    """Return copies that block, as CuPy makes them."""
    runtime = loop.cupy.cuda.runtime

    def down(room: NDArray[np.uint8], array: Any) -> None:
        runtime.memcpy(room.ctypes.data, array.data.ptr, array.nbytes, runtime.memcpyDeviceToHost)

    def up(array: Any, room: NDArray[np.uint8]) -> None:
        runtime.memcpy(array.data.ptr, room.ctypes.data, array.nbytes, runtime.memcpyHostToDevice)

    return SimpleNamespace(wait=loop.wait, down=down, up=up)


class Rows:
    """Measures ways to carry schedules out, each a row of the report."""

    def __init__(self, loop: Loop, steps: int, budget: fb.Budget, costs: fb.Costs, report: Report) -> None:
        self.loop, self.steps, self.budget, self.costs, self.report = loop, steps, budget, costs, report

    def plan(self, schedule: Schedule | str = "auto", policy: str = "min") -> Any:
        """Plan within the budget."""
        return fb.plan(self.steps, self.loop.snapshot, self.budget, costs=self.costs, schedule=schedule, policy=policy)

    def most(self, *families: Any) -> list[Schedule]:
        """Return each family's schedule of the most snapshots that fit without a cache, and with either policy."""
        rooms = self.budget["host"] // self.loop.snapshot

        def fits(schedule: Schedule) -> None:
            for policy in ("lru", "min"):
                self.plan(schedule, policy)

        found = (most(family, self.steps, SLOTS + rooms, rooms, fits) for family in families)
        return [schedule for schedule in found if schedule is not None]

    def blocking(self, schedule: Schedule, way: str, rooms: Sequence[NDArray[np.uint8]], patience: float) -> None:
        """Carry a schedule out as it stands."""
        loop = self.loop
        loop.reset()
        copies = Copies(synchronous(loop), loop.layout, rooms, None)
        state = loop.working()
        row = carry_out(schedule, state, loop.forward, loop.backward, copies, loop.wait, self.costs, patience)
        image = loop.hashed(loop.image) if row["timed_share"] == 1 else None
        self.report.add({"steps": self.steps, "way": way} | row | {"image": image})

    def planned(self, schedule: Schedule | str, policy: str, way: str) -> None:
        """Let Forebay carry a schedule out."""
        loop, steps, nbytes = self.loop, self.steps, self.loop.snapshot
        backward, taken = watched(loop, {steps - 1, 3 * steps // 4, steps // 2, steps // 4, 0})
        begun = time.perf_counter()
        result = fb.reverse(
            loop.forward,
            backward,
            loop.start,
            steps,
            budget=self.budget,
            schedule=schedule,
            policy=policy,
            costs=self.costs,
            progress=False,
        )
        loop.wait()
        wall, moved, allowed = time.perf_counter() - begun, result.metrics.moved, self.budget["device"] + nbytes
        memory = {"device_taken": taken(), "device_above": max(0, taken() - allowed), "moves": moves(result.metrics)}
        links = {"up": moved["up 1"] // nbytes, "down": moved["down 1"] // nbytes}
        row = {"steps": steps, "way": way} | summary(result) | {"wall": wall} | links | memory
        self.report.add(row | {"image": loop.hashed(loop.image)})

    def limit(self, schedule: Schedule) -> None:
        """Tell what a schedule takes if nothing is waited for."""
        seconds = limit(schedule, self.costs, self.loop.snapshot)
        self.report.add({"steps": self.steps, "way": "limit", "schedule": str(schedule), "seconds": seconds})


@benchmark(
    arg("--steps", type=int, tiny=60, help="steps of the loop, 1000 otherwise"),
    arg("--long", action="store_true", help="3751 steps; pinned copies and min of Revolve, and auto"),
    arg("--host", default="96GB", help="host memory for snapshots"),
    arg("--patience", type=float, default=20.0, help="seconds after which a pageable row is cut off"),
    needs=("gpu", "cupy"),
)
def main(asked: Any, report: Report) -> None:
    steps = asked.steps or (3751 if asked.long else 1000)
    loop, budget, costs = prepared(asked, report, steps)
    compare(Rows(loop, steps, budget, costs, report), asked.patience, brief=asked.long)
    report.facts["overhead"] = overhead(steps)
    check(loop, report)
    ratios(report)
    report.table(
        f"reversal of {steps} steps: pinned / ours, ours / limit",
        "schedule way seconds:s timed_share:.0% times_faster:.3f over_limit:.3f predicted:s over_predicted:.3f stall:s "
        "predicted_phases.stall:s late up down device_taken:B device_above:B wall:s",
    )
    report.say(f"the engine alone: {report.facts['overhead']}")


def compare(rows: Rows, patience: float, *, brief: bool) -> None:
    """Measure every row; `brief` leaves out all but pinned copies and min of Revolve, and auto."""
    from forebay.cuda.slab import kept_pinned

    nbytes, report = rows.loop.snapshot, rows.report
    schedules: list[Schedule] = [fb.Revolve(rows.steps, min(REVOLVE, rows.steps))]
    if not brief:
        schedules += rows.most(fb.ZCut, fb.Uniform)
    count = max(schedule.peak_snapshots for schedule in schedules)
    if not brief:
        pageable = touched(count, nbytes)
        for schedule in schedules:
            rows.blocking(schedule, "pageable", pageable, patience)
        del pageable  # it and the pinned slab together are more than the machine has
    auto = rows.plan()
    count = max([count, *auto.prediction.peak[1:]])
    begun = time.perf_counter()
    with kept_pinned(count * nbytes) as slab:
        pinning = time.perf_counter() - begun
        report.facts["pinning"] = {"bytes": count * nbytes, "seconds": pinning}
        report.say(f"pinning {to_text(count * nbytes)} took {seconds_to_text(pinning)}; it is in no row")
        pinned = [slab.array[index * nbytes : (index + 1) * nbytes] for index in range(count)]
        for schedule in schedules:
            rows.blocking(schedule, "pinned", pinned, math.inf)
        del pinned
    # The slab is kept by the process: the reversals below find it.
    for schedule in schedules:
        for policy in ("min",) if brief else ("lru", "min"):
            rows.planned(schedule, policy, policy)
        rows.limit(schedule)
    rows.planned("auto", "min", "auto")
    rows.limit(auto.schedule)


def touched(rooms: int, nbytes: int) -> list[NDArray[np.uint8]]:
    """Allocate pageable memory of which every page is there."""
    arrays = [np.empty(nbytes, np.uint8) for _ in range(rooms)]
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda array: array.fill(0), arrays))
    return arrays


def moves(metrics: Any) -> dict[str, dict[str, float]]:
    """Count and time the movements of each link."""
    taken: dict[str, list[float]] = {}
    spans: Iterable[Any] = (span for span in metrics.timeline if span.lane != "compute")
    for span in spans:
        taken.setdefault(span.lane, []).append(span.stop - span.start)
    return {lane: {"count": len(s), "mean_seconds": mean(s), "longest_seconds": max(s)} for lane, s in taken.items()}


def overhead(steps: int) -> dict[str, float]:
    """Time the engine alone: the same schedule on a state of 8 kB, with callbacks that do nothing."""
    import cupy

    from forebay.engine.layout import Layout

    state = (cupy.zeros(1024, "float32"), cupy.zeros(1024, "float32"))
    nbytes = Layout.of(state, lambda array: (array.shape, array.dtype)).nbytes
    budget = fb.Budget(device=SLOTS * nbytes, host=REVOLVE * nbytes)
    costs = fb.Costs(1e-6, 1e-6, 1e9, fb.Link(1e9, 1e9))

    def shortest(length: int) -> tuple[float, int]:
        plan = fb.plan(length, nbytes, budget, costs=costs, schedule=fb.Revolve(length, min(length, REVOLVE)))
        taken = []
        for _ in range(4):
            begun = time.perf_counter()
            fb.reverse(lambda s, start, stop: s, lambda s, step: None, state, length, plan=plan, progress=False)
            taken.append(time.perf_counter() - begun)
        return min(taken), len(plan.operations())

    seconds, operations = shortest(steps)
    each = {"operations": operations, "seconds": seconds, "microseconds_per_operation": seconds / operations * 1e6}
    return each | {"seconds_of_one_step": shortest(1)[0]}


def check(loop: Loop, report: Report) -> None:
    """Fail where images are not bit-equal, or could not show it."""
    images: dict[str, list[str]] = {}
    for row in report.rows:
        if row.get("image"):
            images.setdefault(row["image"], []).append(f"{row['schedule']} {row['way']}")
    if len(images) > 1:
        report.fail(f"images differ: {images}")
    if loop.hashed(*loop.start) != loop.initial:
        report.fail("a reversal changed the caller's initial state")
    largest = report.facts["image_maximum"] = float(abs(loop.image).max())
    if not 0 < largest < math.inf:
        report.fail(f"the image's largest value is {largest}: it shows nothing")


def ratios(report: Report) -> None:
    """Set what Forebay did beside pinned copies of the schedule, or Revolve's where it has none, and its limit."""
    first = report.find(way="pinned")
    for row in report.rows:
        if row["way"] in ("lru", "min", "auto"):
            pinned = report.find(way="pinned", schedule=row["schedule"]) or first
            row["times_faster"] = pinned["seconds"] / row["seconds"]
            if least := report.find(way="limit", schedule=row["schedule"]):
                row["over_limit"] = row["seconds"] / least["seconds"]


if __name__ == "__main__":
    main()
