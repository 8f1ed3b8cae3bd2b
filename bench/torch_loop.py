"""A differentiable wave loop in plain PyTorch: in memory, in segments of `torch.utils.checkpoint`, and `checkpointed`.

The loop is a damped 2-D wave whose speed and damping have gradients, heard by receivers. A fiftieth of the memory that
it takes in memory, as measured, is what all others may take: segments of many sizes, segments in segments, segments
whose states autograd's `save_on_cpu` moves to the host, and `checkpointed` on the device alone and with the host below
it. Those that fit, and the run in memory, are timed in rounds, and the best time of each counts: such loops are bound
by a host, whose speed changes with the seconds. The others are timed once. Gradients are compared bit by bit.

Memory is what torch's allocator had at most, and what the engine takes beside it, above what is there before the loop.
On a CPU it is what the process had at most, which means little: there this only shows that all ways work.
"""

import gc
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Any

from harness import Report, arg, benchmark, high_water, reset_high_water

import forebay as fb
from forebay.units import to_text

Run = Callable[["Loop"], tuple[Any, ...]]


class Loop:
    """The loop and its parameters."""

    def __init__(self, points: int, steps: int, device: Any) -> None:
        import torch

        self.torch, self.points, self.steps, self.device = torch, points, steps, device
        self.gpu = device.type == "cuda"
        axis = torch.linspace(-1, 1, points, device=device)
        self.speed = (0.3 + 0.1 * torch.sin(5 * axis)[:, None] * torch.cos(3 * axis)).requires_grad_()
        self.damping = torch.full((points, points), 1e-3, device=device).requires_grad_()
        self.start = torch.exp(-400 * (axis[:, None] ** 2 + axis**2)).requires_grad_()

    def params(self) -> tuple[Any, ...]:
        """Return what every step needs, computed anew so that it has a history."""
        return 2 - self.damping, 1 - self.damping, self.speed**2

    def step(self, state: Any, t: int, now: Any, before: Any, squared: Any) -> tuple[Any, Any]:
        """Advance a step, and hear it."""
        p, p_old = state
        around = self.torch.nn.functional.pad(p, (1, 1, 1, 1))
        neighbours = around[2:, 1:-1] + around[:-2, 1:-1] + around[1:-1, 2:] + around[1:-1, :-2]
        laplacian = neighbours - 4 * p
        new = now * p - before * p_old + squared * laplacian
        return (new, p), new[self.points // 8, ::8]

    def gradients(self, traces: Any) -> tuple[Any, ...]:
        """Go back from a misfit."""
        return self.torch.autograd.grad(traces.square().sum(), (self.speed, self.damping, self.start))

    def plain(self) -> tuple[Any, ...]:
        """Have autograd keep everything."""
        state, traces, params = (self.start, self.start), [], self.params()
        for t in range(self.steps):
            state, trace = self.step(state, t, *params)
            traces.append(trace)
        return self.gradients(self.torch.stack(traces))

    def segments(self, counts: tuple[int, ...], on_host: bool = False) -> tuple[Any, ...]:
        """Cut the loop into so many segments, each of them into so many, and so on; only the first states are kept."""
        from torch.utils.checkpoint import checkpoint

        params = self.params()

        def span(p: Any, p_old: Any, start: int, stop: int, counts: tuple[int, ...]) -> Any:
            state, traces = (p, p_old), []
            if not counts:
                for t in range(start, stop):
                    state, trace = self.step(state, t, *params)
                    traces.append(trace)
                return *state, self.torch.stack(traces)
            length = -(-(stop - start) // counts[0])
            for first in range(start, stop, length):
                last = min(first + length, stop)
                *state, trace = checkpoint(span, *state, first, last, counts[1:], use_reentrant=False)
                traces.append(trace)
            return *state, self.torch.cat(traces)

        if not on_host:
            return self.gradients(span(self.start, self.start, 0, self.steps, counts)[2])
        # The hook is asked for what the outermost segments save: their first states.
        with self.torch.autograd.graph.save_on_cpu(pin_memory=self.gpu):
            traces = span(self.start, self.start, 0, self.steps, counts)[2]
        return self.gradients(traces)


def peak_bytes(loop: Loop, run: Run) -> int:
    """Run something and return what it took at most, above what was taken before."""
    gc.collect()
    if not loop.gpu:
        before = high_water(what="VmRSS")
        reset_high_water()
        run(loop)
        return high_water() - before
    cuda = loop.torch.cuda
    cuda.synchronize()
    cuda.reset_peak_memory_stats()
    before = cuda.memory_allocated()
    run(loop)
    cuda.synchronize()
    return cuda.max_memory_allocated() - before


class Ours:
    """`checkpointed` within what is allowed of the device, all told, and any amount of what lies below."""

    def __init__(self, loop: Loop, allowed: int, more: dict[str, str]) -> None:
        self.results: list[Any] = []
        self._first, self._more = "device" if loop.gpu else "host", more
        least = 5 * 4 * loop.points**2  # two states and a bit
        self.budget, self.peak = max(least, allowed // 2), 0
        for attempt in range(5):  # until what comes on top of the budget is known
            self.peak = peak_bytes(loop, self) + self._beside()
            left = allowed - self.peak
            if 0 <= left < allowed // 20 or attempt == 4:
                break
            self.budget = max(least, self.budget + int(left * (0.95 if left > 0 else 1.1)))

    def __call__(self, loop: Loop) -> tuple[Any, ...]:
        """Run the loop within the budget."""
        from forebay.torch import checkpointed

        budget = fb.Budget(**{self._first: self.budget} | self._more)
        how = {"params": loop.params(), "outputs": True, "budget": budget, "report": self.results.append}
        _, traces = checkpointed(loop.step, (loop.start, loop.start), loop.steps, **how)
        return loop.gradients(traces)

    def _beside(self) -> int:
        """Return what the engine takes on the device, which torch's allocator does not see: snapshots and a state."""
        if self._first == "host":
            return 0
        plan = self.results[-1].plan
        return int(plan.peak_bytes["device"] + plan.state_bytes)


def ways(steps: int, few: bool) -> Iterator[tuple[str, Run]]:
    """Name the ways that are compared with ours."""
    root, third = steps**0.5, steps ** (1 / 3)
    counts = [(round(root * factor),) for factor in ((1.4,) if few else (0.7, 1, 1.4, 2, 2.8))]
    counts += [(round(third * factor), round(third)) for factor in ((1,) if few else (0.7, 1, 1.3))]
    for several in counts:
        yield f"segments {' x '.join(map(str, several))}", partial(Loop.segments, counts=several)
    for factor in (2,) if few else (1.4, 2, 4):
        count = round(root * factor)
        yield f"segments {count}, states on the host", partial(Loop.segments, counts=(count,), on_host=True)


def ours_within(loop: Loop, allowed: int, report: Report) -> Iterator[tuple[str, Run]]:
    """Yield `checkpointed` with each tier below that there is."""
    below = {"checkpointed, device alone": {}, "checkpointed, device and host": {"host": "64GB"}}
    for way, more in below.items() if loop.gpu else (("checkpointed, host alone", {}),):
        try:
            yield way, Ours(loop, allowed, more)
        except fb.ForebayError as error:
            report.say(f"{way}: {error}")


def timed(loop: Loop, run: Run) -> tuple[float, tuple[Any, ...]]:
    """Return the time of a run, and the gradients."""
    start = time.perf_counter()
    gradients = run(loop)
    if loop.gpu:
        loop.torch.cuda.synchronize()
    return time.perf_counter() - start, gradients


@benchmark(
    arg("--points", type=int, default=1536, tiny=32),
    arg("--steps", type=int, default=2000, tiny=40),
    arg("--repeats", type=int, default=3, tiny=1, help="rounds"),
    needs=("torch",),
)
def main(asked: Any, report: Report) -> None:
    import torch

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    Loop(asked.points, 8, device).plain()
    gc.freeze()  # what was imported is not looked through again before every measurement
    loop = Loop(asked.points, asked.steps, device)
    peak = peak_bytes(loop, Loop.plain)
    taken, got = timed(loop, Loop.plain)
    wanted = [gradient.cpu() for gradient in got]
    del got
    allowed = report.facts["allowed"] = peak // 50
    runs: list[Run] = [Loop.plain]
    report.add({"way": "in memory", "seconds": taken, "peak": peak, "fits": False, "equal": True})
    for way, run in chain(ours_within(loop, allowed, report), ways(loop.steps, few=asked.tiny)):
        peak = run.peak if isinstance(run, Ours) else peak_bytes(loop, run)
        taken, got = timed(loop, run)
        equal = all(torch.equal(gradient.cpu(), exact) for gradient, exact in zip(got, wanted, strict=True))
        del got
        runs.append(run)
        report.add({"way": way, "seconds": taken, "peak": peak, "fits": peak <= allowed, "equal": equal})
        if not equal and isinstance(run, Ours):
            report.fail(f"{way}: its gradients are not those in memory")
    for _ in range(asked.repeats):
        for row, run in zip(report.rows, runs, strict=True):
            if row["fits"] or row["way"] == "in memory":
                row["seconds"] = min(row["seconds"], timed(loop, run)[0])
            if isinstance(run, Ours):
                plan = run.results[-1].plan
                row["plan"] = f"{plan.schedule} of {plan.every} steps each, budget {to_text(run.budget)}"
        report.write()
    best = min((row["seconds"] for row in report.rows if row["fits"] and "segments" in row["way"]), default=None)
    for row in report.rows:
        row["of_in_memory"] = row["seconds"] / report.rows[0]["seconds"]
        row["times_best_segments"] = best / row["seconds"] if best else None
    title = f"{loop.points}² points, {loop.steps} steps; allowed {to_text(allowed)}"
    report.table(title, "way seconds:s of_in_memory:.2f times_best_segments:.2f peak:B fits equal plan")


if __name__ == "__main__":
    main()
