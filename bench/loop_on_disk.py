"""A loop on NumPy arrays whose snapshots exceed the host's budget, beside what the planner says the disk allows.

Every repetition times the loop's steps and the disk tier by itself, writing and reading as many snapshots as the first
loop does, then reverses both loops, and then times all that again. The means are the costs of the predictions, so that
a disk and a machine that others use too are the same for both sides. The loop "storeall" keeps every state and is
bound by the disk; "auto" has room for a part of them and recomputes as well. "First saves" are those into memory that
was never touched, which take more than predicted. Takes 5 GB of the directory.
"""

import mmap
import os
import shutil
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from harness import Report, arg, benchmark, median, seconds, summary
from numpy.typing import NDArray

import forebay as fb
from forebay.tier.disk import Disk
from forebay.units import to_text

State = tuple[NDArray[np.float32]]


class Setting(NamedTuple):
    """A loop and the snapshots that its tiers hold."""

    schedule: str
    steps: int
    host: int
    disk: int


SETTINGS = (Setting("storeall", 72, 4, 72), Setting("auto", 160, 4, 40))


class Loop:
    """A field that decays, step by step in place, and the sum of its states that the reversal makes."""

    def __init__(self, nbytes: int) -> None:
        # A disk that compresses, or leaves zeros out, shall gain nothing.
        self.first = np.random.default_rng(0).standard_normal(nbytes // 4, np.float32)
        self.image = np.zeros_like(self.first)
        self.seen: dict[int, NDArray[np.float32]] = {}

    def forward(self, state: State, start: int, stop: int, replay: bool) -> State:
        """Advance, and note a value of every page the first time."""
        (field,) = state
        for step in range(start, stop):
            if not replay:
                self.seen[step] = field[::1024].copy()
            np.multiply(field, np.float32(0.999), out=field)
        return (field,)

    def backward(self, state: State, step: int) -> None:
        """Add a state up, once it is found to be the one that was there."""
        (field,) = state
        assert np.array_equal(field[::1024], self.seen[step]), f"step {step} is not what it was"
        np.add(self.image, field, out=self.image)

    def costs(self, folder: str, snapshots: int, rounds: int = 30) -> dict[str, float]:
        """Time steps, a copy and the disk tier, each by itself: means, for the loop too meets others on its cores."""
        field, kept, nbytes = self.first.copy(), np.empty_like(self.first), self.first.nbytes
        np.copyto(kept, field)  # pages are there
        spent = dict.fromkeys(("forward", "backward", "copy"), 0.0)
        for step in range(rounds):
            spent["forward"] += seconds(lambda step=step: self.forward((field,), step, step + 1, False)) / rounds
            spent["copy"] += seconds(lambda: np.copyto(kept, field)) / rounds
            self.seen[step] = kept[::1024].copy()
            spent["backward"] += seconds(lambda step=step: self.backward((kept,), step)) / rounds
        rng = np.random.default_rng(1)
        buffers = [np.frombuffer(mmap.mmap(-1, nbytes), np.uint8) for _ in range(2)]
        for buffer in buffers:
            buffer[:] = np.frombuffer(rng.bytes(nbytes), np.uint8)
        # One right after the other, as a lane of the engine does; read latest first.
        with Disk(folder, snapshots * nbytes) as disk:
            down = seconds(lambda: [disk.write(step, buffers[step % 2]).result() for step in range(snapshots)])
            up = seconds(lambda: [disk.read(step, buffers[step % 2]).result() for step in reversed(range(snapshots))])
        os.sync()  # the disk is done with deleting
        return spent | {"up": up / snapshots, "down": down / snapshots}

    def reverse(self, setting: Setting, costs: fb.Costs, folder: str) -> tuple[fb.Result, float]:
        """Reverse the loop with a plan for the costs of this minute; return the result and the wall time too."""
        self.image[:] = 0
        self.seen.clear()
        budget = fb.Budget(host=setting.host * self.first.nbytes, disk=setting.disk * self.first.nbytes)
        how = {"budget": budget, "schedule": setting.schedule, "costs": costs, "directory": folder, "progress": False}
        start = time.perf_counter()
        result = fb.reverse(self.forward, self.backward, (self.first,), setting.steps, **how)
        wall = time.perf_counter() - start
        os.sync()
        return result, wall


@benchmark(
    arg("directory", nargs="?", default=".", type=Path),
    arg("--repetitions", type=int, default=4, tiny=1),
    arg("--snapshot", type=int, default=64 << 20, tiny=1 << 18, help="bytes of a state"),
)
def main(asked: Any, report: Report) -> None:
    most = max(setting.disk for setting in SETTINGS) * asked.snapshot
    if shutil.disk_usage(asked.directory).free < 2 * most:
        raise SystemExit(f"{asked.directory} has no {to_text(2 * most)} free: name another directory")
    loop = Loop(asked.snapshot)
    report.facts["loops"] = [setting._asdict() for setting in SETTINGS]
    with tempfile.TemporaryDirectory(dir=asked.directory) as folder:
        loop.costs(folder, 4)  # pages are touched, the checksum is compiled
        before = loop.costs(folder, SETTINGS[0].disk)
        for _ in range(asked.repetitions):
            runs = [loop.reverse(setting, mean(before, nbytes=asked.snapshot), folder) for setting in SETTINGS]
            after = loop.costs(folder, SETTINGS[0].disk)
            costs = mean(before, after, nbytes=asked.snapshot)
            for setting, (result, wall) in zip(SETTINGS, runs, strict=True):
                report.add(compare(setting, result, costs, asked.snapshot) | {"wall": wall})
            before = after
    disk = "first_saves:.2f down_GBps:.2f disk_down:.2f up_GBps:.2f disk_up:.2f"
    columns = "loop schedule stored fetched seconds:.2f predicted:.2f disk_alone:.2f predicted_over:.3f alone_over:.3f"
    report.table("every repetition", f"{columns} {disk}")
    for setting in SETTINGS:
        own = [row for row in report.rows if row["loop"] == setting.schedule]
        for what in ("predicted_over", "alone_over"):
            values = [row[what] for row in own]
            report.say(f"{setting.schedule}, {what}: {median(values):.3f} ({min(values):.3f} to {max(values):.3f})")


def compare(setting: Setting, result: fb.Result, costs: fb.Costs, nbytes: int) -> dict[str, Any]:
    """Set a reversal beside the prediction of its plan at the mean of the costs before and after it."""
    plan, metrics = result.plan, result.metrics
    foreseen = fb.plan(plan.steps, nbytes, plan.budget, costs=costs, schedule=plan.schedule).prediction
    stored, fetched = foreseen.stored[0], foreseen.fetched[0]
    assert (stored, fetched) == (plan.prediction.stored[0], plan.prediction.fetched[0])
    assert costs.disk is not None
    saves = sorted((span for span in metrics.timeline if span.what == "save"), key=lambda span: span.start)
    alone = nbytes * (stored / costs.disk.down + fetched / costs.disk.up)
    row = {"loop": setting.schedule} | summary(result) | {"stored": stored, "fetched": fetched, "disk_alone": alone}
    row |= {"predicted": foreseen.seconds, "predicted_over": foreseen.seconds / metrics.seconds}
    row |= {"alone_over": alone / metrics.seconds, "costs": asdict(costs)}
    row |= {"predicted_phases": {phase: getattr(foreseen, phase) for phase in row["predicted_phases"]}}
    row["first_saves"] = sum(span.stop - span.start for span in saves[: setting.host + 1])
    for way in ("down", "up"):
        busy = sum(span.stop - span.start for span in metrics.timeline if span.lane == f"{way} 1")
        row |= {f"{way}_GBps": metrics.moved[f"{way} 1"] / busy / 1e9, f"disk_{way}": getattr(costs.disk, way) / 1e9}
    return row


def mean(*measured: dict[str, float], nbytes: int) -> fb.Costs:
    """Return costs of the means of seconds."""
    mid = {what: sum(each[what] for each in measured) / len(measured) for what in measured[0]}
    link = fb.Link(up=nbytes / mid["up"], down=nbytes / mid["down"])
    return fb.Costs(mid["forward"], mid["backward"], nbytes / mid["copy"], disk=link)


if __name__ == "__main__":
    main()
