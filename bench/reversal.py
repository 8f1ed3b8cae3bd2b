"""The reversal of a 3-D acoustic loop on a GPU: Forebay's plans beside synchronous copies, measured in one run.

Every schedule is carried out with blocking copies to pinned memory, which is GPUZIP's baseline, with the policy "lru",
which does as GPUZIP does, and with the policy "min". They are set beside the limit: the schedule's steps and copies
inside the device, at the costs measured in the same run, and nothing else. Last come the best segments within the same
budget, and what "auto" chooses there. All must make the same image, bit by bit.

Takes 96 GB of host memory and some minutes on an H200. ``--long`` reverses 3751 steps instead, with pinned copies and
"min" of Revolve, the best segments and "auto" alone.
"""

import math
import time
from dataclasses import replace
from typing import Any

from cases.acoustic_loop import OVERHEAD, SLOTS, Loop, prepared
from cases.blocking import Copies, carry_out, limit, most, pin
from harness import Report, arg, benchmark, digest, summary

import forebay as fb
from forebay.schedule import Schedule

REVOLVE = 8
"""Snapshots of Revolve."""
REPEATS, SHORT = 7, 0.2
"""Runs of a reversal that takes fewer seconds than this."""
WHAT = {
    "pinned": "blocking copies, pinned memory",
    "lru": "Forebay, least recently used leaves",
    "min": "Forebay, farthest next use leaves",
    "segments": "Forebay, best segments",
    "auto": "Forebay, auto",
    "limit": "its steps and device copies alone",
}
"""What each way is to who has not read this file."""


class Rows:
    """Measures ways to carry schedules out, each a row of the report."""

    def __init__(self, loop: Loop, steps: int, budget: fb.Budget, costs: fb.Costs, report: Report) -> None:
        self.loop, self.steps, self.budget, self.costs, self.report = loop, steps, budget, costs, report

    def plan(self, schedule: Schedule | str = "auto", policy: str = "min") -> Any:
        """Plan within the budget."""
        how = {"costs": self.costs, "schedule": schedule, "policy": policy, "overhead": OVERHEAD}
        return fb.plan(self.steps, self.loop.snapshot, self.budget, **how)

    def most(self, *families: Any) -> list[Schedule]:
        """Return each family's schedule of the most snapshots that fit without a cache, and with either policy."""
        rooms = self.budget["host"] // self.loop.snapshot

        def fits(schedule: Schedule) -> None:
            for policy in ("lru", "min"):
                self.plan(schedule, policy)

        found = (most(family, self.steps, SLOTS + rooms, rooms, fits) for family in families)
        return [schedule for schedule in found if schedule is not None]

    def blocking(self, schedule: Schedule, rooms: list[Any]) -> None:
        """Carry a schedule out as it stands."""
        loop = self.loop
        loop.reset()
        copies = Copies(loop.machine, loop.layout, rooms, None)
        row = carry_out(schedule, loop.working(), loop.forward, loop.backward, copies, self.costs)
        self.report.add({"steps": self.steps, "way": "pinned"} | row | {"image": digest(loop.image.get())})

    def planned(self, way: str, **how: Any) -> dict[str, Any]:
        """Let Forebay carry a schedule out, and look at the device's memory in some steps."""
        loop, steps = self.loop, self.steps
        looks = {steps - 1, 3 * steps // 4, steps // 2, steps // 4, 0}
        loop.machine.release()
        before, least = loop.machine.free(), []

        def backward(state: Any, step: int) -> None:
            loop.backward(state, step)
            if step in looks and not runs:  # looking takes as long as many a step
                least.append(loop.machine.free())

        how |= {"budget": self.budget, "costs": self.costs, "progress": False}
        runs: list[tuple[float, fb.Result]] = []
        # A short reversal is run again, and the median taken: its first run makes events that later ones find. It waits
        # for the host, whose speed changes by the second: what that takes is timed again before each run.
        while not runs or (len(runs) < REPEATS and runs[0][1].metrics.seconds < SHORT):
            if runs:
                how["costs"] = replace(self.costs, operations=loop.host_costs())
                how["schedule"] = runs[0][1].plan.schedule
            loop.reset()
            begun = time.perf_counter()
            result = fb.reverse(loop.forward, backward, loop.start, steps, **how)
            loop.machine.wait()
            runs.append((time.perf_counter() - begun, result))
        later = sorted(runs[1:] or runs, key=lambda run: run[1].metrics.seconds / run[1].plan.prediction.seconds)
        wall, result = later[len(later) // 2]
        taken = max(0, before - min(least))
        links = {way: result.metrics.moved[f"{way} 1"] // loop.snapshot for way in ("up", "down")}
        memory = {"device_taken": taken, "device_above": max(0, taken - self.budget["device"] - loop.snapshot)}
        sampled = max((sample.relative for sample in result.metrics.samples), default=0.0)
        row = {"steps": steps, "way": way} | summary(result) | {"wall": wall, "sampled": sampled} | links | memory
        return row | {"image": digest(loop.image.get())}

    def limit(self, schedule: Schedule) -> None:
        """Tell what a schedule takes if nothing is waited for."""
        least = limit(schedule, self.costs, self.loop.snapshot)
        self.report.add({"steps": self.steps, "way": "limit", "schedule": str(schedule), "seconds": least})


@benchmark(
    arg("--steps", type=int, tiny=60, help="steps of the loop, 1000 otherwise"),
    arg("--long", action="store_true", help="3751 steps; pinned copies and min of Revolve, segments and auto"),
    arg("--host", default="96GB", help="host memory for snapshots"),
    needs=("gpu", "cupy"),
)
def main(asked: Any, report: Report) -> None:
    steps = asked.steps or (3751 if asked.long else 1000)
    loop, budget, costs = prepared(asked, report, steps)
    compare(Rows(loop, steps, budget, costs, report), brief=asked.long)
    check(loop, report)
    ratios(report)
    for row in report.rows:
        row["what"] = WHAT[row["way"]]
    report.table(
        f"reversal of {steps} steps: pinned / ours, ours / limit",
        "schedule way seconds:s times_faster:.3f over_limit:.3f predicted:s over_predicted:.3f stall:s "
        "predicted_phases.stall:s late up down device_taken:B device_above:B wall:s",
    )


def compare(rows: Rows, *, brief: bool) -> None:
    """Measure every row; `brief` leaves out all but pinned copies and min of Revolve, segments and auto."""
    nbytes, report = rows.loop.snapshot, rows.report
    schedules: list[Schedule] = [fb.Revolve(rows.steps, min(REVOLVE, rows.steps))]
    if not brief:
        schedules += rows.most(fb.ZCut, fb.Uniform)
    auto = rows.plan()
    count = max([*(schedule.peak_snapshots for schedule in schedules), *auto.prediction.peak[1:]])
    pin(count * nbytes, report)
    with rows.loop.machine.rooms(count, nbytes) as rooms:
        for schedule in schedules:
            rows.blocking(schedule, rooms)
    for schedule in schedules:
        for policy in ("min",) if brief else ("lru", "min"):
            report.add(rows.planned(policy, schedule=schedule, policy=policy))
        rows.limit(schedule)
    for way, family in (("segments", "twolevel"), ("auto", "auto")):
        report.add(rows.planned(way, schedule=family, policy="min"))
    rows.limit(auto.schedule)


def check(loop: Loop, report: Report) -> None:
    """Fail where images are not bit-equal, or could not show it."""
    images: dict[str, list[str]] = {}
    for row in report.rows:
        if row.get("image"):
            images.setdefault(row["image"], []).append(f"{row['schedule']} {row['way']}")
    if len(images) > 1:
        report.fail(f"images differ: {images}")
    if digest(*(array.get() for array in loop.start)) != loop.initial:
        report.fail("a reversal changed the caller's initial state")
    largest = report.facts["image_maximum"] = float(abs(loop.image).max())
    if not 0 < largest < math.inf:
        report.fail(f"the image's largest value is {largest}: it shows nothing")


def ratios(report: Report) -> None:
    """Set what Forebay did beside pinned copies of the schedule, or Revolve's where it has none, and its limit."""
    first = report.find(way="pinned")
    for row in report.rows:
        if row["way"] in ("lru", "min", "segments", "auto"):
            pinned = report.find(way="pinned", schedule=row["schedule"]) or first
            row["times_faster"] = pinned["seconds"] / row["seconds"]
            if least := report.find(way="limit", schedule=row["schedule"]):
                row["over_limit"] = row["seconds"] / least["seconds"]


if __name__ == "__main__":
    main()
