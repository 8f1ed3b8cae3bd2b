"""A differentiable wave loop in plain PyTorch: in memory, in segments of `torch.utils.checkpoint`, and `checkpointed`.

The loop is a damped 2-D wave whose speed and damping have gradients, heard by receivers. It is run forward and backward
in memory first. A fiftieth of the memory that this took, as measured, is then what all others may take: segments of
many sizes, segments in segments, segments whose states autograd's `save_on_cpu` moves to the host, and `checkpointed`
on the device alone and with the host below it. Those that fit, and the run in memory, are timed in rounds, one after
the other, and the best time of each counts: such loops are bound by a host, whose speed changes with the seconds. The
others are timed once.
Gradients are compared bit by bit with those of the run in memory.

Memory is what torch's allocator had at most, and what the engine takes beside it, above what is there before the loop;
on a CPU it is what a process had at most, which is rough. Run ``python bench/torch_loop.py``: it prints a table and
writes ``bench/out/torch_loop.json``. Without a GPU, ``--points 128 --steps 400 --few`` is over in a minute or two.
"""

import argparse
import gc
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import date
from itertools import chain
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
import torch.nn.functional as nnf
from rich.console import Console
from rich.table import Table
from torch.utils.checkpoint import checkpoint

import forebay as fb
from forebay.torch import checkpointed
from forebay.units import seconds_to_text, to_text

OUT = Path(__file__).parent / "out" / "torch_loop.json"
console = Console(width=160)
Step = Callable[..., Any]
Run = Callable[["Loop"], tuple[torch.Tensor, ...]]


@dataclass
class Row:
    """What was measured of one way."""

    way: str
    seconds: float
    peak: int
    fits: bool
    equal: bool
    """that all gradients are those of the run in memory, bit by bit"""
    plan: str = ""


class Loop:
    """The loop and its parameters."""

    def __init__(self, points: int, steps: int, device: torch.device) -> None:
        self.points, self.steps, self.device = points, steps, device
        axis = torch.linspace(-1, 1, points, device=device)
        self.speed = (0.3 + 0.1 * torch.sin(5 * axis)[:, None] * torch.cos(3 * axis)).requires_grad_()
        self.damping = torch.full((points, points), 1e-3, device=device).requires_grad_()
        self.start = torch.exp(-400 * (axis[:, None] ** 2 + axis**2)).requires_grad_()

    def params(self) -> tuple[torch.Tensor, ...]:
        """Give what every step needs, computed anew so that it has a history."""
        return 2 - self.damping, 1 - self.damping, self.speed**2

    def step(
        self, state: Any, t: int, now: torch.Tensor, before: torch.Tensor, squared: torch.Tensor
    ) -> tuple[Any, torch.Tensor]:
        """Advance a step, and hear it."""
        p, p_old = state
        around = nnf.pad(p, (1, 1, 1, 1))
        neighbours = around[2:, 1:-1] + around[:-2, 1:-1] + around[1:-1, 2:] + around[1:-1, :-2]
        laplacian = neighbours - 4 * p
        new = now * p - before * p_old + squared * laplacian
        return (new, p), new[self.points // 8, ::8]

    def gradients(self, traces: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Go back from a misfit."""
        return torch.autograd.grad(traces.square().sum(), (self.speed, self.damping, self.start))

    def plain(self) -> tuple[torch.Tensor, ...]:
        """Have autograd keep everything."""
        state, traces, params = (self.start, self.start), [], self.params()
        for t in range(self.steps):
            state, trace = self.step(state, t, *params)
            traces.append(trace)
        return self.gradients(torch.stack(traces))

    def segments(self, *counts: int, on_host: bool = False) -> tuple[torch.Tensor, ...]:
        """Cut the loop into so many segments, each of them into so many, and so on; only the first states are kept."""
        params = self.params()

        def span(p: torch.Tensor, p_old: torch.Tensor, start: int, stop: int, counts: tuple[int, ...]) -> Any:
            state, traces = (p, p_old), []
            if not counts:
                for t in range(start, stop):
                    state, trace = self.step(state, t, *params)
                    traces.append(trace)
                return *state, torch.stack(traces)
            length = -(-(stop - start) // counts[0])
            for first in range(start, stop, length):
                last = min(first + length, stop)
                *state, trace = checkpoint(span, *state, first, last, counts[1:], use_reentrant=False)
                traces.append(trace)
            return *state, torch.cat(traces)

        if not on_host:
            return self.gradients(span(self.start, self.start, 0, self.steps, counts)[2])
        # The hook is asked for what the outermost segments save: their first states.
        with torch.autograd.graph.save_on_cpu(pin_memory=self.device.type == "cuda"):
            traces = span(self.start, self.start, 0, self.steps, counts)[2]
        return self.gradients(traces)

    def ours(self, budget: fb.Budget, results: list[Any]) -> tuple[torch.Tensor, ...]:
        """Give it a budget."""
        _, traces = checkpointed(
            self.step,
            (self.start, self.start),
            self.steps,
            params=self.params(),
            outputs=True,
            budget=budget,
            report=results.append,
        )
        return self.gradients(traces)


def peak_bytes(loop: Loop, run: Run) -> int:
    """Run something and give what it took at most, above what was taken before."""
    if loop.device.type == "cpu":
        return _peak_in_child(loop, run)
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run(loop)
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def _peak_in_child(loop: Loop, run: Run) -> int:
    """Do it in a process of its own, after a short loop: torch's allocator keeps what it once had."""
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        run(Loop(loop.points, 4, loop.device))
        before = _status("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")
        run(loop)
        os.write(write, str(_status("VmHWM") - before).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as told:
        found = told.read()
    os.waitpid(child, 0)
    return int(found)


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


class Ours:
    """`checkpointed` within what is allowed of the device, all told, and any amount of what lies below."""

    def __init__(self, loop: Loop, allowed: int, more: dict[str, str]) -> None:
        self.results: list[Any] = []
        self._first = "device" if loop.device.type == "cuda" else "host"
        self._more = more
        least = 5 * 4 * loop.points**2  # two states and a bit
        self.budget, self.peak = max(least, allowed // 2), 0
        for _ in range(4):  # until what comes on top of the budget is known
            self.peak = peak_bytes(loop, self) + self._beside()
            left = allowed - self.peak
            if 0 <= left < allowed // 20:
                break
            self.budget = max(least, self.budget + int(left * (0.95 if left > 0 else 1.1)))
        else:
            self.peak = peak_bytes(loop, self) + self._beside()

    def __call__(self, loop: Loop) -> tuple[torch.Tensor, ...]:
        """Run the loop."""
        return loop.ours(fb.Budget(**{self._first: self.budget} | self._more), self.results)

    def _beside(self) -> int:
        """Give what the engine takes on the device, which torch's allocator does not see: snapshots and a state."""
        if self._first == "host":
            return 0
        plan = self.results[-1].plan
        return int(plan.peak_bytes["device"] + plan.state_bytes)


def timed(loop: Loop, run: Run) -> tuple[float, tuple[torch.Tensor, ...]]:
    """Give the time of a run, and the gradients."""
    start = perf_counter()
    got = run(loop)
    if loop.device.type == "cuda":
        torch.cuda.synchronize()
    return perf_counter() - start, got


def ways(steps: int, few: bool) -> dict[str, Run]:
    """Name the ways that are compared with ours, the one in memory first."""
    root, third = steps**0.5, steps ** (1 / 3)
    found: dict[str, Run] = {"in memory": Loop.plain}
    for factor in (1.4,) if few else (0.7, 1, 1.4, 2, 2.8):
        count = round(root * factor)
        found[f"segments {count}"] = lambda loop, count=count: loop.segments(count)  # type: ignore[misc]
    for factor in (1,) if few else (0.7, 1, 1.3):
        counts = round(third * factor), round(third)
        found[f"segments {counts[0]} x {counts[1]}"] = lambda loop, counts=counts: loop.segments(*counts)  # type: ignore[misc]
    for factor in (2,) if few else (1.4, 2, 4):
        count = round(root * factor)
        way = f"segments {count}, states on the host"
        found[way] = lambda loop, count=count: loop.segments(count, on_host=True)  # type: ignore[misc]
    return found


def ours_within(loop: Loop, allowed: int) -> Iterator[tuple[str, "Ours"]]:
    """Give `checkpointed` with each tier below that there is."""
    below = {"checkpointed, device alone": {}, "checkpointed, device and host": {"host": "64GB"}}
    for way, more in below.items() if loop.device.type == "cuda" else (("checkpointed, host alone", {}),):
        try:
            yield way, Ours(loop, allowed, more)
        except fb.ForebayError as error:
            console.print(f"{way}: {error}")


def compare(loop: Loop, few: bool, repeats: int, save: Callable[[list[Row], int], None]) -> tuple[list[Row], int]:
    """Measure memory and time of all ways, ours first."""
    (first, plain), *others = ways(loop.steps, few).items()
    peak = peak_bytes(loop, plain)
    seconds, got = timed(loop, plain)
    wanted = [gradient.cpu() for gradient in got]
    del got
    allowed = peak // 50
    rows, runs = [Row(first, seconds, peak, False, True)], [plain]
    console.print(f"{first}: {seconds_to_text(seconds)}, {to_text(peak)}")
    for way, run in chain(ours_within(loop, allowed), others):
        peak = run.peak if isinstance(run, Ours) else peak_bytes(loop, run)
        seconds, got = timed(loop, run)
        equal = all(torch.equal(one.cpu(), other) for one, other in zip(got, wanted, strict=True))
        del got
        rows.append(Row(way, seconds, peak, peak <= allowed, equal))
        runs.append(run)
        console.print(f"{way}: {seconds_to_text(seconds)}, {to_text(peak)}, equal {equal}")
        save(rows, allowed)
    for turn in range(repeats):
        for row, run in zip(rows, runs, strict=True):
            if row.fits or row.way == first:
                row.seconds = min(row.seconds, timed(loop, run)[0])
            if isinstance(run, Ours):
                plan = run.results[-1].plan
                row.plan = f"{plan.schedule} of {plan.every} steps each, budget {to_text(run.budget)}"
                if turn == repeats - 1:
                    console.print(run.results[-1].explain(), highlight=False)
        save(rows, allowed)
    return rows, allowed


def show(rows: list[Row], allowed: int, title: str) -> None:
    table = Table("way", "seconds", "of in memory", "memory", "fits", "bit-equal", "plan")
    table.title = f"{title}; allowed {to_text(allowed)}"
    for row in rows:
        relative = f"{row.seconds / rows[0].seconds:.2f}"
        fits, equal = "yes" if row.fits else "no", "yes" if row.equal else "no"
        table.add_row(row.way, seconds_to_text(row.seconds), relative, to_text(row.peak), fits, equal, row.plan)
    console.print(table)
    fitting = [row for row in rows if row.fits]
    others = [row for row in fitting if row.way.startswith("segments")]
    for row in fitting:
        if others and row.way.startswith("checkpointed"):
            best = min(others, key=lambda row: row.seconds)
            console.print(f"{row.way}: {best.seconds / row.seconds:.2f} times as fast as {best.way}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=1536)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=3, help="rounds")
    parser.add_argument("--few", action="store_true", help="only some of the segments")
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loop = Loop(options.points, options.steps, device)
    if device.type == "cuda":
        Loop(options.points, 8, device).plain()
    else:
        torch.set_num_threads(1)  # children cannot use the threads of their parent
    name = torch.cuda.get_device_name() if device.type == "cuda" else "cpu"
    facts = {"device": name, "torch": torch.__version__, "date": str(date.today())} | vars(options)

    def save(rows: list[Row], allowed: int) -> None:
        """Write what there is so far: a run that is stopped leaves what it has measured."""
        OUT.parent.mkdir(exist_ok=True)
        found = {"allowed": allowed, "rows": [asdict(row) for row in rows]}
        OUT.write_text(json.dumps(facts | found, indent=2) + "\n")

    rows, allowed = compare(loop, options.few, options.repeats, save)
    show(rows, allowed, f"{loop.points}² points, {loop.steps} steps")


if __name__ == "__main__":
    main()
