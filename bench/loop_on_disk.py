"""A loop on NumPy arrays whose snapshots exceed the host's budget, beside what the planner says the disk allows.

Every repetition times the loop's steps and the disk tier by itself, writing and reading as many snapshots as the first
loop does, then reverses both loops, and then times all that again. The means are the costs of the predictions, so that
a disk and a machine that others use too are the same for both sides. The loop "storeall" keeps every state and is
bound by the disk; "auto" has room for a part of them and recomputes as well.

Run ``python bench/loop_on_disk.py [DIRECTORY]``: takes 5 GB there for two minutes, prints tables, writes
``bench/out/loop_on_disk.json``. ``--tiny`` is over in seconds.
"""

import argparse
import json
import mmap
import os
import platform
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import forebay as fb
from forebay.tier.disk import Disk
from forebay.units import to_text

State = tuple[NDArray[np.float32]]
console = Console(width=140, soft_wrap=True)


@dataclass(frozen=True)
class Setting:
    """A loop and the snapshots that its tiers hold."""

    schedule: str
    steps: int
    host: int
    disk: int


@dataclass(frozen=True)
class Ceiling:
    """Bytes a second of the disk tier without a loop."""

    down: float
    up: float


@dataclass(frozen=True)
class Row:
    """One reversal, and what the planner says of it at the costs of the same minute."""

    loop: str
    plan: str
    seconds: float
    predicted: float
    disk_alone: float
    """seconds that the disk tier takes for the same snapshots without a loop, all down and then all up"""
    phases: dict[str, float]
    predicted_phases: dict[str, float]
    first_saves: float
    """seconds of the saves into memory that was never touched, which are more than the copies that are predicted"""
    fetched: int
    stored: int
    down: float
    """bytes a second while the link to the disk was busy; the disk alone is in `costs`"""
    up: float
    wall: float
    """of the whole call, with the removal of the files"""
    costs: dict[str, Any]


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

    def step_seconds(self, rounds: int = 30) -> tuple[float, float, float]:
        """Time a forward step, a backward step and a copy: means, because the loop too meets others on its cores."""
        field, kept = self.first.copy(), np.empty_like(self.first)
        np.copyto(kept, field)  # pages are there
        forward = backward = copy = 0.0
        for step in range(rounds):
            forward += seconds(lambda step=step: self.forward((field,), step, step + 1, False))
            copy += seconds(lambda: np.copyto(kept, field))
            self.seen[step] = kept[::1024].copy()
            backward += seconds(lambda step=step: self.backward((kept,), step))
        return forward / rounds, backward / rounds, copy / rounds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("directory", nargs="?", default=".", type=Path)
    parser.add_argument("--tiny", action="store_true", help="small snapshots, twice: to see that it runs")
    parser.add_argument("--repetitions", type=int, default=4)
    chosen = parser.parse_args()
    nbytes, repetitions = (1 << 20, 2) if chosen.tiny else (64 << 20, chosen.repetitions)
    settings = (Setting("storeall", 72, 4, 72), Setting("auto", 160, 4, 40))
    most = max(setting.disk for setting in settings) * nbytes
    if shutil.disk_usage(chosen.directory).free < 2 * most:
        raise SystemExit(f"{chosen.directory} has no {to_text(2 * most)} free: name another directory")
    loop, rows = Loop(nbytes), []
    with tempfile.TemporaryDirectory(dir=chosen.directory) as folder:
        measure(loop, folder, 4)  # pages are touched, the checksum is compiled
        before = measure(loop, folder, settings[0].disk)
        for _ in range(repetitions):
            runs = [reverse(loop, setting, before, folder) for setting in settings]
            after = measure(loop, folder, settings[0].disk)
            rows += [compare(setting, run, before, after, nbytes) for setting, run in zip(settings, runs, strict=True)]
            before = after
    report = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "load": os.getloadavg(),  # of the last 1, 5 and 15 minutes, others' work included
        "versions": {name: version(name) for name in ("numpy", "numba", "forebay")},
        "setting": {"snapshot": nbytes, "loops": [asdict(setting) for setting in settings]},
        "rows": [asdict(row) for row in rows],
    }
    out = Path(__file__).parent / "out" / "loop_on_disk.json"
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps(report, indent=2) + "\n")
    show(rows)


def measure(loop: Loop, folder: str, snapshots: int) -> fb.Costs:
    """Time what the loop and the disk tier do, each by itself."""
    forward, backward, copy = loop.step_seconds()
    alone = disk_alone(loop.first.nbytes, folder, snapshots)
    return fb.Costs(
        forward=forward, backward=backward, copy=loop.first.nbytes / copy, disk=fb.Link(up=alone.up, down=alone.down)
    )


def disk_alone(nbytes: int, folder: str, snapshots: int) -> Ceiling:
    """Write snapshots and read them, latest first, one right after the other, as a lane of the engine does."""
    rng = np.random.default_rng(1)
    buffers = [np.frombuffer(mmap.mmap(-1, nbytes), np.uint8) for _ in range(2)]
    for buffer in buffers:
        buffer[:] = np.frombuffer(rng.bytes(nbytes), np.uint8)
    with Disk(folder, snapshots * nbytes) as disk:
        down = seconds(lambda: [disk.write(step, buffers[step % 2]).result() for step in range(snapshots)])
        up = seconds(lambda: [disk.read(step, buffers[step % 2]).result() for step in reversed(range(snapshots))])
    os.sync()  # the disk is done with deleting
    return Ceiling(snapshots * nbytes / down, snapshots * nbytes / up)


def reverse(loop: Loop, setting: Setting, costs: fb.Costs, folder: str) -> tuple[fb.Result, float]:
    """Reverse the loop with a plan for the costs of this minute; give the result and the wall time too."""
    loop.image[:] = 0
    loop.seen.clear()
    budget = fb.Budget(host=setting.host * loop.first.nbytes, disk=setting.disk * loop.first.nbytes)
    start = time.perf_counter()
    result = fb.reverse(
        loop.forward,
        loop.backward,
        (loop.first,),
        setting.steps,
        budget=budget,
        schedule=setting.schedule,
        costs=costs,
        directory=folder,
        progress=False,
    )
    wall = time.perf_counter() - start
    os.sync()
    return result, wall


def compare(setting: Setting, run: tuple[fb.Result, float], before: fb.Costs, after: fb.Costs, nbytes: int) -> Row:
    """Set a reversal beside the prediction of its plan at the mean of the costs before and after it."""
    (result, wall), costs = run, mean(before, after)
    plan, metrics = result.plan, result.metrics
    foreseen = fb.plan(plan.steps, nbytes, plan.budget, costs=costs, schedule=plan.schedule).prediction
    phases = ("forward", "backward", "save", "restore", "stall")
    stored, fetched = foreseen.stored[0], foreseen.fetched[0]
    assert (stored, fetched) == (plan.prediction.stored[0], plan.prediction.fetched[0])
    assert costs.disk is not None
    saves = sorted((span for span in metrics.timeline if span.what == "save"), key=lambda span: span.start)
    busy = {
        lane: sum(span.stop - span.start for span in metrics.timeline if span.lane == lane) for lane in metrics.moved
    }
    return Row(
        loop=setting.schedule,
        plan=str(plan.schedule),
        seconds=metrics.seconds,
        predicted=foreseen.seconds,
        disk_alone=nbytes * (stored / costs.disk.down + fetched / costs.disk.up),
        phases={phase: metrics.phases[phase] for phase in phases},
        predicted_phases={phase: getattr(foreseen, phase) for phase in phases},
        first_saves=sum(span.stop - span.start for span in saves[: setting.host + 1]),
        fetched=fetched,
        stored=stored,
        down=metrics.moved["down 1"] / busy["down 1"],
        up=metrics.moved["up 1"] / busy["up 1"],
        wall=wall,
        costs={"forward": costs.forward, "backward": costs.backward, "copy": costs.copy, "disk": asdict(costs.disk)},
    )


def mean(one: fb.Costs, other: fb.Costs) -> fb.Costs:
    """Take the middle of two costs, in seconds."""
    assert one.disk is not None and other.disk is not None
    return replace(
        one,
        forward=(one.forward + other.forward) / 2,
        backward=(one.backward + other.backward) / 2,
        copy=2 / (1 / one.copy + 1 / other.copy),
        disk=fb.Link(up=2 / (1 / one.disk.up + 1 / other.disk.up), down=2 / (1 / one.disk.down + 1 / other.disk.down)),
    )


def show(rows: list[Row]) -> None:
    table = Table(
        *("loop", "plan", "stored", "fetched", "seconds", "predicted", "disk alone", "predicted / s", "alone / s"),
        *("lowest", "highest"),
        title="medians; the ratios are medians of the repetitions' own, with the lowest and highest of predicted / s",
    )
    phases = Table("loop", *rows[0].phases, "first saves", "down GB/s", "up GB/s", title="measured / predicted")
    for loop in dict.fromkeys(row.loop for row in rows):
        own = [row for row in rows if row.loop == loop]
        ratios = [row.predicted / row.seconds for row in own]
        numbers = (middle(own, lambda row: row.seconds), middle(own, lambda row: row.predicted))
        table.add_row(
            loop,
            ", ".join(dict.fromkeys(row.plan for row in own)),
            str(own[0].stored),
            str(own[0].fetched),
            *(f"{number:.2f}" for number in numbers),
            f"{middle(own, lambda row: row.disk_alone):.2f}",
            f"{statistics.median(ratios):.3f}",
            f"{middle(own, lambda row: row.disk_alone / row.seconds):.3f}",
            f"{min(ratios):.3f}",
            f"{max(ratios):.3f}",
        )
        phases.add_row(
            loop,
            *(
                beside(own, lambda row, name=name: row.phases[name], lambda row, name=name: row.predicted_phases[name])
                for name in own[0].phases
            ),
            f"{middle(own, lambda row: row.first_saves):.2f}",
            beside(own, lambda row: row.down / 1e9, lambda row: row.costs["disk"]["down"] / 1e9),
            beside(own, lambda row: row.up / 1e9, lambda row: row.costs["disk"]["up"] / 1e9),
        )
    console.print(table)
    console.print(phases)


def middle(rows: list[Row], value: Callable[[Row], float]) -> float:
    return statistics.median(map(value, rows))


def beside(rows: list[Row], measured: Callable[[Row], float], foreseen: Callable[[Row], float]) -> str:
    return f"{middle(rows, measured):.2f} / {middle(rows, foreseen):.2f}"


def seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
