"""Training steps under a half and a third of the memory they need: `fit` beside what PyTorch offers.

Parts: transformer, resnet, and resnet128, whose batch of 128 has the device rather than the host bind it.

Every time is the median of steps, forward and backward without an optimizer, after some that are not timed. Steps of
`fit` and of the best subset take turns with plain steps of a copy, whose parameters are part of the budgets and peaks
that plans tell, not of those in rows. For `fit` there are rounds, each with a plan of its own: the round of the median
speed is told, the speeds of all, those of the fastest step beside the fastest plain one, and those of ten steps in a
row, for which nobody waits one by one. On a CPU the networks are tiny and the figures mean nothing.
"""

import copy
import gc
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from harness import Report, arg, benchmark, median, seconds

from forebay import Budget
from forebay.errors import BudgetError

PARTS = (2, 3)
STEPS, TURNS, SERIES, ROUNDS = 10, 20, 5, 3
LARGE = {"transformer": {}, "resnet": {}, "resnet128": {"batch": 128}}
TINY = {
    "transformer": {"width": 32, "depth": 4, "batch": 2, "length": 16},
    "resnet": {"depths": (1, 1, 2, 1), "width": 4, "batch": 2, "size": 32},
}
"""What the networks are made with on a GPU, and on a CPU."""


class Device:
    """Where the steps run, and how they are timed."""

    def __init__(self, report: Report, tiny: bool) -> None:
        import torch

        from forebay.torch.fitting.planning import SETTLED_AFTER

        self.torch, self.report, self.gpu = torch, report, torch.cuda.is_available() and not tiny
        self.device, self.host = torch.device("cuda" if self.gpu else "cpu"), "48GB" if self.gpu else "1GB"
        self.rounds, self.repeats, self.turns = (1, 1, 1) if tiny else (ROUNDS, STEPS, TURNS)
        # A plan and its prediction stay by then, and clocks have come down as they do.
        self.warm = 2 if tiny else SETTLED_AFTER + 2
        if tiny:
            torch.set_num_threads(1)

    def net(self, name: str) -> Any:
        """Make a network and its input."""
        from cases import nets

        kind = name.removesuffix("128")
        return getattr(nets, kind)(self.device, **(LARGE[name] if self.gpu else TINY[kind]))

    def wait(self) -> None:
        """Wait for the device."""
        if self.gpu:
            self.torch.cuda.synchronize()

    def clear(self) -> None:
        """Give back what nothing uses of the device's memory."""
        if self.gpu:
            gc.collect()
            self.wait()
            self.torch.cuda.empty_cache()

    def step(self, model: Any, x: Any, around: Any = nullcontext) -> None:
        """Go forward and backward."""
        model.zero_grad(set_to_none=True)
        with around():
            loss = model(x).float().square().mean()
            loss.backward()

    def measured(self, model: Any, x: Any, steps: int, each: int = 1, around: Any = nullcontext) -> Any:
        """Return the seconds of steps, `each` of them in a row, and the peak bytes of the device."""
        self.wait()
        if self.gpu:
            self.torch.cuda.reset_peak_memory_stats()

        def series() -> None:
            for _ in range(each):
                self.step(model, x, around)
            self.wait()

        spent = [seconds(series) / each for _ in range(steps)]
        return spent, self.torch.cuda.max_memory_allocated() if self.gpu else 0

    def timed(self, model: Any, x: Any, steps: int | None = None, warm: int | None = None, around: Any = nullcontext):
        """Return the median seconds of a step after some, and the peak bytes."""
        for _ in range(self.warm if warm is None else warm):
            self.step(model, x, around)
        spent, peak = self.measured(model, x, steps or self.repeats, around=around)
        return median(spent), peak

    def row(self, net: str, what: str, budget: int, seconds: float, plain: float, peak: int, **more: Any) -> None:
        """Add a row; one above its budget says so."""
        above = {"ABOVE": "THE BUDGET"} if self.gpu and budget and peak > budget else {}
        about = {"net": net, "what": what, "budget": budget, "seconds": seconds, "plain": plain, "peak": peak}
        self.report.add(about | {"speed": plain / seconds} | above | more)


class Beside:
    """A copy of a model that is never fitted: plain steps, to take turns with those of the model."""

    def __init__(self, device: Device, model: Any, x: Any) -> None:
        model.zero_grad(set_to_none=True)
        self.on, self.x, memory = device, x, device.torch.cuda.memory_allocated
        before = memory() if device.gpu else 0
        self.plain = copy.deepcopy(model)
        self.nbytes = memory() - before if device.gpu else 0

    def in_turns(self, model: Any, turns: int | None = None, each: int = 1) -> dict[str, Any]:
        """Time plain steps and the model's one after the other; the first turn is not timed.

        Nobody waits for the device between `each` steps in a row, as in training.
        """
        count = (turns or self.on.turns) + 1
        taken = [self._turn(self.plain, each)[:1] + self._turn(model, each) for _ in range(count)]
        plain, own, peaks = zip(*taken, strict=True)
        plain, own = plain[1:], own[1:]
        medians = {"seconds": median(own), "plain": median(plain), "speed": median(plain) / median(own)}
        return medians | {"fastest": min(plain) / min(own), "peak": max(peaks)}

    def _turn(self, model: Any, each: int) -> tuple[float, int]:
        (taken,), peak = self.on.measured(model, self.x, 1, each)
        model.zero_grad(set_to_none=True)  # the other has no room for these
        return taken, peak - self.nbytes if self.on.gpu else 0


@contextmanager
def checkpointed(blocks: list[Any]) -> Iterator[None]:
    """Put blocks of a model under `torch.utils.checkpoint`."""
    from torch.utils.checkpoint import checkpoint

    for block in blocks:
        block.forward = lambda *args, call=block.forward: checkpoint(call, *args, use_reentrant=False)
    try:
        yield
    finally:
        for block in blocks:
            del block.forward


def subset(blocks: list[Any], count: int, way: str) -> Any:
    """Pick `count` blocks as people do: the first ones, or one every so many."""
    if way == "spread" and 0 < count < len(blocks):
        return checkpointed([blocks[number * len(blocks) // count] for number in range(count)])
    return checkpointed(blocks[:count])


def best_subset(model: Any, beside: Beside, blocks: list[Any], budget: int) -> Any:
    """Find the fewest blocks whose recomputation fits, by bisection, and time what fits; None where nothing does."""

    def peak(count: int, way: str) -> int:
        with subset(blocks, count, way):
            return beside.in_turns(model, 1)["peak"]

    best = None
    for way in ("first", "spread"):
        low, high = 0, len(blocks)
        if peak(high, way) > budget:
            return None
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if peak(middle, way) <= budget else (middle + 1, high)
        with subset(blocks, low, way):
            turns = beside.in_turns(model)
        if turns["peak"] <= budget and (best is None or turns["speed"] > best["speed"]):
            best = turns | {"note": f"{low} of {len(blocks)} ({way})"}
    return best


def compare(on: Device, net: str) -> None:
    from cases.nets import Block
    from torch.autograd.graph import save_on_cpu

    from forebay.torch.fitting.blocks import named

    model, x = on.net(net)
    blocks = [module for _, module in named(model, None)]
    plain, need = on.timed(model, x)
    with checkpointed(blocks):
        every, least = on.timed(model, x)
    pinned, low = on.timed(model, x, 3, 1, lambda: save_on_cpu(pin_memory=on.gpu))
    on.clear()  # the pinned memory that it leaves behind is torch's
    on.row(net, "plain", 0, plain, plain, need, blocks=len(blocks))
    on.row(net, "save_on_cpu", 0, pinned, plain, low)
    on.row(net, "checkpoint on all", 0, every, plain, least)
    beside = Beside(on, model, x)
    for part in PARTS:
        budget = need // part if on.gpu else 10**9
        picked = best_subset(model, beside, blocks, budget) if on.gpu else None
        if picked:
            on.row(net, f"1/{part}: best subset", budget, **picked)
        on.clear()
        wholes = [name for name, module in model.named_modules() if isinstance(module, Block)]
        ways = {"fit": None} | ({"fit, whole blocks": wholes} if wholes else {})
        for way, inside in ways.items():
            fitted(on, net, f"1/{part}: {way}", model, beside, inside, budget)


def fitted(on: Device, net: str, what: str, model: Any, beside: Beside, names: Any, budget: int) -> None:
    from forebay.torch import fit, plan_of, unfit

    rounds = []
    for _ in range(on.rounds):
        fit(model, Budget(device=budget + beside.nbytes, host=on.host), blocks=names)
        try:
            for _ in range(on.warm):
                on.step(model, beside.x)
            turns, series = beside.in_turns(model), beside.in_turns(model, min(SERIES, on.turns), on.repeats)
            rounds.append((turns, series, plan_of(model)))
        except (BudgetError, on.torch.OutOfMemoryError) as error:
            on.report.say(f"{net} {what}: {error}")
            return
        finally:
            unfit(model)
            model.zero_grad(set_to_none=True)
            on.clear()
    middle, _, plan = sorted(rounds, key=lambda one: one[0]["speed"])[on.rounds // 2]
    peak = max(turns["peak"] for one in rounds for turns in one[:2])
    figures = {
        "predicted": plan.seconds,
        "predicted_over": plan.seconds / middle["seconds"],
        "predicted_peak": plan.foreseen.peak - beside.nbytes,
        "speeds": [turns["speed"] for turns, _, _ in rounds],
        "fastest": [turns["fastest"] for turns, _, _ in rounds],
        "in_a_row": [series["speed"] for _, series, _ in rounds],
    }
    on.row(net, what, budget, middle["seconds"], middle["plain"], peak, **figures)
    on.report.say(plan.explain())


@benchmark(arg("parts", nargs="*", default=["transformer", "resnet"], tiny=["resnet"]), needs=("torch",))
def main(asked: Any, report: Report) -> None:
    on = Device(report, asked.tiny)
    backends = on.torch.backends
    backends.cuda.matmul.allow_tf32 = backends.cudnn.allow_tf32 = True
    for name in asked.parts:
        on.clear()
        on.torch.manual_seed(0)
        try:
            compare(on, name)
        except Exception as error:  # the others are still worth their time
            traceback.print_exc()
            report.fail(f"{name}: {error!r}")
    report.table("training steps", "net what seconds:s speed:.3f peak:B budget:B predicted_over:.3f")


if __name__ == "__main__":
    main()
